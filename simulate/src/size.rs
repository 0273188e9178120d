//! The size of a cache: a percentage of the keys, a number of objects, or bytes.
//!
//! Where: `jobs::Plan` lists the sizes to simulate. Invariant: `64m` means bytes, `5000` means
//! objects, and `1%` means 1 % of the trace's distinct keys.

use crate::cache::Shape;
use std::fmt;
use std::str::FromStr;

/// A size as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSize {
    text: String,
    size: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Percent(f64),
    Objects(u64),
    Bytes(u64),
}

impl CacheSize {
    /// Returns the size in bytes, for a trace with these items.
    #[must_use]
    pub fn bytes(&self, item_bytes: &[u32]) -> u64 {
        let shape = Shape { item_bytes, capacity_bytes: 0 };
        let objects = |count: u64| count.max(1).saturating_mul(shape.mean_bytes());
        match self.size {
            Unit::Bytes(bytes) => bytes,
            Unit::Objects(count) => objects(count),
            Unit::Percent(percent) => objects(part(shape.keys(), percent)),
        }
    }

    /// True if the size is given in bytes.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        matches!(self.size, Unit::Bytes(_))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage of at most a hundred of a number of keys"
)]
fn part(keys: usize, percent: f64) -> u64 {
    (keys as f64 * percent / 100.0 + 1e-6) as u64
}

impl fmt::Display for CacheSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "give a percentage of the keys (1%), a number of items (5000), or bytes with the \
                 suffix k, m or g (64m), not {text}"
            )
        };
        let size = if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            if !(percent > 0.0 && percent <= 100.0) {
                return Err(wrong());
            }
            Unit::Percent(percent)
        } else {
            let digits = text.trim_end_matches(['k', 'm', 'g', 'K', 'M', 'G']);
            let number: u64 = digits.parse().map_err(|_| wrong())?;
            let shift = match &text[digits.len()..] {
                "" => None,
                "k" | "K" => Some(10),
                "m" | "M" => Some(20),
                "g" | "G" => Some(30),
                _ => return Err(wrong()),
            };
            if number == 0 || number > 1 << 33 {
                return Err(wrong());
            }
            shift.map_or(Unit::Objects(number), |shift| Unit::Bytes(number << shift))
        };
        Ok(CacheSize { text: text.to_owned(), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parts_of_the_keys_objects_or_bytes() {
        let items = [64_u32; 763];
        let bytes = |text: &str| CacheSize::from_str(text).unwrap().bytes(&items);
        assert_eq!(bytes("1%"), 7 * 64);
        assert_eq!(bytes("100%"), 763 * 64);
        assert_eq!(bytes("0.01%"), 64, "at least one");
        assert_eq!(bytes("12"), 12 * 64);
        assert_eq!((bytes("3k"), bytes("2M"), bytes("1g")), (3 << 10, 2 << 20, 1 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "%", "0%", "101%", "-1%", "nan%", "0", "1kk", "1x", "k", "1.5", "99999999999"]
        {
            assert!(CacheSize::from_str(text).is_err(), "{text}");
        }
    }
}
