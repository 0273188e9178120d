//! The self-check: decides whether a result shows the server's limits or the generator's.
//!
//! Where: applied to the merged report, before any figure of the report is shown.
//! Invariant: a verdict depends only on the thresholds below. An unknown figure, such as the CPU
//! use of a server on another machine, leads to no remark. Slow answers alone never put the blame
//! on the generator, because a server that sleeps is slow with any generator.
//! Source: published benchmarks in which the client was the limit: its CPU was 81 to 91 % busy.

mod packet_path;

use super::interval::{ACHIEVED_SHARE_MIN, Interval};
use super::verdict::{GENERATOR_BOUND, LATE_SENDS, NO_ANSWERS, Remark, Severity, Verdict};
use crate::words::{grouped, time, whole};

/// Lateness of up to this number of nanoseconds is blamed on imprecise timers.
pub const LATENESS_NS_MIN: f64 = 50_000.0;
/// The generator is blamed for lateness of more than this share of the response time.
pub const LATENESS_SHARE_MAX: f64 = 0.1;
/// A thread counts as full if it is on its CPU for more than this share of the time.
pub const THREAD_BUSY_MAX: f64 = 0.95;
/// A thread counts as idle if it is on its CPU for less than this share of the time.
pub const THREAD_IDLE_MAX: f64 = 0.5;
/// The rule `held-back` applies if more than this share of the requests was not sent when due.
pub const HELD_BACK_SHARE_MAX: f64 = 0.01;
/// Lateness is judged only if at least this share of the requests was not held back.
pub const JUDGED_SHARE_MIN: f64 = 0.1;
/// A server counts as idle if it uses less than this number of CPUs.
pub const SERVER_IDLE_CPUS_MAX: f64 = 0.5;
/// A machine counts as full if less than this share of its CPU time is idle.
pub const MACHINE_IDLE_MIN: f64 = 0.05;
/// A process is disturbed if it waits for more than this share of the time that it needs a CPU.
pub const WAITING_SHARE_MAX: f64 = 0.1;
/// A virtual machine is disturbed if others take more than this share of its CPU time.
pub const STEAL_MAX: f64 = 0.05;
/// A result is invalid if a null server's rate is less than this many times the measured rate.
pub const HEADROOM_MIN: f64 = 1.2;
/// With fewer answers, fewer than ten exceed the 99.9th percentile, which is then unreliable.
pub const ANSWERS_MIN: u64 = 10_000;

/// The kind of loop that drove the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Requests follow a schedule.
    Open,
    /// Each answer lets the client send another request.
    Closed,
}

/// Applies all rules to a report.
pub fn check(interval: &Interval, driven: Loop) -> Verdict {
    let facts = Facts::new(interval);
    let mut verdict = Verdict::default();
    if facts.answered == 0 {
        let sentence = "no request was answered: check that the server is running, and that \
                        --protocol names its protocol";
        verdict.add(NO_ANSWERS, Severity::Invalid, sentence.to_owned());
        return verdict;
    }
    match driven {
        Loop::Open => open(&facts, &mut verdict),
        Loop::Closed => closed(&facts, &mut verdict),
    }
    verdict.remarks.extend(generator_bound(interval));
    machine(&facts, interval, &mut verdict);
    packet_path::check(interval, &mut verdict);
    verdict
}

/// Returns a remark if a null server's rate is below `HEADROOM_MIN` times the measured rate.
pub(crate) fn generator_bound(interval: &Interval) -> Option<Remark> {
    let headroom = interval.headroom().filter(|headroom| *headroom < HEADROOM_MIN)?;
    let sentence = format!(
        "generator-bound: against a null server, which does no work, this generator reaches {:.0} \
         requests a second, which is {headroom:.2} times the rate of the measured server. Below \
         {HEADROOM_MIN} times, the generator may be the limit. Give the generator more threads or \
         machines",
        interval.reflected_per_s.unwrap_or(0.0)
    );
    Some(Remark { rule: GENERATOR_BOUND.to_owned(), severity: Severity::Invalid, sentence })
}

