//! The result of looking for a message at the start of the input; all protocols use the same type.
//!
//! Where: returned to a client that reads replies, and to a test server that reads RESP commands.
//! Invariant: the length covers the whole message, line ends included.
//! Source: none.

/// A message at the start of the input, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// The message is incomplete.
    More,
    /// A message, and its length in bytes.
    Whole(T, usize),
    /// The input is not valid in the protocol.
    Broken,
}
