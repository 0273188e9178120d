//! What migration is worth: all connections of a server on one of its columns, with and without it.
//!
//! Where: outside the cache; two servers, one of them with `-o no_migrate`, in turns.
//! Invariant: each reply is compared byte for byte, and a connection whose column is not the first
//! is not used: so all load begins on one column.

#[path = "../measure/mod.rs"]
mod measure;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use blaster::launch::Server;
use measure::launched::{Launch, cpu_seconds, subject, version_of};
use measure::report::{Report, say};
use measure::statistics::{count_of, median_with_interval};
use measure::wire::{Speech, Wire};
use measure::{Outcome, fail, real};

/// Connections that are tried for each one that is used, at most: one in so many columns comes to
/// the first.
const TRIES: usize = 100;
/// A reply that does not come for so long has failed.
const SILENCE: Duration = Duration::from_secs(30);
const MEMORY_MB: u32 = 256;

/// Requests per second of a server all of whose connections come to one column, with and without
/// migration. Beside them: what a request costs server and clients, and how much faster both could
/// be on two cores than on a core each.
#[derive(Debug, clap::Parser)]
struct Options {
    /// -t of the servers
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// CPUs for the servers, such as 0,1; none: any
    #[arg(long, value_delimiter = ',')]
    server_cpus: Vec<usize>,
    /// Client connections, each on a thread of its own
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Keys of each get
    #[arg(long, default_value_t = 48)]
    keys: usize,
    /// Length of each value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Gets that a connection has in flight
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Seconds before what counts, in which connections may move
    #[arg(long, default_value = "4", value_parser = real(0.0, 600.0))]
    warmup: f64,
    /// Seconds that count
    #[arg(long, default_value = "4", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// Measured pairs, each server first in turn
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Another server
    #[arg(long)]
    subject: Option<PathBuf>,
    /// The results as JSON too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What a server did.
struct Measured {
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// CPU time of a request, of the server and of its clients.
    server_us: f64,
    clients_us: f64,
    moved: u64,
}

/// One of its numbers.
type Figure = fn(&Measured) -> f64;

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut report = Report::new();
    let program = subject(options.subject.as_ref())?;
    report.fact("subject", version_of(&program)?);
    report.open()?;
    let (mut staying, mut moving) = (Vec::new(), Vec::new());
    for pair in 0..options.pairs {
        for turn in 0..2 {
            let stays = (pair + turn) % 2 == 0;
            let measured = measure(&program, &options, stays)?;
            let name = if stays { "no_migrate" } else { "migrating" };
            let Measured { per_s, moved, .. } = measured;
            say(&format!("{name:>12}: {per_s:.0}/s, {moved} connections moved\n"))?;
            if stays { &mut staying } else { &mut moving }.push(measured);
        }
    }
    tell(&mut report, &staying, &moving)?;
    report.close(options.json.as_deref())
}

