//! The requests of a workload: their verbs, keys and sizes.
//!
//! Where: `stream` makes requests; `drive` sends them.
//! Invariant: only a get has several keys.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads the value of one key, or of several keys at once.
    Get,
    /// Writes a value.
    Set,
    /// Removes an item.
    Delete,
    /// Appends to an item's value.
    Append,
    /// Writes a value if the key has no value.
    Add,
    /// Writes a value if the key already has a value.
    Replace,
}

/// All verbs, in the order of their numbers (`verb as usize`).
pub const VERBS: [Verb; 6] =
    [Verb::Get, Verb::Set, Verb::Delete, Verb::Append, Verb::Add, Verb::Replace];

impl Verb {
    /// The name in workload files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Set => "set",
            Verb::Delete => "delete",
            Verb::Append => "append",
            Verb::Add => "add",
            Verb::Replace => "replace",
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::Delete)
    }

    /// True if the verb can create an item, so that its requests have a time to live.
    pub(crate) fn makes(self) -> bool {
        self.writes() && self != Verb::Append
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// The kind of request.
    pub verb: Verb,
    /// The numbers of the keys: one key, or several keys for a multiget, which may repeat a key.
    pub keys: Vec<u64>,
    /// Bytes of the value that the request writes; 0 if the request writes no value.
    pub value_bytes: u32,
    /// The item's time to live in seconds. 0 means that the item never expires.
    pub exptime_s: u32,
}

impl Default for WorkloadRequest {
    /// Returns an empty request, which `Stream::next` fills.
    fn default() -> WorkloadRequest {
        WorkloadRequest { verb: Verb::Get, keys: Vec::new(), value_bytes: 0, exptime_s: 0 }
    }
}
