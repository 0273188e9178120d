//! Bytes of memory that an item takes beyond its key and value.
//!
//! Where: both servers, each started anew for each row, with room for everything.
//! Invariant: the figure is the slope of resident bytes less payload over items. It leaves out what
//! a server takes at its start, and has all that grows with its items. Each point has twice the
//! items of the one before, so that a table that doubles is met in the same phase each time.

use blaster::launch::Server;

use crate::feeder::{Dress, Feeder, MOMENT, PLAIN};
use crate::measure::launched::Launch;
use crate::measure::report::Report;
use crate::measure::statistics::{Median, count_of_u64, regression};
use crate::measure::{Outcome, fail};
use crate::sizes::Mix;
use crate::{Options, Side};

/// Points on the line.
const POINTS: u32 = 5;
/// `-m` is half of this many times the payload and the worst overhead.
const ROOM_FACTOR: u64 = 3;
const OVERHEAD_BYTES_MAX: u64 = 120;
/// Standard errors on either side of the slope: about a 95 % interval.
const ERRORS: f64 = 2.0;

/// The rows: their name, what items are stored with, and whether the server keeps CAS uniques.
const ROWS: [(&str, Dress, bool); 6] = [
    ("plain", PLAIN, true),
    ("exptime", Dress { client_flags: 0, exptime: 1_000_000 }, true),
    ("flags", Dress { client_flags: 123, exptime: 0 }, true),
    ("exptime, flags", Dress { client_flags: 123, exptime: 1_000_000 }, true),
    ("-C, plain", PLAIN, false),
    ("-C, exptime, flags", Dress { client_flags: 123, exptime: 1_000_000 }, false),
];

/// Measures all rows of all mixes.
pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    for &mix in options.mixes() {
        for (name, dress, has_cas) in ROWS {
            for side in &options.sides()? {
                let line = overhead(side, mix, dress, has_cas, options)?;
                let name = format!("overhead, {}, {name}, {}", mix.name(), side.name);
                report.median(&name, "bytes an item", line)?;
            }
        }
    }
    Ok(())
}

/// Starts a server with room for this many items.
pub(crate) fn start(side: &Side, mix: Mix, items: u64, more: &[&str]) -> Outcome<Server> {
    let sample = 10_000.min(items);
    let mut key = Vec::new();
    let bytes: usize = (0..sample).map(|id| mix.key(id, &mut key) + mix.value_bytes(id)).sum();
    let payload_bytes = u64::try_from(bytes)? / sample * items;
    let room_bytes = (payload_bytes + items * OVERHEAD_BYTES_MAX) * ROOM_FACTOR / 2;
    let more = more.iter().map(ToString::to_string);
    let extra: Vec<String> = side.extra.iter().cloned().chain(more).collect();
    let (program, memory_mb) = (&side.program, u32::try_from(room_bytes >> 20)?.max(64));
    Launch { program, threads: 1, memory_mb, connections: 64, extra: &extra }.start(&[])
}

fn overhead(
    side: &Side,
    mix: Mix,
    dress: Dress,
    has_cas: bool,
    options: &Options,
) -> Outcome<Median> {
    let items = u64::from(options.items);
    let server = start(side, mix, items, if has_cas { &[] } else { &["-C"] })?;
    let mut feeder = Feeder::connect(&server)?;
    let (mut stored, mut payload_bytes) = (0, 0);
    let mut points = Vec::new();
    for point in (0..POINTS).rev() {
        while stored < items >> point {
            payload_bytes += feeder.set(mix, stored, dress)?;
            stored += 1;
        }
        let there = feeder.stat("curr_items")?;
        if there != stored {
            return fail(format!("{}: {there} items of {stored} stored", side.name));
        }
        let resident_bytes = feeder.resident_bytes(&server, MOMENT)?;
        let beyond = count_of_u64(resident_bytes) - count_of_u64(u64::try_from(payload_bytes)?);
        points.push((count_of_u64(stored), beyond));
    }
    let line = regression(&points);
    let error = ERRORS * line.slope_error;
    Ok(Median { value: line.slope, low: line.slope - error, high: line.slope + error })
}
