//! The entries of all segments, in address space for as many as there may be.
//!
//! Where: under `Segments`.
//! Invariant: an entry is zero until it is used, and its address never changes.
//! Source: none.

#![cfg_attr(not(loom), allow(unsafe_code, reason = "the table lies in a mapping"))]

use super::segment::Segment;
#[cfg(not(loom))]
use crate::map::Map;
use std::io;
#[cfg(not(loom))]
use std::ptr::NonNull;

/// The entries, zero until used: memory is taken for those that are. All zeroes are an entry as
/// good as new, but for `end`, which counts only once it is open.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct Table {
    base: NonNull<Segment>,
    entries: usize,
    _map: Map,
}

// SAFETY: the entries are atomics, in a mapping that the struct owns.
#[cfg(not(loom))]
unsafe impl Send for Table {}
// SAFETY: as for Send.
#[cfg(not(loom))]
unsafe impl Sync for Table {}

#[cfg(not(loom))]
impl Table {
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        let map = Map::new(entries * size_of::<Segment>())?;
        Ok(Self { base: map.base().cast(), entries, _map: map })
    }
}

#[cfg(not(loom))]
impl std::ops::Deref for Table {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        // SAFETY: the map is as long as so many entries, open, aligned to a page and alive with
        // `self`; a `Segment` is made of atomic integers, for which zeroes are valid.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.entries) }
    }
}

#[cfg(loom)]
#[derive(Debug)]
pub(super) struct Table(Box<[Segment]>);

#[cfg(loom)]
impl Table {
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        Ok(Self((0..entries).map(|_| Segment::new()).collect()))
    }
}

#[cfg(loom)]
impl std::ops::Deref for Table {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.0
    }
}
