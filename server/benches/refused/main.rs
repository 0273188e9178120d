//! What a full server that evicts nothing (`-M`) does for its other clients: SETs that it refuses,
//! and how long another client waits beside them; hypostyle against memcached.
//!
//! Where: outside the cache; it starts and fills both servers.
//! Invariant: both servers see the same requests in alternated windows, each runs only in its own,
//! and every reply is looked at: a window in which not all SETs were refused fails.

#[path = "../measure/mod.rs"]
mod measure;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use measure::contestant::{Contestant, Launch};
use measure::options::{each, real, unknown, whole};
use measure::report::{Report, say};
use measure::statistics::{count_of_u64, median_with_interval};
use measure::{Outcome, clocks, contestant, fail};

const USAGE: &str = "\
usage: cargo bench --bench refused -- [options]
SETs refused by a full server under -M, and what a client that sends mn waits for beside them:
hypostyle against memcached (MEMCACHED= names it, or the first on PATH), both with one thread on one
core, the clients on another; windows alternate.

  --pairs N          windows of each server (9)
  --seconds S        length of a window (1.5)
  --clients N        clients that are refused (2)
  --in-flight N      SETs each of them has under way (32)
  --memory-mb N      -m (64)
  --subject PATH     measure this server instead of hypostyle
  --json FILE        the result as JSON too
";

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// SETs refused in a row that show a server to be full.
const FULL_ROW: u32 = 1000;
/// No server of the sizes allowed takes so many.
const FILL_MAX: u32 = 50_000_000;
/// Different batches that a client repeats: keys that no server has.
const BATCHES: u32 = 64;
const WARM_UP: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_secs(30);

struct Options {
    pairs: u32,
    seconds: f64,
    clients: u32,
    in_flight: u32,
    memory_mb: u32,
    subject: Option<PathBuf>,
    json: Option<PathBuf>,
}

/// What a window has shown.
struct Window {
    refused_per_core_second: f64,
    median_us: f64,
    p99_us: f64,
}

fn main() -> ExitCode {
    measure::run("refused", run)
}

fn run() -> Outcome<()> {
    let Some(options) = parse()? else { return say(USAGE) };
    let Some(subject) = options.subject.clone() else {
        return fail("built without hypostyle: give --subject".to_owned());
    };
    // Before this thread is bound to a core.
    let mut report = Report::of("refused")?;
    let cores = clocks::cores()?;
    let (Some(&first), Some(&last)) = (cores.first(), cores.last()) else {
        return fail("no core to run on".to_owned());
    };
    let start = |program: &Path| -> Outcome<Contestant> {
        let extra = ["-M".to_owned()];
        let memory_mb = options.memory_mb;
        let server = Contestant::start(Launch {
            program,
            threads: 1,
            memory_mb,
            connections: 64,
            extra: &extra,
            cores: &[first],
        })?;
        clocks::pin_to(&[last])?;
        fill(server.address)?;
        server.pause()?;
        Ok(server)
    };
    let servers = [start(&subject)?, start(&contestant::memcached())?];
    report.fact("subject", servers[0].version.clone());
    report.fact("rival", servers[1].version.clone());
    report.open()?;
    let mut windows = [Vec::new(), Vec::new()];
    for pair in 0..options.pairs {
        for turn in 0..2 {
            let side = usize::from((pair + turn) % 2 == 1);
            servers[side].resume()?;
            windows[side].push(window(&servers[side], first, &options)?);
            servers[side].pause()?;
        }
    }
    tell(&mut report, &windows)?;
    report.close(options.json.as_deref())
}

