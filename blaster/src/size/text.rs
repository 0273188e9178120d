//! What was found out of memory, for people.
//!
//! Where: printed by `kvblaster size`. Invariant: `-m` as a server takes it; every figure is of the
//! simulation, and what it does not know stands below.

use super::{Memory, Point};
use crate::words::{clock, grouped, percent, size};
use std::fmt::Write;
use std::time::Duration;

/// Parts of the hits of the largest memory for which the memory is told.
const PARTS: [f64; 3] = [0.99, 0.95, 0.9];

pub(crate) fn text(memory: &Memory) -> String {
    let mut out = String::new();
    let time = clock(Duration::from_secs_f64(memory.span_s));
    let sample = match memory.one_in {
        1 => String::new(),
        one_in => format!(", one key in {}", grouped(one_in as f64)),
    };
    let _ = writeln!(
        out,
        "memory: the store in process, {time} of traffic on its own clock, the second half counted{sample}"
    );
    let head = ["-m", "hits", "misses/s", "items", "of bytes", "evicted/s"];
    let rows = memory.points.iter().map(row);
    for row in std::iter::once(head.map(str::to_owned)).chain(rows) {
        let [memory, rest @ ..] = row;
        let _ = write!(out, "{memory:>10}");
        rest.iter().for_each(|cell| {
            let _ = write!(out, " {cell:>12}");
        });
        out.push('\n');
    }
    if let Some(all) = memory.points.last() {
        for part in PARTS {
            if let Some(point) = memory.enough_for(part) {
                let _ = writeln!(
                    out,
                    "-m {} is enough for {} of the hits that -m {} gives",
                    mib(point),
                    percent(part),
                    mib(all)
                );
            }
        }
    }
    for doubt in &memory.doubts {
        let _ = writeln!(out, "not known: {doubt}");
    }
    out
}

fn row(point: &Point) -> [String; 6] {
    [
        mib(point),
        percent(point.hit_ratio),
        grouped(point.misses_per_s),
        grouped(point.items as f64),
        size(point.items_bytes as f64),
        grouped(point.evictions_per_s),
    ]
}

/// As `-m` takes it.
fn mib(point: &Point) -> String {
    (point.memory_bytes >> 20).to_string()
}
