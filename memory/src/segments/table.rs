//! The entries of all segments, in address space for the maximum number of segments.
//!
//! Where: used by `Segments`.
//! Invariant: an entry is zero until it is used, and its address never changes.

#![cfg_attr(not(loom), allow(unsafe_code, reason = "the table lies in a mapping"))]

use super::segment::Segment;
#[cfg(not(loom))]
use crate::map::Map;
use std::io;
#[cfg(not(loom))]
use std::ptr::NonNull;

/// The entries. An entry that was never used is zero, and takes no memory; a state of 0 means a
/// free segment. `open` sets every field that must not be 0, such as `end`.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct Table {
    base: NonNull<Segment>,
    entries: usize,
    _map: Map,
}

// SAFETY: threads may share the entries, which are atomics in a mapping that the struct owns.
#[cfg(not(loom))]
unsafe impl Send for Table {}
// SAFETY: threads may share the entries, which consist of atomics.
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
        // SAFETY: the map has room for `entries` entries, is readable and writable, is page-aligned
        // and lives as long as `self`. A `Segment` consists of atomic integers, which may be 0.
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