struct Facts {
    answered: u64,
    /// Number of due requests that no connection accepted.
    unsent: u64,
    /// The requested rate, if the rate of due requests was lower.
    not_offered: Option<f64>,
    offered_per_s: f64,
    achieved_per_s: f64,
    /// The 99th percentile of the lateness of the requests that were not held back.
    lateness_ns: f64,
    response_ns: f64,
    held_back: f64,
    busiest: f64,
    /// Number of CPUs that the server uses or waits for: a server that waits for a CPU is not idle.
    server_cpus: Option<f64>,
    machine_idle: Option<f64>,
}

impl Facts {
    fn new(interval: &Interval) -> Facts {
        let total = interval.tally.total();
        let offered = interval.tally.offered.saturating_sub(total.unsent).max(total.sent).max(1);
        let held_back = (interval.tally.held_back as f64 / offered as f64).min(1.0);
        let at = |times: &super::Times, quantile: f64| {
            times.quantile_ns(quantile).map_or(0.0, |ns| ns as f64)
        };
        Facts {
            answered: total.answered,
            unsent: total.unsent,
            not_offered: interval.asked_per_s.filter(|_| !interval.is_offered_in_full()),
            offered_per_s: interval.offered_per_s(),
            achieved_per_s: interval.achieved_per_s(),
            // Only requests that were not held back are judged, if enough requests were not held
            // back.
            lateness_ns: match 1.0 - held_back {
                rest if rest < JUDGED_SHARE_MIN => 0.0,
                rest => at(&interval.tally.lateness_ns, 0.99 * rest),
            },
            response_ns: at(&total.response_ns, 0.99),
            held_back,
            busiest: interval.busiest,
            server_cpus: interval
                .usage
                .server
                .map(|server| server.cpus() + server.waiting_cpus.unwrap_or(0.0)),
            machine_idle: interval.usage.machine.as_ref().map(|cpus| cpus.total.idle),
        }
    }

    fn falls_short(&self) -> bool {
        self.achieved_per_s < ACHIEVED_SHARE_MIN * self.offered_per_s
    }

    fn is_full(&self) -> bool {
        self.busiest > THREAD_BUSY_MAX
    }

    fn idle_server(&self) -> Option<f64> {
        self.server_cpus.filter(|cpus| *cpus < SERVER_IDLE_CPUS_MAX)
    }
}

fn open(facts: &Facts, verdict: &mut Verdict) {
    let is_held_back = facts.held_back > HELD_BACK_SHARE_MAX;
    // While a request is held back, no later request is drawn, so fewer requests fall due. The
    // generator is not to blame for the missing requests.
    if let Some(asked) = facts.not_offered.filter(|_| !is_held_back) {
        let sentence = format!(
            "the generator made only {:.0} requests a second, although {asked:.0} a second were \
             due: give the generator more threads",
            facts.offered_per_s
        );
        verdict.add("not-offered", Severity::Invalid, sentence);
    }
    let late = facts.lateness_ns > LATENESS_NS_MIN.max(LATENESS_SHARE_MAX * facts.response_ns);
    if late {
        let sentence = format!(
            "one request in a hundred was sent at least {} late, and one response in a \
             hundred took at least {}: the generator's own delay is part of the figures. Give \
             the generator more threads, or a machine of its own",
            time(whole(facts.lateness_ns)),
            time(whole(facts.response_ns))
        );
        verdict.add(LATE_SENDS, Severity::Invalid, sentence);
    }
    if facts.is_full() && (facts.falls_short() || late) {
        verdict.add("thread-full", Severity::Invalid, full(facts.busiest));
    }
    // If an earlier rule blames the generator, the generator is the reason why the server is idle.
    let is_to_blame = !verdict.is_valid();
    if is_held_back {
        let sentence = format!(
            "{:.1} % of the requests were sent after they were due, because a socket was full or \
             too many requests (--outstanding) were unanswered",
            100.0 * facts.held_back
        );
        let advice = match facts.idle_server().filter(|_| !is_to_blame) {
            Some(cpus) => format!(
                ", although the server kept only {cpus:.2} CPUs busy: the server waits for \
                 something other than a CPU, or needs more connections to be busy"
            ),
            None => ": the server, or the network to it, was too slow".to_owned(),
        };
        verdict.add("held-back", Severity::Warning, sentence + &advice);
    }
    let is_explained = is_to_blame || facts.unsent > 0;
    if let Some(cpus) = facts.idle_server().filter(|_| facts.falls_short() && !is_explained) {
        let sentence = format!(
            "only {:.0} of {:.0} requests a second were answered, although the server kept only \
             {cpus:.2} CPUs busy and the generator sent in time: the server waits for something \
             other than a CPU, or requests or answers are lost on the way",
            facts.achieved_per_s, facts.offered_per_s
        );
        verdict.add("server-idle", Severity::Warning, sentence);
    }
}

