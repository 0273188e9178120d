//! Compares kvblaster's figures with other tools', and its send times with its schedule.
//!
//! Where: outside the program, run by hand on a quiet machine of at least two CPUs. It needs
//! memcached and memcaslap, redis-server and redis-benchmark (`make peers`), and says which are
//! missing. Invariant: every tool is a process of its own, started as a user would, on the same
//! CPU, against the same running server. The tools take turns in each round, so that drift affects
//! all alike. Source: issue 5, "Verification"; Little's law.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints")]

mod gaps;
mod peers;
mod rates;
mod ratio;
mod servers;

use blaster::launch::Server;
use peers::{Rival, Seen};
use std::error::Error;

const USAGE: &str = "\
cargo bench -p kvblaster --bench agree -- [--rounds N] [--seconds N] [PART...]
    PART: memcaslap, redis-benchmark, rates, gaps (default all, about 4 minutes)
    --rounds N     pairs of runs of each shape (default 8)
    --seconds N    of each run (default 2)
    MEMCACHED=PATH: that memcached instead of the one on PATH
";

const PARTS: [&str; 4] = ["memcaslap", "redis-benchmark", "rates", "gaps"];

/// The settings of every part.
#[derive(Clone, Copy, Debug)]
struct Told {
    rounds: u32,
    seconds: u32,
    /// CPU of the client, and of the server.
    client_cpu: usize,
    server_cpu: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = net::thread_cpus()?;
    let (Some(&client_cpu), Some(&server_cpu)) = (cpus.first(), cpus.last()) else {
        return Err("no processor".into());
    };
    let mut told = Told { rounds: 8, seconds: 2, client_cpu, server_cpu };
    let mut parts = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        match name.as_str() {
            "--rounds" => told.rounds = args.next().ok_or(USAGE)?.parse()?,
            "--seconds" => told.seconds = args.next().ok_or(USAGE)?.parse()?,
            // `cargo bench` adds this flag.
            "--bench" => {}
            part if PARTS.contains(&part) => parts.push(name),
            _ => return Err(USAGE.into()),
        }
    }
    if told.rounds < 2 || told.seconds == 0 {
        return Err("two rounds of a second each are the least".into());
    }
    println!("asked from CPU {client_cpu}, answered on CPU {server_cpu}");
    if client_cpu == server_cpu {
        println!("ONE CPU for both: whoever asks takes time from whoever answers");
    }
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|one| one == part);
    for rival in [Rival::Memcaslap, Rival::RedisBenchmark] {
        if wants(rival.name()) {
            compare(rival, told)?;
        }
    }
    if wants("rates") {
        rates::measure(told)?;
    }
    if wants("gaps") {
        gaps::measure(told)?;
    }
    Ok(())
}

const ABOUT: &str = "
A closed loop: each connection has one request under way. Keys, sizes, mix, connections and server
are the same; runs take turns. The columns are means over the rounds, behind them the 95 %
confidence interval, and the ratios medians of pairs with 97 %. `under way` is rate x mean time:
what Little's law says must be the number of connections, if a tool's rate and times are of the
same requests; less is the tool's own time
between an answer and the next request, which it does not count. Where the server is the limit (16
connections on one thread of it), tools agree in rate; with one connection the rate is one over the
whole round, the tool's own part included, so that a tool of less CPU a request gets more.
";

/// Measures a rival and kvblaster in turns.
fn compare(rival: Rival, told: Told) -> Result<(), Box<dyn Error>> {
    let Some(server) = rival.server(told.server_cpu)? else { return Ok(()) };
    if !rival.is_installed() {
        println!("\n{} is not installed (make peers): left out", rival.name());
        return Ok(());
    }
    println!("\n== kvblaster and {} at {}{ABOUT}", rival.name(), server.target);
    peers::fill(rival, &server, told)?;
    for connections in [16, 1] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first pair warms up, and its rate says how many requests fill the time.
        let mut rate = peers::kvblaster(rival, &server, connections, told)?.per_s;
        rate = rate.max(peers::rival(rival, &server, (connections, rate), told)?.per_s);
        for round in 0..told.rounds {
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    ours.push(peers::kvblaster(rival, &server, connections, told)?);
                } else {
                    theirs.push(peers::rival(rival, &server, (connections, rate), told)?);
                }
            }
        }
        print(rival, connections, &ours, &theirs);
    }
    Ok(())
}

/// Selects one figure of a run; none where the tool does not report it.
type Figure = fn(&Seen) -> Option<f64>;

/// Prints the figures of both, and their ratios.
fn print(rival: Rival, connections: u32, ours: &[Seen], theirs: &[Seen]) {
    println!("{connections} connection{}", if connections == 1 { "" } else { "s" });
    println!(
        "  {:16} {:>20} {:>20} {:>16} {:>16} {:>9} {:>9}",
        "", "requests/s", "mean us", "p50 us", "p99 us", "under way", "CPU us"
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
        let both = |(ours, theirs): (&Seen, &Seen)| Some((of(theirs)?, of(ours)?));
        let pairs: Vec<(f64, f64)> = ours.iter().zip(theirs).filter_map(both).collect();
        if let Some(ratio) = ratio::ratio(&pairs) {
            println!("  kvblaster's {name:10} over {}'s: {ratio}", rival.name());
        }
    }
    println!();
}

/// Passes the server on, and prints a line if there is none.
fn started(server: Option<Server>, name: &str) -> Option<Server> {
    if server.is_none() {
        println!("\n{name} is not installed (make peers): left out");
    }
    server
}
