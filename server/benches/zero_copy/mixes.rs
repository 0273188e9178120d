//! Requests per second of mixed gets and sets: with values kept in the packets in which they
//! arrived (`-o zero_copy=full`), and with values copied.
//!
//! Where: one table of the bench, on links where one packet holds a value.
//! Invariant: as in `main.rs`; the servers also count the bytes of received values that they kept.

use std::time::{Duration, Instant};

use crate::client::{Client, Work};
use crate::measure::report::{Report, say};
use crate::measure::statistics::{count_of_u64, median_with_interval};
use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::{Bench, Options, UDP_PORT, fill, times};

/// A prime, so that each key is set in turn, whatever the share of sets.
const KEYS: u32 = 1021;
/// Upper bound of a set's bytes in addition to its value.
const AROUND_BYTES: usize = 100;
const WAYS: [&str; 2] = ["off", "full"];

#[derive(Clone, Copy)]
struct MixFigures {
    per_s: f64,
    cpu_us: f64,
    user_us: f64,
    /// Share of the server's CPU in use.
    busy: f64,
    /// Share of the bytes of received values that stayed in their packets.
    kept: f64,
}

type Figure = fn(&MixFigures) -> f64;

const FIGURES: [(&str, &str, Figure); 4] = [
    ("requests", "/s", |it| it.per_s),
    ("CPU of a request", "us", |it| it.cpu_us),
    ("user time of a request", "us", |it| it.user_us),
    ("server busy", "of 1", |it| it.busy),
];

pub(crate) fn measure(bench: &Bench<'_>, report: &mut Report, of: &str) -> Outcome<()> {
    for stores_one_in in &bench.options.sets_one_in {
        let mut done: [Vec<MixFigures>; 2] = [Vec::new(), Vec::new()];
        for turn in 0..2 * bench.options.pairs {
            let way = ((turn + turn / 2) % 2) as usize;
            done[way].push(bench.mix(WAYS[way], *stores_one_in)?);
        }
        let bytes = bench.options.mix_bytes;
        show(report, &format!("{of}, {bytes} B, one in {stores_one_in} a set"), &done)?;
    }
    Ok(())
}

fn show(report: &mut Report, of: &str, done: &[Vec<MixFigures>; 2]) -> Outcome<()> {
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
    report.median("values kept in their packets", "of 1", median_with_interval(&shares))
}

impl Bench<'_> {
    pub(crate) fn is_a_packet(&self, mtu: u32) -> bool {
        self.options.mix_bytes + AROUND_BYTES <= mtu as usize
    }

    fn mix(&self, way: &str, stores_one_in: u64) -> Outcome<MixFigures> {
        let [near, far] = self.ends;
        let (server, mut wire) = self.start(way)?;
        let Options { mix_bytes, seconds, .. } = *self.options;
        fill(&mut wire, 0..KEYS, mix_bytes)?;
        let client = |_| Client::new((far.v4, UDP_PORT).into()).map_err(|it| it.to_string());
        let clients = || (0..self.options.clients).map(client).collect::<Result<Vec<_>, _>>();
        let work = || Work::gets(KEYS, mix_bytes).storing_one_in(stores_one_in);
        let clients = near.on(clients)?;
        let mut clients: Vec<(Client, Work)> = clients.into_iter().map(|it| (it, work())).collect();
        // `fill` stored the values over TCP. Replace them by values that arrive in packets.
        ask(&mut clients, seconds / 2.0)?;
        let (cpu_before, received_before, start) =
            (times(&server)?, received(&mut wire)?, Instant::now());
        let answered = count_of_u64(ask(&mut clients, seconds)?);
        let passed_s = start.elapsed().as_secs_f64();
        let (cpu, received) = (times(&server)?, received(&mut wire)?);
        let (kept, copied) = (received.0 - received_before.0, received.1 - received_before.1);
        if way == WAYS[1] && kept == 0 {
            return fail("no value was kept in its packet".to_owned());
        }
        let (cpu_s, user_s) = (cpu.0 - cpu_before.0, cpu.1 - cpu_before.1);
        Ok(MixFigures {
            per_s: answered / passed_s,
            cpu_us: cpu_s * 1e6 / answered,
            user_us: user_s * 1e6 / answered,
            busy: cpu_s / passed_s,
            kept: count_of_u64(kept) / count_of_u64(kept + copied).max(1.0),
        })
    }
}

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

/// Bytes of received values that were kept in their packets, and that were copied to other chunks.
fn received(wire: &mut Wire) -> Outcome<(u64, u64)> {
    let one = |wire: &mut Wire, name| wire.number("stats store", name);
    Ok((one(wire, "arena_kept_bytes")?, one(wire, "arena_copied_bytes")?))
}