fn closed(facts: &Facts, verdict: &mut Verdict) {
    if facts.is_full() {
        verdict.add("thread-full", Severity::Invalid, full(facts.busiest));
    } else if let Some(cpus) = facts.idle_server().filter(|_| facts.busiest < THREAD_IDLE_MAX) {
        let sentence = format!(
            "the server kept only {cpus:.2} CPUs busy, and the generator's busiest thread was on \
             its CPU for {:.0} % of the time: the response time and the number of requests in \
             flight limit the rate. For a higher rate, use more --connections or a greater --depth",
            100.0 * facts.busiest
        );
        verdict.add("both-idle", Severity::Warning, sentence);
    }
}

fn full(busiest: f64) -> String {
    format!(
        "the busiest thread of the generator was on its CPU for {:.0} % of the time: the server \
         could do more. Give the generator more threads or machines",
        100.0 * busiest
    )
}

fn machine(facts: &Facts, interval: &Interval, verdict: &mut Verdict) {
    let warning = Severity::Warning;
    if facts.server_cpus.is_some() && facts.machine_idle.is_some_and(|i| i < MACHINE_IDLE_MIN) {
        let sentence = "the server and the generator share this machine, and its CPUs were hardly \
                        idle: each of the two slows down the other";
        verdict.add("machine-full", warning, sentence.to_owned());
    }
    for (name, used) in [("generator", interval.usage.client), ("server", interval.usage.server)] {
        let Some(waiting) = used.and_then(|used| used.waiting_cpus) else { continue };
        let share = waiting / (waiting + used.map_or(0.0, |used| used.cpus())).max(0.01);
        if share > WAITING_SHARE_MAX {
            let sentence = format!(
                "the {name} had to wait for a CPU for {:.0} % of the time in which it needed one: \
                 other programs run on the same machine, or the {name} has too many threads",
                100.0 * share
            );
            verdict.add(&format!("{name}-waited"), warning, sentence);
        }
    }
    let steal = interval.usage.machine.as_ref().map_or(0.0, |cpus| cpus.total.steal);
    if steal > STEAL_MAX {
        let sentence = format!(
            "{:.0} % of this virtual machine's CPU time went to other virtual machines: repeat \
             the run when the other virtual machines are quiet",
            100.0 * steal
        );
        verdict.add("steal", warning, sentence);
    }
    if facts.answered < ANSWERS_MIN {
        let sentence = format!(
            "{} answers are too few for a 99.9th percentile: measure longer",
            facts.answered
        );
        verdict.add("few-answers", warning, sentence);
    }
    connections(facts, interval, verdict);
    if interval.tally.broken > 0 {
        let sentence = format!(
            "the server's answers violated the protocol {} times: kvblaster closed these \
             connections or, over UDP, ignored these datagrams",
            interval.tally.broken
        );
        verdict.add("broken", warning, sentence);
    }
}

