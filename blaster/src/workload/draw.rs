//! Samplers of laws, fast enough to be drawn from many million times a second.
//!
//! Where: `stream` and `names` draw from them.
//! Invariant: the same 64 random bits give the same number; a draw takes constant time and no
//! memory.

use super::alias::Alias;
use super::curve::Curve;
use super::law::Law;
use super::random::{below, fraction};
use simulate::sizes::mix;

/// Most whole numbers of a curve that have their own cell in a table: small enough for a core's
/// cache. Greater ones are computed.
const HEAD_MAX: u32 = 4096;
/// A salt that makes the tail's fraction independent of the bits that chose the tail.
const TAIL_SALT: u64 = 0x7a11_0000;

/// Draws whole numbers.
#[derive(Clone, Debug)]
pub(crate) enum Whole {
    Fixed(u32),
    Uniform { from: u32, count: u64 },
    List { alias: Alias, values: Vec<u32> },
    Curve { alias: Alias, from: u32, to: u32, head: u32, tail_from: f64, curve: Curve },
}

impl Whole {
    /// Makes a sampler of a law whose numbers are whole and fit a u32; none if it has no weights.
    pub(crate) fn new(law: &Law) -> Option<Whole> {
        let (min, max) = law.bounds();
        match law {
            Law::Fixed(value) => Some(Whole::Fixed(whole(*value))),
            Law::Uniform(..) => {
                let count = u64::from(whole(max) - whole(min)) + 1;
                Some(Whole::Uniform { from: whole(min), count })
            }
            Law::List(pairs) => Whole::list(pairs),
            Law::File(_, histogram) => Whole::list(histogram.pairs()),
            Law::Curve(curve) => {
                // A whole number stands for all values that are rounded to it, at the bounds as
                // well.
                let curve = curve.widened(0.5)?;
                let (from, to) = (whole(min), whole(max));
                let head = (to - from).saturating_add(1).min(HEAD_MAX);
                let edge = |n: u32| curve.share_below(f64::from(from) + f64::from(n) - 0.5);
                let tail_from = if head == HEAD_MAX { edge(head) } else { 1.0 };
                let shares = (0..head).map(|n| (edge(n + 1) - edge(n)).max(0.0));
                let shares: Vec<f64> = shares.chain([1.0 - tail_from]).collect();
                let alias = Alias::new(&shares)?;
                Some(Whole::Curve { alias, from, to, head, tail_from, curve })
            }
        }
    }

    fn list(pairs: &[(f64, f64)]) -> Option<Whole> {
        let weights: Vec<f64> = pairs.iter().map(|(_, weight)| *weight).collect();
        let values = pairs.iter().map(|(value, _)| whole(*value)).collect();
        Some(Whole::List { alias: Alias::new(&weights)?, values })
    }

    /// Returns the number that 64 random bits choose.
    pub(crate) fn draw(&self, bits: u64) -> u32 {
        match self {
            Whole::Fixed(value) => *value,
            Whole::Uniform { from, count } => {
                from + u32::try_from(below(bits, *count)).unwrap_or(0)
            }
            Whole::List { alias, values } => {
                values.get(alias.draw(bits) as usize).copied().unwrap_or(0)
            }
            Whole::Curve { alias, from, to, head, tail_from, curve } => {
                let at = alias.draw(bits);
                if at < *head {
                    return from + at;
                }
                let along = fraction(mix(bits ^ TAIL_SALT));
                let value = whole(curve.at(tail_from + along * (1.0 - tail_from)));
                value.clamp((from + head).min(*to), *to)
            }
        }
    }

    /// The number, if it is always the same.
    #[inline(always)]
    pub(crate) fn fixed(&self) -> Option<u32> {
        if let Whole::Fixed(value) = self { Some(*value) } else { None }
    }
}

/// The greatest number of a law, rounded.
pub(crate) fn greatest(law: &Law) -> u32 {
    whole(law.bounds().1)
}

pub(crate) fn mean(law: &Law) -> f64 {
    let weighted = |pairs: &[(f64, f64)]| {
        let sum: f64 = pairs.iter().map(|(_, weight)| weight).sum();
        pairs.iter().map(|(value, weight)| value * weight / sum).sum()
    };
    match law {
        Law::Fixed(value) => *value,
        Law::Uniform(from, to) => f64::midpoint(*from, *to),
        Law::List(pairs) => weighted(pairs),
        Law::File(_, histogram) => weighted(histogram.pairs()),
        Law::Curve(curve) => whole_mean(curve).unwrap_or_else(|| curve.mean()),
    }
}

/// The mean of a curve's whole numbers: those of the table one by one, the others as a curve.
fn whole_mean(curve: &Curve) -> Option<f64> {
    let (min, max) = curve.bounds();
    let wide = curve.widened(0.5)?;
    let (from, to) = (whole(min), whole(max));
    let head = (to - from).saturating_add(1).min(HEAD_MAX);
    let edge = |n: u32| wide.share_below(f64::from(from) + f64::from(n) - 0.5);
    let of = |n: u32| f64::from(from + n) * (edge(n + 1) - edge(n));
    let sum: f64 = (0..head).map(of).sum();
    let tail = 1.0 - edge(head);
    let least = f64::from(from) + f64::from(head) - 0.5;
    let rest = wide.above(least).map_or(0.0, |rest| rest.mean() * tail);
    Some(sum + if head == HEAD_MAX { rest } else { 0.0 })
}

/// Draws numbers that need not be whole.
#[derive(Clone, Debug)]
pub(crate) enum Real {
    Fixed(f64),
    Uniform {
        from: f64,
        to: f64,
    },
    List {
        alias: Alias,
        values: Vec<f64>,
    },
    /// Whole microseconds: the paper's histograms of gaps consist of those.
    Whole(Whole),
}

impl Real {
    /// Makes a sampler of a law; none if it has no weights.
    pub(crate) fn new(law: &Law) -> Option<Real> {
        let list = |pairs: &[(f64, f64)]| {
            let weights: Vec<f64> = pairs.iter().map(|(_, weight)| *weight).collect();
            let values = pairs.iter().map(|(value, _)| *value).collect();
            Some(Real::List { alias: Alias::new(&weights)?, values })
        };
        match law {
            Law::Fixed(value) => Some(Real::Fixed(*value)),
            Law::Uniform(from, to) => Some(Real::Uniform { from: *from, to: *to }),
            Law::List(pairs) => list(pairs),
            Law::File(_, histogram) => list(histogram.pairs()),
            Law::Curve(_) => Some(Real::Whole(Whole::new(law)?)),
        }
    }

    /// Returns the number that 64 random bits choose.
    pub(crate) fn draw(&self, bits: u64) -> f64 {
        match self {
            Real::Fixed(value) => *value,
            Real::Uniform { from, to } => from + fraction(bits) * (to - from),
            Real::List { alias, values } => {
                values.get(alias.draw(bits) as usize).copied().unwrap_or(0.0)
            }
            Real::Whole(whole) => f64::from(whole.draw(bits)),
        }
    }
}

/// Rounds a number to the nearest u32.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of u32 first"
)]
pub(crate) fn whole(value: f64) -> u32 {
    value.round().clamp(0.0, f64::from(u32::MAX)) as u32
}