fn tell(report: &mut Report, staying: &[Measured], moving: &[Measured]) -> Outcome<()> {
    let figures: [(&str, &'static str, Figure); 5] = [
        ("requests", "/s", |it| it.per_s),
        ("p50", "us", |it| it.p50_us),
        ("p99", "us", |it| it.p99_us),
        ("s, the server's CPU time of a request", "us", |it| it.server_us),
        ("k, its clients'", "us", |it| it.clients_us),
    ];
    for (name, unit, of) in figures {
        for (kind, all) in [("no_migrate", staying), ("migrating", moving)] {
            let values: Vec<f64> = all.iter().map(of).collect();
            report.median(&format!("{name}, {kind}"), unit, median_with_interval(&values))?;
        }
    }
    let ratio = |(moving, staying): (&Measured, &Measured)| moving.per_s / staying.per_s;
    let ratios: Vec<f64> = moving.iter().zip(staying).map(ratio).collect();
    report.median("requests, migrating to no_migrate", "x", median_with_interval(&ratios))?;
    let bound = |it: &Measured| 2.0 * it.server_us / (it.server_us + it.clients_us);
    let bounds: Vec<f64> = moving.iter().map(bound).collect();
    report.median("2s / (s + k), of two cores for both", "x", median_with_interval(&bounds))
}

/// A server of its own, asked for a while.
fn measure(program: &Path, options: &Options, stays: bool) -> Outcome<Measured> {
    let extra: &[String] = &["-o", "no_migrate"].map(str::to_owned);
    let launch = Launch {
        program,
        threads: options.threads,
        memory_mb: MEMORY_MB,
        connections: u32::try_from(options.connections * TRIES)?,
        extra: if stays { extra } else { &[] },
    };
    let server = launch.start(&options.server_cpus)?;
    let mut control = Wire::connect(&server.target, Speech::Text)?;
    let (request, reply) = work(&mut control, options)?;
    let streams = of_first_column(&server, &mut control, options.connections)?;
    // 0: warm up; 1: count; 2: over.
    let phase = AtomicU32::new(0);
    let ask = |stream| ask(stream, (&request, &reply), &phase);
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            streams.into_iter().map(|stream| scope.spawn(move || ask(stream))).collect();
        std::thread::sleep(Duration::from_secs_f64(options.warmup));
        let (server_s, clients_s, start) = (cpu_seconds(&server)?, own_cpu_s(), Instant::now());
        phase.store(1, Ordering::Relaxed); // a phase by itself
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        phase.store(2, Ordering::Relaxed); // as above
        let passed_s = start.elapsed().as_secs_f64();
        let (server_s, clients_s) = (cpu_seconds(&server)? - server_s, own_cpu_s() - clients_s);
        let mut times = Vec::new();
        for client in clients {
            match client.join() {
                Ok(all) => times.extend(all?),
                Err(_) => return fail("a client panicked".to_owned()),
            }
        }
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let requests = count_of(times.len() * options.in_flight);
        let rows: HashMap<String, String> = control.stats("stats columns")?.into_iter().collect();
        Ok(Measured {
            per_s: requests / passed_s,
            p50_us: at(50).as_secs_f64() * 1e6,
            p99_us: at(99).as_secs_f64() * 1e6,
            server_us: server_s / requests * 1e6,
            clients_us: clients_s / requests * 1e6,
            moved: of_columns(&rows, "migrations_taken").iter().sum(),
        })
    })
}

/// Stores what is asked for. A connection's requests, and their replies.
fn work(control: &mut Wire, options: &Options) -> Outcome<(Vec<u8>, Vec<u8>)> {
    let (mut request, mut reply) = (String::from("get"), String::new());
    for key in 0..options.keys {
        let value = format!("{key:x}.").repeat(options.value_bytes);
        let value = &value[..options.value_bytes];
        if control.line(&format!("set key-{key} 0 0 {}\r\n{value}", value.len()))? != "STORED" {
            return fail(format!("key-{key} was not stored"));
        }
        request += &format!(" key-{key}");
        reply += &format!("VALUE key-{key} 0 {}\r\n{value}\r\n", value.len());
    }
    let all = |text: String, end: &str| (text + end).repeat(options.in_flight).into_bytes();
    Ok((all(request, "\r\n"), all(reply, "END\r\n")))
}

/// A number of each column.
fn of_columns(rows: &HashMap<String, String>, name: &str) -> Vec<u64> {
    let of = |column: usize| rows.get(&format!("columns:{column}:{name}"))?.parse().ok();
    (0..).map_while(of).collect()
}

/// Connections that the first column has accepted; others are given up.
fn of_first_column(server: &Server, control: &mut Wire, count: usize) -> Outcome<Vec<TcpStream>> {
    let accepted = |control: &mut Wire| -> Outcome<u64> {
        let rows = control.stats("stats columns")?.into_iter().collect();
        Ok(of_columns(&rows, "total_connections").first().copied().unwrap_or(0))
    };
    let mut streams = Vec::new();
    for _ in 0..count * TRIES {
        if streams.len() == count {
            return Ok(streams);
        }
        let before = accepted(control)?;
        let mut stream = TcpStream::connect(&server.target)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.write_all(b"mn\r\n")?;
        stream.read_exact(&mut [0; 4])?;
        if accepted(control)? > before {
            streams.push(stream);
        }
    }
    fail(format!("of {} connections the first column has {}", count * TRIES, streams.len()))
}

/// Asks until it is over. How long each answer took that counts.
fn ask(
    mut stream: TcpStream,
    (request, reply): (&[u8], &[u8]),
    phase: &AtomicU32,
) -> std::io::Result<Vec<Duration>> {
    let (mut times, mut got) = (Vec::new(), vec![0; reply.len()]);
    loop {
        let start = Instant::now();
        let now = phase.load(Ordering::Relaxed); // a phase by itself
        stream.write_all(request)?;
        stream.read_exact(&mut got)?;
        if got != reply {
            return Err(std::io::Error::other("a reply is not what was asked for"));
        }
        match now {
            0 => {}
            1 => times.push(start.elapsed()),
            _ => return Ok(times),
        }
    }
}

/// CPU time of this process so far.
fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).as_secs_f64()
}
