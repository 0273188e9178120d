//! Measures the gain from columns that help each other. One column gets all load: in one server the
//! other columns may help, in a second server they may not.
//!
//! ```text
//!                                                      without help
//! tcp   all connections accepted by the first column   -o no_migrate
//! udp   all datagrams sent to the first column's port  -o no_steal
//! xdp   an interface with one queue, over AF_XDP       -o no_steal (with help: -o steal_rings)
//! ```
//!
//! Where: outside the cache. Each transport has two servers, with help and without. They run in
//! turns under full load, and at the same time under light load.
//! Invariant: each reply is compared byte for byte. Only connections that the first column accepted
//! are used, so that all load begins on one column.

mod clients;
#[path = "../measure/mod.rs"]
mod measure;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;

use clients::{Load, RunFigures};
use measure::report::{Report, say};
use measure::statistics::{Median, median, median_with_interval};
use measure::{Outcome, real};
use site::{Site, Transport};

/// Requests per second of a server whose whole load comes to one column, alone and helped by other
/// columns. Further figures: s and k, the CPU time of a request in the server and in the clients,
/// alone, in microseconds; the bound 2s/(s+k), the gain if server and clients shared two cores
/// fully; the share of this bound that was reached; and the ratio of p99 helped to p99 alone, under
/// full and under light load.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Transports of the requests
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp,udp,xdp")]
    ways: Vec<Transport>,
    /// -t of the servers
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// CPUs for the servers, such as 0,1 (default: all)
    #[arg(long, value_delimiter = ',')]
    server_cpus: Vec<usize>,
    /// Connections or sockets, each on a thread of its own
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Keys of each get
    #[arg(long, default_value_t = 48)]
    keys: usize,
    /// Absent keys of each get, which are work for the server but not for the clients
    #[arg(long, default_value_t = 0)]
    misses: usize,
    /// Length of each value
    #[arg(long, default_value_t = 64)]
    value_bytes: usize,
    /// Gets that a connection has in flight
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Unmeasured load before each window, in seconds, in which connections may move
    #[arg(long, default_value = "3", value_parser = real(0.0, 600.0))]
    warmup: f64,
    /// Length of each window, in seconds
    #[arg(long, default_value = "1.5", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// Pairs of windows under full load; the server that goes first alternates
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Requests a second to each server under light load, over all connections
    #[arg(long, default_value_t = 1000)]
    light_rate: u32,
    /// Length of each window under light load, in seconds
    #[arg(long, default_value = "1", value_parser = real(0.1, 600.0))]
    light_seconds: f64,
    /// Pairs of windows under light load
    #[arg(long, default_value_t = 15)]
    light_pairs: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Also write the results to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Pairs of measurements of one transport: with help, and without.
type Pairs = Vec<[RunFigures; 2]>;

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let (mut report, program) = Report::of_subject(options.subject.as_ref())?;
    let mut rows = Vec::new();
    for way in &options.ways {
        let site = |is_helped| Site::start(*way, &program, &options, is_helped);
        let Some(sites) = site(true)?.zip(site(false)?).map(<[Site; 2]>::from) else {
            say(&format!("{}: not possible on this machine\n", way.name()))?;
            continue;
        };
        let light = Load::Light { rate: options.light_rate, seconds: options.light_seconds };
        let full = Load::Full { warmup: options.warmup, seconds: options.seconds };
        let light = pairs(&sites, &options, (light, options.light_pairs))?;
        let full = pairs(&sites, &options, (full, options.pairs))?;
        for site in &sites {
            say(&format!("{}\n", site.helps()?))?;
        }
        rows.push(row(&mut report, *way, &full, &light)?);
    }
    let head = ["", "alone", "helped", "times", "s", "k", "bound", "share", "p99", "light p99"];
    rows.insert(0, head.map(str::to_owned));
    for row in rows {
        let [way, alone, helped, times, s, k, bound, share, p99, light] = row;
        say(&format!(
            "{way:<4}{alone:>10}{helped:>10}{times:>19}{s:>7}{k:>7}{bound:>7}{share:>7}{p99:>19}\
             {light:>19}\n"
        ))?;
    }
    report.close(options.json.as_deref())
}

