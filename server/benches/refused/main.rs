//! SETs that a full server without eviction (`-M`) refuses per second, and the response times of
//! another client meanwhile: hypostyle against memcached.
//!
//! Where: outside the cache; the program starts and fills both servers, and drives them by
//! `blaster`.
//! Invariant: both servers get the same requests in alternating windows, and each server runs only
//! in its own windows. A window in which a SET was stored is an error.

#[path = "../measure/mod.rs"]
mod measure;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use blaster::launch::Server;
use blaster::measure::{Interval, VerbTally};
use blaster::run::compare::figures::cpu_seconds;
use measure::launched::{Launch, memcached, subject, version_of};
use measure::report::Report;
use measure::statistics::{count_of_u64, median_with_interval};
use measure::{Outcome, driven, fail, real};

/// SETs refused per core-second by a full server under -M, and the response times of a client that
/// gets keys meanwhile: hypostyle against memcached (the one that MEMCACHED= names, or the first on
/// PATH). Both servers have one thread on one core, the clients are on another; windows alternate.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Windows of each server
    #[arg(long, default_value_t = 9)]
    pairs: u32,
    /// Length of a window
    #[arg(long, default_value = "1.5", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// Clients whose SETs are refused
    #[arg(long, default_value_t = 2)]
    clients: u32,
    /// SETs in flight of each of these clients
    #[arg(long, default_value_t = 32)]
    in_flight: u32,
    /// -m of both servers
    #[arg(long, default_value_t = 64)]
    memory_mb: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Also write the result to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

const VALUE_BYTES: u32 = 100;
/// Number of SETs per megabyte of `-m`, more than fit.
const FILLED_PER_MB: u32 = 12_000;
/// Unmeasured load before each window, in seconds.
const WARM_UP: f64 = 0.3;

struct Window {
    refused_per_core_second: f64,
    median_us: f64,
    p99_us: f64,
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut report = Report::new();
    let cores = net::thread_cpus()?;
    let (Some(&first), Some(&last)) = (cores.first(), cores.last()) else {
        return fail("no core to run on".to_owned());
    };
    let programs = [subject(options.subject.as_ref())?, memcached()];
    for (name, program) in ["subject", "rival"].into_iter().zip(&programs) {
        report.fact(name, version_of(program)?);
    }
    report.open()?;
    let start = |program: &Path| -> Outcome<Server> {
        let (memory_mb, extra) = (options.memory_mb, &["-M".to_owned()]);
        let launch = Launch { program, threads: 1, memory_mb, connections: 64, extra };
        let server = launch.start(&[first])?;
        fill(&server, &options, last)?;
        server.pause()?;
        Ok(server)
    };
    let servers = [start(&programs[0])?, start(&programs[1])?];
    let mut windows = [Vec::new(), Vec::new()];
    for pair in 0..options.pairs {
        for turn in 0..2 {
            let side = usize::from((pair + turn) % 2 == 1);
            servers[side].resume()?;
            windows[side].push(window(&servers[side], (first, last), &options)?);
            servers[side].pause()?;
        }
    }
    show(&mut report, &windows)?;
    report.close(options.json.as_deref())
}

fn show(report: &mut Report, windows: &[Vec<Window>; 2]) -> Outcome<()> {
    type Of = fn(&Window) -> f64;
    let figures: [(&str, &'static str, Of); 3] = [
        ("refused SETs", "a core-second", |one| one.refused_per_core_second),
        ("median of a GET meanwhile", "us", |one| one.median_us),
        ("p99 of a GET meanwhile", "us", |one| one.p99_us),
    ];
    for (name, unit, of) in figures {
        for (side, windows) in ["subject", "rival"].iter().zip(windows) {
            let all: Vec<f64> = windows.iter().map(of).collect();
            report.median(&format!("{name}, {side}"), unit, median_with_interval(&all))?;
        }
        let pairs = windows[0].iter().zip(&windows[1]);
        let ratios: Vec<f64> = pairs.map(|(subject, rival)| of(subject) / of(rival)).collect();
        report.median(&format!("{name}, ratio"), "x", median_with_interval(&ratios))?;
    }
    Ok(())
}

fn drive(words: &str, server: &Server, core: usize) -> Outcome<Interval> {
    let target = &server.target;
    driven::run(&format!("-w uniform --value-size {VALUE_BYTES} --cpus {core} {words} {target}"))
}

/// Sends more SETs than fit. Fails if none was refused.
fn fill(server: &Server, options: &Options, core: usize) -> Outcome<()> {
    let sets = u64::from(options.memory_mb) * u64::from(FILLED_PER_MB);
    let words = "--no-populate --keys 1g --key-prefix filled --mix set=1 -d 32 --schedule 0s+1x1h";
    let set = drive(&format!("{words} -n {sets}"), server, core)?.tally.total();
    if set.errors == 0 {
        return fail(format!("{}: not full after {sets} SETs", server.target));
    }
    Ok(())
}

/// Measures clients whose SETs are all refused, and meanwhile a client that gets absent keys.
fn window(server: &Server, cores: (usize, usize), options: &Options) -> Outcome<Window> {
    let Options { clients, in_flight, seconds, .. } = options;
    let (server_core, client_core) = cores;
    let schedule = format!("--no-populate --keys 100k --schedule {WARM_UP}s+1x{seconds}s");
    let sets = format!("{schedule} --key-prefix refused --mix set=1 -c {clients} -d {in_flight}");
    let gets = format!("{schedule} --key-prefix absent --mix get=1 -c 1");
    let text = |error: Box<dyn std::error::Error>| error.to_string();
    let (refused, measured) = thread::scope(|scope| {
        let refused = scope.spawn(|| drive(&sets, server, client_core).map_err(text));
        let measured = drive(&gets, server, client_core);
        (refused.join().map_err(|_| "a client panicked".to_owned()), measured)
    });
    let (refused, measured) = (refused??, measured?);
    let VerbTally { answered, errors, .. } = refused.tally.total();
    if errors != answered {
        return fail(format!("{} SETs of {answered} were stored", answered - errors));
    }
    let cpu_seconds = cpu_seconds(&refused, &[server_core]).unwrap_or(f64::NAN);
    let times = measured.tally.total().response_ns;
    let us = |quantile| times.quantile_ns(quantile).map_or(f64::NAN, |ns| count_of_u64(ns) / 1e3);
    Ok(Window {
        refused_per_core_second: count_of_u64(errors) / cpu_seconds,
        median_us: us(0.5),
        p99_us: us(0.99),
    })
}
