//! Runs the tools as their users would run them, and parses the figures that they print.
//!
//! Where: between the servers and the comparison. Invariant: each run is one process on one CPU. If
//! the output lacks a figure, the run fails.

use super::servers;
use super::{Settings, started};
use blaster::launch::Server;
use blaster::result::RunResult;
use std::error::Error;
use std::io::Write;
use std::process::{Command, Output};

const KEYS: u32 = 16_000;
const VALUE_BYTES: u32 = 128;
/// Length of memcaslap's keys in bytes. (The keys of redis-benchmark have 16 bytes.)
const SLAP_KEY_BYTES: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    Memcaslap,
    RedisBenchmark,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunFigures {
    pub(crate) per_s: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// The ranges in which p50 and p99 lie. Set if the tool prints no exact p50 and p99.
    pub(crate) p50_p99: Option<(String, String)>,
    pub(crate) cpu_us: f64,
}

impl Rival {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rival::Memcaslap => "memcaslap",
            Rival::RedisBenchmark => "redis-benchmark",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        Command::new(self.name()).arg("--version").output().is_ok()
    }

    pub(crate) fn server(self, cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
        Ok(match self {
            Rival::Memcaslap => started(servers::memcached(cpu)?, "memcached"),
            Rival::RedisBenchmark => started(servers::redis(cpu)?, "redis-server"),
        })
    }
}

fn words(rival: Rival, server: &Server) -> Vec<String> {
    let (key_bytes, mix) = match rival {
        Rival::Memcaslap => (SLAP_KEY_BYTES, "get=9,set=1"),
        Rival::RedisBenchmark => (16, "get=1"),
    };
    let target = &server.target;
    let words = format!(
        "run -q --json -w uniform --keys {KEYS} --key-size {key_bytes} --value-size {VALUE_BYTES} \
         --mix {mix} {target}"
    );
    words.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn fill(
    rival: Rival,
    server: &Server,
    settings: Settings,
) -> Result<(), Box<dyn Error>> {
    let mut filling = kvblaster_at(settings.client_cpu);
    filling.args(words(rival, server)).args(["--keep", "-n", "1"]);
    run(&mut filling)?;
    if rival == Rival::RedisBenchmark {
        // redis-benchmark draws keys at random. With ten sets per key, almost all keys are stored.
        let many = (10 * KEYS).to_string();
        let words = ["-t", "set", "-n", &many, "-c", "8", "-P", "16"];
        run(redis_benchmark(server, settings).args(words))?;
    }
    Ok(())
}

fn kvblaster_at(cpu: usize) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), env!("CARGO_BIN_EXE_kvblaster")]);
    command
}

pub(crate) fn kvblaster(
    rival: Rival,
    server: &Server,
    connections: u32,
    settings: Settings,
) -> Result<RunFigures, Box<dyn Error>> {
    let mut command = kvblaster_at(settings.client_cpu);
    command.args(words(rival, server)).arg("--no-populate");
    command.args(["-c", &connections.to_string()]);
    command.args(["--schedule", &format!("0s+1x{}s", settings.seconds)]);
    let (output, cpu_us) = run(&mut command)?;
    let result: RunResult = serde_json::from_slice(&output.stdout)?;
    let merged = result.merged.as_ref().ok_or("kvblaster measured nothing")?;
    let total = merged.tally.total();
    if total.failed() > 0 || total.misses > 0 {
        return Err(format!("{} failed, {} missed", total.failed(), total.misses).into());
    }
    let us = |quantile| total.response_ns.quantile_ns(quantile).map(|ns| ns as f64 / 1e3);
    Ok(RunFigures {
        per_s: merged.achieved_per_s(),
        mean_us: total.response_ns.mean_ns().ok_or("no times")? / 1e3,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p50_p99: None,
        cpu_us: cpu_us / total.answered as f64,
    })
}

/// `rate`, the expected requests per second, determines how many requests redis-benchmark sends.
pub(crate) fn rival(
    rival: Rival,
    server: &Server,
    (connections, rate): (u32, f64),
    settings: Settings,
) -> Result<RunFigures, Box<dyn Error>> {
    match rival {
        Rival::Memcaslap => memcaslap(server, connections, settings),
        Rival::RedisBenchmark => redis(server, (connections, rate), settings),
    }
}

fn memcaslap(
    server: &Server,
    connections: u32,
    settings: Settings,
) -> Result<RunFigures, Box<dyn Error>> {
    let config = std::env::temp_dir().join(format!("agree-{}.cfg", std::process::id()));
    let rows = format!(
        "key\n{SLAP_KEY_BYTES} {SLAP_KEY_BYTES} 1\nvalue\n{VALUE_BYTES} {VALUE_BYTES} 1\n\
         cmd\n0 0.1\n1 0.9\n"
    );
    std::fs::File::create(&config)?.write_all(rows.as_bytes())?;
    let mut command = Command::new("taskset");
    command.args(["-c", &settings.client_cpu.to_string(), "memcaslap", "-T", "1"]);
    command.args(["-s", &server.target, "-c", &connections.to_string()]);
    // `-w 1k` is the number of keys per connection. Without `-S`, memcaslap prints no times.
    command.args(["-w", "1k", "-S", "1h", "-t", &format!("{}s", settings.seconds), "-F"]);
    let outcome = run(command.arg(&config));
    let _ = std::fs::remove_file(&config);
    let (output, cpu_us) = outcome?;
    parse_memcaslap(&String::from_utf8_lossy(&output.stdout), cpu_us)
}

