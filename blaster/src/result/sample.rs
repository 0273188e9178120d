//! A made-up result that uses every field.
//!
//! Where: tests. Invariant: every call returns the same result. Source: none.

use super::AgentPart;
use super::machine::Machine;
use super::manifest::{Manifest, TargetRecord};
use super::{RunResult, SCHEMA};
use crate::measure::check::{Loop, check};
use crate::measure::cpu::{Categories, Core, CpuShares};
use crate::measure::interrupts::CoreNetwork;
use crate::measure::process::ProcessUse;
use crate::measure::{Connections, Interval, KeyAnswer, Tally, steady};
use crate::search::{Capacity, SearchResult, bracket::Limit, curve::Point};
use crate::workload::Verb;

/// Six reports of a server that answers in about `us` µs. Some texts need escaping.
pub(crate) fn result(label: &str, us: u64) -> RunResult {
    let reports: Vec<Interval> = (0..6).map(|nth| report(nth, us)).collect();
    let merged = Interval::merged(&reports);
    let mut verdict = merged.as_ref().map(|merged| check(merged, Loop::Open)).unwrap_or_default();
    verdict.remarks.extend(steady::remark(&reports, true));
    let judged = merged.as_ref().map(Interval::judged);
    let judgement = judged.map(|judged| {
        "p99<1ms".parse::<crate::measure::objective::Objective>().unwrap().judge(judged)
    });
    let agent = AgentPart {
        name: "ssh a kvblaster agent".to_owned(),
        machine: Machine::here(),
        threads: 2,
        connections: 50,
        round_trip_ns: Some(400_000),
        lost: None,
        verdict: verdict.clone(),
        merged: merged.clone(),
    };
    RunResult {
        schema: SCHEMA,
        agents: vec![agent],
        manifest: manifest(label),
        is_interrupted: false,
        verdict,
        judgements: judgement.into_iter().collect(),
        merged,
        reports,
        search: Some(found(us)),
        left_behind: vec!["127.0.0.1:11211 was empty before the run, and was flushed".to_owned()],
    }
}

fn manifest(label: &str) -> Manifest {
    let mut manifest = Manifest::here();
    (manifest.started_unix_s, manifest.started) =
        (1_795_240_800.25, super::manifest::utc(1_795_240_800));
    manifest.label = label.to_owned();
    manifest.command_line = vec!["kvblaster".to_owned(), "run".to_owned(), "a b\"<".to_owned()];
    manifest.workload_toml = "keys = 1000\n# </script><script>alert(1)</script>\n".to_owned();
    manifest.targets = vec![TargetRecord {
        name: "localhost:11211".to_owned(),
        place: "tcp 127.0.0.1:11211".to_owned(),
        weight: 1,
        version: Some("1.6.45 <b>".to_owned()),
        pids: vec![4711],
        command_line: Some("memcached -m 64".to_owned()),
        cpus: Some("0-1".to_owned()),
        interface: Some("lo".to_owned()),
    }];
    manifest.driven = "open".to_owned();
    manifest.protocol = "text".to_owned();
    manifest.schedule = "10s+6x10s".to_owned();
    manifest.threads = 2;
    manifest.late_limit_ns = 1_000_000;
    manifest.set("connections", 50);
    manifest
}

fn report(nth: u64, us: u64) -> Interval {
    let mut tally = Tally::new(1_000_000);
    for request in 0..2000_u64 {
        let verb = if request % 31 == 0 { Verb::Set } else { Verb::Get };
        let (intended, sent) = (request * 1000, request * 1000 + request % 20);
        // A few requests take much longer, and the fourth report has a stall.
        let stall = if nth == 3 && request < 50 { 100_000_000 } else { 0 };
        let ns = us * 1000 * (100 + request % 100) / 100 + us * 20_000_000 / (request + 1) + stall;
        tally.offered += 1;
        tally.sent(verb, 1, intended, sent);
        let finding = if request % 20 == 0 { KeyAnswer::Miss } else { KeyAnswer::Hit };
        tally.found(verb, if verb == Verb::Get { finding } else { KeyAnswer::Done });
        tally.answered(verb, request == 7, intended, sent, intended + ns);
    }
    tally.broken += 1;
    // One of four connections has half of the answers, and waits longer.
    tally.connections = Connections::new(std::iter::once(0..4));
    for (at, (ns, count)) in
        (0..).zip([(us * 2_000_000, 1000), (us * 1000, 334), (us * 1000, 333), (us * 1000, 333)])
    {
        tally.connections.record(at, ns, count);
    }
    (tally.busy_ns, tally.wall_ns) = (3_000_000_000, 20_000_000_000);
    let mut interval = Interval {
        start_s: 10.0 + 10.0 * nth as f64,
        seconds: 10.0,
        asked_per_s: Some(200.0),
        busiest: 0.3,
        tally,
        ..Interval::default()
    };
    let server = ProcessUse { usr_cpus: 0.2, sys_cpus: 0.4, cpu_s: 6.0, ..ProcessUse::default() };
    let server = ProcessUse { rss_bytes: Some(100 << 20), threads: Some(4), ..server };
    let server = ProcessUse { waiting_cpus: Some(0.01), datagrams_dropped: Some(0), ..server };
    let total = Categories { usr: 0.2, sys: 0.3, softirq: 0.1, idle: 0.4, ..Categories::default() };
    let network = Some(CoreNetwork {
        device_interrupts_per_s: 50.0,
        net_rx_per_s: 70.5,
        packets: 800,
        packets_dropped: 0,
        squeezed: 2,
    });
    let cores = [0, 1].map(|cpu| Core { cpu, shares: total, network });
    interval.usage.server = Some(server);
    interval.usage.client = Some(server);
    interval.usage.machine = Some(CpuShares { total, cores: cores.into() });
    interval
}

fn found(us: u64) -> SearchResult {
    let point = |nth: u64| {
        let rate = 10_000.0 * (nth + 1) as f64;
        let load = rate * us as f64 / 2e7;
        let ns = us as f64 * 1000.0 / (1.0 - load).max(0.02);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let times = |factor: f64| Some((factor * ns) as u64);
        Point {
            asked_per_s: rate,
            offered_per_s: rate,
            achieved_per_s: rate.min(2e7 / us as f64),
            mean_ns: Some(ns),
            p50_ns: times(0.9),
            p99_ns: times(3.0),
            p99_9_ns: times(5.0),
            max_ns: times(12.0),
            met: if nth < 4 { vec!["avg".to_owned()] } else { Vec::new() },
            client_bound: (nth == 7).then(|| "it was, \"late\"".to_owned()),
            server_cpus: Some(1.0),
            ..Point::default()
        }
    };
    let capacity = |name: &str, rate: Option<f64>, limit| Capacity {
        name: name.to_owned(),
        objective: format!("{name}<1ms"),
        rate_per_s: rate,
        interval_per_s: rate.map(|rate| (0.9 * rate, 1.1 * rate)),
        rounds_per_s: rate.into_iter().collect(),
        limit,
    };
    let rate = 1e7 / us as f64;
    SearchResult {
        capacities: vec![
            capacity("avg", Some(rate), Limit::Server),
            capacity("p99", Some(0.7 * rate), Limit::Generator),
            capacity("max", None, Limit::LowestRate),
        ],
        curve: (0..8).map(point).collect(),
        confidence: 0.95,
        is_complete: true,
    }
}
