//! Fuzzes a session, the parser of a connection, in text mode (classic and meta) with random bytes.
//!
//! Where: `cargo fuzz run --sanitizer none text -- -dict=fuzz/text.dict -max_total_time=20`. The
//! input's first two bytes give two lengths of pieces; the rest is the stream of bytes.
//! Invariant: no panic; a step consumes only bytes that have arrived; the requests in the stream do
//! not depend on the pieces.
//! Source: the invariants of `protocol/src/session.rs`, checked in `protocol/tests/stream`.
#![no_main]

#[path = "../../protocol/tests/stream/mod.rs"]
mod stream;

use libfuzzer_sys::fuzz_target;
use protocol::{LINE_BYTES_MAX, ProtocolMode};
use stream::feed;

fuzz_target!(|data: &[u8]| {
    let [first, second, stream @ ..] = data else { return };
    let whole = feed(ProtocolMode::Ascii, [stream]);
    for piece_bytes in [usize::from(*first) + 1, usize::from(*second) * 16 + 1] {
        let cut = feed(ProtocolMode::Ascii, stream.chunks(piece_bytes));
        // If a line of keys arrives whole, the session checks all keys before it yields any. A
        // longer line is checked while it arrives, so its requests depend on the pieces.
        assert!(stream.len() >= LINE_BYTES_MAX || whole.agrees(&cut));
    }
});
