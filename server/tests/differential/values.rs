//! Random values for a few keys, so that many commands share a key.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: exptimes are far from the times with which they are compared, so that the length of a
//! run changes no reply. CAS uniques that clients choose exceed the uniques that servers give out.

use crate::command::Unique;
use std::time::{SystemTime, UNIX_EPOCH};
use testing::Random;

/// Keys of small values, of numbers and of large values. The last key has a space, so that commands
/// of the text protocol cannot use it.
pub(crate) const KEYS: [&[u8]; 15] = [
    b"a",
    b"b",
    b"key:3",
    b"x\x01y",
    b"caf\xc3\xa9",
    &[b'k'; 250],
    b"c",
    b"n0",
    b"n1",
    b"n2",
    b"n3",
    b"large0",
    b"large1",
    b"large2",
    b"s p\t\0\xff",
];
pub(crate) const TEXT_KEYS: usize = 14;
const NUMBERS: std::ops::Range<usize> = 7..11;
const LARGE: std::ops::Range<usize> = 11..14;

pub(crate) const TOO_LARGE_BYTES: usize = (1 << 20) + 50_000;

/// The smallest CAS unique that clients choose. A server that gives out one unique per nanosecond
/// reaches this number after 13 days.
pub(crate) const CHOSEN_UNIQUE: u64 = 1 << 50;

pub(crate) struct Values {
    pub(crate) random: Random,
    now_s: i64,
    /// Set if numbers may be 2^63 and more. memcached 1.6.18 reads beyond the end of such a number.
    pub(crate) wraps: bool,
}

impl Values {
    pub(crate) fn new(seed: u64, wraps: bool) -> Values {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Values { random: Random::new(seed), now_s: i64::try_from(now_s).unwrap(), wraps }
    }

    pub(crate) fn client_flags(&mut self) -> u32 {
        self.random.pick(&[0, 0, 0, 1, 77, u32::MAX])
    }

    pub(crate) fn exptime(&mut self) -> i64 {
        match self.random.below(20) {
            0 => -1,
            1 => 2_592_001,
            2 => 2_592_000,
            3 => self.now_s + 5000,
            4 => self.now_s - 5000,
            5 | 6 => 1000,
            _ => 0,
        }
    }

    /// Returns the argument of flag `R`, which a server compares with an item's remaining seconds.
    pub(crate) fn recache(&mut self) -> i64 {
        self.random.pick(&[100, 3000, 100_000, 0, -1])
    }

    pub(crate) fn unique(&mut self) -> Unique {
        match self.random.below(8) {
            0 => Unique::Before,
            1 => self.chosen_unique(),
            2 => Unique::Number(u64::MAX),
            _ => Unique::Seen,
        }
    }

    /// Returns a unique that a client chooses, or sometimes 0, which means no unique.
    pub(crate) fn chosen_unique(&mut self) -> Unique {
        Unique::Number(match self.random.below(6) {
            0 => 0,
            more => CHOSEN_UNIQUE + more,
        })
    }

    pub(crate) fn delta(&mut self) -> u64 {
        match self.random.below(9) {
            0 => 0,
            1 => self.random.below(1_000_000_000_000),
            2 => 100_000,
            3 if self.wraps => u64::MAX - self.random.below(1000),
            _ => self.random.below(30),
        }
    }

    /// True if the key's value may become a number. This server accepts no number whose text is too
    /// long for the log; memcached accepts texts of less than 512 KiB.
    pub(crate) fn may_count(key: usize) -> bool {
        !LARGE.contains(&key)
    }

    pub(crate) fn value(&mut self, key: usize) -> Vec<u8> {
        if NUMBERS.contains(&key) && !self.random.one_in(10) {
            let number = match self.random.below(6) {
                0 => self.random.below(1_000_000_000_000),
                _ => self.random.below(2000),
            };
            return number.to_string().into_bytes();
        }
        let bytes_max = match self.random.below(20) {
            // Values of these keys must be short: see `may_count`.
            _ if NUMBERS.contains(&key) => 200,
            0..4 if LARGE.contains(&key) => 200_000,
            4 => 8000,
            5 | 6 => 1500,
            7 => 1,
            _ => 200,
        };
        let bytes = self.random.index(bytes_max);
        any_bytes(&mut self.random, bytes)
    }

    pub(crate) fn piece(&mut self, key: usize) -> Vec<u8> {
        if NUMBERS.contains(&key) && !self.random.one_in(4) {
            return format!(" {} ", self.random.below(12)).into_bytes();
        }
        let bytes_max = if LARGE.contains(&key) { 20_000 } else { 60 };
        let bytes = self.random.index(bytes_max);
        any_bytes(&mut self.random, bytes)
    }
}

/// Makes random bytes, which include line ends and zeros. The first byte is a letter, so that
/// memcached never reads a number beyond the end of the value.
fn any_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 16] = b"abcdefgXYZ09\r\n\0 ";
    (0..count).map(|at| ALPHABET[random.index(if at == 0 { 7 } else { 16 })]).collect()
}
