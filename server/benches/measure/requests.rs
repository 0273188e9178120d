//! Makes a GET and a SET in each protocol as bytes, and the replies that a correct server sends.
//!
//! Where: used by the programs that execute requests in their own process.
//! Invariant: every byte of a reply is known beforehand, except for a binary reply's CAS unique.
//! Source: memcached's protocol.txt (`get`, `set`, `mg`, `ms`) and `protocol_binary.h` (GETK, SET).

use protocol::binary::{HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST};

use super::in_process::{KEY_BYTES, Key};
use super::wire::Protocol;

/// The opcode of GETK.
const OPCODE_GET: u8 = 0x0c;
const OPCODE_SET: u8 = 0x01;
const CAS_AT: usize = 16;
/// `KEY_BYTES` as a `u32`, for the lengths in a header.
const KEY_BYTES_32: u32 = 36;
const _: () = assert!(KEY_BYTES_32 as usize == KEY_BYTES);

#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    /// Offsets of the CAS uniques in `reply`, ascending. The server chooses the uniques.
    pub(crate) cas_at: Vec<usize>,
}

/// Makes requests and replies whose values all have the same length.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    protocol: Protocol,
    /// The end of a request's or reply's line before a value: ` 0 <bytes>\r\n` or `<bytes>\r\n`.
    after_key: Vec<u8>,
    value_bytes: u32,
}

impl Form {
    pub(crate) fn new(protocol: Protocol, value_bytes: u32) -> Form {
        let after_key = match protocol {
            Protocol::Meta => format!("{value_bytes}\r\n"),
            Protocol::Text | Protocol::Binary => format!(" 0 {value_bytes}\r\n"),
        };
        Form { protocol, after_key: after_key.into_bytes(), value_bytes }
    }

    pub(crate) fn get(&self, key: &Key, value: &[u8], batch: &mut Batch) {
        let Batch { request, reply, cas_at } = batch;
        match self.protocol {
            Protocol::Text => {
                push(request, &[b"get ", key, b"\r\n"]);
                push(reply, &[b"VALUE ", key, &self.after_key, value, b"\r\nEND\r\n"]);
            }
            Protocol::Meta => {
                push(request, &[b"mg ", key, b" v\r\n"]);
                push(reply, &[b"VA ", &self.after_key, value, b"\r\n"]);
            }
            Protocol::Binary => {
                header(request, MAGIC_REQUEST, OPCODE_GET, [0, KEY_BYTES_32, 0]);
                push(request, &[key]);
                cas_at.push(reply.len() + CAS_AT);
                header(reply, MAGIC_REPLY, OPCODE_GET, [4, KEY_BYTES_32, self.value_bytes]);
                push(reply, &[&[0; 4], key, value]);
            }
        }
    }

    pub(crate) fn set(&self, key: &Key, value: &[u8], batch: &mut Batch) {
        let Batch { request, reply, cas_at } = batch;
        match self.protocol {
            Protocol::Text => {
                push(request, &[b"set ", key, b" 0", &self.after_key, value, b"\r\n"]);
                push(reply, &[b"STORED\r\n"]);
            }
            Protocol::Meta => {
                push(request, &[b"ms ", key, b" ", &self.after_key, value, b"\r\n"]);
                push(reply, &[b"HD\r\n"]);
            }
            Protocol::Binary => {
                header(request, MAGIC_REQUEST, OPCODE_SET, [8, KEY_BYTES_32, self.value_bytes]);
                push(request, &[&[0; 8], key, value]);
                cas_at.push(reply.len() + CAS_AT);
                header(reply, MAGIC_REPLY, OPCODE_SET, [0; 3]);
            }
        }
    }
}

fn push(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

fn header(out: &mut Vec<u8>, magic: u8, opcode: u8, body: [u32; 3]) {
    let [extras, key, _] = body;
    let header = Header {
        magic,
        opcode,
        key_bytes: u16::try_from(key).unwrap_or(0),
        extras_bytes: u8::try_from(extras).unwrap_or(0),
        body_bytes: body.iter().sum(),
        ..Header::default()
    };
    let bytes: [u8; HEADER_BYTES] = header.to_bytes();
    out.extend_from_slice(&bytes);
}
