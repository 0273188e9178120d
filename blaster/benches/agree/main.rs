//! Compares kvblaster's figures with other tools' figures, and its send times with its schedule.
//!
//! Where: outside the program, run by hand on a quiet machine with at least two CPUs. The bench
//! needs memcached, memcaslap, redis-server and redis-benchmark (`make peers`), and reports each
//! program that is missing.
//! Invariant: each tool runs as its own process, started as a user would start it, on the same CPU,
//! against the same running server. In each round the tools run alternately, so that slow changes
//! of the machine affect all tools alike.
//! Source: Little's law: the number of requests in flight is the rate times the mean time.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints")]

mod gaps;
mod peers;
mod rates;
mod ratio;
mod servers;

use blaster::launch::Server;
use peers::{Rival, RunFigures};
use std::error::Error;

const USAGE: &str = "\
cargo bench -p kvblaster --bench agree -- [--rounds N] [--seconds N] [PART...]
    PART: memcaslap, redis-benchmark, rates, gaps (default all, about 4 minutes)
    --rounds N     pairs of runs for each number of connections (default 8)
    --seconds N    length of each run (default 2)
    MEMCACHED=PATH uses that memcached instead of the one on PATH
";

const PARTS: [&str; 4] = ["memcaslap", "redis-benchmark", "rates", "gaps"];

#[derive(Clone, Copy, Debug)]
struct Settings {
    rounds: u32,
    seconds: u32,
    client_cpu: usize,
    server_cpu: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = net::thread_cpus()?;
    let (Some(&client_cpu), Some(&server_cpu)) = (cpus.first(), cpus.last()) else {
        return Err("no processor".into());
    };
    let mut settings = Settings { rounds: 8, seconds: 2, client_cpu, server_cpu };
    let mut parts = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        match name.as_str() {
            "--rounds" => settings.rounds = args.next().ok_or(USAGE)?.parse()?,
            "--seconds" => settings.seconds = args.next().ok_or(USAGE)?.parse()?,
            // `cargo bench` adds this flag.
            "--bench" => {}
            part if PARTS.contains(&part) => parts.push(name),
            _ => return Err(USAGE.into()),
        }
    }
    if settings.rounds < 2 || settings.seconds == 0 {
        return Err("at least two rounds of at least one second are needed".into());
    }
    println!("client on CPU {client_cpu}, server on CPU {server_cpu}");
    if client_cpu == server_cpu {
        println!("ONE CPU for both: client and server take CPU time from each other");
    }
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|one| one == part);
    for rival in [Rival::Memcaslap, Rival::RedisBenchmark] {
        if wants(rival.name()) {
            compare(rival, settings)?;
        }
    }
    if wants("rates") {
        rates::measure(settings)?;
    }
    if wants("gaps") {
        gaps::measure(settings)?;
    }
    Ok(())
}

const ABOUT: &str = "
A closed loop: each connection has one request in flight. Keys, sizes, mix, connections and server
are the same; the tools take turns. The columns are means over the rounds with 95 % confidence
intervals, the ratios medians of pairs with 97 % ones. `in flight` is rate x mean time. By Little's
law it is the number of connections if a tool's rate and times are of the same requests. It is lower
if the tool spends time between an answer and the next request, which its times do not include.
Where the server is the limit (16 connections to one of its threads), the rates of the tools agree.
With one connection the rate is limited by the whole round trip, which includes the tool's own time,
so a tool that needs less CPU for a request has a higher rate.
";

fn compare(rival: Rival, settings: Settings) -> Result<(), Box<dyn Error>> {
    let Some(server) = rival.server(settings.server_cpu)? else { return Ok(()) };
    if !rival.is_installed() {
        println!("\n{} is not installed (make peers): left out", rival.name());
        return Ok(());
    }
    println!("\n== kvblaster and {} at {}{ABOUT}", rival.name(), server.target);
    peers::fill(rival, &server, settings)?;
    for connections in [16, 1] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first run of each tool is a warm-up. redis-benchmark is given a number of requests,
        // not a time: the higher of the two rates, times the length of a run.
        let mut rate = peers::kvblaster(rival, &server, connections, settings)?.per_s;
        rate = rate.max(peers::rival(rival, &server, (connections, rate), settings)?.per_s);
        for round in 0..settings.rounds {
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    ours.push(peers::kvblaster(rival, &server, connections, settings)?);
                } else {
                    theirs.push(peers::rival(rival, &server, (connections, rate), settings)?);
                }
            }
        }
        print(rival, connections, &ours, &theirs);
    }
    Ok(())
}

/// Reads one figure of a run. `None` if the tool does not report the figure.
type Figure = fn(&RunFigures) -> Option<f64>;

fn print(rival: Rival, connections: u32, ours: &[RunFigures], theirs: &[RunFigures]) {
    println!("{connections} connection{}", if connections == 1 { "" } else { "s" });
    println!(
        "  {:16} {:>20} {:>20} {:>16} {:>16} {:>9} {:>9}",
        "", "requests/s", "mean us", "p50 us", "p99 us", "in flight", "CPU us"
    );
    for (name, seen) in [("kvblaster", ours), (rival.name(), theirs)] {
        let column = |of: Figure, digits| {
            ratio::mean(&seen.iter().filter_map(of).collect::<Vec<_>>(), digits)
        };
        let range = seen.iter().find_map(|seen| seen.p50_p99.clone());
        let (p50, p99) =
            range.unwrap_or_else(|| (column(|seen| seen.p50_us, 1), column(|seen| seen.p99_us, 1)));
        println!(
            "  {name:16} {:>20} {:>20} {p50:>16} {p99:>16} {:>9} {:>9}",
            column(|seen| Some(seen.per_s), 0),
            column(|seen| Some(seen.mean_us), 1),
            ratio::plain(seen, |seen| Some(seen.per_s * seen.mean_us / 1e6)),
            ratio::plain(seen, |seen| Some(seen.cpu_us)),
        );
    }
    let figures: [(&str, Figure); 4] = [
        ("requests/s", |seen| Some(seen.per_s)),
        ("mean", |seen| Some(seen.mean_us)),
        ("p50", |seen| seen.p50_us),
        ("p99", |seen| seen.p99_us),
    ];
    for (name, of) in figures {
        let both = |(ours, theirs): (&RunFigures, &RunFigures)| Some((of(theirs)?, of(ours)?));
        let pairs: Vec<(f64, f64)> = ours.iter().zip(theirs).filter_map(both).collect();
        if let Some(ratio) = ratio::ratio(&pairs) {
            println!("  kvblaster's {name:10} over {}'s: {ratio}", rival.name());
        }
    }
    println!();
}

fn started(server: Option<Server>, name: &str) -> Option<Server> {
    if server.is_none() {
        println!("\n{name} is not installed (make peers): left out");
    }
    server
}
