//! The CPU time saved over AF_XDP, by length of value, when replies send values in place; and the
//! throughput when the values of sets stay in the packets in which they arrived.
//!
//! Where: outside the cache, as root. Two servers, one of them with `-o zero_copy=send` or `full`,
//! take turns at one end of a link between two network namespaces; a client is at the other.
//! Invariant: each reply is whole and has the key's value; the servers count the bytes copied.
//! Source: the KV-Cache paper, section 4.1.3.

mod client;
#[path = "../measure/mod.rs"]
mod measure;
mod mixes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use blaster::launch::Server;
use client::{Client, Work, value};
use measure::launched::{EVERYBODY, Launch};
use measure::report::{Report, say};
use measure::statistics::{count_of_u64, median_with_interval};
use measure::wire::{Protocol, Wire};
use measure::{Outcome, fail, real};
use procfs::process::Process;
use testing::namespace::{Namespace, Veth, WIRE, pair};

const UDP_PORT: u16 = 11_211;
const KEYS: u32 = 32;
const MODES: [&str; 2] = ["native", "generic"];
/// Approximate bytes of an item in addition to its value.
const ITEM_BYTES: usize = 64;

/// CPU and user time of a server per get over AF_XDP, with values copied and with values sent in
/// place, by length of value; and the number of values that it holds at equal `-m`. Then requests a
/// second of gets and sets, with values that stay in the packets in which they arrived.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Lengths of values
    #[arg(long, value_delimiter = ',', default_value = "64,256,512,1024,1392,4096,16384,65536")]
    sizes: Vec<usize>,
    /// MTUs of the link
    #[arg(long, value_delimiter = ',', default_value = "1500,9000")]
    mtus: Vec<u32>,
    /// The tables to measure: gets by length of value; mixes of gets and sets, if a set fits a
    /// packet
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["gets", "mixes"])]
    tables: Vec<Table>,
    /// mixes: one request in this number is a set
    #[arg(long, value_delimiter = ',', default_values = ["2", "10"])]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=1000))]
    sets_one_in: Vec<u64>,
    /// mixes: length of the values
    #[arg(long, default_value_t = 8192)]
    mix_bytes: usize,
    /// Modes in which the XDP program is attached
    #[arg(long, value_delimiter = ',', default_values = MODES)]
    modes: Vec<String>,
    /// mixes: number of clients; while one checks its answers, the server answers the others
    #[arg(long, default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// -m of the servers
    #[arg(long, default_value_t = 256)]
    memory_mb: u32,
    /// CPU of the server
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// CPU of the client
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Measured seconds for each length of value
    #[arg(long, default_value = "1", value_parser = real(0.1, 600.0))]
    seconds: f64,
    /// Measured pairs; the server that goes first alternates
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Also write the results to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    Gets,
    Mixes,
}

#[derive(Clone, Copy)]
struct Cost {
    cpu_us: f64,
    user_us: f64,
    /// Share of the sent bytes that were not copied.
    in_place: f64,
}

type Figure = fn(&Cost) -> f64;

const WAYS: [&str; 2] = ["off", "send"];

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let (mut report, program) = Report::of_subject(options.subject.as_ref())?;
    net::pin_thread(options.client_cpu)?;
    for mtu in &options.mtus {
        let Some(ends) = pair(Veth { queues: 1, mtu: *mtu }) else {
            return fail("network namespaces need root and the program `ip`".to_owned());
        };
        for mode in &options.modes {
            let bench = Bench { options: &options, program: &program, ends: &ends, mode };
            let of = format!("MTU {mtu}, {mode}");
            if options.tables.contains(&Table::Mixes) && bench.is_a_packet(*mtu) {
                mixes::measure(&bench, &mut report, &of)?;
            }
            if !options.tables.contains(&Table::Gets) {
                continue;
            }
            let mut costs: [Vec<Vec<Cost>>; 2] = [Vec::new(), Vec::new()];
            for turn in 0..2 * options.pairs {
                let way = ((turn + turn / 2) % 2) as usize;
                costs[way].push(bench.costs(WAYS[way])?);
            }
            show(&mut report, &options.sizes, &of, &costs)?;
            if mode == &options.modes[0] {
                for bytes in &options.sizes {
                    let name = |way| format!("MTU {mtu}, {bytes} B, values held, {way}");
                    for way in WAYS {
                        report.figure(&name(way), "", bench.held(way, *bytes)?)?;
                    }
                }
            }
        }
    }
    report.close(options.json.as_deref())
}

