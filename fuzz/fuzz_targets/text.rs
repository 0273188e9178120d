//! Fuzzes the text protocol's parser, classic and meta, with any bytes, cut anywhere.
//!
//! Where: `cargo fuzz run --sanitizer none text -- -dict=fuzz/text.dict -max_total_time=20`. The
//! first two bytes of the input give the lengths of the pieces; the rest is the stream.
//! Invariant: no panic; a step consumes only bytes that are there; the requests in the stream do
//! not depend on the cuts.
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
        // A line of keys that arrives whole is checked before any key is answered; a longer line is
        // checked while it arrives.
        assert!(stream.len() >= LINE_BYTES_MAX || whole.agrees(&cut));
    }
});
