//! The two forms of replayed exchanges, text and binary; and the numbers of CAS uniques, for both.
//!
//! Where: between a recording and the wire.
//! Invariant: a form undoes what may differ between two runs of an exchange; it does not decide
//! which differences are allowed.
//! Source: `../data/oracle/README.md`.

use crate::live::{Stop, Wire};
use crate::recording::Exchange;
use std::collections::HashMap;

/// One kind of protocol in a replay.
pub(crate) trait Form {
    /// The request after each recorded one; its reply marks the end of the recorded one's.
    fn fence() -> Vec<u8>;

    /// True if a request quotes a CAS unique from an earlier reply.
    fn quotes_unique(exchange: &Exchange) -> bool;

    /// Returns the recorded request with the server's uniques and times.
    fn request(&self, exchange: &Exchange) -> Vec<u8>;

    /// Reads a reply, and the fence after it. If the fence does not come, `reply` has what did.
    fn read(wire: &mut Wire, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// Returns a reply in the form of the recording, and notes its CAS uniques.
    fn reply(&mut self, request: &[u8], reply: &[u8]) -> Vec<u8>;

    /// Formats a reply for people.
    fn show(reply: &[u8]) -> String;
}

/// CAS uniques by key and by order of appearance.
pub(crate) struct Uniques {
    /// The last unique seen for each key.
    last: HashMap<Vec<u8>, u64>,
    /// The number of each unique, in order of first appearance.
    numbers: HashMap<u64, u64>,
    first: u64,
}

impl Uniques {
    /// Starts numbering at `first`.
    pub(crate) fn from(first: u64) -> Uniques {
        Uniques { last: HashMap::new(), numbers: HashMap::new(), first }
    }

    pub(crate) fn last(&self, key: &[u8]) -> Option<u64> {
        self.last.get(key).copied()
    }

    /// Returns the number of a unique that a reply shows for `key`.
    pub(crate) fn number(&mut self, key: &[u8], unique: u64) -> u64 {
        self.last.insert(key.to_vec(), unique);
        let next = self.first + u64::try_from(self.numbers.len()).unwrap();
        *self.numbers.entry(unique).or_insert(next)
    }
}
