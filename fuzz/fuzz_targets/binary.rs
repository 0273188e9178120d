//! Fuzzes a session, the parser of a connection, in binary and automatic mode with random bytes.
//!
//! Where: `cargo fuzz run --sanitizer none binary -- -dict=fuzz/binary.dict -max_total_time=20`.
//! The input's first two bytes give two lengths of pieces; the rest is the stream of bytes.
//! Invariant: no panic; a step consumes only bytes that have arrived; the pieces do not change the
//! requests in a binary stream; a request that is parsed, written and parsed again stays the same.
//! Source: the invariants of `protocol/src/session.rs`, checked in `protocol/tests/stream`.
#![no_main]

#[path = "../../protocol/tests/encode/mod.rs"]
mod encode;
#[path = "../../protocol/tests/stream/mod.rs"]
mod stream;

use libfuzzer_sys::fuzz_target;
use protocol::binary::MAGIC_REQUEST;
use protocol::{LINE_BYTES_MAX, ProtocolMode, Request, Session, Step};
use stream::feed;

fuzz_target!(|data: &[u8]| {
    let [first, second, stream @ ..] = data else { return };
    for speak in [ProtocolMode::Binary, ProtocolMode::Auto] {
        let whole = feed(speak, [stream]);
        let framed = speak == ProtocolMode::Binary || stream.first() == Some(&MAGIC_REQUEST);
        for piece_bytes in [usize::from(*first) + 1, usize::from(*second) * 16 + 1] {
            let cut = feed(speak, stream.chunks(piece_bytes));
            let same = whole.agrees(&cut) && (!framed || cut.agrees(&whole));
            assert!(same || !framed && stream.len() >= LINE_BYTES_MAX);
        }
    }
    if let Step::Request(request, _) = Session::new(ProtocolMode::Binary).next(stream)
        && request.tag().is_some()
        // A refused frame's answer does not keep the frame's lengths.
        && !matches!(request, Request::Answer(_) | Request::LastAnswer(_))
    {
        let mut bytes = Vec::new();
        encode::request(&request, &mut bytes);
        let again = Session::new(ProtocolMode::Binary).next(&bytes);
        assert_eq!(again, Step::Request(request, bytes.len()));
    }
});
