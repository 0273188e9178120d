//! Requests per second of server CPU: hypostyle against memcached, over loopback TCP.
//!
//! Where: outside the cache; the program runs a `kvblaster compare`, which starts both servers.
//! Invariant: a figure counts only hits and stored values; the program fails at a miss or an error.

#[path = "../measure/mod.rs"]
mod measure;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blaster::flags::Verb;
use blaster::run::compare::{self, Comparison, Plan};
use blaster::run::text::compared;
use measure::launched::{Launch, memcached, subject};
use measure::report::say;
use measure::{Outcome, driven, fail, real};
use serde_json::Value;

/// Length of the keys: the median of Twitter's published clusters.
const KEY_BYTES: usize = 36;

/// Requests per second of server CPU: hypostyle against memcached, over loopback TCP. The rival is
/// the memcached that MEMCACHED= names, or the first on PATH.
#[derive(Debug, clap::Parser)]
struct Options {
    /// text (get, set), meta (mg, ms) or binary (GETK, SET)
    #[arg(long, default_value = "text")]
    protocol: String,
    /// Measured pairs of windows; the server that goes first alternates
    #[arg(long, default_value_t = 9)]
    pairs: u32,
    /// Length of one measured window
    #[arg(long, default_value = "2", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// Unmeasured load before each window, in seconds
    #[arg(long, default_value = "0.3", value_parser = real(0.0, 600.0))]
    warmup: f64,
    /// Client connections
    #[arg(long, default_value_t = 50)]
    connections: u32,
    /// Requests in flight per connection, one comparison each
    #[arg(long, default_value = "1,32", value_delimiter = ',')]
    in_flight: Vec<u32>,
    /// Keys stored beforehand; every get hits
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// Length of each value
    #[arg(long, default_value_t = 64)]
    value_bytes: u32,
    /// Share of sets among the requests
    #[arg(long, default_value = "0", value_parser = real(0.0, 1.0))]
    set_ratio: f64,
    /// -t of both servers
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// -R of both servers
    #[arg(long, default_value_t = 500)]
    reqs_per_event: u32,
    /// -m of both servers
    #[arg(long, default_value_t = 1024)]
    memory_mb: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Further arguments of the subject, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    subject_args: String,
    /// Compare the rival with itself; the result must show no difference
    #[arg(long)]
    aa: bool,
    /// Let the client sleep while no reply has arrived. The server's CPU time then includes waking
    /// the client, which does not occur with clients on other machines
    #[arg(long)]
    client_sleeps: bool,
    /// Also write the results to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut all = Vec::new();
    for &in_flight in &options.in_flight {
        let mut plan = plan(&options, in_flight)?;
        let done = compare::run(&mut plan)?;
        say(&format!("{in_flight} in flight\n{}\n", compared::text(&plan, &done)))?;
        all_right(&done)?;
        all.push(done);
    }
    match &options.json {
        Some(path) => {
            let json: Outcome<Vec<Value>> =
                all.iter().map(|one| Ok(serde_json::from_str(&one.json()?)?)).collect();
            Ok(std::fs::write(path, format!("{:#}\n", Value::from(json?)))?)
        }
        None => Ok(()),
    }
}

/// The rival is listed first, so that ratios are relative to it.
fn plan(options: &Options, in_flight: u32) -> Outcome<Plan> {
    let cores = net::thread_cpus()?;
    let (server_cores, client_core) = match cores.split_last() {
        None => return fail("no core to run on".to_owned()),
        Some((only, [])) => (vec![*only], only),
        Some((last, rest)) => {
            let threads = usize::try_from(options.threads)?;
            (rest.iter().copied().take(threads).collect(), last)
        }
    };
    let rival = memcached();
    let subject = if options.aa { rival.clone() } else { subject(options.subject.as_ref())? };
    let extra = if options.aa { "" } else { &options.subject_args };
    let mut words = vec!["compare".to_owned()];
    for (program, extra) in [(&rival, ""), (&subject, extra)] {
        words.extend(["--start".to_owned(), start(program, extra, options)?]);
    }
    let Options { protocol, pairs, seconds, warmup, connections, .. } = options;
    let Options { keys, value_bytes, set_ratio, client_sleeps, .. } = options;
    let server_cores: Vec<String> = server_cores.iter().map(usize::to_string).collect();
    let more = format!(
        "-w uniform --keys {keys} --key-size {KEY_BYTES} --value-size {value_bytes} \
         --mix get={},set={set_ratio} -P {protocol} -c {connections} -d {in_flight} \
         --schedule {warmup}s+1x{seconds}s --rounds {pairs} --cpus {client_core} --server-cpus {}",
        1.0 - set_ratio,
        server_cores.join(",")
    );
    words.extend(more.split_whitespace().map(str::to_owned));
    words.extend((!client_sleeps).then(|| "--spin".to_owned()));
    match driven::verb(words)? {
        Verb::Compare(plan) => Ok(*plan),
        _ => fail("not a `kvblaster compare`".to_owned()),
    }
}

fn start(program: &Path, extra: &str, options: &Options) -> Outcome<String> {
    let mut words = vec!["-R".to_owned(), options.reqs_per_event.to_string()];
    words.extend(extra.split_whitespace().map(str::to_owned));
    let Options { threads, memory_mb, connections, .. } = *options;
    let connections = connections.saturating_add(64);
    let launch = Launch { program, threads, memory_mb, connections, extra: &words };
    let words: Vec<String> = launch.words()?.iter().map(|word| format!("'{word}'")).collect();
    Ok(words.join(" "))
}

fn all_right(done: &Comparison) -> Outcome<()> {
    for server in &done.servers {
        let total = server.merged.as_ref().map(|merged| merged.tally.total()).unwrap_or_default();
        if total.failed() > 0 || total.misses > 0 {
            let (label, failed) = (&server.manifest.label, total.failed());
            return fail(format!("{label}: {} misses, {failed} failures", total.misses));
        }
    }
    Ok(())
}
