//! Measures how many requests kvblaster's driving thread sends per CPU second, to the null server
//! or another server. With `--against`, compares this figure with that of another load generator.
//!
//! Where: outside the program. The bench runs one driving thread as `kvblaster run` does.
//! Invariant: a figure is the number of requests answered divided by the CPU time of the driving
//! thread, or of the other program's process. The two programs run alternately on the same CPU,
//! with the same requests, number of connections, and sizes of keys and values. Keep the server on
//! another CPU (`taskset`). Under `valgrind --tool=callgrind`, run with `--requests N` and with
//! `--requests 2N`: the difference in instructions, divided by N, is the cost of a request, and
//! `callgrind_annotate` shows which functions execute these instructions.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints")]

use blaster::drive::{self, Drive, EndCondition, Mode, Pace};
use blaster::measure::Tally;
use blaster::reflect::{self, Plan};
use blaster::target::{self, Family, Place};
use blaster::wire::Protocol;
use blaster::workload::Workload;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p kvblaster --bench drive -- [--target NAME] [--protocol text|meta|binary|resp]
    [--connections N] [--depth N] [--requests N] [--rate N] [--cpu N] [--batch N] [--mix MIX]
    [--value-bytes N] [--gso] [--populate] [--apart CPU]
    [--against redis-benchmark|memcaslap [--pairs N]]
without --target: a null server in this process, on its last processor, over TCP
--apart: receive on another thread, on that processor
--against: alternate with that program (packages redis-tools, libmemcached-tools). This needs a
    --target, and --protocol resp (redis-benchmark), or text or binary (memcaslap, which opens a
    connection for each request in flight)
";

/// Number of keys in the workload, which is the preset `uniform` with a few changes.
const KEYS: &str = "100000";
const KEY_BYTES: usize = 36;

struct Options {
    target: Option<String>,
    protocol: Protocol,
    connections: u32,
    depth: u32,
    requests: u64,
    rate: Option<f64>,
    cpu: usize,
    batch: String,
    mix: String,
    value_bytes: String,
    gso: bool,
    populate: bool,
    apart: Option<usize>,
    against: Option<String>,
    pairs: usize,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            target: None,
            protocol: Protocol::Text,
            connections: 4,
            depth: 32,
            requests: 1_000_000,
            rate: None,
            cpu: 0,
            batch: "1".to_owned(),
            mix: "get=1".to_owned(),
            value_bytes: "64".to_owned(),
            gso: false,
            populate: false,
            apart: None,
            against: None,
            pairs: 5,
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or(USAGE);
            match name.as_str() {
                "--target" => options.target = Some(value()?),
                "--protocol" => options.protocol = Protocol::named(&value()?).ok_or(USAGE)?,
                "--connections" => options.connections = value()?.parse()?,
                "--depth" => options.depth = value()?.parse()?,
                "--requests" => options.requests = value()?.parse()?,
                "--rate" => options.rate = Some(value()?.parse()?),
                "--cpu" => options.cpu = value()?.parse()?,
                "--batch" => options.batch = value()?,
                "--mix" => options.mix = value()?,
                "--value-bytes" => options.value_bytes = value()?,
                "--gso" => options.gso = true,
                "--populate" => options.populate = true,
                "--apart" => options.apart = Some(value()?.parse()?),
                "--against" => options.against = Some(value()?),
                "--pairs" => options.pairs = value()?.parse()?,
                // `cargo bench` adds this flag.
                "--bench" => {}
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--help") {
        print!("{USAGE}");
        return Ok(());
    }
    bench(&Options::parse()?)
}

