//! Sizes of items, derived from their keys, because traces record no sizes.
//!
//! Where: `jobs` computes the sizes before it makes caches. Invariant: a key's size never changes.
//! Source: ETC: Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS
//! 2012, section 5: key sizes are generalized extreme value, value sizes generalized Pareto.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Expected bytes that an item takes in the store besides key and value, with index and ghost.
pub const OVERHEAD_BYTES: u32 = 18;
/// Bytes of each item under `Items::Equal`.
pub const EQUAL_BYTES: u32 = 64;
/// Maximum bytes of a key, and of a value.
const KEY_BYTES_MAX: u32 = 250;
const VALUE_BYTES_MAX: u32 = 1 << 20;

/// The distribution of sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Items {
    /// All sizes are equal, so that a capacity is a number of objects.
    Equal,
    /// The sizes of keys and of values are uniform in these ranges.
    Ranges {
        /// Bytes of a key.
        key: RangeInclusive<u32>,
        /// Bytes of a value.
        value: RangeInclusive<u32>,
    },
    /// Sizes like in Facebook's ETC pool.
    Etc,
}

/// The sizes of a key's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the key.
    pub key: u32,
    /// Bytes of the value.
    pub value: u32,
}

impl Items {
    /// Returns the sizes of the item of `key`.
    #[must_use]
    pub fn size(&self, key: u32) -> Size {
        let hash = mix(u64::from(key) ^ SIZE_SALT);
        match self {
            Items::Equal => Size { key: 0, value: EQUAL_BYTES },
            Items::Ranges { key, value } => {
                Size { key: uniform(key, hash), value: uniform(value, mix(hash)) }
            }
            Items::Etc => Size {
                key: rounded(etc_key(fraction(hash)), 1, KEY_BYTES_MAX),
                value: rounded(etc_value(fraction(mix(hash))), 1, VALUE_BYTES_MAX),
            },
        }
    }

    /// Returns the bytes that the item of `key` takes, overhead included.
    #[must_use]
    pub fn bytes(&self, key: u32) -> u32 {
        let size = self.size(key);
        let overhead = if *self == Items::Equal { 0 } else { OVERHEAD_BYTES };
        size.key + size.value + overhead
    }

    /// True if all sizes are equal, so that a capacity is a number of objects.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        *self == Items::Equal
    }
}

impl fmt::Display for Items {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Items::Equal => write!(out, "all items have the same size"),
            Items::Ranges { key, value } => write!(
                out,
                "keys of {}-{} bytes and values of {}-{} bytes, chosen uniformly by a hash of the \
                 key, and {OVERHEAD_BYTES} bytes of overhead per item",
                key.start(),
                key.end(),
                value.start(),
                value.end()
            ),
            Items::Etc => write!(
                out,
                "sizes of keys and values as in Facebook's ETC pool, chosen by a hash of the key, \
                 and {OVERHEAD_BYTES} bytes of overhead per item"
            ),
        }
    }
}

impl FromStr for Items {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "equal" => return Ok(Items::Equal),
            "etc" => return Ok(Items::Etc),
            _ => {}
        }
        let wrong = || {
            format!(
                "give `equal`, `etc`, or KEY/VALUE such as 20/20 or 30/1-100 (a key has 1 to \
                 {KEY_BYTES_MAX} bytes, a value 1 to {VALUE_BYTES_MAX}), not {text}"
            )
        };
        let (key, value) = text.split_once('/').ok_or_else(wrong)?;
        let key = range(key, KEY_BYTES_MAX).ok_or_else(wrong)?;
        let value = range(value, VALUE_BYTES_MAX).ok_or_else(wrong)?;
        Ok(Items::Ranges { key, value })
    }
}

/// Parses a range `N` or `N-M`, whose numbers are 1 to `max`.
fn range(text: &str, max: u32) -> Option<RangeInclusive<u32>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (1 <= from && from <= to && to <= max).then_some(from..=to)
}

/// Salt that makes sizes independent of a key's place in hash tables.
const SIZE_SALT: u64 = 0x5b1a_57e5;

/// A good 64-bit hash of a number (splitmix64's finalizer).
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns a hash as a number above 0 and below 1.
fn fraction(hash: u64) -> f64 {
    ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

fn uniform(range: &RangeInclusive<u32>, hash: u64) -> u32 {
    let span = u64::from(range.end() - range.start()) + 1;
    range.start() + u32::try_from(((hash >> 32) * span) >> 32).unwrap_or(0)
}

/// A quantile of generalized extreme values: location 30.7984, scale 8.20449, shape 0.078688.
fn etc_key(fraction: f64) -> f64 {
    30.7984 + 8.20449 / 0.078_688 * ((-fraction.ln()).powf(-0.078_688) - 1.0)
}

/// A quantile of the generalized Pareto distribution: location 0, scale 214.476, shape 0.348238.
fn etc_value(fraction: f64) -> f64 {
    214.476 / 0.348_238 * ((1.0 - fraction).powf(-0.348_238) - 1.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a range of u32 first"
)]
fn rounded(size: f64, min: u32, max: u32) -> u32 {
    size.round().clamp(f64::from(min), f64::from(max)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(items: &Items, of: impl Fn(Size) -> u32) -> f64 {
        (0..100_000).map(|key| f64::from(of(items.size(key)))).sum::<f64>() / 100_000.0
    }

    #[test]
    fn sizes_have_their_distributions() {
        let ranges = Items::from_str("30/1-100").unwrap();
        assert!((mean(&ranges, |size| size.value) - 50.5).abs() < 0.5);
        assert!((0..10_000).all(|key| (1..=100).contains(&ranges.size(key).value)));
        assert_eq!(ranges.size(7).key, 30);
        assert!((mean(&Items::Etc, |size| size.key) - 36.2).abs() < 0.5);
        assert!((mean(&Items::Etc, |size| size.value) - 329.0).abs() < 10.0);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "20", "0/1", "251/1", "5/10-1", "a/b", "20/20/20", "1/2000000"] {
            assert!(Items::from_str(text).is_err(), "{text}");
        }
    }
}
