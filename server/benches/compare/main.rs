//! Requests per second of server CPU: hypostyle against memcached, over loopback TCP with the text
//! protocol.
//!
//! Where: outside the cache; it starts both servers and drives them with one client.
//! Invariant: both servers see the same requests from the same client, one after the other in pairs
//! (subject, rival, rival, subject, ...), and every reply is checked; so a ratio tells of the
//! servers and not of the machine's mood.
//! Source: the measuring rules follow Georges, Buytaert, Eeckhout, "Statistically Rigorous Java
//! Performance Evaluation" (2007): repeated, interleaved, with intervals.

mod client;
#[path = "../measure/mod.rs"]
mod measure;
mod options;
mod report;
mod workload;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use client::Client;
use measure::contestant::{Contestant, Launch};
use measure::in_process::KEY_BYTES;
use measure::report::{Facts, facts_text, machine_and_command, say, write_json};
use measure::{Outcome, clocks, fail};
use options::Options;
use report::{Series, Window};
use workload::Workload;

fn main() -> ExitCode {
    measure::run("compare", run)
}

fn run() -> Outcome<()> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        return say(options::USAGE);
    };
    let match_up = MatchUp::prepare(&options)?;
    let facts = match_up.facts(&options);
    say(&facts_text(&facts))?;
    let mut all = Vec::new();
    for &in_flight in &options.in_flight {
        all.push(match_up.series(in_flight, &options)?);
    }
    say(&report::table(&all))?;
    match &options.json {
        Some(path) => write_json(path, &report::json(&facts, &all)),
        None => Ok(()),
    }
}

/// Two servers, filled, and the cores they and the client run on.
struct MatchUp {
    subject: Contestant,
    rival: Contestant,
    server_cores: Vec<usize>,
    workload: Workload,
    machine: Facts,
}

impl MatchUp {
    /// Starts and fills both servers and leaves them stopped; this thread is on the client's core
    /// afterwards.
    fn prepare(options: &Options) -> Outcome<MatchUp> {
        let cores = clocks::cores()?;
        let machine = machine_and_command("compare")?;
        let (server_cores, client_cores) = match cores.split_last() {
            None => return fail("no core to run on".to_owned()),
            Some((&only, [])) => (vec![only], vec![only]),
            Some((&last, rest)) => {
                let threads = usize::try_from(options.threads).unwrap_or(usize::MAX);
                (rest.iter().copied().take(threads).collect(), vec![last])
            }
        };
        let rival_program = Path::new(&options.rival);
        let (subject_program, extra) = match (&options.subject, options.aa) {
            (_, true) => (rival_program, &[][..]),
            (Some(program), false) => (program.as_path(), options.subject_args.as_slice()),
            (None, false) => return fail("built without hypostyle: give --subject".to_owned()),
        };
        let requests = ["-R".to_owned(), options.reqs_per_event.to_string()];
        let start = |program, extra: &[String]| {
            Contestant::start(Launch {
                program,
                threads: options.threads,
                memory_mb: options.memory_mb,
                connections: options.connections.saturating_add(64),
                extra: &[&requests, extra].concat(),
                cores: &server_cores,
            })
        };
        let subject = start(subject_program, extra)?;
        let rival = start(rival_program, &[])?;
        clocks::pin_to(&client_cores)?;
        let workload = Workload::new(options);
        for server in [&subject, &rival] {
            client::store_all(server.address, &workload)?;
            server.pause()?;
        }
        Ok(MatchUp { subject, rival, server_cores, workload, machine })
    }

    fn facts(&self, options: &Options) -> Facts {
        let mut facts = self.machine.clone();
        facts.extend([
            ("subject", self.subject.version.clone()),
            ("rival", self.rival.version.clone()),
            ("servers", format!("-t {} -R {}", options.threads, options.reqs_per_event)),
            (
                "load",
                format!(
                    "{} protocol, {} connections, {} keys of {} B, values of {} B, {} sets",
                    options.protocol.name(),
                    options.connections,
                    options.keys,
                    KEY_BYTES,
                    options.value_bytes,
                    options.set_ratio
                ),
            ),
            ("windows", format!("{} pairs of {} s", options.pairs, options.seconds)),
        ]);
        facts
    }

    /// All pairs with so many requests in flight.
    fn series(&self, in_flight: u32, options: &Options) -> Outcome<Series> {
        let mut series = Series { in_flight, subject: Vec::new(), rival: Vec::new() };
        for pair in 0..options.pairs {
            let mut subject_turn = pair % 2 == 0;
            for _ in 0..2 {
                if subject_turn {
                    series.subject.push(self.window(&self.subject, in_flight, options)?);
                } else {
                    series.rival.push(self.window(&self.rival, in_flight, options)?);
                }
                subject_turn = !subject_turn;
            }
        }
        Ok(series)
    }

    /// One window of load on `server`, which runs only meanwhile.
    fn window(&self, server: &Contestant, in_flight: u32, options: &Options) -> Outcome<Window> {
        server.resume()?;
        let Options { connections, client_sleeps, .. } = *options;
        let mut client =
            Client::connect(server.address, connections, in_flight, &self.workload, client_sleeps)?;
        client.start()?;
        client.drive(Duration::from_secs_f64(options.warmup_seconds))?;
        let before = server.cpu(&self.server_cores)?;
        let answered = client.drive(Duration::from_secs_f64(options.seconds))?;
        let after = server.cpu(&self.server_cores)?;
        client.drain()?;
        drop(client);
        server.pause()?;
        #[expect(clippy::cast_precision_loss, reason = "requests of one window stay below 2^53")]
        let requests = answered as f64;
        Ok(Window {
            requests,
            seconds: after.at.duration_since(before.at).as_secs_f64(),
            cores_seconds: after.cores_seconds - before.cores_seconds,
            process_seconds: after.process_seconds - before.process_seconds,
            steal_seconds: after.steal_seconds - before.steal_seconds,
        })
    }
}
