//! Makes an item's key, and the length of the item's value, from the item's number alone.
//!
//! Where: used for every request of this program.
//! Invariant: a number has the same key and the same length of value in every run and for every
//! server; two numbers have different keys.
//! Source: Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store" (2012), the ETC
//! pool: key lengths by a generalized extreme value distribution, value lengths by a generalized
//! Pareto distribution of scale 214.476 and shape 0.348238.

use clap::ValueEnum;

use testing::random::{hash, unit};

/// Key lengths of the ETC pool: location, scale, shape.
const ETC_KEY: [f64; 3] = [30.7984, 8.20449, 0.078_688];
/// Value lengths of the ETC pool: scale, shape. The location is 0.
const ETC_VALUE: [f64; 2] = [214.476, 0.348_238];
const KEY_BYTES_MAX: usize = 250;
/// A value of this length and its key are together shorter than a mebibyte.
pub(crate) const VALUE_BYTES_MAX: usize = 1_000_000;
const SALT_KEY: u64 = 1;
const SALT_VALUE: u64 = 2;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mix {
    /// Keys and values of 20 bytes.
    #[value(name = "20/20")]
    Small,
    /// Keys of 30 bytes, values of 1 to 100 with equal probability.
    #[value(name = "30/1-100")]
    Varied,
    /// The ETC pool.
    Etc,
}

impl Mix {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    pub(crate) fn value_bytes(self, id: u64) -> usize {
        let random = unit(hash(id, SALT_VALUE));
        match self {
            Mix::Small => 20,
            Mix::Varied => 1 + rounded_down(random * 100.0, 99),
            Mix::Etc => {
                let [scale, shape] = ETC_VALUE;
                let drawn = scale * ((1.0 - random).powf(-shape) - 1.0) / shape;
                1 + rounded_down(drawn, VALUE_BYTES_MAX - 1)
            }
        }
    }

    pub(crate) fn key(self, id: u64, out: &mut Vec<u8>) -> usize {
        let bytes = match self {
            Mix::Small => 20,
            Mix::Varied => 30,
            Mix::Etc => {
                let [location, scale, shape] = ETC_KEY;
                let random = unit(hash(id, SALT_KEY)).max(f64::MIN_POSITIVE);
                let drawn = location + scale * ((-random.ln()).powf(-shape) - 1.0) / shape;
                rounded_down(drawn + 0.5, KEY_BYTES_MAX)
            }
        };
        let start = out.len();
        let mut rest = id;
        loop {
            let digit = usize::try_from(rest % 36).unwrap_or(0);
            out.push(DIGITS[digit]);
            rest /= 36;
            if rest == 0 {
                break;
            }
        }
        // Pad with a character that is no digit, so that two numbers never have the same key.
        out.resize(out.len().max(start + bytes), b'.');
        out.len() - start
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the result is bounded"
)]
fn rounded_down(drawn: f64, max: usize) -> usize {
    (drawn as usize).min(max)
}
