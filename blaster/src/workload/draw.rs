//! Samplers, which draw numbers from laws, fast enough for many millions of draws per second.
//!
//! Where: `stream` and `names` draw sizes, gaps and times from samplers.
//! Invariant: the same 64 random bits give the same number. A draw takes constant time and
//! allocates no memory.

use super::alias::Alias;
use super::curve::Curve;
use super::files::Files;
use super::law::{Law, Usage};
use super::limits::WorkloadError;
use super::random::{below, fraction};
use simulate::sizes::mix;

/// The maximum number of a table's entries, so that the table fits a core's cache. The lowest whole
/// numbers of a curve are drawn from the table; greater numbers are computed.
const HEAD_MAX: u32 = 4096;
/// Bits that have chosen the tail are hashed with this salt, to give an independent fraction.
const TAIL_SALT: u64 = 0x7a11_0000;

#[derive(Clone, Debug)]
pub(crate) struct SampledLaw {
    pub(crate) law: Law,
    pub(crate) sampler: IntegerSampler,
}

impl SampledLaw {
    pub(crate) fn parse(
        text: &str,
        usage: &Usage,
        files: &Files<'_>,
    ) -> Result<SampledLaw, WorkloadError> {
        let law = Law::parse(text, usage, files)?;
        let whole =
            IntegerSampler::new(&law).ok_or_else(|| WorkloadError::no_table(usage.name, text))?;
        Ok(SampledLaw { law, sampler: whole })
    }

