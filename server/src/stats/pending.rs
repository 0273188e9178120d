//! The rest of an answer to `stats`, after its rows are written.
//!
//! Where: `stats::write` returns the rest, and `stats::answer` completes the answer.
//! Invariant: writing rows changes no state; only an order changes the state of the server.

use protocol::Outcome;

/// The step that completes an answer after its rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Write this outcome as the reply.
    Reply(Outcome),
    /// Carry out this order, if the client may give operators' commands.
    Order(Order),
    Hot,
    /// Begin an errand that sends this list over several turns.
    Errand(Listing),
}

/// The lists that are sent over several turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// The items of `stats cachedump`.
    Items,
    Sockets,
    Sizes,
    Prefixes,
    /// The counts of requests for each key prefix.
    Detail,
}

/// The forms of `stats` that change the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Set the counts to 0.
    Reset,
    /// Start (true) or stop (false) counting requests for each key prefix.
    CountPrefixes(bool),
}
