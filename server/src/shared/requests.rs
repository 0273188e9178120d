//! The counters of the requests that a column executes.
//!
//! Where: the executor counts here; `columns::counters` has what columns receive, send and move.
//! Invariant: only a column's own thread writes the column's counters. No counter is ever set back.
//! Source: memcached 1.6.45 `struct thread_stats`, `struct stats`.

memory::counters! {
    counts:
    /// Keys found by `get`, `gets`, their binary forms, and `mg` (if the `mg` is not a touch).
    get_hits,
    /// Keys not found by `get`, `gets`, their binary forms, and `mg`.
    get_misses,
    /// Values received with storage commands, stored or not, unless refused for lack of room.
    set_cmds,
    /// `flush_all` commands, executed or refused.
    flush_cmds,
    /// Keys found by `touch`, `gat`, `gats`, their binary forms, and `mg` with flag `T`.
    touch_hits,
    /// Keys not found by `touch`, `gat`, `gats` and their binary forms. A miss of `mg` with flag
    /// `T` counts as a miss of `get`.
    touch_misses,
    /// `me` commands. As in memcached, no other meta command is counted here.
    meta_cmds,
    /// Deletions of an existing key: `delete`, and `md` that does not mark the item stale.
    delete_hits,
    /// Deletions of a missing key, and `md` commands whose CAS unique did not match.
    delete_misses,
    /// Additions to an existing number by `incr`, or by `ma` in a mode that increments.
    incr_hits,
    /// Additions that failed, because the key has no item.
    incr_misses,
    /// Subtractions from an existing number by `decr`, or by `ma` in a mode that decrements.
    decr_hits,
    /// Subtractions that failed, because the key has no item.
    decr_misses,
    /// Values refused because the item would be larger than `-I` allows.
    store_too_large,
    /// Values refused because the store had no room.
    store_no_memory,
    /// Requests in datagrams, refused because only connections, or only operators, may send them.
    udp_refused,
    /// Dumps of items that were begun.
    dumps,
    /// Dumps that ended early to make room for a new dump, because their clients read too slowly.
    dumps_stalled,
    /// Lines of events written for clients that use `watch`.
    log_worker_written,
    /// Lines of events dropped because a loop wrote more than `-o worker_logbuf_size` allows.
    log_worker_dropped,
    /// Lines of events passed to watching clients, counted once for each client.
    log_watcher_sent,
    /// Lines of events dropped because the lines that wait for the client might exceed
    /// `-o watcher_logbuf_size`.
    log_watcher_skipped;

    shared:;
    gauges:;
}

impl Sums {
    /// Number of keys looked up by retrievals, found or not.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.get_hits.wrapping_add(self.get_misses)
    }

    /// Number of keys looked up by touches, found or not.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.touch_hits.wrapping_add(self.touch_misses)
    }
}
