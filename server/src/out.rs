//! What is to be sent on one connection: reply text, with large values spliced in by reference.
//!
//! Where: the executor appends, the connection sends.
//! Invariant: the bytes to send are `buf` with each pin's bytes inserted at its position.

/// Replies waiting to be sent.
#[derive(Debug, Default)]
pub struct Out {
    /// Reply text; preallocated, does not grow on the request path.
    pub buf: Vec<u8>,
    /// Where in `buf` a value's body belongs.
    pub pins: Vec<(usize, store::Pinned)>,
}

impl Out {
    /// Splices a value's body in at the end of what is there.
    pub fn pin(&mut self, value: store::Pinned) {
        self.pins.push((self.buf.len(), value));
    }
}
