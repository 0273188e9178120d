//! Counts the requests for each prefix of keys.
//!
//! Where: if `-D` is given, or after `stats detail on`, the executor counts requests.
//! `stats detail dump` lists the counts.
//! Invariant: at most `PREFIXES_MAX` prefixes are kept, in at most `PREFIX_BYTES_MAX` bytes.
//! Requests with any other prefix are counted together. No thread holds two locks at a time.
//! Source: memcached 1.6.45 `stats_prefix.c`.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::text::list::PrefixCounts;

use crate::limits::{PREFIX_BYTES_MAX, PREFIX_SHELVES, PREFIXES_MAX};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) asked: PrefixCounts,
    pub(crate) evictions: u64,
}

/// Bytes that a prefix takes in addition to its text: its entry in the map, a sixth more for the
/// map's free entries, and the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Counts)>() * 7 / 6 + 17;

/// A part of the table of prefixes, with its own lock. The hash of a prefix selects the shelf.
#[derive(Debug, Default)]
struct Shelf {
    counts: HashMap<Box<[u8]>, Counts>,
    bytes: usize,
    /// Number of requests that were not counted, because this shelf had no room for their prefixes.
    left_out: u64,
}

#[derive(Debug)]
pub(crate) struct Prefixes {
    end: u8,
    hasher: RandomState,
    /// A thread that holds the lock of a shelf takes no other lock.
    shelves: Box<[Mutex<Shelf>]>,
}

impl Prefixes {
    pub(crate) fn new(end: u8) -> Prefixes {
        let shelves = (0..PREFIX_SHELVES).map(|_| Mutex::default()).collect();
        Prefixes { end, hasher: RandomState::new(), shelves }
    }

    pub(crate) fn of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let end = key.iter().position(|&byte| byte == self.end)?;
        key.get(..end)
    }

    fn lock(&self, prefix: &[u8]) -> Option<MutexGuard<'_, Shelf>> {
        let hash = self.hasher.hash_one(prefix) % PREFIX_SHELVES as u64;
        let shelf = self.shelves.get(usize::try_from(hash).ok()?)?;
        Some(shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn count(&self, key: &[u8], change: impl FnOnce(&mut Counts)) {
        let Some(prefix) = self.of(key) else { return };
        let Some(mut shelf) = self.lock(prefix) else { return };
        if let Some(counts) = shelf.counts.get_mut(prefix) {
            return change(counts);
        }
        let bytes = shelf.bytes + prefix.len() + ENTRY_BYTES;
        if shelf.counts.len() >= PREFIXES_MAX / PREFIX_SHELVES
            || bytes > PREFIX_BYTES_MAX / PREFIX_SHELVES
        {
            shelf.left_out += 1;
            return;
        }
        shelf.bytes = bytes;
        change(shelf.counts.entry(prefix.into()).or_default());
    }

    pub(crate) fn counts(&self, prefix: &[u8]) -> Counts {
        self.lock(prefix).and_then(|shelf| shelf.counts.get(prefix).copied()).unwrap_or_default()
    }

    /// Calls `show` for a shelf's prefixes with requests. Returns false if there is no such shelf.
    pub(crate) fn show(&self, shelf: usize, mut show: impl FnMut(&[u8], &PrefixCounts)) -> bool {
        let Some(shelf) = self.shelves.get(shelf) else { return false };
        for (prefix, counts) in &shelf.lock().unwrap_or_else(PoisonError::into_inner).counts {
            if counts.asked != PrefixCounts::default() {
                show(prefix, &counts.asked);
            }
        }
        true
    }

    /// Returns the sum of `bytes` and the sum of `left_out` over all shelves.
    pub(crate) fn held(&self) -> (usize, u64) {
        let shelves = self.shelves.iter();
        let each = shelves.map(|shelf| {
            let shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            (shelf.bytes, shelf.left_out)
        });
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub(crate) fn clear(&self) {
        for shelf in &self.shelves {
            *shelf.lock().unwrap_or_else(PoisonError::into_inner) = Shelf::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(prefixes: &Prefixes) -> Vec<(Vec<u8>, u64)> {
        let mut told = Vec::new();
        let mut shelf = 0;
        while prefixes.show(shelf, |prefix, asked| told.push((prefix.to_vec(), asked.gets))) {
            shelf += 1;
        }
        told.sort_unstable();
        told
    }

    #[test]
    fn keys_count_for_what_stands_before_the_first_delimiter() {
        let prefixes = Prefixes::new(b'/');
        for key in [&b"a/1"[..], b"a/2/3", b"/b", b"a:4", b"plain"] {
            prefixes.count(key, |counts| counts.asked.gets += 1);
        }
        assert_eq!(told(&prefixes), [(b"".to_vec(), 1), (b"a".to_vec(), 2)]);
        assert_eq!(prefixes.counts(b"a").asked.gets, 2);
        prefixes.count(b"gone/1", |counts| counts.evictions += 1);
        assert_eq!(told(&prefixes).len(), 2, "nothing was asked of it");
        prefixes.clear();
        assert_eq!(told(&prefixes), []);
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let prefixes = Prefixes::new(b':');
        for number in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{number}:").as_bytes(), |counts| counts.asked.gets += 1);
        }
        let kept = told(&prefixes).len();
        assert!(kept <= PREFIXES_MAX && kept > PREFIXES_MAX / 2, "{kept}");
        assert_eq!(prefixes.held().1, (2 * PREFIXES_MAX - kept) as u64, "others are told of");
    }

    #[test]
    fn long_ones_take_no_more_than_short_ones() {
        let prefixes = Prefixes::new(b':');
        let count = |key: &str| prefixes.count(key.as_bytes(), |counts| counts.asked.gets += 1);
        (0..PREFIXES_MAX).for_each(|number| count(&format!("{number:0>240}:")));
        let (bytes, left_out) = prefixes.held();
        let kept = told(&prefixes).len();
        assert!(bytes <= PREFIX_BYTES_MAX && bytes > PREFIX_BYTES_MAX / 2, "{bytes}");
        assert!(bytes >= kept * (240 + size_of::<Counts>()), "{bytes} for {kept}");
        assert_eq!(left_out, (PREFIXES_MAX - kept) as u64);
        prefixes.clear();
        assert_eq!(prefixes.held(), (0, 0));
    }
}
