//! The text protocol: lines.
//!
//! Where: `quick` and `parse` turn lines into requests, `write` turns outcomes into lines, and
//! `head` shortens a line whose value is still arriving.
//! Invariant: no line exceeds the limits below.
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

/// Longest line. A longer `get` or `gets` line is answered key by key while it arrives. Any other
/// longer line closes the connection, even if its end has arrived. (The size of memcached's read
/// buffer, which grows only for those two commands.)
pub const LINE_BYTES_MAX: usize = 16384;

/// Longest unfinished line other than `get` or `gets`. A longer one closes the connection.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// Length of the line end after a value.
pub(crate) const LINE_END_BYTES: u32 = 2;
