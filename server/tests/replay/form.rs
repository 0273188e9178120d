//! The two forms of exchanges that are replayed, text lines and binary frames, and the names of CAS
//! uniques, which both use.
//!
//! Where: between a recording and the wire.
//! Invariant: a form says what differs between two runs of one exchange, not which differences are
//! allowed.
//! Source: `../data/oracle/README.md`.

use crate::live::{Stop, Wire};
use crate::recording::Exchange;
use std::collections::HashMap;

/// How one kind of protocol is replayed.
pub(crate) trait Form {
    /// A request that follows each recorded one. Its reply marks the end of the recorded request's
    /// replies.
    fn fence() -> Vec<u8>;

    /// Whether a request quotes a CAS unique that an earlier reply showed.
    fn quotes_unique(exchange: &Exchange) -> bool;

    /// The recorded request as it has to be sent now.
    fn request(&self, exchange: &Exchange) -> Vec<u8>;

    /// Reads the reply to one request, and the fence behind it. Where the fence does not come,
    /// `reply` has what was taken from the wire until then.
    fn read(wire: &mut Wire, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// A reply as the recording would write it; takes note of the CAS uniques in it.
    fn reply(&mut self, request: &[u8], reply: &[u8]) -> Vec<u8>;

    /// A reply as a person reads it.
    fn show(reply: &[u8]) -> String;
}

/// CAS uniques by key and by order of appearance.
pub(crate) struct Uniques {
    /// The last unique seen for each key.
    last: HashMap<Vec<u8>, u64>,
    /// Each unique's number, counting first appearances.
    numbers: HashMap<u64, u64>,
    first: u64,
}

impl Uniques {
    /// The first unique to appear gets the number `first`.
    pub(crate) fn from(first: u64) -> Uniques {
        Uniques { last: HashMap::new(), numbers: HashMap::new(), first }
    }

    pub(crate) fn last(&self, key: &[u8]) -> Option<u64> {
        self.last.get(key).copied()
    }

    /// The number of a unique that a reply shows for `key`.
    pub(crate) fn number(&mut self, key: &[u8], unique: u64) -> u64 {
        self.last.insert(key.to_vec(), unique);
        let next = self.first + u64::try_from(self.numbers.len()).unwrap();
        *self.numbers.entry(unique).or_insert(next)
    }
}
