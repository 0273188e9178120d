//! Bytes of memory that an item takes in addition to its key and value.
//!
//! Where: both servers; each row restarts the servers, with room for all items.
//! Invariant: the figure is the slope of a line through the resident bytes minus keys and values,
//! over the number of items. Memory taken at the start does not count. Each point has twice the
//! items of the preceding point, so that a table that doubles is equally full at each point.

use blaster::launch::Server;

use crate::feeder::{Feeder, ItemFields, MOMENT, PLAIN};
use crate::measure::launched::Launch;
use crate::measure::report::Report;
use crate::measure::statistics::{Median, count_of_u64, regression};
use crate::measure::{Outcome, fail};
use crate::sizes::Mix;
use crate::{Options, TestedServer};

const POINTS: u32 = 5;
/// `-m` is half of this number times the sum of keys, values and `OVERHEAD_BYTES_MAX` per item.
const ROOM_FACTOR: u64 = 3;
const OVERHEAD_BYTES_MAX: u64 = 120;
/// The 95 % interval of a slope extends this number of standard errors to each side.
const ERRORS: f64 = 2.0;

/// The rows: name, fields of the stored items, and true if the server keeps CAS uniques.
const ROWS: [(&str, ItemFields, bool); 6] = [
    ("plain", PLAIN, true),
    ("exptime", ItemFields { client_flags: 0, exptime: 1_000_000 }, true),
    ("flags", ItemFields { client_flags: 123, exptime: 0 }, true),
    ("exptime, flags", ItemFields { client_flags: 123, exptime: 1_000_000 }, true),
    ("-C, plain", PLAIN, false),
    ("-C, exptime, flags", ItemFields { client_flags: 123, exptime: 1_000_000 }, false),
];

pub(crate) fn measure(options: &Options, report: &mut Report) -> Outcome<()> {
    for &mix in options.mixes() {
        for (name, fields, has_cas) in ROWS {
            for tested in &options.tested_servers()? {
                let line = overhead(tested, mix, fields, has_cas, options)?;
                let name = format!("overhead, {}, {name}, {}", mix.name(), tested.name);
                report.median(&name, "bytes an item", line)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn start(tested: &TestedServer, mix: Mix, items: u64, more: &[&str]) -> Outcome<Server> {
    let sample = 10_000.min(items);
    let mut key = Vec::new();
    let bytes: usize = (0..sample).map(|id| mix.key(id, &mut key) + mix.value_bytes(id)).sum();
    let payload_bytes = u64::try_from(bytes)? / sample * items;
    let room_bytes = (payload_bytes + items * OVERHEAD_BYTES_MAX) * ROOM_FACTOR / 2;
    let more = more.iter().map(ToString::to_string);
    let extra: Vec<String> = tested.extra.iter().cloned().chain(more).collect();
    let (program, memory_mb) = (&tested.program, u32::try_from(room_bytes >> 20)?.max(64));
    Launch { program, threads: 1, memory_mb, connections: 64, extra: &extra }.start(&[])
}

fn overhead(
    tested: &TestedServer,
    mix: Mix,
    fields: ItemFields,
    has_cas: bool,
    options: &Options,
) -> Outcome<Median> {
    let items = u64::from(options.items);
    let server = start(tested, mix, items, if has_cas { &[] } else { &["-C"] })?;
    let mut feeder = Feeder::connect(&server)?;
    let (mut stored, mut payload_bytes) = (0, 0);
    let mut points = Vec::new();
    for point in (0..POINTS).rev() {
        while stored < items >> point {
            payload_bytes += feeder.set(mix, stored, fields)?;
            stored += 1;
        }
        let there = feeder.stat("curr_items")?;
        if there != stored {
            return fail(format!("{} holds {there} of {stored} stored items", tested.name));
        }
        let resident_bytes = feeder.resident_bytes(&server, MOMENT)?;
        let beyond = count_of_u64(resident_bytes) - count_of_u64(u64::try_from(payload_bytes)?);
        points.push((count_of_u64(stored), beyond));
    }
    let line = regression(&points);
    let error = ERRORS * line.slope_error;
    Ok(Median { value: line.slope, low: line.slope - error, high: line.slope + error })
}
