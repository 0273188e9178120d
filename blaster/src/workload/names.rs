//! The bytes of keys and values, computed from a key's number alone.
//!
//! Where: while a request is encoded, and where an answer is verified.
//! Invariant: two numbers never have the same name; every thread, and every run with the same
//! workload and seed, gives a key the same name and value.
//!
//! ```text
//! key:    prefix | filler .................. | number, all names of a size with as many digits
//! value:  8 letters: hash of key and size | letters of the pool, from a place chosen by that hash
//! ```
//!
//! Names of different sizes differ; those of one size differ in their number. It is written in
//! decimal where the size has room for that, else in base 94, and where even that does not fit the
//! name is longer than the size drawn for it (a million keys need 4 bytes).

use super::draw::Whole;
use super::random::{hash, seed_for, usage};
use super::replay::Replay;
use super::{KEY_BYTES_MAX, Workload};
use std::sync::Arc;

/// What values are cut from: small enough to stay in a core's cache. The first half is where they
/// begin.
const POOL_BYTES: usize = 1 << 16;
/// Letters of a value that tell key and size.
const STAMP_BYTES: usize = 8;
/// What values are written with: 6 bits a letter, so that one can look at them.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
/// The digits of base 94: what may stand in a key.
const FIRST_DIGIT: u8 = 0x21;
const DIGITS: u64 = 94;
/// Fills keys up.
const FILLER: u8 = b'.';

/// How names of one size are written.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    /// Bytes of filler, and of digits behind it.
    filler: u8,
    digits: u8,
    base: u8,
}

/// Names and values. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Names(Arc<Made>);

#[derive(Debug)]
struct Made {
    prefix: Vec<u8>,
    /// By the size that was drawn.
    forms: Vec<Form>,
    key_size: Whole,
    key_size_seed: u64,
    value_size: Whole,
    value_size_seed: u64,
    value_seed: u64,
    /// Is a value's size that of its key?
    is_sized_by_key: bool,
    /// May values have been appended to?
    appends: bool,
    pool: Vec<u8>,
    trace: Option<Arc<Replay>>,
}

impl Names {
    /// The names of a workload's keys.
    #[must_use]
    pub fn new(workload: &Arc<Workload>, seed: u64) -> Names {
        let prefix = workload.key_prefix.clone().into_bytes();
        let form = |bytes| Form::new(bytes, prefix.len(), workload.keys());
        let forms = (0..=KEY_BYTES_MAX).map(form).collect();
        let pool_seed = seed_for(seed, usage::POOL);
        let letter = |n: u64| LETTERS[(hash(pool_seed, n) >> 58) as usize];
        let recorded = workload.trace.as_ref().filter(|trace| trace.details.is_some());
        let appends = workload.shares().map_or(1.0, |shares| shares[super::Verb::Append as usize]);
        Names(Arc::new(Made {
            prefix,
            forms,
            key_size: workload.key_size.whole.clone(),
            key_size_seed: seed_for(seed, usage::KEY_SIZE),
            value_size: workload.value_size.whole.clone(),
            value_size_seed: seed_for(seed, usage::VALUE_SIZE),
            value_seed: seed_for(seed, usage::VALUE),
            is_sized_by_key: !workload.size_per_request && recorded.is_none(),
            appends: appends > 0.0,
            pool: (0..POOL_BYTES as u64).map(letter).collect(),
            trace: recorded.cloned(),
        }))
    }

    /// Appends a key's name: 1 to 250 bytes from 0x21 to 0x7e.
    pub fn key(&self, key: u64, out: &mut Vec<u8>) {
        let made = &*self.0;
        let bytes = match &made.trace {
            Some(trace) => recorded(trace, key).map_or(0, |(key_bytes, _)| u32::from(key_bytes)),
            None => made.key_size.draw(hash(made.key_size_seed, key)),
        };
        let form = made.forms.get(bytes as usize).or(made.forms.last()).copied();
        let Form { filler, digits, base } = form.unwrap_or_default();
        out.extend_from_slice(&made.prefix);
        out.resize(out.len() + usize::from(filler), FILLER);
        let from = out.len();
        out.resize(from + usize::from(digits), 0);
        let mut left = key;
        for place in out[from..].iter_mut().rev() {
            // Constant bases, so that no division is made.
            let (digit, first) = if base == 10 {
                let digit = left % 10;
                left /= 10;
                (digit, b'0')
            } else {
                let digit = left % DIGITS;
                left /= DIGITS;
                (digit, FIRST_DIGIT)
            };
            *place = first + u8::try_from(digit).unwrap_or(0);
        }
    }

