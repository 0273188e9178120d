//! Fuzzes the parsers of text replies, binary answers, RESP replies and commands, and UDP headers.
//!
//! Where: `cargo fuzz run --sanitizer none replies -- -max_total_time=20`.
//! Invariant: no panic; no parser consumes more bytes than the input has; a text reply that is
//! parsed, written and parsed again stays the same.
//! Source: the invariants of `protocol/src/reply.rs`, `protocol/src/binary/frame.rs` and
//! `protocol/src/resp.rs`.
#![no_main]

#[path = "../../protocol/tests/encode/mod.rs"]
mod encode;

use libfuzzer_sys::fuzz_target;
use protocol::Reply;
use protocol::binary::MAGIC_REQUEST;
use protocol::binary::frame::{self, Frame};
use protocol::reply::Decoded;
use protocol::{resp, udp};

fuzz_target!(|data: &[u8]| {
    let mut at = 0;
    while let Decoded::Whole(reply, used) = Reply::decode(&data[at..]) {
        assert!(used > 0 && used <= data.len() - at);
        let mut bytes = Vec::new();
        encode::reply(&reply, &mut bytes);
        assert_eq!(Reply::decode(&bytes), Decoded::Whole(reply, bytes.len()));
        at += used;
    }
    at = 0;
    while let frame::Decoded::Whole(_, used) = Frame::decode(&data[at..]) {
        assert!(used > 0 && used <= data.len() - at);
        at += used;
    }
    at = 0;
    while let resp::Decoded::Whole(reply, used) = resp::Reply::decode(&data[at..]) {
        assert!(used > 0 && used <= data.len() - at);
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(resp::Reply::decode(&bytes), resp::Decoded::Whole(reply, bytes.len()));
        at += used;
    }
    if let resp::Decoded::Whole(command, used) = resp::Command::decode(data) {
        assert!(used <= data.len() && command.words().count() == command.len());
    }
    if let Some((header, rest)) = udp::Header::read(data) {
        assert!(rest.len() + udp::HEADER_BYTES == data.len());
        assert_eq!(header.bytes()[..], data[..udp::HEADER_BYTES]);
        assert_eq!(header.is_part(), header.number < header.total);
        assert!(!(udp::is_answer(rest) && rest.first() == Some(&MAGIC_REQUEST)));
    }
});
