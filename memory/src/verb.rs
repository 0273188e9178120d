//! The verbs of storage commands.
//!
//! Where: a protocol reads a verb from a request, and the store carries the verb out.
//! Invariant: a verb is a condition (none, the key is absent, the key exists, the CAS unique is the
//! same) and a fate of the old value (replaced, extended at its end, extended at its beginning).
//! Source: memcached's `do_store_item` and `process_mset_cmd_start` (1.6.45).

/// The condition under which a value is stored, and the fate of the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Stores always (`set`).
    Set,
    /// Stores if the key does not exist (`add`); an existing item counts as used.
    Add,
    /// Stores if the key exists (`replace`).
    Replace,
    /// Stores if the item has the request's CAS unique (`cas`).
    Cas,
    /// Appends the value to the old value; flags and exptime stay (`append`).
    Append,
    /// Prepends the value to the old value; flags and exptime stay (`prepend`).
    Prepend,
    /// Like `Append`, but if the key has no item, stores the value alone (meta set, `MA` and `N`).
    AppendVivify,
    /// Like `Prepend`, but if the key has no item, stores the value alone (meta set, `MP` and `N`).
    PrependVivify,
}

impl Verb {
    /// True if the verb extends an existing value, and so ignores client flags and exptime.
    #[inline]
    pub fn extends(self) -> bool {
        matches!(self, Verb::Append | Verb::AppendVivify) || self.is_before()
    }

    /// True if the verb extends an existing value at its beginning.
    #[inline]
    pub fn is_before(self) -> bool {
        matches!(self, Verb::Prepend | Verb::PrependVivify)
    }

    /// True if the verb stores its value alone if there is no value to extend.
    #[inline]
    pub fn vivifies(self) -> bool {
        matches!(self, Verb::AppendVivify | Verb::PrependVivify)
    }
}
