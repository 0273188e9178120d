//! Computes the bytes of keys and values from a key's number alone.
//!
//! Where: used when a request is encoded and when an answer is verified.
//! Invariant: two numbers never have the same name. For the same workload, a key has the same name
//! and value in each thread and in each run, even if the requests have another seed.
//!
//! ```text
//! key:    prefix | filler .................. | number; equally long in all names of one size
//! value:  8 letters (stamp) | letters; a hash of key and size chooses two places in a pool of
//!                             letters, from which the stamp and the other letters are copied
//! ```
//!
//! No two names are equal: names of different sizes have different lengths, and names of one size
//! contain different numbers. The number is written in decimal if a name has room for its
//! digits, otherwise in base 94. If the drawn size is too small for base 94, the name is longer
//! than the drawn size (a million keys need 4 bytes). The lines of a key file replace computed
//! names. Sizes recorded in a trace replace drawn sizes.

use super::draw::IntegerSampler;
use super::key_file::KeyFile;
use super::limits::KEY_BYTES_MAX;
use super::random::{hash, seed_for, usage};
use super::replay::Replay;
use super::traffic::Workload;
use std::sync::Arc;

/// The size of the pool from which values are copied, small enough for a core's cache. The letters
/// after a value's stamp begin in the first half of the pool.
const POOL_BYTES: usize = 1 << 16;
/// Length of the stamp: the first characters of a value.
const STAMP_BYTES: usize = 8;
/// The letters of values. Each letter is printable and encodes 6 bits.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
/// The digit 0 of base 94, whose digits are the printable ASCII characters except the space.
const FIRST_DIGIT: u8 = 0x21;
const WIDE: u64 = 94;
/// The maximum number of digits in either base. The greatest number has 13 decimal digits.
pub(crate) const DIGITS_MAX: usize = 16;
/// The character that fills a key up to the key's size.
const FILLER: u8 = b'.';

#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// Number of bytes of prefix and filler together.
    lead: u8,
    digits: u8,
    is_decimal: bool,
}

/// The layout of the number in names that have one size and differ only in the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Number of digits. The digits are the last bytes of the name.
    pub(crate) digits: usize,
    is_decimal: bool,
}

impl Pattern {
    /// Returns the key's number as eight decimal digits, with the first digit in the lowest byte.
    /// Returns `None` if the number has more digits or is not decimal.
    #[inline(always)]
    pub(crate) fn short_number(self, key: u64) -> Option<u64> {
        (self.is_decimal && self.digits <= 8).then(|| eight_digits(key))
    }

    /// Returns the digits of the key's number, aligned to the right.
    #[inline]
    pub(crate) fn number(self, key: u64) -> [u8; DIGITS_MAX] {
        if self.is_decimal { decimal(key) } else { wide(key) }
    }
}

/// The names and values of a workload's keys. All clones share the same data.
#[derive(Clone, Debug)]
pub struct Names(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The prefix, followed by filler up to the length of the longest name.
    lead: Vec<u8>,
    /// The layout of names for each drawn size.
    forms: Vec<Layout>,
    key_size: IntegerSampler,
    key_size_seed: u64,
    value_size: IntegerSampler,
    value_size_seed: u64,
    ttl: IntegerSampler,
    ttl_seed: u64,
    value_seed: u64,
    is_sized_by_key: bool,
    appends: bool,
    pool: Vec<u8>,
    trace: Option<Arc<Replay>>,
    key_file: Option<Arc<KeyFile>>,
}

impl Names {
    /// Makes the names of a workload's keys.
    pub fn new(workload: &Arc<Workload>) -> Names {
        let seed = workload.population_seed;
        let prefix = workload.key_prefix.clone().into_bytes();
        let form = |bytes| Layout::new(bytes, prefix.len(), workload.keys());
        let forms = (0..=KEY_BYTES_MAX).map(form).collect();
        let mut lead = prefix;
        lead.resize(KEY_BYTES_MAX, FILLER);
        let pool_seed = seed_for(seed, usage::POOL);
        let letter = |n: u64| LETTERS[(hash(pool_seed, n) >> 58) as usize];
        let recorded = workload.trace.as_ref().filter(|trace| trace.details.is_some());
        let appends = workload.shares().map_or(1.0, |shares| shares[super::Verb::Append as usize]);
        Names(Arc::new(Inner {
            lead,
            forms,
            key_size: workload.key_size.sampler.clone(),
            key_size_seed: seed_for(seed, usage::KEY_SIZE),
            value_size: workload.value_size.sampler.clone(),
            value_size_seed: seed_for(seed, usage::VALUE_SIZE),
            ttl: workload.ttl.sampler.clone(),
            ttl_seed: seed_for(seed, usage::TTL),
            value_seed: seed_for(seed, usage::VALUE),
            is_sized_by_key: !workload.size_per_request && recorded.is_none(),
            appends: appends > 0.0,
            pool: (0..(POOL_BYTES + STAMP_BYTES) as u64).map(letter).collect(),
            trace: recorded.cloned(),
            key_file: workload.key_file.clone(),
        }))
    }

    /// Returns the layout of the number in all names, or `None` if names differ in size.
    pub(crate) fn pattern(&self) -> Option<Pattern> {
        let inner = &*self.0;
        let bytes =
            inner.key_size.fixed().filter(|_| inner.trace.is_none() && inner.key_file.is_none())?;
        let form = inner.forms.get(bytes as usize).or(inner.forms.last())?;
        Some(Pattern { digits: usize::from(form.digits), is_decimal: form.is_decimal })
    }