    /// Appends the value of `bytes` bytes that the key has.
    pub fn value(&self, key: u64, bytes: u32, out: &mut Vec<u8>) {
        let (stamp, mut from) = self.0.stamp(key, bytes);
        let mut left = bytes as usize;
        out.reserve(left);
        let first = left.min(STAMP_BYTES);
        out.extend_from_slice(&stamp[..first]);
        left -= first;
        while left > 0 {
            let piece = left.min(POOL_BYTES - from);
            out.extend_from_slice(&self.0.pool[from..from + piece]);
            left -= piece;
            from = 0;
        }
    }

    /// Is this the value that the key has? One that may have been appended to is several of the
    /// key's size, one behind the other (see `verifies`).
    #[must_use]
    pub fn verify(&self, key: u64, value: &[u8]) -> bool {
        if !self.0.is_sized_by_key {
            return self.0.is_value(key, value);
        }
        let bytes = self.value_bytes(key) as usize;
        if !self.0.appends || bytes == 0 {
            return value.len() == bytes && self.0.is_value(key, value);
        }
        let (parts, rest) = (value.chunks_exact(bytes), value.len() % bytes);
        rest == 0 && !value.is_empty() && parts.into_iter().all(|one| self.0.is_value(key, one))
    }

    /// Can values be verified? Not where appended pieces have sizes of their own: nothing tells
    /// then where one ends.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.0.is_sized_by_key || !self.0.appends
    }

    /// The size of the key's value: what filling the cache writes, and what follows a miss.
    #[must_use]
    pub fn value_bytes(&self, key: u64) -> u32 {
        let made = &*self.0;
        match &made.trace {
            Some(trace) => recorded(trace, key).map_or(0, |(_, value_bytes)| value_bytes),
            None => made.value_size.draw(hash(made.value_size_seed, key)),
        }
    }
}

/// The sizes of a key and its value in a trace.
fn recorded(trace: &Replay, key: u64) -> Option<(u8, u32)> {
    let details = trace.details.as_ref()?;
    let key = usize::try_from(key).ok()?;
    Some((*details.key_bytes.get(key)?, *details.value_bytes.get(key)?))
}

impl Made {
    /// What a value begins with, and where in the pool it goes on.
    #[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are wanted")]
    fn stamp(&self, key: u64, bytes: u32) -> ([u8; STAMP_BYTES], usize) {
        let hash = hash(self.value_seed ^ (u64::from(bytes) << 32), key);
        let mut letters = [0; STAMP_BYTES];
        for (n, letter) in (0..).zip(&mut letters) {
            *letter = LETTERS[(hash >> (6 * n)) as usize % LETTERS.len()];
        }
        (letters, (hash >> 48) as usize % (POOL_BYTES / 2))
    }

    fn is_value(&self, key: u64, value: &[u8]) -> bool {
        let Ok(bytes) = u32::try_from(value.len()) else { return false };
        let (stamp, from) = self.stamp(key, bytes);
        let (first, mut rest) = value.split_at(value.len().min(STAMP_BYTES));
        if first != &stamp[..first.len()] {
            return false;
        }
        let mut from = from;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(POOL_BYTES - from));
            if piece != &self.pool[from..from + piece.len()] {
                return false;
            }
            (rest, from) = (more, 0);
        }
        true
    }
}

impl Form {
    /// How `keys` names of `bytes` bytes, or as few more as it takes, are written.
    fn new(bytes: usize, prefix_bytes: usize, keys: u64) -> Form {
        let room = bytes.saturating_sub(prefix_bytes);
        let decimal = digits(10, keys);
        if decimal <= room {
            let small = |bytes| u8::try_from(bytes).unwrap_or(u8::MAX);
            return Form { filler: small(room - decimal), digits: small(decimal), base: 10 };
        }
        let most = KEY_BYTES_MAX.saturating_sub(prefix_bytes);
        let wide = room.max(digits(DIGITS, keys)).min(most);
        Form { filler: 0, digits: u8::try_from(wide).unwrap_or(u8::MAX), base: 94 }
    }
}

/// Digits that tell `count` numbers apart.
fn digits(base: u64, count: u64) -> usize {
    std::iter::successors(Some(count.saturating_sub(1)), |left| Some(left / base))
        .take_while(|left| *left > 0)
        .count()
        .max(1)
}
