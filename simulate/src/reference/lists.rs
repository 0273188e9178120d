//! Doubly linked lists of keys. All lists share one pair of arrays.
//!
//! Where: used by most of the references. Invariant: a key is in at most one list, and `bytes` of a
//! list is the sum of the sizes of the list's items.

use crate::cache::Shape;

const NOWHERE: u8 = u8::MAX;

/// `L` lists of keys. The front is the newest end.
pub(super) struct Lists<'w, const L: usize> {
    pub(super) shape: Shape<'w>,
    /// The links of each key, followed by the links of each list's sentinel.
    before: Vec<u32>,
    behind: Vec<u32>,
    list: Vec<u8>,
    bytes: [u64; L],
}

impl<'w, const L: usize> Lists<'w, L> {
    pub(super) fn new(shape: Shape<'w>) -> Self {
        let ends = (0..shape.keys() + L).map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let ends: Vec<u32> = ends.collect();
        let list = vec![NOWHERE; shape.keys()];
        Lists { shape, before: ends.clone(), behind: ends, list, bytes: [0; L] }
    }

    pub(super) fn of(&self, key: u32) -> Option<usize> {
        let list = self.list[key as usize];
        (list != NOWHERE).then_some(list.into())
    }

    pub(super) fn bytes(&self, list: usize) -> u64 {
        self.bytes[list]
    }

    pub(super) fn back(&self, list: usize) -> Option<u32> {
        self.key(self.before[self.end(list)])
    }

    pub(super) fn newer(&self, key: u32) -> Option<u32> {
        self.key(self.before[key as usize])
    }

    /// Moves a key to the front of `list`, and removes the key from any other list.
    pub(super) fn push(&mut self, list: usize, key: u32) {
        self.take(key);
        let end = self.end(list);
        let first = self.behind[end];
        self.before[first as usize] = key;
        self.behind[key as usize] = first;
        self.before[key as usize] = u32::try_from(end).unwrap_or(u32::MAX);
        self.behind[end] = key;
        self.list[key as usize] = u8::try_from(list).unwrap_or(NOWHERE);
        self.bytes[list] += self.shape.bytes_of(key);
    }

    pub(super) fn take(&mut self, key: u32) {
        let Some(list) = self.of(key) else { return };
        let (before, behind) = (self.before[key as usize], self.behind[key as usize]);
        self.behind[before as usize] = behind;
        self.before[behind as usize] = before;
        self.list[key as usize] = NOWHERE;
        self.bytes[list] -= self.shape.bytes_of(key);
    }

    fn end(&self, list: usize) -> usize {
        self.shape.keys() + list
    }

    fn key(&self, at: u32) -> Option<u32> {
        ((at as usize) < self.shape.keys()).then_some(at)
    }
}
