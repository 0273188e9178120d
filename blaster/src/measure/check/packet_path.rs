//! Rules on the path of packets through the kernel: full CPUs, full backlogs, full sockets.
//!
//! Where: part of the self-check.
//! Invariant: these rules only warn, because a test may lose packets on purpose.
//! Source: Pavlik's thesis, chapter 3: the CPU that handles a card's interrupts is full long before
//! the server.

use crate::measure::Interval;
use crate::measure::cpu::Core;
use crate::measure::verdict::{Severity, Verdict};
use crate::words::grouped;

/// A CPU is full of soft interrupts if they take more than this share of its time.
const SOFTIRQ_SHARE_MIN: f64 = 0.6;
/// A CPU is full if it is busy for more than this share of its time.
const CORE_BUSY_MIN: f64 = 0.9;

pub(super) fn check(interval: &Interval, verdict: &mut Verdict) {
    let machine = interval.usage.machine.as_ref();
    let cores = machine.map(|machine| machine.cores.as_slice()).unwrap_or_default();
    full_of_softirqs(cores, verdict);
    full_backlogs(cores, verdict);
    full_sockets(interval, verdict);
}

fn full_of_softirqs(cores: &[Core], verdict: &mut Verdict) {
    let is_full = |core: &&Core| {
        core.shares.softirq > SOFTIRQ_SHARE_MIN && core.shares.busy() > CORE_BUSY_MIN
    };
    let full: Vec<&Core> = cores.iter().filter(is_full).collect();
    let fullest = full.iter().max_by(|a, b| a.shares.softirq.total_cmp(&b.shares.softirq));
    let Some(fullest) = fullest else { return };
    let more = match full.len() - 1 {
        0 => String::new(),
        1 => ", and another CPU is as busy".to_owned(),
        more => format!(", and {more} more CPUs are as busy"),
    };
    let sentence = format!(
        "CPU {} spends {:.0} % of its time on soft interrupts{more}: the server cannot receive \
         more requests. Spread the packets over more CPUs (receive queues, RPS)",
        fullest.cpu,
        100.0 * fullest.shares.softirq
    );
    verdict.add("softirq-full", Severity::Warning, sentence);
}

fn full_backlogs(cores: &[Core], verdict: &mut Verdict) {
    let dropped = |core: &&Core| core.network.map_or(0, |network| network.packets_dropped);
    let all: u64 = cores.iter().map(|core| dropped(&core)).sum();
    let Some(most) = cores.iter().max_by_key(dropped).filter(|_| all > 0) else { return };
    let sentence = format!(
        "the kernel dropped {} packets because the backlog of a CPU was full, most of them on CPU \
         {}: raise net.core.netdev_max_backlog, or spread the packets over more CPUs",
        grouped(all as f64),
        most.cpu
    );
    verdict.add("backlog-dropped", Severity::Warning, sentence);
}

fn full_sockets(interval: &Interval, verdict: &mut Verdict) {
    let of_server = ("server", "the server's UDP sockets", "requests in these datagrams");
    let of_generator = (
        "generator",
        "kvblaster's UDP and AF_XDP sockets",
        "requests whose answers were in these datagrams",
    );
    for ((name, sockets, requests), used) in
        [(of_server, interval.usage.server), (of_generator, interval.usage.client)]
    {
        let dropped = used.and_then(|used| used.datagrams_dropped).unwrap_or(0);
        if dropped > 0 {
            let sentence = format!(
                "the kernel dropped {} datagrams because the buffers of {sockets} were full: the \
                 {requests} count as lost",
                grouped(dropped as f64)
            );
            verdict.add(&format!("{name}-dropped"), Severity::Warning, sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cpu::{Categories, CpuShares};
    use crate::measure::interrupts::CoreNetwork;
    use crate::measure::process::ProcessUse;

    /// Returns the remarks on a report. For each CPU, `cores` has the share of soft interrupts, the
    /// share of user code, and the number of dropped packets.
    fn told(cores: &[(f64, f64, u64)]) -> Vec<(String, String)> {
        let core = |(cpu, (softirq, usr, packets_dropped)): (u32, &(f64, f64, u64))| {
            let network = CoreNetwork { packets_dropped: *packets_dropped, ..Default::default() };
            let idle = 1.0 - softirq - usr;
            let shares = Categories { softirq: *softirq, usr: *usr, idle, ..Categories::default() };
            Core { cpu, shares, network: Some(network) }
        };
        let mut interval = Interval::default();
        let cores = (0..).zip(cores).map(core).collect();
        interval.usage.machine = Some(CpuShares { cores, ..CpuShares::default() });
        remarks(&interval)
    }

    fn remarks(interval: &Interval) -> Vec<(String, String)> {
        let mut verdict = Verdict::default();
        check(interval, &mut verdict);
        assert!(verdict.is_valid());
        verdict.remarks.into_iter().map(|one| (one.rule, one.sentence)).collect()
    }

    #[test]
    fn a_cpu_full_of_soft_interrupts_is_named() {
        let full = told(&[(0.3, 0.7, 0), (0.82, 0.15, 0), (0.65, 0.3, 0), (0.8, 0.05, 0)]);
        assert_eq!(full.len(), 1);
        let (rule, sentence) = &full[0];
        assert_eq!(rule, "softirq-full");
        let expected =
            "CPU 1 spends 82 % of its time on soft interrupts, and another CPU is as busy: ";
        assert!(sentence.starts_with(expected), "{sentence}");
        assert_eq!(told(&[(0.59, 0.41, 0), (0.85, 0.04, 0)]), []);
        assert_eq!(remarks(&Interval::default()), []);
    }

    #[test]
    fn packets_and_datagrams_that_were_dropped_are_told_with_their_place() {
        let dropped = told(&[(0.1, 0.1, 3), (0.1, 0.1, 1500), (0.1, 0.1, 0)]);
        assert_eq!(dropped.len(), 1);
        let (rule, sentence) = &dropped[0];
        assert_eq!(rule, "backlog-dropped");
        assert!(sentence.contains("dropped 1,503 packets") && sentence.contains("on CPU 1:"));
        let mut interval = Interval::default();
        let used = |count| Some(ProcessUse { datagrams_dropped: count, ..ProcessUse::default() });
        (interval.usage.server, interval.usage.client) = (used(Some(2000)), used(Some(7)));
        let rules: Vec<String> = remarks(&interval).into_iter().map(|(rule, _)| rule).collect();
        assert_eq!(rules, ["server-dropped", "generator-dropped"]);
        assert!(remarks(&interval)[0].1.contains("buffers of the server's UDP sockets"));
        assert!(remarks(&interval)[1].1.contains("buffers of kvblaster's UDP and AF_XDP"));
        (interval.usage.server, interval.usage.client) = (used(Some(0)), used(None));
        assert_eq!(remarks(&interval), []);
    }
}
