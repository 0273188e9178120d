//! The judgement of a run: its verdict, its asserts and its exit status.
//!
//! Where: after the last report. Invariant: a run whose server went away or was silent is never
//! reported as good.

use super::agents::parts;
use super::context::RunContext;
use super::course::TrafficResult;
use super::plan::Plan;
use crate::flags::exit::Exit;
use crate::measure::Interval;
use crate::measure::check::{self, Loop};
use crate::measure::objective::{Judgement, Objective};
use crate::measure::steady;
use crate::measure::verdict::{NO_ANSWERS, Remark, Severity};
use crate::result::manifest::Manifest;
use crate::result::{RunResult, SCHEMA};

/// Name of the rule that servers answer in every report.
pub const SILENT: &str = "silent";

/// The rule `SILENT` is broken if reports without any answer last at least this many seconds in
/// total.
const SILENT_S: f64 = 1.0;

/// Name of the rule that each server is the same process at the end as at the beginning.
pub const GONE: &str = "server-gone";

/// Returns `NotMet` if the run ended early or a server went away. Otherwise returns `Invalid` if
/// there are asserts and the result is invalid. Otherwise returns `Met` if every assert holds, and
/// `NotMet` if an assert does not hold.
pub fn exit(done: &RunResult) -> Exit {
    let is_gone = [SILENT, GONE, NO_ANSWERS].iter().any(|rule| done.verdict.has(rule));
    let is_met = done.judgements.iter().all(|one| one.is_met);
    if is_gone || done.is_interrupted {
        return Exit::NotMet;
    }
    match (done.judgements.is_empty(), done.verdict.is_valid()) {
        (false, false) => Exit::Invalid,
        _ if is_met => Exit::Met,
        _ => Exit::NotMet,
    }
}

pub(crate) fn changed_servers(context: &RunContext) -> Option<Remark> {
    let changed = context.changed();
    let sentence = changed.join("; ");
    let remark = Remark { rule: GONE.to_owned(), severity: Severity::Invalid, sentence };
    (!changed.is_empty()).then_some(remark)
}

pub(super) fn judged(plan: &Plan, manifest: Manifest, mut course: TrafficResult) -> RunResult {
    for one in &mut course.intervals {
        one.reflected_per_s = one.reflected_per_s.or(plan.reflected_per_s);
    }
    let driven = if plan.is_open() { Loop::Open } else { Loop::Closed };
    let merged = Interval::merged(&course.intervals);
    let judge = |objective: &Objective| {
        let nothing = Interval::default();
        objective.judge(merged.as_ref().unwrap_or(&nothing).judged())
    };
    let mut judgements: Vec<Judgement> = plan.asserts.iter().map(judge).collect();
    let mut verdict = check::check(&merged.clone().unwrap_or_default(), driven);
    let faults: Vec<Remark> = parts::faults(&course.agents).collect();
    // An agent's remark names the agent, so merged remarks of the same rule are removed.
    verdict.remarks.retain(|one| faults.iter().all(|fault| fault.rule != one.rule));
    verdict.remarks.extend(faults);
    verdict.remarks.extend(steady::remark(&course.intervals, plan.has_steady_rate()));
    if let Some(why) = &course.cut_short {
        let sentence = format!("the run ended before the end of its schedule: {why}");
        verdict.add("cut-short", Severity::Warning, sentence);
    }
    if let Some((severity, message)) = course.lost {
        verdict.add("agent-lost", severity, message.to_owned());
    }
    let silent = || course.intervals.iter().filter(|one| one.achieved_per_s() <= 0.0);
    let (silent, silent_s) = (silent().count(), silent().map(|one| one.seconds).sum::<f64>());
    if silent_s >= SILENT_S && silent < course.intervals.len() {
        let sentence = format!(
            "no request was answered in {silent} of {} reports: the server went away or stalled",
            course.intervals.len()
        );
        verdict.add(SILENT, Severity::Invalid, sentence);
    }
    if let Some(message) = course.unsettled {
        verdict.add("not-warm", Severity::Warning, message);
    }
    let replaced = plan.workload.replaced_operations();
    if replaced > 0 {
        let sentence = format!(
            "kvblaster replaced {replaced} operations of the trace by similar operations, because \
             it cannot send the original ones"
        );
        verdict.add("replaced", Severity::Warning, sentence);
    }
    verdict.remarks.extend(course.gone);
    if plan.asserts_valid {
        judgements.push(Judgement::of_validity(&verdict));
    }
    RunResult {
        schema: SCHEMA,
        manifest,
        is_interrupted: course.cut_short.is_some(),
        verdict,
        judgements,
        merged,
        reports: course.intervals,
        agents: course.agents,
        search: None,
        left_behind: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::steady::UNSTEADY;
    use crate::run::flags;

    #[test]
    fn an_invalid_run_fails_where_something_is_asserted_and_one_without_its_server_always() {
        let judged = |is_met| Judgement {
            objective: String::new(),
            value: None,
            is_met,
            sentence: String::new(),
        };
        let exits = |rule: &str, judgements: &[Judgement]| {
            let mut done = RunResult { judgements: judgements.to_vec(), ..RunResult::default() };
            let severity = if rule.is_empty() { Severity::Warning } else { Severity::Invalid };
            done.verdict.add(rule, severity, String::new());
            exit(&done)
        };
        let (met, unmet) = ([judged(true)], [judged(true), judged(false)]);
        for gone in [SILENT, GONE, NO_ANSWERS] {
            assert_eq!([exits(gone, &[]), exits(gone, &met)], [Exit::NotMet; 2], "{gone}");
        }
        assert_eq!([exits("", &[]), exits("", &met)], [Exit::Met; 2]);
        assert_eq!(exits("", &unmet), Exit::NotMet);
        assert_eq!(exits("late-sends", &[]), Exit::Met);
        assert_eq!([&met[..], &unmet].map(|all| exits("late-sends", all)), [Exit::Invalid; 2]);
        assert_eq!(exit(&RunResult { is_interrupted: true, ..RunResult::default() }), Exit::NotMet);
    }

    #[test]
    fn that_the_result_is_valid_is_asserted_by_itself() {
        let plan = Plan { asserts_valid: true, ..*flags::plan(false).unwrap() };
        let course = TrafficResult {
            intervals: vec![Interval { seconds: 1.0, ..Interval::default() }],
            ..TrafficResult::default()
        };
        let done = judged(&plan, Manifest::default(), course);
        let [valid] = &done.judgements[..] else { panic!("{:?}", done.judgements) };
        assert!(!valid.is_met && valid.sentence.starts_with("valid is not met: no request was"));
    }

    #[test]
    fn reports_that_disagree_do_not_pass() {
        // The fourth report of the sample result has a stall.
        let mut course = TrafficResult {
            intervals: crate::result::sample::result("ours", 50).reports,
            ..TrafficResult::default()
        };
        let plan = flags::plan(false).unwrap();
        let steady = [&course.intervals[..3], &course.intervals[4..]].concat();
        let verdict = judged(&plan, Manifest::default(), course).verdict;
        assert!(verdict.has(UNSTEADY) && verdict.is_valid(), "{verdict:?}");
        course = TrafficResult { intervals: steady, ..TrafficResult::default() };
        assert!(!judged(&plan, Manifest::default(), course).verdict.has(UNSTEADY));
    }
}
