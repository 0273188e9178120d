//! The step that answers a request for `stats`.
//!
//! Where: `stats::pending` chooses the step, and `stats::answer` takes it.
//! Invariant: writing rows changes no state; only an order changes the state of the server.

use protocol::Outcome;

use super::rows::WriteRows;

/// The step that answers a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// Write these rows.
    Rows(WriteRows),
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
