//! The figures of each agent, collected report by report.
//!
//! Where: `course` adds the tallies that agents send.
//! Invariant: a report counts, in the agents' figures and in the total, only if all agents sent it
//! or if the run has no other report.

use crate::measure::process::ProcessUse;
use crate::measure::schedule::MergedTally;
use crate::measure::verdict::Remark;
use crate::measure::watch::Usage;
use crate::measure::{Interval, Tally};
use crate::result::AgentPart;

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) agent: usize,
    /// The share of time in which the agent's busiest thread was on a CPU.
    pub(crate) busiest: f64,
    pub(crate) usage: Usage,
    pub(crate) seconds: f64,
}

/// Holds each agent's figures of an epoch until the epoch is complete; then adds them to `merged`.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Parts not yet assigned to an epoch of the schedule, each with the threads' epoch number.
    kept: Vec<(u32, Tally, Part)>,
    open: Vec<(u32, Tally, Part)>,
    here: String,
    hosts: Vec<String>,
    pub(super) merged: Vec<Option<Interval>>,
}

impl Parts {
    /// Returns no parts yet, for the agents on these hosts.
    pub(crate) fn new(hosts: Vec<String>) -> Parts {
        let (kept, open, merged) = (Vec::new(), Vec::new(), vec![None; hosts.len()]);
        Parts { kept, open, here: this_host(), hosts, merged }
    }

    pub(crate) fn keep(&mut self, number: u32, tally: Tally, part: Part) {
        if part.agent < self.merged.len() {
            self.kept.push((number, tally, part));
        }
    }

    /// Assigns the parts with the threads' epoch number `number` to `epoch` of the schedule.
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
            whole.usage = whole.usage.merged_with(whole.seconds, &part.usage, part.seconds);
            let all = (whole.seconds + part.seconds).max(f64::MIN_POSITIVE);
            whole.busiest = (whole.busiest * whole.seconds + part.busiest * part.seconds) / all;
            whole.seconds = all;
        }
    }

    /// Adds the complete `epoch` to `merged`, and combines the agents' `busiest` and usage. `span`
    /// is the epoch's start, length and usage; `None` after the last report.
    pub(crate) fn add(
        &mut self,
        (epoch, whole): (u32, &mut MergedTally),
        span: Option<(f64, f64, &mut Usage)>,
    ) {
        let here: Vec<_> = self.open.extract_if(.., |(of, ..)| *of == epoch).collect();
        if here.is_empty() {
            return;
        }
        let parts = || here.iter().map(|(.., part)| part);
        whole.busiest = parts().map(|part| part.busiest).fold(whole.busiest, f64::max);
        let Some((from_s, seconds, usage)) = span else {
            // After the last report, only requests that were given up are counted.
            for (_, tally, part) in &here {
                let merged = self.merged[part.agent].iter_mut();
                merged.for_each(|merged| merged.tally.give_up(tally));
            }
            return;
        };
        let clients: Option<Vec<ProcessUse>> = parts().map(|part| part.usage.client).collect();
        let sum = |all: Vec<ProcessUse>| all.into_iter().reduce(|one, two| one.plus(&two));
        usage.client = clients.and_then(sum);
        // Server CPU time is added once per host, because its agents measure the same servers.
        let mut hosts: Vec<&str> = usage.server.iter().map(|_| self.here.as_str()).collect();
        for Part { agent, usage: theirs, .. } in parts() {
            let (host, Some(server)) = (&self.hosts[*agent], theirs.server) else { continue };
            if hosts.contains(&host.as_str()) {
                continue;
            }
            if hosts.is_empty() {
                usage.machine.clone_from(&theirs.machine);
            }
            hosts.push(host);
            usage.server = Some(usage.server.map_or(server, |sum| sum.plus(&server)));
        }
        for (_, tally, Part { agent, busiest, usage, .. }) in here {
            let one = Interval::new(MergedTally { tally, busiest }, from_s, seconds, usage);
            let merged = &mut self.merged[agent];
            let both: Vec<Interval> = merged.take().into_iter().chain([one]).collect();
            *merged = Interval::merged(&both);
        }
    }
}

/// The kernel's boot id, which all containers of a host share; empty if it cannot be read.
pub(super) fn this_host() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

pub(crate) fn faults(parts: &[AgentPart]) -> impl Iterator<Item = Remark> {
    (1..).zip(parts).filter_map(|(number, part): (u32, &AgentPart)| {
        let fault = part.verdict.generator_fault()?;
        let sentence = format!("agent {number} ({}): {}", part.name, fault.sentence);
        Some(Remark { sentence, ..fault.clone() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_counted_once_a_host_and_hosts_add_up() {
        let hosts = || ["there", "there", "elsewhere", "here"].map(str::to_owned).into();
        let server = |cpu_s| Some(ProcessUse { cpu_s, ..ProcessUse::default() });
        for (seen_here, cpu_s) in [(None, 1.0 + 4.0 + 8.0), (server(16.0), 16.0 + 1.0 + 4.0)] {
            let mut parts = Parts {
                here: "here".to_owned(),
                hosts: hosts(),
                merged: vec![None; 4],
                ..Parts::new(Vec::new())
            };
            for (agent, cpu_s) in [1.0, 2.0, 4.0, 8.0].into_iter().enumerate() {
                let usage = Usage { server: server(cpu_s), ..Usage::default() };
                let part = Part { agent, busiest: 0.0, usage, seconds: 1.0 };
                parts.keep(0, Tally::default(), part);
            }
            parts.number(0, 0);
            let mut usage = Usage { server: seen_here, ..Usage::default() };
            parts.add((0, &mut MergedTally::default()), Some((0.0, 1.0, &mut usage)));
            assert_eq!(usage.server.unwrap().cpu_s, cpu_s);
        }
        assert_eq!(this_host().len(), 36, "{}", this_host());
    }
}
