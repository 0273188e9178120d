//! The seam between a column and what executes its requests.
//!
//! Where: `batch` and `input` pass requests to an executor; `connection` and `datagram` tell it
//! where the next requests come from; the loop tells it when a loop begins and ends.
//! Invariant: an executor appends the reply to each request to `Out`, in the order of the requests.
//! A request that must wait changes nothing, and is passed again later.

use std::fmt::Debug;
use std::net::SocketAddr;

use protocol::{Answer, Get, Meta, Request};
use store::{Draft, PrefetchedHash};

use crate::out::Out;

/// The connection's next step after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Executes the next request.
    Continue,
    /// Sends the replies that are ready, and only then executes more requests (after `mn`).
    Flush,
    /// Sends the replies that are ready, then closes (`quit`).
    Close,
    /// Tries the same request again later: the store has no room yet, and nothing was changed.
    Wait,
    /// Continues the executor's errand, and executes the next request after the errand's end.
    Errand,
}

/// The source of the requests that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A connection with this descriptor.
    Connection(i32),
    /// Datagrams, whose sender may be forged.
    Datagram,
}

/// Executes the requests of one column.
pub trait Executor: Debug + Send + Sized {
    /// A command whose answer takes several turns.
    type Errand: Errand<Self>;

    /// The column's access to the store. `None` if the executor has no store.
    fn store(&self) -> Option<&store::Column>;

    /// Like `store`, but mutable.
    fn store_mut(&mut self) -> Option<&mut store::Column>;

    /// Begins a loop, `since_ms` milliseconds after the previous loop began.
    fn begin_loop(&mut self, since_ms: u64);

    /// Sets the time, in seconds since the server started. Called once per loop.
    fn set_now(&mut self, seconds: u32);

    /// Ends a loop. Passes a quiescent point (a moment at which the column holds no reference into
    /// the store), and does a slice of background work. Returns true if such work is left.
    fn end_loop(&mut self) -> bool;

    /// Called before the column's thread blocks, and before it ends.
    fn offline(&mut self);

    /// Called after the column's thread has blocked.
    fn online(&mut self);

    /// Notes where the following requests come from. `may_wait` is false if the first of them has
    /// waited too long: it is refused instead of waiting again.
    fn begin_input(&mut self, from: Origin, may_wait: bool);

    /// Prefetches the memory that a request with this key will read.
    fn prefetch(&self, key: &[u8]) -> Option<PrefetchedHash>;

    /// Prefetches the item of a key, whose line `prefetch` has prefetched.
    fn prefetch_item(&self, hash: PrefetchedHash);

    /// Executes a request and appends its reply to `out`. The key may already be hashed (`hash`).
    fn execute(
        &mut self,
        request: &Request<'_>,
        hash: Option<PrefetchedHash>,
        out: &mut Out,
    ) -> NextStep;

    /// Executes a lookup of one key that is the whole input of a connection.
    fn execute_get(&mut self, request: &Get<'_>, out: &mut Out) -> NextStep;

    /// Executes `mg KEY v` that is the whole input of a connection.
    fn execute_meta_get(&mut self, request: &Meta<'_>, out: &mut Out) -> NextStep;

    /// Checks that a storage command is admitted, before its value is received into a draft.
    ///
    /// # Errors
    /// The command is refused. The error is the reply, which the caller passes to
    /// `Session::swallow`.
    fn begin_value(&mut self, request: &Request<'_>, value_bytes: u32) -> Result<(), Answer>;

    /// Executes the storage command in `header`, whose value has arrived in `draft`, and was
    /// followed by `tail`. After `NextStep::Wait`, the caller calls again with the same draft.
    fn execute_with_draft(
        &mut self,
        header_and_tail: (&[u8], &[u8]),
        draft: &mut Draft,
        out: &mut Out,
    ) -> NextStep;

    /// Returns the answer to the storage command in `header` if the store has no room for its
    /// value. The caller skips the rest of the value, then sends the answer.
    fn give_up(&mut self, header: &[u8]) -> Answer;

    /// Takes the errand that the last request began.
    fn take_errand(&mut self) -> Option<Box<Self::Errand>>;

    /// Notes that a connection was closed for `reason`, or (`None`) was accepted.
    fn note_connection(
        &mut self,
        peer: impl FnOnce() -> Option<SocketAddr>,
        descriptor: i32,
        reason: Option<&str>,
    );
}

/// The result of a step of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The errand has work left.
    More,
    /// The errand has no work now. The column tries the errand again a little later.
    Idle,
    /// The answer is complete.
    Done,
    /// The errand cannot continue. The column closes the errand's connection, to show the client
    /// that the answer is incomplete.
    Ended,
}

/// A command whose answer takes several turns.
///
/// A step does a bounded amount of work and appends a bounded number of reply bytes. The next step
/// waits until all reply bytes are sent. A slow client delays only its own errand.
pub trait Errand<E>: Debug + Send {
    /// Does one step, and appends the next part of the answer to `out`.
    fn step(&mut self, executor: &mut E, out: &mut Out) -> Progress;

    /// True if the errand ends when its client closes the sending side of its connection.
    fn ends_with_input(&self) -> bool;

    /// The name of the connection's state in `stats conns` while the errand runs.
    fn state(&self) -> &'static str;
}