/// Parses memcaslap's totals: the mean after `Avg:`, and the histogram of times in powers of two.
fn parse_memcaslap(text: &str, cpu_us: f64) -> Result<RunFigures, Box<dyn Error>> {
    let lacks = |what: &str| format!("memcaslap printed no {what}:\n{text}");
    let of = |text: &str, name: &str| -> Option<f64> {
        text.split_once(name)?.1.split_whitespace().next()?.parse().ok()
    };
    let total = text.split("Total Statistics (").nth(1).ok_or_else(|| lacks("total"))?;
    let bins = total.split_once("Log2 Dist:").ok_or_else(|| lacks("distribution"))?.1;
    let mut counts = [0.0; 64];
    for line in bins.lines().skip(1).take_while(|line| line.contains(':')) {
        let (first, row) = line.split_once(':').unwrap_or_default();
        let Ok(first) = first.trim().parse::<usize>() else { break };
        for (nth, count) in row.split_whitespace().enumerate() {
            if let Some(bin) = counts.get_mut(first + nth) {
                *bin = count.parse()?;
            }
        }
    }
    let all: f64 = counts.iter().sum();
    let range = |quantile: f64| {
        let mut seen = 0.0;
        let bin = counts.iter().position(|count| {
            seen += count;
            seen >= quantile * all
        });
        let bin = bin.unwrap_or(0);
        format!("{}..{}", 1_u64 << bin.saturating_sub(1), 1_u64 << bin)
    };
    let operations = of(text, " Ops:").ok_or_else(|| lacks("count"))?;
    Ok(RunFigures {
        per_s: of(text, " TPS:").ok_or_else(|| lacks("rate"))?,
        mean_us: of(total, "Avg:").ok_or_else(|| lacks("mean"))?,
        p50_us: None,
        p99_us: None,
        p50_p99: Some((range(0.5), range(0.99))),
        cpu_us: cpu_us / operations,
    })
}

fn redis_benchmark(server: &Server, settings: Settings) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &settings.client_cpu.to_string(), "redis-benchmark", "--csv"]);
    let port = server.target.rsplit(':').next().unwrap_or_default();
    command.args(["-h", "127.0.0.1", "-p", port]);
    command.args(["-r", &KEYS.to_string(), "-d", &VALUE_BYTES.to_string()]);
    command
}

fn redis(
    server: &Server,
    (connections, rate): (u32, f64),
    settings: Settings,
) -> Result<RunFigures, Box<dyn Error>> {
    let requests = format!("{:.0}", rate * f64::from(settings.seconds));
    let mut command = redis_benchmark(server, settings);
    command.args(["-t", "get", "-n", &requests, "-c", &connections.to_string()]);
    let (output, cpu_us) = run(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout).replace('"', "");
    let row = |start: &str| text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
    let names = row("test,").ok_or("redis-benchmark printed no names")?;
    let cells = row("GET,").ok_or("redis-benchmark printed no figures")?;
    let cell = |name: &str| -> Result<f64, Box<dyn Error>> {
        let at = names.split(',').position(|one| one == name).ok_or(name.to_owned())?;
        Ok(cells.split(',').nth(at).ok_or(name.to_owned())?.parse()?)
    };
    Ok(RunFigures {
        per_s: cell("rps")?,
        mean_us: 1e3 * cell("avg_latency_ms")?,
        p50_us: Some(1e3 * cell("p50_latency_ms")?),
        p99_us: Some(1e3 * cell("p99_latency_ms")?),
        p50_p99: None,
        cpu_us: cpu_us / requests.parse::<f64>()?,
    })
}

/// Runs a tool to its end. Returns its output, and its CPU time in microseconds.
pub(crate) fn run(command: &mut Command) -> Result<(Output, f64), Box<dyn Error>> {
    let before = children_us()?;
    let output = command.output()?;
    let took = children_us()? - before;
    if output.status.success() {
        return Ok((output, took));
    }
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Err(format!("{command:?}: {}\n{}", output.status, text.concat()).into())
}

/// Returns the CPU time in microseconds of the child processes that have been waited for.
fn children_us() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, figures) = stat.rsplit_once(')').ok_or("/proc/self/stat")?;
    let ticks = figures.split_ascii_whitespace().skip(13).take(2).map(str::parse::<f64>);
    let ticks: Vec<f64> = ticks.collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}
