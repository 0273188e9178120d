//! `stats hot`: the most requested keys, and the keys with the longest values.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: at most `HOT_KEYS_TOLD` hot keys and `BIG_KEYS_MAX` keys with long values are listed.
//! A hot key is listed only if the samples prove that it was requested. A listed key with a long
//! value exists, and its value has the listed length.

use std::cmp::Reverse;

use protocol::text::list::escaped;

use super::rows::{Rows, stat};
use crate::execute::Context;
use crate::limits::{BIG_KEYS_MAX, HOT_KEYS_TOLD};
use crate::shared::Shared;
use crate::shared::sampled::Hot;

/// Writes the hot keys. Returns the samples of all columns.
pub(super) fn hottest(shared: &Shared, rows: &mut Rows<'_>) -> Vec<Hot> {
    let columns = shared.samples.iter();
    let all: Vec<Hot> = columns.map(|column| column.with(|samples| samples.hot.clone())).collect();
    let (hottest, requests) = Hot::hottest(&all);
    stat!(rows, "requests", requests);
    let told =
        hottest.iter().map(|hot| (hot, hot.at_least())).filter(|(_, at_least)| *at_least > 0);
    for (hot, at_least) in told.take(HOT_KEYS_TOLD) {
        let key = escaped(&hot.key);
        stat!(rows, &format!("hot:{key}:requests"), hot.requests - hot.error);
        stat!(rows, &format!("hot:{key}:at_least"), at_least);
        stat!(rows, &format!("hot:{key}:error"), hot.error);
    }
    all
}

pub(super) fn write(context: &mut Context, rows: &mut Rows<'_>) {
    let all = hottest(&context.shared, rows);
    let mut keys: Vec<_> = all.iter().flat_map(Hot::biggest).map(|big| &big.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut biggest = Vec::with_capacity(keys.len());
    for key in keys {
        match context.value_bytes(key) {
            Some(bytes) => biggest.push((bytes, key)),
            None => {
                let columns = context.shared.samples.iter();
                columns.for_each(|column| column.with(|samples| samples.hot.gone(key)));
            }
        }
    }
    biggest.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
    for (bytes, key) in biggest.into_iter().take(BIG_KEYS_MAX) {
        stat!(rows, &format!("big:{}:bytes", escaped(key)), bytes);
    }
}