    pub(crate) fn fixed(value: u32) -> SampledLaw {
        SampledLaw { law: Law::Fixed(f64::from(value)), sampler: IntegerSampler::Fixed(value) }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum IntegerSampler {
    Fixed(u32),
    Uniform { from: u32, count: u64 },
    List { alias: Alias, values: Vec<u32> },
    Curve { alias: Alias, from: u32, to: u32, head: u32, tail_from: f64, curve: Curve },
}

impl IntegerSampler {
    /// Makes a sampler of a law of whole numbers. Returns `None` if all weights are 0.
    pub(crate) fn new(law: &Law) -> Option<IntegerSampler> {
        let (min, max) = law.bounds();
        match law {
            Law::Fixed(value) => Some(IntegerSampler::Fixed(rounded(*value))),
            Law::Uniform(..) => {
                let count = u64::from(rounded(max) - rounded(min)) + 1;
                Some(IntegerSampler::Uniform { from: rounded(min), count })
            }
            Law::List(pairs) => IntegerSampler::list(pairs),
            Law::File(_, histogram) => IntegerSampler::list(&histogram.pairs),
            Law::Curve(curve) => {
                // A whole number covers all values that are rounded to the number, even at a bound.
                let curve = curve.widened(0.5)?;
                let (from, to) = (rounded(min), rounded(max));
                let head = (to - from).saturating_add(1).min(HEAD_MAX);
                let edge = |n: u32| curve.share_below(f64::from(from) + f64::from(n) - 0.5);
                let tail_from = if head == HEAD_MAX { edge(head) } else { 1.0 };
                let shares = (0..head).map(|n| (edge(n + 1) - edge(n)).max(0.0));
                let shares: Vec<f64> = shares.chain([1.0 - tail_from]).collect();
                let alias = Alias::new(&shares)?;
                Some(IntegerSampler::Curve { alias, from, to, head, tail_from, curve })
            }
        }
    }

    fn list(pairs: &[(f64, f64)]) -> Option<IntegerSampler> {
        let weights: Vec<f64> = pairs.iter().map(|(_, weight)| *weight).collect();
        let values = pairs.iter().map(|(value, _)| rounded(*value)).collect();
        Some(IntegerSampler::List { alias: Alias::new(&weights)?, values })
    }

    /// Returns the number that 64 random bits select.
    pub(crate) fn draw(&self, bits: u64) -> u32 {
        match self {
            IntegerSampler::Fixed(value) => *value,
            IntegerSampler::Uniform { from, count } => {
                from + u32::try_from(below(bits, *count)).unwrap_or(0)
            }
            IntegerSampler::List { alias, values } => {
                values.get(alias.draw(bits) as usize).copied().unwrap_or(0)
            }
            IntegerSampler::Curve { alias, from, to, head, tail_from, curve } => {
                let at = alias.draw(bits);
                if at < *head {
                    return from + at;
                }
                let along = fraction(mix(bits ^ TAIL_SALT));
                let value = rounded(curve.at(tail_from + along * (1.0 - tail_from)));
                value.clamp((from + head).min(*to), *to)
            }
        }
    }

    /// Returns the number if all draws give the same number.
    #[inline(always)]
    pub(crate) fn fixed(&self) -> Option<u32> {
        if let IntegerSampler::Fixed(value) = self { Some(*value) } else { None }
    }
}

pub(crate) fn greatest(law: &Law) -> u32 {
    rounded(law.bounds().1)
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
        Law::File(_, histogram) => weighted(&histogram.pairs),
        Law::Curve(curve) => whole_mean(curve).unwrap_or_else(|| curve.mean()),
    }
}

/// Computes the mean of a curve whose values are rounded to whole numbers: a sum over the numbers
/// in the table, plus the share of greater numbers times the mean of greater numbers.
fn whole_mean(curve: &Curve) -> Option<f64> {
    let (min, max) = curve.bounds();
    let wide = curve.widened(0.5)?;
    let (from, to) = (rounded(min), rounded(max));
    let head = (to - from).saturating_add(1).min(HEAD_MAX);
    let edge = |n: u32| wide.share_below(f64::from(from) + f64::from(n) - 0.5);
    let of = |n: u32| f64::from(from + n) * (edge(n + 1) - edge(n));
    let sum: f64 = (0..head).map(of).sum();
    let tail = 1.0 - edge(head);
    let least = f64::from(from) + f64::from(head) - 0.5;
    let rest = wide.above(least).map_or(0.0, |rest| rest.mean() * tail);
    Some(sum + if head == HEAD_MAX { rest } else { 0.0 })
}

#[derive(Clone, Debug)]
pub(crate) enum RealSampler {
    Fixed(f64),
    Uniform {
        from: f64,
        to: f64,
    },
    List {
        alias: Alias,
        values: Vec<f64>,
    },
    /// Whole numbers of microseconds, because the KV-Cache paper's histograms of gaps have these.
    Whole(IntegerSampler),
}

impl RealSampler {
    /// Makes a sampler of a law. Returns `None` if all weights are 0.
    pub(crate) fn new(law: &Law) -> Option<RealSampler> {
        let list = |pairs: &[(f64, f64)]| {
            let weights: Vec<f64> = pairs.iter().map(|(_, weight)| *weight).collect();
            let values = pairs.iter().map(|(value, _)| *value).collect();
            Some(RealSampler::List { alias: Alias::new(&weights)?, values })
        };
        match law {
            Law::Fixed(value) => Some(RealSampler::Fixed(*value)),
            Law::Uniform(from, to) => Some(RealSampler::Uniform { from: *from, to: *to }),
            Law::List(pairs) => list(pairs),
            Law::File(_, histogram) => list(&histogram.pairs),
            Law::Curve(_) => Some(RealSampler::Whole(IntegerSampler::new(law)?)),
        }
    }

    /// Returns the number that 64 random bits select.
    pub(crate) fn draw(&self, bits: u64) -> f64 {
        match self {
            RealSampler::Fixed(value) => *value,
            RealSampler::Uniform { from, to } => from + fraction(bits) * (to - from),
            RealSampler::List { alias, values } => {
                values.get(alias.draw(bits) as usize).copied().unwrap_or(0.0)
            }
            RealSampler::Whole(whole) => f64::from(whole.draw(bits)),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of u32 first"
)]
pub(crate) fn rounded(value: f64) -> u32 {
    value.round().clamp(0.0, f64::from(u32::MAX)) as u32
}
