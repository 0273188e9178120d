//! `stats mrc`: the estimated miss ratios with more or less memory.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: each size is a value of `-m`. Before the first lookup there is no estimate.
//! Source: `store::Store::miss_ratios`.

use super::rows::{Rows, stat};
use crate::shared::Shared;

/// The sizes for which miss ratios are estimated, in eighths of `-m`.
const EIGHTHS: [u64; 10] = [1, 2, 4, 6, 8, 10, 12, 16, 32, 64];

/// The sizes in bytes, and the estimates for them.
pub(crate) fn miss_ratios(shared: &Shared) -> ([u64; EIGHTHS.len()], Option<[f64; EIGHTHS.len()]>) {
    let memory_bytes = shared.store.memory_bytes() as u64;
    let sizes = EIGHTHS.map(|eighths| memory_bytes / 8 * eighths);
    (sizes, shared.store.miss_ratios(sizes))
}

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    stat!(rows, "mrc:sampled_one_in", shared.store.sampled_one_in());
    let (sizes, Some(miss_ratios)) = miss_ratios(shared) else { return };
    for (bytes, miss_ratio) in sizes.iter().zip(miss_ratios) {
        rows.row(&format!("mrc:{bytes}:miss_ratio"), format_args!("{miss_ratio:.4}"));
    }
}