fn tell(report: &mut Report, windows: &[Vec<Window>; 2]) -> Outcome<()> {
    type Of = fn(&Window) -> f64;
    let figures: [(&str, &'static str, Of); 3] = [
        ("refused SETs", "a core-second", |one| one.refused_per_core_second),
        ("median of mn beside them", "us", |one| one.median_us),
        ("p99 of mn beside them", "us", |one| one.p99_us),
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

fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    Ok(stream)
}

/// A SET of key `number` of series `name`.
fn set(out: &mut Vec<u8>, name: &str, number: u32) {
    out.extend_from_slice(format!("set {name}{number:08} 0 0 {VALUE_BYTES}\r\n").as_bytes());
    out.resize(out.len() + VALUE_BYTES, b'v');
    out.extend_from_slice(b"\r\n");
}

/// Sends `batch` and reads the reply to each of its SETs; how many were refused.
fn exchange(stream: &mut TcpStream, batch: &[u8], sets: u32, room: &mut [u8]) -> Outcome<u32> {
    stream.write_all(batch)?;
    let (mut lines, mut refused, mut begins) = (0, 0, true);
    while lines < sets {
        let bytes = stream.read(room)?;
        if bytes == 0 {
            return fail("the server closed a connection".to_owned());
        }
        for &byte in &room[..bytes] {
            // STORED, or SERVER_ERROR out of memory storing object.
            refused += u32::from(!begins && byte == b'_');
            begins = byte == b'\n';
            lines += u32::from(begins);
        }
    }
    Ok(refused)
}

/// Stores until nothing is stored any more.
fn fill(address: SocketAddr) -> Outcome<()> {
    let (mut stream, mut room) = (connect(address)?, vec![0; 64 << 10]);
    let (mut row, mut number, mut batch) = (0, 0, Vec::new());
    while row < FULL_ROW {
        if number > FILL_MAX {
            return fail(format!("{number} values stored, and still not full"));
        }
        batch.clear();
        (0..32).for_each(|more| set(&mut batch, "filled", number + more));
        number += 32;
        let refused = exchange(&mut stream, &batch, 32, &mut room)?;
        row = if refused == 32 { row + 32 } else { 0 };
    }
    Ok(())
}

fn window(server: &Contestant, core: usize, options: &Options) -> Outcome<Window> {
    let stop = AtomicBool::new(false);
    let (address, in_flight) = (server.address, options.in_flight);
    thread::scope(|scope| {
        let refused: Vec<_> = (0..options.clients)
            .map(|client| {
                let stop = &stop;
                scope.spawn(move || be_refused(address, client, in_flight, stop).map_err(text))
            })
            .collect();
        let measured = ask(server, core, options);
        // Relaxed: nothing else is read on its strength.
        stop.store(true, Ordering::Relaxed);
        let mut per_second = 0.0;
        for client in refused {
            per_second += client.join().map_err(|_| "a client panicked")??;
        }
        let (cores_per_second, mut times_us) = measured?;
        times_us.sort_by(f64::total_cmp);
        let at = |part: usize| times_us[(times_us.len() * part / 100).min(times_us.len() - 1)];
        Ok(Window {
            refused_per_core_second: per_second / cores_per_second,
            median_us: at(50),
            p99_us: at(99),
        })
    })
}

fn text(error: Box<dyn std::error::Error>) -> String {
    error.to_string()
}

/// One client whose SETs are all refused, until told to stop; how many a second.
fn be_refused(address: SocketAddr, client: u32, in_flight: u32, stop: &AtomicBool) -> Outcome<f64> {
    let (mut stream, mut room) = (connect(address)?, vec![0; 64 << 10]);
    let batches: Vec<Vec<u8>> = (0..BATCHES)
        .map(|batch| {
            let mut sets = Vec::new();
            (0..in_flight).for_each(|at| {
                set(&mut sets, &format!("refused{client}-"), batch * in_flight + at);
            });
            sets
        })
        .collect();
    let (start, mut sent) = (Instant::now(), 0_u64);
    for batch in batches.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let refused = exchange(&mut stream, batch, in_flight, &mut room)?;
        if refused != in_flight {
            return fail(format!("{} SETs of {in_flight} were stored", in_flight - refused));
        }
        sent += u64::from(in_flight);
    }
    Ok(count_of_u64(sent) / start.elapsed().as_secs_f64())
}

/// Sends `mn` after `mn`: how much of a core the server took meanwhile, and the times.
fn ask(server: &Contestant, core: usize, options: &Options) -> Outcome<(f64, Vec<f64>)> {
    let mut stream = connect(server.address)?;
    let mut reply = [0; 4];
    let mut one = || -> Outcome<f64> {
        let start = Instant::now();
        stream.write_all(b"mn\r\n")?;
        stream.read_exact(&mut reply)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        one()?;
    }
    let before = server.cpu(&[core])?;
    let (start, mut times_us) = (Instant::now(), Vec::new());
    while start.elapsed().as_secs_f64() < options.seconds || times_us.is_empty() {
        times_us.push(one()?);
    }
    let after = server.cpu(&[core])?;
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    Ok(((after.cores_seconds - before.cores_seconds) / seconds, times_us))
}

fn parse() -> Outcome<Option<Options>> {
    let mut options = Options {
        pairs: 9,
        seconds: 1.5,
        clients: 2,
        in_flight: 32,
        memory_mb: 64,
        subject: contestant::ours(),
        json: None,
    };
    let go_on = each(std::env::args().skip(1), &[], |name, value| {
        match name {
            "--pairs" => options.pairs = whole(name, value, 1000)?,
            "--seconds" => options.seconds = real(name, value, 0.1, 600.0)?,
            "--clients" => options.clients = whole(name, value, 16)?,
            "--in-flight" => options.in_flight = whole(name, value, 1000)?,
            "--memory-mb" => options.memory_mb = whole(name, value, 4096)?,
            "--subject" => options.subject = Some(value.into()),
            "--json" => options.json = Some(value.into()),
            _ => return unknown(name),
        }
        Ok(())
    })?;
    Ok(go_on.then_some(options))
}
