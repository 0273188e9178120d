//! Any bytes into the client's half: text replies and binary answers.
//!
//! Where: `cargo fuzz run --sanitizer none replies -- -max_total_time=20`.
//! Invariant: no panic; a reply is never longer than what is there; a text reply that was read,
//! written again, is read as the same.
//! Source: the invariants of `protocol/src/reply.rs` and `protocol/src/binary/frame.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::Reply;
use protocol::binary::frame::{self, Frame};
use protocol::reply::Decoded;

fuzz_target!(|data: &[u8]| {
    let mut at = 0;
    while let Decoded::Reply(reply, used) = Reply::decode(&data[at..]) {
        assert!(used > 0 && used <= data.len() - at);
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(Reply::decode(&bytes), Decoded::Reply(reply, bytes.len()));
        at += used;
    }
    at = 0;
    while let frame::Decoded::Frame(_, used) = Frame::decode(&data[at..]) {
        assert!(used > 0 && used <= data.len() - at);
        at += used;
    }
});
