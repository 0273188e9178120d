//! The modules of the text protocol, and the limits on the length of its lines.
//!
//! Where: `quick` and `parse` read requests, `write` writes answers; `head` shortens a long line.
//! Invariant: the session never needs more than `LINE_BYTES_MAX` bytes of a line at once.
//! Source: memcached's `protocol.txt`; its read buffer (`READ_BUFFER_SIZE`).

pub mod event;
pub mod head;
pub mod list;
pub mod operator;
pub(crate) mod parse;
pub(crate) mod quick;
mod scan;
pub(crate) mod tokens;
pub mod write;

/// Longest line, which is the size of memcached's read buffer. A longer `get` or `gets` line is
/// answered key by key as it arrives; any other longer line closes the connection.
pub const LINE_BYTES_MAX: usize = 16384;

/// Longest unfinished line other than `get` or `gets`. A longer one closes the connection.
pub const COMMAND_BYTES_MAX: usize = 2048;