fn show(
    report: &mut Report,
    sizes: &[usize],
    of: &str,
    costs: &[Vec<Vec<Cost>>; 2],
) -> Outcome<()> {
    say(&format!("{of}\n"))?;
    let figures: [(&str, &'static str, Figure); 2] =
        [("CPU of a get", "us", |it| it.cpu_us), ("user time of a get", "us", |it| it.user_us)];
    for (at, bytes) in sizes.iter().enumerate() {
        for (name, unit, figure) in figures {
            for (way, costs) in WAYS.iter().zip(costs) {
                let values: Vec<f64> = costs.iter().map(|costs| figure(&costs[at])).collect();
                let name = format!("{of}, {bytes} B, {name}, {way}");
                report.median(&name, unit, median_with_interval(&values))?;
            }
            let [copied, in_place] = costs;
            let pairs = in_place.iter().zip(copied);
            let ratio = pairs.map(|(new, old)| figure(&new[at]) / figure(&old[at]));
            let ratios = median_with_interval(&ratio.collect::<Vec<f64>>());
            report.median(&format!("{of}, {bytes} B, {name}, send to off"), "x", ratios)?;
        }
        let share: Vec<f64> = costs[1].iter().map(|costs| costs[at].in_place).collect();
        let name = format!("{of}, {bytes} B, sent in place");
        report.median(&name, "of 1", median_with_interval(&share))?;
    }
    Ok(())
}

struct Bench<'b> {
    options: &'b Options,
    program: &'b std::path::Path,
    ends: &'b [Namespace; 2],
    mode: &'b str,
}

impl Bench<'_> {
    fn costs(&self, way: &str) -> Outcome<Vec<Cost>> {
        let [near, far] = self.ends;
        let (server, mut wire) = self.start(way)?;
        let client = || Client::new((far.v4, UDP_PORT).into()).map_err(|it| it.to_string());
        let mut client = near.on(client)?;
        let sizes = self.options.sizes.iter();
        sizes.map(|bytes| self.cost(&server, (&mut wire, &mut client), *bytes)).collect()
    }

    fn start(&self, way: &str) -> Outcome<(Server, Wire)> {
        let far = &self.ends[1];
        let (v4, mode) = (far.v4, self.mode);
        let extra = format!(
            "-l {v4} -U {UDP_PORT} --xdp {WIRE} --xdp-mode {mode} \
             -o zero_copy={way},zero_copy_min=1,{EVERYBODY}"
        );
        let extra: Vec<String> = extra.split(' ').map(str::to_owned).collect();
        let launch = Launch {
            program: self.program,
            threads: 1,
            memory_mb: self.options.memory_mb,
            connections: 16,
            extra: &extra,
        };
        let cpu = self.options.server_cpu;
        let server = far.on(|| launch.start(&[cpu]).map_err(|error| error.to_string()))?;
        let connect = || Wire::connect(&server.target, Protocol::Text).map_err(|it| it.to_string());
        let wire = far.on(connect)?;
        Ok((server, wire))
    }

    fn cost(
        &self,
        server: &Server,
        (wire, client): (&mut Wire, &mut Client),
        bytes: usize,
    ) -> Outcome<Cost> {
        fill(wire, 0..KEYS, bytes)?;
        let seconds = self.options.seconds;
        let mut work = Work::gets(KEYS, bytes);
        client.ask(Duration::from_secs_f64(seconds / 4.0), &mut work)?;
        let (cpu_before, sent_before) = (times(server)?, sent(wire)?);
        let answered = client.ask(Duration::from_secs_f64(seconds), &mut work)?;
        let (cpu, sent) = (times(server)?, sent(wire)?);
        let each_us = |seconds: f64| seconds * 1e6 / count_of_u64(answered);
        let (copied, in_place) = (sent.0 - sent_before.0, sent.1 - sent_before.1);
        Ok(Cost {
            cpu_us: each_us(cpu.0 - cpu_before.0),
            user_us: each_us(cpu.1 - cpu_before.1),
            in_place: count_of_u64(in_place) / count_of_u64(copied + in_place),
        })
    }

    /// Stores one and a half times the values that the memory could hold, and returns the number
    /// that the server keeps.
    fn held(&self, way: &str, bytes: usize) -> Outcome<f64> {
        let (_server, mut wire) = self.start(way)?;
        let most = (self.options.memory_mb as usize) << 20;
        let keys = u32::try_from(most / (bytes + ITEM_BYTES) * 3 / 2)?;
        fill(&mut wire, 0..keys, bytes)?;
        Ok(count_of_u64(wire.number("stats", "curr_items")?))
    }
}

fn fill(wire: &mut Wire, keys: std::ops::Range<u32>, bytes: usize) -> Outcome<()> {
    let mut out = Vec::new();
    for key in keys {
        let value = value(key, bytes);
        out.extend_from_slice(format!("set {key} 0 0 {bytes} noreply\r\n").as_bytes());
        out.extend_from_slice(&value);
        out.extend_from_slice(b"\r\n");
        if out.len() >= 1 << 20 {
            wire.send(&out)?;
            out.clear();
        }
    }
    wire.send(&out)?;
    match wire.line("mn")?.as_str() {
        "MN" => Ok(()),
        line => fail(format!("the answer to mn is {line:?}")),
    }
}

fn sent(wire: &mut Wire) -> Outcome<(u64, u64)> {
    let one = |wire: &mut Wire, name| wire.number("stats udp", name);
    if one(wire, "xdp_invalid")? > 0 {
        return fail("the kernel has refused a descriptor as invalid".to_owned());
    }
    Ok((one(wire, "copied_bytes")?, one(wire, "zero_copy_bytes")?))
}

fn times(server: &Server) -> Outcome<(f64, f64)> {
    let stat = Process::new(i32::try_from(server.pid())?)?.stat()?;
    let seconds = |ticks: u64| count_of_u64(ticks) / count_of_u64(procfs::ticks_per_second());
    Ok((seconds(stat.utime + stat.stime), seconds(stat.utime)))
}
