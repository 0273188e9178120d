//! Measurements at a given resident memory: finds the memory limit that leads to this memory.
//!
//! ```text
//! resident_mb -> limit -> measure -> resident memory at the end -> another limit, until it fits
//! ```
//!
//! Where: `rounds` calls this `measure`, which calls `measure::measure` for each limit.
//! Invariant: a row's resident memory differs from `resident_mb` by at most `APART_MAX`, except in
//! a smoke test. Each limit is tried once.
//! Source: this project's bench `memory`, which varies the other server's limit.

use super::experiment::{Drive, Scale, Server};
use super::figures::{MEMORY_LIMIT, RESIDENT};
use super::installed::MeasureError;
use super::measure::{self, Site};
use super::points::At;
use super::record::{Row, Started};
use super::servers::number;
use crate::words::whole;

/// The resident memory fits if it differs from `resident_mb` by at most this share.
const APART_MAX: f64 = 0.02;
/// The maximum number of limits that are tried.
const ATTEMPTS_MAX: usize = 8;
/// No limit is tried that is lower than the first limit divided by this number, because a server
/// with too low a limit may refuse to start.
const LEAST: u64 = 4;
const MB: f64 = (1_u64 << 20) as f64;

/// Measures a server. If `resident_mb` is given, the server has this resident memory. `known` is
/// the capacity and the memory limit in bytes that an earlier round found. Fails if no limit gives
/// the resident memory, or `measure::measure` fails.
pub(super) fn measure(
    (server, drive): (&Server, &Drive),
    at: &At,
    site: &Site<'_>,
    (scale, round, known): (Scale, u32, [Option<f64>; 2]),
) -> Result<(Row, Started), MeasureError> {
    let [known_per_s, known_limit] = known;
    let turn = (scale, round, known_per_s);
    if server.resident_mb.is_empty() {
        return measure::measure((server, drive), at, site, turn);
    }
    let wanted_mb = number("resident_mb", &server.resident_mb, at)? as u64;
    let processes = number("instances", &server.instances, at)?;
    let first = match known_limit {
        Some(bytes) => whole((bytes / MB).round()),
        None => number("memory_mb", &server.memory_mb, at)? as u64,
    };
    let measured = |memory_mb: u64| {
        let limited = Server { memory_mb: memory_mb.to_string(), ..server.clone() };
        let (mut row, started) = measure::measure((&limited, drive), at, site, turn)?;
        row.figures.insert(MEMORY_LIMIT.to_owned(), memory_mb as f64 * MB);
        let unknown = || MeasureError::Lacking("the resident memory cannot be read".to_owned());
        let resident = *row.figures.get(RESIDENT).ok_or_else(unknown)?;
        Ok::<_, MeasureError>(((row, started), resident / MB))
    };
    let attempts = if scale == Scale::Smoke { 1 } else { ATTEMPTS_MAX };
    let (best, resident_mb) = nearest((wanted_mb, processes), (first, attempts), measured)?;
    if scale == Scale::Smoke || fits(wanted_mb, resident_mb) {
        return Ok(best);
    }
    let why = format!(
        "the lab found no memory limit at which the server has {wanted_mb} MB of resident memory; \
         the nearest resident memory that was measured is {resident_mb:.1} MB"
    );
    Err(MeasureError::Lacking(why))
}

fn fits(wanted_mb: u64, resident_mb: f64) -> bool {
    (resident_mb / wanted_mb as f64 - 1.0).abs() <= APART_MAX
}

/// Returns the measurement whose resident memory is nearest to `wanted_mb`, and this memory.
/// `measured` makes a measurement in which each process has the given limit in megabytes.
fn nearest<T, E>(
    (wanted_mb, processes): (u64, usize),
    (first, attempts): (u64, usize),
    mut measured: impl FnMut(u64) -> Result<(T, f64), E>,
) -> Result<(T, f64), E> {
    let off = |resident_mb: f64| (resident_mb - wanted_mb as f64).abs();
    let (mut memory_mb, mut tried) = (first.max(1), Vec::new());
    let mut best = measured(memory_mb)?;
    let mut last_mb = best.1;
    while tried.len() + 1 < attempts && !fits(wanted_mb, best.1) {
        tried.push(memory_mb);
        // A process takes about one more megabyte for each megabyte that its limit grows.
        let step = whole((off(last_mb) / processes as f64).round()).max(1);
        memory_mb = match last_mb > wanted_mb as f64 {
            true => memory_mb.saturating_sub(step).max(first.div_ceil(LEAST)),
            false => memory_mb + step,
        };
        if tried.contains(&memory_mb) {
            break;
        }
        let one = measured(memory_mb)?;
        last_mb = one.1;
        if off(one.1) < off(best.1) {
            best = one;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the limit of a server that takes `base + slope * limit`, at most `base + items_mb`.
    fn found(wanted_mb: u64, [base, slope, items_mb]: [f64; 3]) -> (u64, f64, usize) {
        let mut count = 0;
        let measured = |memory_mb: u64| {
            count += 1;
            Ok::<_, ()>((memory_mb, base + (slope * memory_mb as f64).min(items_mb)))
        };
        let (limit, mb) = nearest((wanted_mb, 1), (wanted_mb, ATTEMPTS_MAX), measured).unwrap();
        (limit, mb, count)
    }

    #[test]
    fn the_limit_is_found_by_which_the_resident_memory_is_as_wanted() {
        for shape in [[10.0, 1.0, 1e9], [3.0, 1.2, 1e9], [30.0, 0.8, 1e9], [0.0, 1.0, 1e9]] {
            let (limit, resident_mb, count) = found(64, shape);
            assert!(fits(64, resident_mb) && count <= ATTEMPTS_MAX, "{shape:?}: {limit}");
        }
        assert_eq!(found(64, [10.0, 1.0, 1e9]), (54, 64.0, 2));
    }

    #[test]
    fn a_server_that_cannot_take_the_memory_is_tried_a_few_times_only() {
        let (_, resident_mb, count) = found(64, [10.0, 1.0, 20.0]);
        assert!(!fits(64, resident_mb) && count <= ATTEMPTS_MAX);
        let (limit, _, count) = found(8, [10.0, 1.0, 1e9]);
        assert_eq!((limit, count), (2, 2));
    }
}
