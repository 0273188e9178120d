//! What the client asks and what it must hear: requests and their exact replies as bytes.
//!
//! Where: rendered into a connection's buffers just before a batch is sent.
//! Invariant: the reply to every request is known in full before it is sent, byte for byte, but the
//! CAS unique that a binary reply shows; so checking replies is one comparison, and a miss, an
//! error or a torn value cannot pass.
//! Source: memcached's protocol.txt (`get`, `set`, `mg`, `ms`) and `protocol_binary.h` (GETK, SET).

use protocol::binary::{HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST};

use crate::measure::in_process::{KEY_BYTES, Key, key_of};
use crate::measure::random::Random;
use crate::options::Options;

/// The same sequence of keys for each server and window.
const SEED: u64 = 1;
/// GETK and SET.
const OPCODE_GET: u8 = 0x0c;
const OPCODE_SET: u8 = 0x01;
/// Where the CAS unique stands in a header, and its length.
pub(crate) const CAS_AT: usize = 16;
pub(crate) const CAS_BYTES: usize = 8;

/// What is spoken; one form of request each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Text,
    Meta,
    Binary,
}

impl Protocol {
    /// By name.
    pub(crate) const ALL: [(&'static str, Protocol); 3] =
        [("text", Protocol::Text), ("meta", Protocol::Meta), ("binary", Protocol::Binary)];
}

/// Requests, and the replies they must get.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    /// Where in `reply` a CAS unique stands, which only the server knows; ascending.
    pub(crate) cas_at: Vec<usize>,
}

impl Batch {
    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.request.clear();
        self.reply.clear();
        self.cas_at.clear();
    }
}

/// The stream of requests.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    protocol: Protocol,
    keys: u32,
    /// Of 2^32 requests, how many are sets.
    sets: u64,
    random: Random,
    /// ` 0 <bytes>\r\n` or ` <bytes>\r\n`, which follows the key in a line with a value.
    after_key: Vec<u8>,
    value_bytes: u32,
}

impl Workload {
    pub(crate) fn new(options: &Options) -> Workload {
        let bytes = options.value_bytes;
        let after_key = match options.protocol {
            Protocol::Meta => format!("{bytes}\r\n"),
            Protocol::Text | Protocol::Binary => format!(" 0 {bytes}\r\n"),
        };
        Workload {
            protocol: options.protocol,
            keys: options.keys,
            sets: ratio_of_two_pow_32(options.set_ratio),
            random: Random::new(SEED),
            after_key: after_key.into_bytes(),
            value_bytes: bytes,
        }
    }

    /// Back to the first request.
    pub(crate) fn rewind(&mut self) {
        self.random = Random::new(SEED);
    }

    /// Number of keys.
    pub(crate) fn keys(&self) -> u32 {
        self.keys
    }

    /// Appends the next request and its reply.
    pub(crate) fn next(&mut self, batch: &mut Batch) {
        let is_set = self.random.next() >> 32 < self.sets;
        let key = key_of(self.random.below(self.keys));
        if is_set { self.set(&key, batch) } else { self.get(&key, batch) }
    }

    /// Appends the request that stores key `number`, and its reply.
    pub(crate) fn store(&self, number: u32, batch: &mut Batch) {
        self.set(&key_of(number), batch);
    }

    fn get(&self, key: &Key, Batch { request, reply, cas_at }: &mut Batch) {
        match self.protocol {
            Protocol::Text => {
                push(request, &[b"get ", key, b"\r\n"]);
                push(reply, &[b"VALUE ", key, &self.after_key]);
                self.value(key, reply);
                push(reply, &[b"\r\nEND\r\n"]);
            }
            Protocol::Meta => {
                push(request, &[b"mg ", key, b" v\r\n"]);
                push(reply, &[b"VA ", &self.after_key]);
                self.value(key, reply);
                push(reply, &[b"\r\n"]);
            }
            Protocol::Binary => {
                header(request, MAGIC_REQUEST, OPCODE_GET, [0, KEY_BYTES_32, 0]);
                push(request, &[key]);
                cas_at.push(reply.len() + CAS_AT);
                header(reply, MAGIC_REPLY, OPCODE_GET, [4, KEY_BYTES_32, self.value_bytes]);
                push(reply, &[&[0; 4], key]);
                self.value(key, reply);
            }
        }
    }

    fn set(&self, key: &Key, Batch { request, reply, cas_at }: &mut Batch) {
        match self.protocol {
            Protocol::Text => {
                push(request, &[b"set ", key, b" 0", &self.after_key]);
                self.value(key, request);
                push(request, &[b"\r\n"]);
                push(reply, &[b"STORED\r\n"]);
            }
            Protocol::Meta => {
                push(request, &[b"ms ", key, b" ", &self.after_key]);
                self.value(key, request);
                push(request, &[b"\r\n"]);
                push(reply, &[b"HD\r\n"]);
            }
            Protocol::Binary => {
                header(request, MAGIC_REQUEST, OPCODE_SET, [8, KEY_BYTES_32, self.value_bytes]);
                push(request, &[&[0; 8], key]);
                self.value(key, request);
                cas_at.push(reply.len() + CAS_AT);
                header(reply, MAGIC_REPLY, OPCODE_SET, [0; 3]);
            }
        }
    }

    /// The value, which is the key over and over: a wrong item's value differs.
    fn value(&self, key: &Key, out: &mut Vec<u8>) {
        let mut left = usize::try_from(self.value_bytes).unwrap_or(0);
        while left > 0 {
            let piece = left.min(KEY_BYTES);
            out.extend_from_slice(&key[KEY_BYTES - piece..]);
            left -= piece;
        }
    }
}

/// Length of a key.
const KEY_BYTES_32: u32 = 36;
const _: () = assert!(KEY_BYTES_32 as usize == KEY_BYTES);

fn push(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Appends a header for a body of extras, key and value of these lengths.
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

/// `ratio` (0 to 1) of 2^32, to within a 2^32nd, in whole-number steps.
fn ratio_of_two_pow_32(ratio: f64) -> u64 {
    let mut rest = ratio;
    let mut parts = 0_u64;
    for _ in 0..32 {
        rest *= 2.0;
        parts <<= 1;
        if rest >= 1.0 && parts < 1 << 32 {
            rest -= 1.0;
            parts |= 1;
        }
    }
    if ratio >= 1.0 { 1 << 32 } else { parts }
}
