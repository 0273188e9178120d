//! Requests per second when gets and sets mix: values kept in the packets they came in, which is
//! `-o zero_copy=full`, or copied.
//!
//! Where: a table of the bench, over links whose packets hold a value.
//! Invariant: as in main.rs; and the servers' counters say which of the received values were kept.

use std::time::{Duration, Instant};

use crate::client::{Client, Work};
use crate::measure::report::{Report, say};
use crate::measure::statistics::{count_of_u64, median_with_interval};
use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::{Bench, Options, UDP_PORT, fill, times};

/// A prime, so that every key is stored in turn, whichever requests store.
const KEYS: u32 = 1021;
/// Upper bound of a set's bytes beyond its value.
const AROUND_BYTES: usize = 100;
/// The values of `-o zero_copy` that are compared: values copied, or kept where they came.
const WAYS: [&str; 2] = ["off", "full"];

/// The figures of one server.
#[derive(Clone, Copy)]
struct Done {
    per_s: f64,
    /// CPU time per request.
    cpu_us: f64,
    user_us: f64,
    /// Share of the server's CPU in use.
    busy: f64,
    /// Share of the received values' bytes that stayed where they came.
    kept: f64,
}

/// Selects one figure of a `Done`.
type Figure = fn(&Done) -> f64;

const FIGURES: [(&str, &str, Figure); 4] = [
    ("requests", "/s", |it| it.per_s),
    ("CPU of a request", "us", |it| it.cpu_us),
    ("user time of a request", "us", |it| it.user_us),
    ("server busy", "of 1", |it| it.busy),
];

/// Measures both ways at each share of sets, and reports the figures.
pub(crate) fn measure(bench: &Bench<'_>, report: &mut Report, of: &str) -> Outcome<()> {
    for stores_one_in in &bench.options.sets_one_in {
        let mut done: [Vec<Done>; 2] = [Vec::new(), Vec::new()];
        for turn in 0..2 * bench.options.pairs {
            let way = ((turn + turn / 2) % 2) as usize;
            done[way].push(bench.mix(WAYS[way], *stores_one_in)?);
        }
        let bytes = bench.options.mix_bytes;
        tell(report, &format!("{of}, {bytes} B, one in {stores_one_in} a set"), &done)?;
    }
    Ok(())
}

fn tell(report: &mut Report, of: &str, done: &[Vec<Done>; 2]) -> Outcome<()> {
    say(&format!("{of}\n"))?;
    let [copied, kept] = done;
    for (name, unit, figure) in FIGURES {
        for (way, done) in WAYS.iter().zip(done) {
            let values: Vec<f64> = done.iter().map(figure).collect();
            report.median(&format!("{name}, {way}"), unit, median_with_interval(&values))?;
        }
        let pairs = kept.iter().zip(copied);
        let ratios: Vec<f64> = pairs.map(|(new, old)| figure(new) / figure(old)).collect();
        report.median(&format!("{name}, full to off"), "x", median_with_interval(&ratios))?;
    }
    let shares: Vec<f64> = kept.iter().map(|done| done.kept).collect();
    report.median("values that stay where they came", "of 1", median_with_interval(&shares))
}

impl Bench<'_> {
    /// True if a set fits a packet of this MTU.
    pub(crate) fn is_a_packet(&self, mtu: u32) -> bool {
        self.options.mix_bytes + AROUND_BYTES <= mtu as usize
    }

    /// Measures a server of its own.
    fn mix(&self, way: &str, stores_one_in: u64) -> Outcome<Done> {
        let [near, far] = self.ends;
        let (server, mut wire) = self.start(way)?;
        let Options { mix_bytes, seconds, .. } = *self.options;
        fill(&mut wire, 0..KEYS, mix_bytes)?;
        let client = |_| Client::new((far.v4, UDP_PORT).into()).map_err(|it| it.to_string());
        let clients = || (0..self.options.clients).map(client).collect::<Result<Vec<_>, _>>();
        let work = || Work::gets(KEYS, mix_bytes).storing_one_in(stores_one_in);
        let clients = near.on(clients)?;
        let mut clients: Vec<(Client, Work)> = clients.into_iter().map(|it| (it, work())).collect();
        // The values that TCP stored are replaced by values that come in packets.
        ask(&mut clients, seconds / 2.0)?;
        let (cpu_before, came_before, start) = (times(&server)?, came(&mut wire)?, Instant::now());
        let answered = count_of_u64(ask(&mut clients, seconds)?);
        let passed_s = start.elapsed().as_secs_f64();
        let (cpu, came) = (times(&server)?, came(&mut wire)?);
        let (kept, copied) = (came.0 - came_before.0, came.1 - came_before.1);
        if way == WAYS[1] && kept == 0 {
            return fail("no value stays where it came".to_owned());
        }
        let (cpu_s, user_s) = (cpu.0 - cpu_before.0, cpu.1 - cpu_before.1);
        Ok(Done {
            per_s: answered / passed_s,
            cpu_us: cpu_s * 1e6 / answered,
            user_us: user_s * 1e6 / answered,
            busy: cpu_s / passed_s,
            kept: count_of_u64(kept) / count_of_u64(kept + copied).max(1.0),
        })
    }
}

/// Lets all clients send for a while, each on its own thread. Returns the number of replies.
fn ask(clients: &mut [(Client, Work)], seconds: f64) -> Outcome<u64> {
    let time = Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let ask = |(client, work): &mut (Client, Work)| {
            client.ask(time, work).map_err(|error| error.to_string())
        };
        let threads: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || ask(client))).collect();
        let mut answered = 0;
        for thread in threads {
            match thread.join() {
                Ok(count) => answered += count?,
                Err(_) => return fail("a client panicked".to_owned()),
            }
        }
        Ok(answered)
    })
}

/// Bytes of received values that were kept where they came, and that were copied beside packets.
fn came(wire: &mut Wire) -> Outcome<(u64, u64)> {
    let one = |wire: &mut Wire, name| wire.number("stats store", name);
    Ok((one(wire, "arena_kept_bytes")?, one(wire, "arena_copied_bytes")?))
}
