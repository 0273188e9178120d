//! What the client asks and what it must hear: requests and their exact replies as bytes.
//!
//! Where: rendered into a connection's buffers just before a batch is sent.
//! Invariant: the reply to every request is known in full before it is sent, byte for byte; so
//! checking replies is one comparison, and a miss, an error or a torn value cannot pass.
//! Source: memcached's protocol.txt, `get` and `set`.

use crate::options::Options;

/// Before the number in each key; with it the key is 36 bytes, the median of Twitter's published
/// clusters.
const KEY_PREFIX: &[u8] = b"hypostyle:bench:cluster:key:";
/// Digits of the number in each key.
const KEY_DIGITS: usize = 8;
/// Length of every key.
pub(crate) const KEY_BYTES: usize = KEY_PREFIX.len() + KEY_DIGITS;
/// The same sequence of keys for each server and window.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The stream of requests.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    keys: u32,
    /// Of 2^32 requests, how many are sets.
    sets: u64,
    state: u64,
    /// ` 0 <bytes>\r\n`, which follows the key in a `set` line and in a `VALUE` line.
    after_key: Vec<u8>,
    value_bytes: usize,
}

impl Workload {
    pub(crate) fn new(options: &Options) -> Workload {
        Workload {
            keys: options.keys,
            sets: ratio_of_two_pow_32(options.set_ratio),
            state: SEED,
            after_key: format!(" 0 {}\r\n", options.value_bytes).into_bytes(),
            value_bytes: usize::try_from(options.value_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Back to the first request.
    pub(crate) fn rewind(&mut self) {
        self.state = SEED;
    }

    /// Number of keys.
    pub(crate) fn keys(&self) -> u32 {
        self.keys
    }

    /// Appends the next request to `request` and its reply to `reply`.
    pub(crate) fn next(&mut self, request: &mut Vec<u8>, reply: &mut Vec<u8>) {
        let random = self.random();
        let number = ((random >> 32) * u64::from(self.keys)) >> 32;
        let key = key_of(number);
        if random & 0xFFFF_FFFF < self.sets {
            self.set(&key, request, reply);
        } else {
            self.get(&key, request, reply);
        }
    }

    /// Appends the `set` that stores key `number` to `request` and its reply to `reply`.
    pub(crate) fn store(&self, number: u32, request: &mut Vec<u8>, reply: &mut Vec<u8>) {
        self.set(&key_of(u64::from(number)), request, reply);
    }

    fn get(&self, key: &[u8; KEY_BYTES], request: &mut Vec<u8>, reply: &mut Vec<u8>) {
        request.extend_from_slice(b"get ");
        request.extend_from_slice(key);
        request.extend_from_slice(b"\r\n");
        reply.extend_from_slice(b"VALUE ");
        reply.extend_from_slice(key);
        self.value(key, reply);
        reply.extend_from_slice(b"END\r\n");
    }

    fn set(&self, key: &[u8; KEY_BYTES], request: &mut Vec<u8>, reply: &mut Vec<u8>) {
        request.extend_from_slice(b"set ");
        request.extend_from_slice(key);
        request.extend_from_slice(b" 0");
        self.value(key, request);
        reply.extend_from_slice(b"STORED\r\n");
    }

    /// The rest of the header line and the value, which is the key over and over: a wrong item's
    /// value differs.
    fn value(&self, key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.after_key);
        let mut left = self.value_bytes;
        while left > 0 {
            let piece = left.min(KEY_BYTES);
            out.extend_from_slice(&key[KEY_BYTES - piece..]);
            left -= piece;
        }
        out.extend_from_slice(b"\r\n");
    }

    /// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators,
    /// scrambled" (2016).
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// The key with this number, below 10^8.
fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
    let mut rest = number;
    for digit in key[KEY_PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
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
