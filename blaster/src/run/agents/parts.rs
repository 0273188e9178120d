//! What each agent did, put together report by report.
//!
//! Where: `course` gives it what agents hand over. Invariant: a report that not all agents handed
//! over is in no part and not in the whole, unless it is the only one.

use super::Agents;
use crate::measure::check::Remark;
use crate::measure::process::ProcessUse;
use crate::measure::schedule::Merged;
use crate::measure::watch::{Usage, beside};
use crate::measure::{Interval, Tally};
use crate::result::agent::AgentPart;
use crate::run::crew::Hands;

/// What an agent says of an epoch beside its tally.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) agent: usize,
    /// The share of its time that its busiest thread was on a CPU.
    pub(crate) busiest: f64,
    /// What was taken of its machine.
    pub(crate) usage: Usage,
    /// How long it took there.
    pub(crate) seconds: f64,
}

/// Parts of epochs, and of all reports.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By the numbers that threads count.
    kept: Vec<(u32, Tally, Part)>,
    /// Of epochs that are not added yet.
    open: Vec<(u32, Tally, Part)>,
    pub(super) merged: Vec<Option<Interval>>,
}

impl Parts {
    pub(crate) fn new(agents: Option<&Agents>) -> Parts {
        let count = agents.map_or(0, |agents| agents.reporters());
        Parts { kept: Vec::new(), open: Vec::new(), merged: vec![None; count as usize] }
    }

    /// Keeps a part until its epoch is known and added.
    pub(crate) fn keep(&mut self, number: u32, tally: Tally, part: Part) {
        if part.agent < self.merged.len() {
            self.kept.push((number, tally, part));
        }
    }

    /// What threads know by this number is a part of that epoch.
    pub(crate) fn number(&mut self, number: u32, epoch: u32) {
        for (_, tally, part) in self.kept.extract_if(.., |(of, ..)| *of == number) {
            let is_same = |(of, _, other): &&mut (u32, Tally, Part)| {
                *of == epoch && other.agent == part.agent
            };
            let Some((_, sum, whole)) = self.open.iter_mut().find(is_same) else {
                self.open.push((epoch, tally, part));
                continue;
            };
            sum.merge(&tally);
            whole.usage = whole.usage.and(whole.seconds, &part.usage, part.seconds);
            let all = (whole.seconds + part.seconds).max(f64::MIN_POSITIVE);
            whole.busiest = (whole.busiest * whole.seconds + part.busiest * part.seconds) / all;
            whole.seconds = all;
        }
    }

    /// Adds a whole epoch, of such a length if that is known, to the parts, and has it tell of all
    /// agents' threads and processes.
    pub(crate) fn add(
        &mut self,
        (epoch, whole): (u32, &mut Merged),
        span: Option<(f64, f64, &mut Usage)>,
    ) {
        let here: Vec<_> = self.open.extract_if(.., |(of, ..)| *of == epoch).collect();
        if here.is_empty() {
            return;
        }
        let parts = || here.iter().map(|(.., part)| part);
        whole.busiest = parts().map(|part| part.busiest).fold(whole.busiest, f64::max);
        let Some((from_s, seconds, usage)) = span else {
            // After the last report.
            for (_, tally, part) in &here {
                let merged = self.merged[part.agent].iter_mut();
                merged.for_each(|merged| merged.tally.give_up(tally));
            }
            return;
        };
        let clients: Option<Vec<ProcessUse>> = parts().map(|part| part.usage.client).collect();
        let sum = |all: Vec<_>| all.into_iter().reduce(|one, two| beside(&one, &two));
        usage.client = clients.and_then(sum);
        if usage.server.is_none() {
            // Where the servers are is the machine that matters.
            let sees = parts().find(|part| part.usage.server.is_some());
            usage.server = sees.and_then(|part| part.usage.server);
            usage.machine = sees.and_then(|part| part.usage.machine.clone());
        }
        for (_, tally, Part { agent, busiest, usage, .. }) in here {
            let one = Interval::new(Merged { tally, busiest }, from_s, seconds, usage);
            let merged = &mut self.merged[agent];
            let both: Vec<Interval> = merged.take().into_iter().chain([one]).collect();
            *merged = Interval::merged(&both);
        }
    }
}

/// Which agents were the limit themselves, and why.
pub(crate) fn faults(parts: &[AgentPart]) -> impl Iterator<Item = Remark> {
    (1..).zip(parts).filter_map(|(number, part): (u32, &AgentPart)| {
        let fault = part.verdict.own_fault()?;
        let sentence = format!("agent {number} ({}): {}", part.name, fault.sentence);
        Some(Remark { sentence, ..fault.clone() })
    })
}