fn bench(options: &Options) -> Result<(), Box<dyn Error>> {
    let cpus = net::thread_cpus()?;
    let plan = Plan {
        places: vec![Place::Tcp(([127, 0, 0, 1], 0).into())],
        cpus: cpus.last().copied().into_iter().collect(),
        value_bytes: 64,
        ..Plan::default()
    };
    let null = if options.target.is_none() { Some(reflect::serve(&plan)?) } else { None };
    let name = match (&options.target, null.as_ref().and_then(|null| null.addresses().first())) {
        (Some(name), _) => name.clone(),
        (None, Some(Place::Tcp(address))) => address.to_string(),
        _ => return Err(USAGE.into()),
    };
    let mut workload = Workload::preset("uniform").ok_or("no preset")?;
    let settings = [
        ("keys", KEYS),
        ("key-size", &KEY_BYTES.to_string()),
        ("mix", &options.mix),
        ("batch", &options.batch),
        ("value-size", &options.value_bytes),
    ];
    for (setting, value) in settings {
        workload.set(setting, value)?;
    }
    let workload = Arc::new(workload);
    let targets: Arc<[_]> = Arc::from(vec![target::parse(&name, Family::Any)?]);
    let closed = Pace::Closed { connections: options.connections, depth: options.depth };
    let pace = options.rate.map_or(closed, |rate_per_s| Pace::Open {
        rate_per_s,
        connections: options.connections,
        outstanding_max: 100_000,
    });
    let drive = Drive {
        cpu: cpus.get(options.cpu).copied(),
        receive_cpu: options.apart.and_then(|cpu| cpus.get(cpu).copied()),
        timeout: Duration::from_secs(10),
        gso: options.gso,
        ..Drive::new(workload, targets, options.protocol, pace)
    };
    if options.populate {
        ran(Drive { mode: Mode::Populate, ..drive.clone() })?;
    }
    let end = EndCondition { requests: Some(options.requests), ..drive.end.clone() };
    let drive = Drive { end, ..drive };
    match &options.against {
        None => report(&ran(drive)?),
        Some(rival) => pairs(rival, options, &name, &drive)?,
    }
    Ok(())
}

fn pairs(rival: &str, options: &Options, name: &str, drive: &Drive) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("kvblaster-drive-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (Place::Tcp(address) | Place::Udp(address)) = drive.targets[0].place else {
        return Err(USAGE.into());
    };
    let is_udp = matches!(drive.targets[0].place, Place::Udp(_));
    let program = match (rival, options.protocol, options.depth) {
        ("redis-benchmark", Protocol::Resp, _) => redis_benchmark(options, address),
        ("memcaslap", Protocol::Text | Protocol::Binary, _) => {
            memcaslap(options, address, is_udp, &folder)?
        }
        _ => return Err(USAGE.into()),
    };
    let cpu = drive.cpu.unwrap_or(0).to_string();
    let run = |program: &[String]| -> Result<f64, Box<dyn Error>> {
        let before = children_seconds()?;
        let mut command = Command::new("taskset");
        let ran = command.args(["-c", &cpu]).args(program).stderr(Stdio::null()).output()?;
        if !ran.status.success() {
            return Err(format!("{} has failed", program.join(" ")).into());
        }
        let said = String::from_utf8_lossy(&ran.stdout);
        // memcaslap sends sets in addition to the requested number of requests, so the number of
        // requests is read from memcaslap's output.
        let counted = said.split_once("Ops: ").and_then(|(_, rest)| rest.split(' ').next());
        let requests = counted.map_or(Ok(options.requests), str::parse)?;
        Ok(requests as f64 / (children_seconds()? - before))
    };
    if options.populate && rival == "redis-benchmark" {
        run(&filling(options, address))?;
    }
    println!("{name}: {}", program.join(" "));
    println!("requests per CPU-second: kvblaster, {rival}, and the first over the second");
    let mut ratios = Vec::new();
    for pair in 0..options.pairs {
        let theirs_first = if pair % 2 == 1 { Some(run(&program)?) } else { None };
        let tally = ran(drive.clone())?;
        let theirs = theirs_first.map_or_else(|| run(&program), Ok)?;
        let answered = tally.total().answered as f64;
        let ours = answered / Duration::from_nanos(tally.busy_ns).as_secs_f64();
        println!("{ours:.0} {theirs:.0} {:.2}", ours / theirs);
        ratios.push(ours / theirs);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.2}", ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN));
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the key of `KEY_BYTES` bytes for redis-benchmark: letters, and a placeholder that
/// redis-benchmark replaces by twelve digits.
fn their_key() -> String {
    format!("{}__rand_int__", "k".repeat(KEY_BYTES - 12))
}

