//! CAS uniques: a column takes blocks of uniques from the store, and gives each item one unique.
//!
//! Where: every item that is written gets a CAS unique, if the store keeps CAS uniques.
//! Invariant: unless clients choose uniques, no two items of the store get the same unique, and a
//! new item gets a higher unique than the old item that it replaces.
//! Source: memcached's `get_cas_id` (1.6.45), which counts under a lock.

use crate::column::handle::View;
use crate::item::CasWidth;
use crate::shared::Shared;
use memory::plant::{self, Fault};

const BLOCK: u64 = if cfg!(shuttle) { 4 } else { 64 };
/// A CAS unique that is lower than the store's counter by more than this number is written in eight
/// bytes. Other uniques are written in four bytes.
const NEAR: u64 = 1 << 30;

/// Uniques that a column has taken from the store but not given to items yet.
#[derive(Debug, Default)]
pub(crate) struct Uniques {
    block: std::ops::Range<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NewCas {
    #[default]
    Next,
    /// A unique that a client has chosen (meta flag `E`) or that the old item had.
    Given(u64),
}

impl NewCas {
    pub(crate) fn of(given: Option<u64>) -> Self {
        given.map_or(Self::Next, Self::Given)
    }
}

impl Uniques {
    /// A new item's CAS unique; 0 if the store has no CAS uniques. `old` is the old item's unique.
    #[inline(always)]
    pub(crate) fn unique(&mut self, view: View<'_>, new: NewCas, old: u64) -> u64 {
        match new {
            _ if !view.config.cas => 0,
            NewCas::Given(cas) => cas,
            NewCas::Next => self.next(view, old),
        }
    }

    /// The column's next unique, which is above `old` unless `old` is ahead of the store's counter.
    #[inline(always)]
    fn next(&mut self, view: View<'_>, old: u64) -> u64 {
        let counter = view.log.cas_now();
        let overtaken = old < counter && old >= self.block.start && !plant::is(Fault::CasBlockKept);
        if self.block.is_empty() || overtaken || counter - self.block.start > NEAR {
            let first = view.log.take_cas(BLOCK);
            self.block = first..first + BLOCK;
        }
        self.block.start += 1;
        self.block.start - 1
    }
}

impl Shared {
    /// The width of a CAS unique in an item that is written now. `NewCas::Next` is always short,
    /// because the unique will be near the store's counter.
    pub(crate) fn cas_width(&self, cas: NewCas) -> CasWidth {
        let counter = self.log.cas_now();
        match cas {
            _ if !self.config.cas => CasWidth::None,
            NewCas::Next => CasWidth::Short,
            NewCas::Given(cas) if cas < counter && cas + NEAR >= counter => CasWidth::Short,
            NewCas::Given(_) => CasWidth::Long,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::expect_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::{Body, Column, Config, Put, PutResult, Store, Verb};

    fn store() -> std::sync::Arc<Store> {
        let store = Store::new(&Config {
            memory_bytes: 8 << 20,
            item_bytes_max: 1 << 20,
            columns: 1,
            eviction: None,
            cas: true,
            now: 62,
        });
        store.expect("address space")
    }

    fn set(column: &mut Column, cas_in: Option<u64>) -> u64 {
        match column.put(&Put { cas_in, ..Put::new(Verb::Set, b"k") }, Body::Bytes(b"v")) {
            Ok(PutResult::Stored { cas, .. }) => cas,
            other => panic!("set: {other:?}"),
        }
    }

    #[test]
    fn an_item_gets_another_unique_than_it_had_whatever_a_client_chose() {
        let store = store();
        let mut column = store.column();
        let first = set(&mut column, None);
        let counter = store.log.cas_now();
        assert_eq!(counter, first + BLOCK, "a block was taken");
        for (chosen, next) in [
            (first, first + 1),
            (first + 1, first + 2),
            // The client chooses the block's last unique, so the column takes a new block.
            (counter - 1, counter),
            (counter + BLOCK, counter + 1),
            (u64::MAX, counter + 2),
        ] {
            assert_eq!(set(&mut column, Some(chosen)), chosen);
            assert_eq!(set(&mut column, None), next, "behind {chosen}");
        }
    }

    #[test]
    fn a_column_whose_block_is_far_behind_takes_another() {
        let store = store();
        let mut column = store.column();
        set(&mut column, None);
        store.log.take_cas(2 * NEAR);
        let counter = store.log.cas_now();
        assert_eq!(set(&mut column, None), counter);
    }

    #[test]
    fn a_unique_near_the_counter_is_kept_short() {
        let store = store();
        store.log.take_cas(2 * NEAR);
        let counter = store.log.cas_now();
        for (width, uniques) in [
            (CasWidth::Short, [counter - 1, counter - NEAR]),
            (CasWidth::Long, [counter, counter - NEAR - 1]),
        ] {
            for unique in uniques {
                assert_eq!(store.cas_width(NewCas::Given(unique)), width, "{unique} of {counter}");
            }
        }
        assert_eq!(store.cas_width(NewCas::Next), CasWidth::Short);
    }
}
