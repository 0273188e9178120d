//! Requests a second where values come and go in packets: kept where they came
//! (`-o zero_copy=full`), and copied.
//!
//! Where: a table of the bench, over links whose packets hold a value: a jumbo frame is several
//! chunks.
//! Invariant: as the bench's; and of the values that came, the servers' counters say which were
//! kept.

use std::time::{Duration, Instant};

use crate::client::{Client, Work};
use crate::measure::report::{Report, say};
use crate::measure::statistics::{count_of_u64, median_with_interval};
use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::{Bench, Options, UDP_PORT, fill, times};

/// A prime, so that all are stored in turn, whichever requests store.
const KEYS: u32 = 1021;
/// More than a packet has beside the value of a set.
const AROUND_BYTES: usize = 100;
/// Copied, and kept: `-o zero_copy`.
const WAYS: [&str; 2] = ["off", "full"];

/// What a server did.
#[derive(Clone, Copy)]
struct Done {
    per_s: f64,
    /// CPU time of a request.
    cpu_us: f64,
    user_us: f64,
    /// Of the server's processor.
    busy: f64,
    /// Of the bytes of values that came, those that stayed where they came.
    kept: f64,
}

/// One of its numbers.
type Figure = fn(&Done) -> f64;

const FIGURES: [(&str, &str, Figure); 4] = [
    ("requests", "/s", |it| it.per_s),
    ("CPU of a request", "us", |it| it.cpu_us),
    ("user time of a request", "us", |it| it.user_us),
    ("server busy", "of 1", |it| it.busy),
];

/// Tells of values of this length what servers did of which one request in so many was a set.
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
    /// A set fits a packet of this MTU.
    pub(crate) fn is_a_packet(&self, mtu: u32) -> bool {
        self.options.mix_bytes + AROUND_BYTES <= mtu as usize
    }

    /// Of a server of its own.
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
        // What was filled by TCP is replaced by what comes in packets.
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

/// Has all clients ask for a while, each by a thread of its own. How many answers came.
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

/// Bytes of values that have stayed where they came, and those that were copied beside packets.
fn came(wire: &mut Wire) -> Outcome<(u64, u64)> {
    let one = |wire: &mut Wire, name| wire.number("stats store", name);
    Ok((one(wire, "arena_kept_bytes")?, one(wire, "arena_copied_bytes")?))
}