fn redis_benchmark(options: &Options, address: SocketAddr) -> Vec<String> {
    let Options { connections, depth, requests, .. } = options;
    words(&format!(
        "redis-benchmark -h {} -p {} -c {connections} -P {depth} -n {requests} -r {KEYS} GET {}",
        address.ip(),
        address.port(),
        their_key()
    ))
}

/// Returns a command that sets random keys, ten times as often as there are keys, to fill the
/// server.
fn filling(options: &Options, address: SocketAddr) -> Vec<String> {
    words(&format!(
        "redis-benchmark -h {} -p {} -P 64 -n {KEYS}5 -r {KEYS} SET {} {}",
        address.ip(),
        address.port(),
        their_key(),
        "v".repeat(options.value_bytes.parse().unwrap_or(64))
    ))
}

fn memcaslap(
    options: &Options,
    address: SocketAddr,
    is_udp: bool,
    folder: &Path,
) -> Result<Vec<String>, Box<dyn Error>> {
    let Options { connections, depth, requests, value_bytes, .. } = options;
    // memcaslap keeps only one request per connection in flight, so memcaslap gets `depth` times as
    // many connections.
    let connections = connections * depth;
    let file = folder.join("memcaslap");
    let sizes = format!(
        "key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{value_bytes} {value_bytes} 1\ncmd\n0 0\n1 1\n"
    );
    std::fs::write(&file, sizes)?;
    // `-w 1k`: each connection sets 1,000 keys (memcaslap's minimum), and then gets these keys.
    let mut program = words(&format!(
        "memcaslap -s {address} -T 1 -c {connections} -x {requests} -w 1k -F {}",
        file.display()
    ));
    program.extend((options.protocol == Protocol::Binary).then(|| "-B".to_owned()));
    program.extend(is_udp.then(|| "-U".to_owned()));
    Ok(program)
}

/// Returns the CPU time in seconds of all child processes that have ended.
fn children_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no statistics")?.1;
    let mut ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u32>);
    let (Some(user), Some(system)) = (ticks.next(), ticks.next()) else {
        return Err("no statistics".into());
    };
    let each = rustix::param::clock_ticks_per_second() as f64;
    Ok((f64::from(user?) + f64::from(system?)) / each)
}

fn ran(drive: Drive) -> Result<Tally, Box<dyn Error>> {
    let (sink, tallies) = mpsc::channel();
    drive::run(drive, Instant::now(), &AtomicU32::new(0), &sink)?;
    drop(sink);
    let mut all = Tally::default();
    tallies.iter().for_each(|(_, _, tally)| all.merge(&tally));
    Ok(all)
}

fn report(tally: &Tally) {
    let total = tally.total();
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    let us = |ns: Option<u64>| Duration::from_nanos(ns.unwrap_or(0)).as_secs_f64() * 1e6;
    let answered = Duration::from_secs(total.answered).as_secs_f64();
    println!("answered          {} of {}, {} wrong", total.answered, total.sent, total.failed());
    println!("requests a second {:.0}", answered / seconds(tally.wall_ns));
    println!("and CPU-second    {:.0}", answered / seconds(tally.busy_ns));
    println!("CPU of the thread {:.0} %", 100.0 * seconds(tally.busy_ns) / seconds(tally.wall_ns));
    for (name, times) in [("response", &total.response_ns), ("lateness", &tally.lateness_ns)] {
        let quantile = |quantile| us(times.quantile_ns(quantile));
        let (median, most) = (quantile(0.5), quantile(0.999));
        println!("{name} us       p50 {median:.1}, p99.9 {most:.1}");
    }
}
