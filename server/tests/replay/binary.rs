//! Replays binary frames: puts the server's CAS uniques into requests, replaces CAS uniques in
//! replies by numbers, and removes the version.
//!
//! Where: between a recording and the wire.
//! Invariant: only the CAS unique of a reply and the text of VERSION are changed.
//! Source: `../data/oracle/README.md`.

use crate::form::{Form, Uniques};
use crate::live::frame::{Frame, HEADER_BYTES, NOOP, REPLY, REQUEST, VERSION};
use crate::live::{Stop, Wire, show};
use crate::recording::Exchange;

/// An opaque that no recorded request has.
const FENCE_OPAQUE: u32 = u32::from_be_bytes(*b"HYPO");

const CAS: std::ops::Range<usize> = 16..24;

pub(crate) struct Binary(Uniques);

impl Binary {
    pub(crate) fn new() -> Binary {
        // In a binary frame 0 means no unique, so the recording counts from 1.
        Binary(Uniques::from(1))
    }
}

impl Form for Binary {
    fn fence() -> Vec<u8> {
        noop(REQUEST).encode()
    }

    fn quotes_unique(exchange: &Exchange) -> bool {
        exchange.unique_of.is_some()
    }

    fn request(&self, exchange: &Exchange) -> Vec<u8> {
        let mut request = exchange.input.clone();
        if let Some(key) = &exchange.unique_of {
            let unique = self.0.last(key).unwrap_or_default();
            request[CAS].copy_from_slice(&unique.to_be_bytes());
        }
        request
    }

    fn read(wire: &mut Wire, reply: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            let frame = wire.frame()?;
            if frame == noop(REPLY) {
                return Ok(());
            }
            reply.extend(frame.encode());
        }
    }

    fn reply(&mut self, request: &[u8], reply: &[u8]) -> Vec<u8> {
        let mut result = Vec::with_capacity(reply.len());
        let mut rest = reply;
        while let Some(mut frame) = Frame::decode(rest) {
            rest = &rest[HEADER_BYTES + frame.body.len()..];
            if frame.cas != 0 {
                frame.cas = self.0.number(key(request), frame.cas);
            }
            if frame.opcode == VERSION && frame.status == 0 {
                assert!(!frame.body.is_empty(), "a version without a text: {frame}");
                frame = without_version(frame);
            }
            result.extend(frame.encode());
        }
        result.extend_from_slice(rest);
        result
    }

    fn show(reply: &[u8]) -> String {
        let mut text = String::new();
        let mut rest = reply;
        while let Some(frame) = Frame::decode(rest) {
            rest = &rest[HEADER_BYTES + frame.body.len()..];
            text += &format!("[{frame}] ");
        }
        text + &show(rest)
    }
}

/// Removes the body of a reply to VERSION, because the recording has this reply without its body.
pub(crate) fn without_version(frame: Frame) -> Frame {
    Frame { body_bytes: 0, body: Vec::new(), ..frame }
}

fn noop(magic: u8) -> Frame {
    Frame { opaque: FENCE_OPAQUE, ..Frame::new(magic, NOOP, &[], &[], &[]) }
}

/// Returns the key of a request, or the part of the key that the request contains.
fn key(request: &[u8]) -> &[u8] {
    let key_bytes = usize::from(u16::from_be_bytes([request[2], request[3]]));
    let rest = request.get(HEADER_BYTES + usize::from(request[4])..).unwrap_or_default();
    &rest[..key_bytes.min(rest.len())]
}
