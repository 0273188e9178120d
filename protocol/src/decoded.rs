//! What came of looking for a message, in whichever protocol.
//!
//! Where: a client reads replies with it, and a test server the commands of RESP.
//! Invariant: a length is that of the whole message, line ends included.
//! Source: none.

/// What the input begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// Not all of a message is here.
    More,
    /// A message, and its length in bytes.
    Whole(T, usize),
    /// Bytes that nobody who speaks this protocol sends.
    Broken,
}
