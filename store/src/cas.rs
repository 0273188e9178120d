//! CAS uniques: taken from the store in blocks, handed out one by one.
//!
//! Where: every item that is written gets one, if the store keeps them.
//! Invariant: the store never gives two items the same unique, and the uniques of a key rise while
//! it lives, unless a client chose one.
//! Source: memcached's `get_cas_id` (1.6.45), which counts under a lock.

use crate::Store;
use crate::handle::View;
use crate::item::CasWidth;
use memory::plant::{self, Fault};

/// Number of CAS uniques taken at a time.
const BLOCK: u64 = if cfg!(shuttle) { 4 } else { 64 };
/// A CAS unique this far behind the counter is kept in full when its item moves.
const NEAR: u64 = 1 << 30;

/// The uniques that a column has taken and not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Uniques {
    block: std::ops::Range<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NewCas {
    /// The next of the store's own.
    #[default]
    Next,
    /// This one: a client's (meta `E`), or the one that the item had.
    Given(u64),
}

impl NewCas {
    pub(crate) fn of(given: Option<u64>) -> Self {
        given.map_or(Self::Next, Self::Given)
    }
}

impl Uniques {
    /// The CAS unique for a new item of a key whose item has `old`; 0 if the store keeps none.
    #[inline(always)]
    pub(crate) fn unique(&mut self, view: View<'_>, new: NewCas, old: u64) -> u64 {
        match new {
            _ if !view.config.cas => 0,
            NewCas::Given(cas) => cas,
            NewCas::Next => self.next(view, old),
        }
    }

    /// The column's next unique: above `old`, unless a client chose an `old` ahead of the counter.
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

impl Store {
    /// The width of a CAS unique in an item that is written now. The store's next unique is short.
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
