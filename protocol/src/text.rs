//! The text protocol: lines.
//!
//! Where: `quick` and `parse` make requests of lines, `write` makes lines of what requests came to;
//! `head` says a line again while its value comes.
//! Invariant: no line is longer than the two limits below.
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

/// A `get` or `gets` line that has no end within this many bytes is answered key by key as it
/// arrives. Any other line that is longer closes the connection, whether or not its end has come.
/// (memcached's read buffer, which grows for those two only.)
pub const LINE_BYTES_MAX: usize = 16384;

/// Any other line that has no end within this many bytes closes the connection.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// Length of the line end behind a value.
pub(crate) const LINE_END_BYTES: u32 = 2;
