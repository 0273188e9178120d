//! Requests into store calls and replies.
//!
//! Where: between a connection's `Session` and its `Out`.
//! Invariant: one request, one reply, in order; no allocation.
//! Source: memcached 1.6.45 `process_command_ascii` and what it calls.

use std::sync::Arc;

use protocol::Request;
use store::{Column, Draft};

use crate::clock::Clock;
use crate::out::Out;
use crate::shared::{Counters, Shared};

/// What executing needs: one per column.
#[derive(Debug)]
pub struct Context {
    /// The column's hold on the store.
    pub store: Column,
    /// The column's own counters.
    pub counters: Arc<Counters>,
    /// What all columns share.
    pub shared: Arc<Shared>,
    /// Set by the column's loop once per turn.
    pub clock: Clock,
}

/// What the connection does after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Goes on.
    Continue,
    /// Sends what is ready before it goes on (`mn`).
    Flush,
    /// Sends what is ready, then closes (`quit`).
    Close,
}

/// Carries out `request` and appends its reply to `out`.
pub fn execute(_context: &mut Context, _request: &Request<'_>, _out: &mut Out) -> After {
    After::Continue
}

/// Asked for a `Step::Body` that is not kept in the connection's buffer: may its value come?
///
/// # Errors
/// The reply, to be given to `Session::swallow`; empty when the client wants none.
pub fn begin(
    _context: &mut Context,
    _request: &Request<'_>,
    _value_bytes: u32,
) -> Result<(), &'static str> {
    Ok(())
}

/// Carries out the storage command of `header` (its whole line, kept by the connection) with a
/// value that has arrived in `draft`, followed by `line_end`.
pub fn execute_with_draft(
    _context: &mut Context,
    _header: &[u8],
    _draft: Draft,
    _line_end: [u8; 2],
    _out: &mut Out,
) -> After {
    After::Continue
}
