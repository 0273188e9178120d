//! The two forms of replayed exchanges, text and binary, and the numbering of CAS uniques for both.
//!
//! Where: between a recording and the wire.
//! Invariant: a form normalises only values that vary between two runs of an exchange, and does not
//! decide which other differences are allowed.
//! Source: `../data/oracle/README.md`.

use crate::live::{Stop, Wire};
use crate::recording::Exchange;
use std::collections::HashMap;

pub(crate) trait Form {
    /// The request sent after each recorded request. Its reply shows that all earlier replies came.
    fn fence() -> Vec<u8>;

    fn quotes_unique(exchange: &Exchange) -> bool;

    /// Puts the live server's CAS uniques and times into the recorded request.
    fn request(&self, exchange: &Exchange) -> Vec<u8>;

    /// Reads a reply, and the fence's reply after it. If the fence's reply does not arrive, `reply`
    /// contains all bytes that arrived.
    fn read(wire: &mut Wire, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// Returns a reply in the form of the recording, and remembers the reply's CAS uniques.
    fn reply(&mut self, request: &[u8], reply: &[u8]) -> Vec<u8>;

    fn show(reply: &[u8]) -> String;
}

pub(crate) struct Uniques {
    /// The last unique seen for each key.
    last: HashMap<Vec<u8>, u64>,
    /// The number of each unique, in order of first appearance.
    numbers: HashMap<u64, u64>,
    first: u64,
}

impl Uniques {
    pub(crate) fn from(first: u64) -> Uniques {
        Uniques { last: HashMap::new(), numbers: HashMap::new(), first }
    }

    pub(crate) fn last(&self, key: &[u8]) -> Option<u64> {
        self.last.get(key).copied()
    }

    /// Records that a reply shows `unique` for `key`. Returns the number of `unique`.
    pub(crate) fn number(&mut self, key: &[u8], unique: u64) -> u64 {
        self.last.insert(key.to_vec(), unique);
        let next = self.first + u64::try_from(self.numbers.len()).unwrap();
        *self.numbers.entry(unique).or_insert(next)
    }
}