/// Under light load both servers run at the same time, because they do not disturb each other, and
/// other work of the machine then affects both.
fn pairs(sites: &[Site; 2], options: &Options, (load, pairs): (Load, u32)) -> Outcome<Pairs> {
    let one = |at: usize| clients::measure(&sites[at], options, load).map_err(|it| it.to_string());
    let mut measured = Pairs::new();
    for pair in 0..pairs {
        let [helped, alone] = match load {
            Load::Light { .. } => std::thread::scope(|scope| {
                let alone = scope.spawn(|| one(1));
                let helped = one(0);
                let died = |_| Err("a client panicked".to_owned());
                [helped, alone.join().unwrap_or_else(died)]
            }),
            Load::Full { .. } if pair % 2 == 0 => [0, 1].map(one),
            Load::Full { .. } => {
                let [alone, helped] = [1, 0].map(one);
                [helped, alone]
            }
        };
        let both = [helped?, alone?];
        for (name, it) in ["helped", "alone"].iter().zip(&both) {
            let RunFigures { per_s, p99_us, server_us, clients_us } = it;
            let way = sites[0].name();
            say(&format!(
                "{way} {load} {name:>6}: {per_s:.0}/s, p99 {p99_us:.0} us, CPU time \
                 {server_us:.1} and {clients_us:.1} us\n"
            ))?;
        }
        measured.push(both);
    }
    Ok(measured)
}

fn row(report: &mut Report, way: Transport, full: &Pairs, light: &Pairs) -> Outcome<[String; 10]> {
    let of = |pairs: &Pairs, at: usize, figure: fn(&RunFigures) -> f64| -> Vec<f64> {
        pairs.iter().map(|pair| figure(&pair[at])).collect()
    };
    let ratio = |pairs: &Pairs, figure: fn(&RunFigures) -> f64| {
        let ratios: Vec<f64> = pairs.iter().map(|[a, b]| figure(a) / figure(b)).collect();
        median_with_interval(&ratios)
    };
    let times = ratio(full, |it| it.per_s);
    let s = median(&of(full, 1, |it| it.server_us));
    let k = median(&of(full, 1, |it| it.clients_us));
    let bound = 2.0 * s / (s + k);
    let p99 = ratio(full, |it| it.p99_us);
    let light_p99 = ratio(light, |it| it.p99_us);
    let rate = |at| median(&of(full, at, |it| it.per_s));
    let (helped, alone) = (rate(0), rate(1));
    let name = |what: &str| format!("{}, {what}", way.name());
    report.figure(&name("requests, alone"), "/s", alone)?;
    report.figure(&name("requests, helped"), "/s", helped)?;
    report.median(&name("requests, helped to alone"), "x", times)?;
    report.figure(&name("s, the server's CPU time of a request"), "us", s)?;
    report.figure(&name("k, its clients'"), "us", k)?;
    report.figure(&name("2s / (s + k)"), "x", bound)?;
    report.median(&name("p99, helped to alone"), "x", p99)?;
    report.median(&name("p99 under light load, helped to alone"), "x", light_p99)?;
    let shown = |Median { value, low, high }| match value.is_nan() {
        true => "-".to_owned(),
        false => format!("{value:.2} [{low:.2}, {high:.2}]"),
    };
    Ok([
        way.name().to_owned(),
        format!("{alone:.0}"),
        format!("{helped:.0}"),
        shown(times),
        format!("{s:.1}"),
        format!("{k:.1}"),
        format!("{bound:.2}"),
        format!("{:.2}", times.value / bound),
        shown(p99),
        shown(light_p99),
    ])
}
