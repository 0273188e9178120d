//! What the client asks and what it must hear.
//!
//! Where: rendered into a connection's buffers just before a batch is sent.
//! Invariant: the reply to every request is known before it is sent; so checking replies is one
//! comparison, and a miss, an error or a torn value cannot pass.

use crate::measure::in_process::{KEY_BYTES, Key, key_of};
use crate::measure::random::Random;
use crate::measure::requests::{Batch, Form};
use crate::options::Options;

/// The same sequence of keys for each server and window.
const SEED: u64 = 1;

/// The stream of requests.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    form: Form,
    keys: u32,
    /// Of 2^32 requests, how many are sets.
    sets: u64,
    random: Random,
    value: Vec<u8>,
}

impl Workload {
    pub(crate) fn new(options: &Options) -> Workload {
        Workload {
            form: Form::new(options.protocol, options.value_bytes),
            keys: options.keys,
            sets: ratio_of_two_pow_32(options.set_ratio),
            random: Random::new(SEED),
            value: vec![0; usize::try_from(options.value_bytes).unwrap_or(0)],
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
        self.make_value(&key);
        if is_set {
            self.form.set(&key, &self.value, batch);
        } else {
            self.form.get(&key, &self.value, batch);
        }
    }

    /// Appends the request that stores key `number`, and its reply.
    pub(crate) fn store(&mut self, number: u32, batch: &mut Batch) {
        let key = key_of(number);
        self.make_value(&key);
        self.form.set(&key, &self.value, batch);
    }

    /// The value is the key's end over and over: a wrong item's value differs.
    fn make_value(&mut self, key: &Key) {
        for piece in self.value.chunks_mut(KEY_BYTES) {
            piece.copy_from_slice(&key[KEY_BYTES - piece.len()..]);
        }
    }
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