fn connections(facts: &Facts, interval: &Interval, verdict: &mut Verdict) {
    let tally = &interval.tally;
    if tally.failed_connections() > 0 {
        let sentence = format!(
            "{} connections were ended by the server, and {} attempts to connect failed: they \
             count as failures",
            grouped(tally.reset as f64),
            grouped(tally.refused as f64)
        );
        verdict.add("connections-failed", Severity::Warning, sentence);
    }
    if facts.unsent > 0 {
        let sentence = format!(
            "{} requests that were due were never sent, because no connection accepted them in \
             time: they count as failed, late and never answered",
            grouped(facts.unsent as f64)
        );
        verdict.add("never-sent", Severity::Warning, sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_a_null_servers_rate_it_is_the_generator_that_was_measured() {
        let mut interval = made(0, 100, 10_000);
        for (reflected, is_bound) in
            [(None, false), (Some(12_100.0), false), (Some(11_900.0), true)]
        {
            interval.reflected_per_s = reflected;
            for driven in [Loop::Open, Loop::Closed] {
                let verdict = check(&interval, driven);
                let fault = verdict.generator_fault().map(|fault| fault.rule.as_str());
                assert_eq!(fault, is_bound.then_some(GENERATOR_BOUND), "{reflected:?}");
                assert_eq!(verdict.is_valid(), !is_bound);
            }
        }
        let told = generator_bound(&interval).unwrap().sentence;
        assert!(told.contains("reaches 11900 requests") && told.contains("1.19 times"), "{told}");
    }
    use crate::measure::cpu::{Categories, CpuShares};
    use crate::measure::process::ProcessUse;
    use crate::workload::Verb;

    /// Returns a report of one second: 10,000 requests to a server that keeps one CPU busy.
    fn made(lateness_us: u64, service_us: u64, answered: u64) -> Interval {
        let mut interval = Interval { seconds: 1.0, busiest: 0.5, ..Interval::default() };
        interval.asked_per_s = Some(10_000.0);
        for request in 0..10_000 {
            interval.tally.offered += 1;
            let sent = lateness_us * 1000;
            interval.tally.sent(Verb::Get, 1, 0, sent);
            if request < answered {
                interval.tally.answered(Verb::Get, false, 0, sent, sent + service_us * 1000);
            }
        }
        let server = ProcessUse { usr_cpus: 1.0, ..ProcessUse::default() };
        interval.usage.server = Some(server);
        let total = Categories { usr: 0.75, idle: 0.25, ..Categories::default() };
        interval.usage.machine = Some(CpuShares { total, cores: Vec::new() });
        interval
    }

    fn rules(interval: &Interval, driven: Loop) -> Vec<(String, bool)> {
        let remarks = check(interval, driven).remarks.into_iter();
        remarks.map(|one| (one.rule, one.severity == Severity::Invalid)).collect()
    }

    fn one(rule: &str, is_invalid: bool) -> Vec<(String, bool)> {
        vec![(rule.to_owned(), is_invalid)]
    }

    #[test]
    fn a_clean_run_passes_and_so_does_one_whose_server_is_the_limit() {
        assert_eq!(rules(&made(2, 100, 10_000), Loop::Open), []);
        assert_eq!(rules(&made(2, 100, 10_000), Loop::Closed), []);
        // One missing answer is no fault, but 9,999 answers are too few for a 99.9th percentile.
        assert_eq!(rules(&made(2, 100, 9_999), Loop::Open), one("few-answers", false));
        // Half of the requests were held back.
        let mut slow = made(2, 100, 1_000);
        slow.tally.merge(&made(9_000, 10_000, 9_000).tally);
        slow.tally.held_back = 10_000;
        slow.asked_per_s = Some(40_000.0);
        assert_eq!(rules(&slow, Loop::Open), one("held-back", false));
        // Lateness is not judged if nearly all requests were held back.
        slow.tally.held_back = 19_999;
        assert_eq!(rules(&slow, Loop::Open), one("held-back", false));
        slow.tally.held_back = 5_000;
        let both = [one("late-sends", true), one("held-back", false)].concat();
        assert_eq!(rules(&slow, Loop::Open), both);
    }

    #[test]
    fn a_generator_that_sends_late_is_the_limit() {
        let late = check(&made(60, 100, 10_000), Loop::Open);
        assert_eq!(late.why_invalid().unwrap().rule, "late-sends");
        assert!(
            !late.is_valid()
                && late.why_invalid().unwrap().sentence.contains("sent at least 60.0 µs late")
        );
        assert_eq!(rules(&made(60, 1000, 10_000), Loop::Open), []);
        assert_eq!(rules(&made(40, 20, 10_000), Loop::Open), []);
    }

    #[test]
    fn a_full_thread_is_the_limit_if_it_falls_behind() {
        let mut full = made(2, 100, 10_000);
        full.busiest = 0.99;
        // In an open loop a full thread may keep up; in a closed loop a full thread is the limit.
        assert_eq!(rules(&full, Loop::Open), []);
        assert_eq!(rules(&full, Loop::Closed), one("thread-full", true));
        full.tally.offered = 20_000;
        assert_eq!(rules(&full, Loop::Open), one("thread-full", true));
    }

    #[test]
    fn what_was_never_due_accuses_the_generator() {
        let mut short = made(2, 100, 10_000);
        short.asked_per_s = Some(12_000.0);
        assert_eq!(rules(&short, Loop::Open), one("not-offered", true));
        assert_eq!(rules(&short, Loop::Closed), []);
    }

    fn used(usr_cpus: f64) -> Option<ProcessUse> {
        Some(ProcessUse { usr_cpus, ..ProcessUse::default() })
    }

    #[test]
    fn a_server_that_only_sleeps_is_slow_and_the_generator_is_not_accused() {
        let mut idle = made(2, 100, 10_000);
        idle.tally.offered = 12_000;
        idle.asked_per_s = Some(12_000.0);
        assert_eq!(rules(&idle, Loop::Open), []);
        idle.usage.server = used(0.2);
        assert_eq!(rules(&idle, Loop::Open), one("server-idle", false));
        let starved = ProcessUse { waiting_cpus: Some(0.4), ..used(0.2).unwrap() };
        idle.usage.server = Some(starved);
        assert_eq!(rules(&idle, Loop::Open), one("server-waited", false));
        idle.usage.server = used(0.2);
        idle.tally.held_back = 6_000;
        let both = check(&idle, Loop::Open);
        let names: Vec<&str> = both.remarks.iter().map(|remark| remark.rule.as_str()).collect();
        assert_eq!(names, ["held-back", "server-idle"]);
        assert!(both.is_valid() && both.remarks[0].sentence.contains("more connections"));
        // Nothing is known about the idle time of a server on another machine.
        idle.usage.server = None;
        assert_eq!(rules(&idle, Loop::Open), one("held-back", false));
    }

    #[test]
    fn an_idle_server_behind_a_generator_that_is_late_or_full_is_the_generators_doing() {
        let mut late = made(2_000, 100, 10_000);
        late.tally.offered = 12_000;
        late.usage.server = used(0.2);
        assert_eq!(rules(&late, Loop::Open), one("late-sends", true));
        let mut full = made(2, 100, 10_000);
        full.tally.offered = 12_000;
        full.busiest = 0.97;
        full.usage.server = used(0.2);
        assert_eq!(rules(&full, Loop::Open), one("thread-full", true));
        let mut short = made(2, 100, 9_000);
        short.asked_per_s = Some(12_000.0);
        short.usage.server = used(0.2);
        let told = [one("not-offered", true), one("few-answers", false)].concat();
        assert_eq!(rules(&short, Loop::Open), told);
    }

    #[test]
    fn a_closed_loop_of_few_connections_keeps_nobody_busy() {
        let mut few = made(0, 1_000, 10_000);
        few.usage.server = used(0.3);
        few.busiest = 0.3;
        assert_eq!(rules(&few, Loop::Closed), one("both-idle", false));
        few.busiest = 0.6;
        assert_eq!(rules(&few, Loop::Closed), []);
        (few.busiest, few.usage.server) = (0.3, used(0.6));
        assert_eq!(rules(&few, Loop::Closed), []);
        few.usage.server = None;
        assert_eq!(rules(&few, Loop::Closed), []);
    }

    #[test]
    fn what_disturbs_is_told() {
        let mut disturbed = made(2, 100, 10_000);
        let total = Categories { usr: 0.9, steal: 0.1, ..Categories::default() };
        disturbed.usage.machine = Some(CpuShares { total, cores: Vec::new() });
        disturbed.tally.broken = 1;
        let waited = |waiting| ProcessUse {
            usr_cpus: 0.9,
            waiting_cpus: Some(waiting),
            ..ProcessUse::default()
        };
        disturbed.usage.client = Some(waited(0.11));
        disturbed.usage.server = Some(waited(0.09));
        let told = rules(&disturbed, Loop::Closed);
        let expected = ["machine-full", "generator-waited", "steal", "broken"]
            .map(|rule| one(rule, false))
            .concat();
        assert_eq!(told, expected);
        assert!(check(&disturbed, Loop::Closed).is_valid());
        assert_eq!(rules(&made(2, 100, 0), Loop::Open), one(NO_ANSWERS, true));
    }
}