    /// Appends a key's name: 1 to 250 bytes, without spaces and control characters.
    pub fn key(&self, key: u64, out: &mut Vec<u8>) {
        let inner = &*self.0;
        if let Some(key_file) = &inner.key_file {
            return out.extend_from_slice(key_file.key(key));
        }
        let bytes = match &inner.trace {
            Some(trace) => recorded(trace, key).map_or(0, |(key_bytes, _)| u32::from(key_bytes)),
            None => match inner.key_size.fixed() {
                Some(bytes) => bytes,
                None => inner.key_size.draw(hash(inner.key_size_seed, key)),
            },
        };
        let form = inner.forms.get(bytes as usize).or(inner.forms.last()).copied();
        let Layout { lead, digits, is_decimal } = form.unwrap_or_default();
        let number = if is_decimal { decimal(key) } else { wide(key) };
        out.extend_from_slice(&inner.lead[..usize::from(lead)]);
        out.extend_from_slice(&number[DIGITS_MAX - usize::from(digits).min(DIGITS_MAX)..]);
    }

    /// Appends the value that `key` has if the value is `bytes` bytes long.
    pub(crate) fn value(&self, key: u64, bytes: u32, out: &mut Vec<u8>) {
        let (stamp, mut from) = self.0.beginning(key, bytes);
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

    /// True if `value` is the key's value. If the workload appends, a value consists of one or more
    /// pieces, each with the size that was drawn for the key (see `verifies`).
    pub(crate) fn verify(&self, key: u64, value: &[u8]) -> bool {
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

    /// True if values can be verified. Appended pieces of different sizes cannot be verified,
    /// because the ends of the pieces are unknown.
    pub(crate) fn verifies(&self) -> bool {
        self.0.is_sized_by_key || !self.0.appends
    }

    /// The size of the value that is stored for the key when the cache is populated, or after a
    /// miss.
    pub(crate) fn value_bytes(&self, key: u64) -> u32 {
        let inner = &*self.0;
        match &inner.trace {
            Some(trace) => recorded(trace, key).map_or(0, |(_, value_bytes)| value_bytes),
            None => inner.value_size.draw(hash(inner.value_size_seed, key)),
        }
    }

    /// The time to live in seconds (0 means forever) of the value that is stored for the key when
    /// the cache is populated, or after a miss. Each key has one such time, because the sequence of
    /// requests must not depend on answers.
    pub(crate) fn exptime_s(&self, key: u64) -> u32 {
        self.0.ttl.draw(hash(self.0.ttl_seed, key))
    }
}

/// The sizes of a key and its value that a trace has recorded, if any.
fn recorded(trace: &Replay, key: u64) -> Option<(u8, u32)> {
    let details = trace.details.as_ref()?;
    let key = usize::try_from(key).ok()?;
    Some((*details.key_bytes.get(key)?, *details.value_bytes.get(key)?))
}

impl Inner {
    /// Returns a value's stamp, and the offset in the pool at which the rest of the value begins.
    #[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are wanted")]
    fn beginning(&self, key: u64, bytes: u32) -> (&[u8], usize) {
        let hash = hash(self.value_seed ^ (u64::from(bytes) << 32), key);
        let at = hash as usize % POOL_BYTES;
        (&self.pool[at..at + STAMP_BYTES], (hash >> 32) as usize % (POOL_BYTES / 2))
    }

    fn is_value(&self, key: u64, value: &[u8]) -> bool {
        let Ok(bytes) = u32::try_from(value.len()) else { return false };
        let (stamp, from) = self.beginning(key, bytes);
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

impl Layout {
    /// Returns the layout of `keys` names of `bytes` bytes, or of longer names if `bytes` is too
    /// small for `keys` different names.
    fn new(bytes: usize, prefix_bytes: usize, keys: u64) -> Layout {
        let small = |bytes: usize| u8::try_from(bytes).unwrap_or(u8::MAX);
        let form = |bytes: usize, digits: usize, is_decimal| Layout {
            lead: small((bytes - digits).min(KEY_BYTES_MAX - digits)),
            digits: small(digits),
            is_decimal,
        };
        let (decimal, wide) = (digits(10, keys), digits(WIDE, keys));
        if prefix_bytes + decimal <= bytes {
            return form(bytes, decimal, true);
        }
        // The digits fill the whole name after the prefix, so that all names of one size have one
        // layout.
        let digits = bytes.saturating_sub(prefix_bytes).max(wide).min(DIGITS_MAX);
        form(prefix_bytes + digits, digits, false)
    }
}

fn digits(base: u64, count: u64) -> usize {
    std::iter::successors(Some(count.saturating_sub(1)), |left| Some(left / base))
        .take_while(|left| *left > 0)
        .count()
        .max(1)
}

/// Returns the 16 decimal digits of a number below 10^16, with leading zeros.
#[inline]
fn decimal(number: u64) -> [u8; DIGITS_MAX] {
    let (mut digits, mut lower) = ([b'0'; DIGITS_MAX], number);
    if number >= 100_000_000 {
        digits[..8].copy_from_slice(&eight_digits(number / 100_000_000).to_le_bytes());
        lower %= 100_000_000;
    }
    digits[8..].copy_from_slice(&eight_digits(lower).to_le_bytes());
    digits
}

/// Returns the 8 digits of a number below 10^8, with the first digit in the lowest byte. The number
/// is split in two, the parts in four, then in eight, in parallel; the factors are 1/100 and 1/10
/// in fixed point.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | ((quarters - tens * 10) << 8)) + 0x3030_3030_3030_3030
}

fn wide(number: u64) -> [u8; DIGITS_MAX] {
    let (mut left, mut digits) = (number, [FIRST_DIGIT; DIGITS_MAX]);
    for place in digits.iter_mut().rev() {
        *place += u8::try_from(left % WIDE).unwrap_or(0);
        left /= WIDE;
    }
    digits
}
