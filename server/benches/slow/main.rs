//! Response times of a normal client beside hundreds of slow clients and thousands of idle ones:
//! hypostyle against memcached.
//!
//! Where: outside the cache. Each program runs as two servers, one with slow clients and one
//! without, driven by `blaster` in alternating windows.
//! Invariant: it is an error if the server closes a slow client's connection, or if a request
//! fails. A server runs, and its slow clients read and write, only in its own windows.

#[path = "../measure/mod.rs"]
mod measure;
mod peers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use blaster::launch::Server;
use blaster::measure::Interval;
use measure::launched::{Launch, memcached, subject, version_of};
use measure::report::Report;
use measure::statistics::{count_of_u64, median_with_interval};
use measure::{Outcome, driven, fail, real};
use peers::Peers;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Response times of a normal client under light load, with slow clients and without: hypostyle and
/// memcached (the one that MEMCACHED= names, or the first on PATH), each with one thread on one
/// core, all clients on another core. Windows alternate.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Clients that request many long values and read a byte at a time
    #[arg(long, default_value_t = 200)]
    readers: usize,
    /// Clients that send a long value a byte at a time
    #[arg(long, default_value_t = 200)]
    writers: usize,
    /// Connections without requests
    #[arg(long, default_value_t = 2000)]
    idle: usize,
    /// Bytes a second of each slow client
    #[arg(long, default_value = "1", value_parser = real(0.01, 1e5))]
    slow_bytes: f64,
    /// Length of the slow clients' values
    #[arg(long, default_value_t = 100_000)]
    slow_value_bytes: usize,
    /// Values that a slow reader requests at once
    #[arg(long, default_value_t = 40)]
    slow_values: usize,
    /// Requests a second of the normal client
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// Connections of the normal client
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Windows of each server
    #[arg(long, default_value_t = 9)]
    pairs: u32,
    /// Length of a window
    #[arg(long, default_value = "2", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// -m of the servers
    #[arg(long, default_value_t = 2048)]
    memory_mb: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Also write the result to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Unmeasured load before each window, in seconds.
const WARM_UP: f64 = 0.5;

/// The workload of the normal client.
const WORKLOAD: &str = "-w uniform --keys 10k --value-size 100";

struct Site {
    server: Server,
    peers: Option<Peers>,
    windows: Vec<Window>,
}

struct Window {
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
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let programs = [subject(options.subject.as_ref())?, memcached()];
    for (name, program) in ["subject", "rival"].into_iter().zip(&programs) {
        report.fact(name, version_of(program)?);
    }
    report.open()?;
    let site = |program: &Path, is_beside| Site::start(program, &options, (first, last), is_beside);
    let sites = |program: &Path| -> Outcome<[Site; 2]> {
        Ok([site(program, false)?, site(program, true)?])
    };
    let mut both = [sites(&programs[0])?, sites(&programs[1])?];
    for pair in 0..options.pairs {
        for sites in &mut both {
            for turn in 0..2 {
                sites[usize::from((pair + turn) % 2 == 1)].window(&options, last)?;
            }
        }
    }
    for (name, sites) in ["subject", "rival"].iter().zip(&mut both) {
        show(&mut report, name, sites)?;
    }
    report.close(options.json.as_deref())
}

fn show(report: &mut Report, name: &str, sites: &mut [Site; 2]) -> Outcome<()> {
    type Of = fn(&Window) -> f64;
    let figures: [(&str, Of); 2] =
        [("median", |window| window.median_us), ("p99", |window| window.p99_us)];
    for (figure, of) in figures {
        let [alone, beside] =
            [0, 1].map(|at| sites[at].windows.iter().map(of).collect::<Vec<f64>>());
        let ratios: Vec<f64> = beside.iter().zip(&alone).map(|(one, two)| one / two).collect();
        report.median(&format!("{figure}, {name} alone"), "us", median_with_interval(&alone))?;
        report.median(&format!("{figure}, {name} beside"), "us", median_with_interval(&beside))?;
        report.median(&format!("{figure}, {name}, ratio"), "x", median_with_interval(&ratios))?;
    }
    match &mut sites[1].peers {
        Some(peers) => peers.are_all_there(),
        None => Ok(()),
    }
}

fn drive(words: &str, server: &Server, core: usize) -> Outcome<Interval> {
    driven::run(&format!("{WORKLOAD} --cpus {core} {words} {}", server.target))
}

impl Site {
    fn start(
        program: &Path,
        options: &Options,
        (server_core, client_core): (usize, usize),
        is_beside: bool,
    ) -> Outcome<Site> {
        let connections = options.readers + options.writers + options.idle + 100;
        let (connections, memory_mb) = (u32::try_from(connections)?, options.memory_mb);
        let launch = Launch { program, threads: 1, memory_mb, connections, extra: &[] };
        let server = launch.start(&[server_core])?;
        drive("--keep --schedule 0s+1x0.1s", &server, client_core)?;
        let peers = if is_beside { Some(Peers::connect(&server.target, options)?) } else { None };
        server.pause()?;
        Ok(Site { server, peers, windows: Vec::new() })
    }

    /// Runs the normal client for one window, and the slow clients at the same time.
    fn window(&mut self, options: &Options, core: usize) -> Outcome<()> {
        let Options { rate, connections, seconds, slow_bytes, .. } = options;
        let words =
            format!("--no-populate -r {rate} -c {connections} --schedule {WARM_UP}s+1x{seconds}s");
        self.server.resume()?;
        let (server, peers, over) = (&self.server, &mut self.peers, AtomicBool::new(false));
        let measured = thread::scope(|scope| {
            let creeping = peers.as_mut().map(|peers| {
                let over = &over;
                scope.spawn(move || {
                    let creep = net::pin_thread(core).map_err(Into::into);
                    let creep = creep.and_then(|()| peers.creep(*slow_bytes, over));
                    creep.map_err(|error| error.to_string())
                })
            });
            let measured = drive(&words, server, core);
            over.store(true, Ordering::Relaxed); // the flag orders no other memory
            match creeping.map(thread::ScopedJoinHandle::join) {
                Some(Err(_)) => return fail("a slow client panicked".to_owned()),
                Some(Ok(crept)) => crept?,
                None => {}
            }
            measured
        })?;
        self.server.pause()?;
        let all = measured.tally.total();
        if all.errors > 0 || all.answered == 0 {
            return fail(format!("{} of {} requests failed", all.errors, all.answered));
        }
        let us = |quantile| {
            let time_ns = all.response_ns.quantile_ns(quantile);
            time_ns.map_or(f64::NAN, |ns| count_of_u64(ns) / 1e3)
        };
        self.windows.push(Window { median_us: us(0.5), p99_us: us(0.99) });
        Ok(())
    }
}
