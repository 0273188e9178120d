//! Dumps all items, one line for each.
//!
//! Where: the errand of `lru_crawler metadump`, `lru_crawler mgdump` and `stats cachedump`.
//! Invariant: each dump holds one of `DUMPS_MAX` places. An item that exists during the whole dump
//! is listed exactly once, even while other requests change the store.
//! Source: memcached 1.6.45 `item_crawler_thread`, `item_cachedump`.

use columns::executor::Progress;
use protocol::text::list::{self, Line};
use store::{Column, DumpEntry, DumpPlace};

use super::place::Place;
use crate::clock::Clock;
use crate::limits::{CACHEDUMP_BYTES_MAX, DUMP_STEP_BYTES, DUMP_STEP_GROUPS};

/// The form in which items are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All properties of each item, for `metadump`.
    Metadata,
    /// For each item, the text of a request that retrieves it, for `mgdump`.
    Requests,
    /// Keys, sizes and exptimes of at most `left` more items, in at most `left_bytes` bytes.
    Items { left: u64, left_bytes: usize },
}

impl Lines {
    /// Returns the form of `stats cachedump` for at most `limit` items; 0 means all items.
    pub(crate) fn items(limit: u32) -> Lines {
        let left = if limit == 0 { u64::MAX } else { limit.into() };
        Lines::Items { left, left_bytes: CACHEDUMP_BYTES_MAX }
    }
}

#[derive(Debug)]
pub(crate) struct Dump {
    /// The position in the index, or `None` at the index's end.
    at: Option<DumpPlace>,
    lines: Lines,
    place: Place,
}

impl Dump {
    /// Makes a dump of all items, or of none if `all` is false.
    pub(crate) fn new(place: Place, lines: Lines, all: bool) -> Dump {
        Dump { at: all.then(DumpPlace::default), lines, place }
    }

    /// Lists the items of some groups of the index, and adds their number to `listed`.
    pub(super) fn step(
        &mut self,
        store: &mut Column,
        clock: &Clock,
        listed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Progress {
        if !self.place.keep(clock.now) {
            return Progress::Ended;
        }
        for _ in 0..DUMP_STEP_GROUPS {
            let Some(from) = self.at else { break };
            if out.len() >= DUMP_STEP_BYTES {
                return Progress::More;
            }
            let lines = &mut self.lines;
            self.at = store.dump(from, |item| {
                *listed += 1;
                lines.append(&line(item, clock), out);
            });
            if matches!(self.lines, Lines::Items { left: 0, .. }) {
                self.at = None;
            }
        }
        if self.at.is_some() {
            return Progress::More;
        }
        list::end(self.lines == Lines::Requests, out);
        Progress::Done
    }
}

impl Lines {
    fn append(&mut self, line: &Line<'_>, out: &mut Vec<u8>) {
        match self {
            Lines::Metadata => list::metadata(line, out),
            Lines::Requests => list::request(line, out),
            Lines::Items { left, left_bytes } => {
                let before = out.len();
                if *left == 0 || !list::item(line, out) {
                    return;
                }
                let bytes = out.len() - before;
                if bytes > *left_bytes {
                    out.truncate(before);
                    *left = 0;
                    return;
                }
                (*left, *left_bytes) = (*left - 1, *left_bytes - bytes);
            }
        }
    }
}

fn line<'s>(item: &DumpEntry<'s>, clock: &Clock) -> Line<'s> {
    let unix = |second: u32| clock.process_started + i64::from(second);
    Line {
        key: item.key,
        key_binary: item.key_binary,
        client_flags: item.client_flags,
        cas: item.cas,
        exptime: (item.exptime != 0).then(|| unix(item.exptime)),
        accessed: unix(clock.now.saturating_sub(item.idle_seconds)),
        fetched: item.fetched,
        value_bytes: item.value_bytes,
        item_bytes: item.item_bytes,
    }
}
