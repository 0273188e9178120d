//! What driving costs: requests per second of the driving thread's CPU, against the null server or
//! any other.
//!
//! Where: outside the program; it runs one driving thread, as `kvblaster run` does with many.
//! Invariant: what is divided is what was answered, by the CPU time of the thread that drove.
//! Under `valgrind --tool=callgrind` with `--requests` of N and 2 N, the difference in instructions
//! over N is the cost of one request, and `callgrind_annotate` says where.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints")]

use blaster::drive::{self, Drive, Mode, Pace, Until};
use blaster::measure::Tally;
use blaster::reflect::{self, Plan};
use blaster::target::{self, Family, Place, Ring};
use blaster::wire::Speech;
use blaster::workload::{Names, Workload};
use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo bench -p kvblaster --bench drive -- [--target NAME] [--protocol text|meta|binary|resp]
    [--connections N] [--depth N] [--requests N] [--rate N] [--cpu N] [--batch N] [--mix MIX]
    [--value-bytes N] [--gso] [--populate]
without --target: a null server of this process, on its last processor, over TCP
";

struct Options {
    target: Option<String>,
    speech: Speech,
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
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            target: None,
            speech: Speech::Text,
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
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or(USAGE);
            match name.as_str() {
                "--target" => options.target = Some(value()?),
                "--protocol" => options.speech = Speech::named(&value()?).ok_or(USAGE)?,
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
                // What cargo adds.
                "--bench" => {}
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
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
        ("keys", "100000"),
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
        names: Names::new(&workload, 1),
        workload,
        seed: 1,
        thread: 0,
        threads: 1,
        ring: Arc::new(Ring::new(&targets)),
        targets,
        speech: options.speech,
        cpu: cpus.get(options.cpu).copied(),
        receive_apart: None,
        pace,
        timeout: Duration::from_secs(10),
        late_limit: Duration::from_millis(1),
        churn_requests: None,
        verify: false,
        fill_on_miss: false,
        gso: options.gso,
        mode: Mode::Traffic,
        pulses: None,
        ready: Arc::default(),
        until: Until { stop: Arc::default(), deadline: None, requests: None },
    };
    if options.populate {
        ran(Drive { mode: Mode::Populate, ..drive.clone() })?;
    }
    let until = Until { requests: Some(options.requests), ..drive.until.clone() };
    let tally = ran(Drive { until, ..drive })?;
    report(&tally);
    Ok(())
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
