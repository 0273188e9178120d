//! The times between requests.
//!
//! Where: after `stream` has made a request, it draws a gap to compute when the request is due.
//! Invariant: over many requests, the gaps have the requested mean. When a gap is rounded to
//! nanoseconds, the remainder is added to the next gap.
//! Source: the KV-Cache paper, table 2.

use super::draw::{self, RealSampler};
use super::files::Files;
use super::histogram::Histogram;
use super::law::{Law, Usage};
use super::limits::WorkloadError;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;
use std::fmt;
use std::path::Path;

/// The forms of gaps, for `--help`.
pub(crate) const GRAMMAR: &str = "\
fixed                          all gaps are equal (a number of microseconds also gives equal gaps)
exponential                    gaps of Poisson arrivals, which are independent of each other
trace                          gaps as recorded in the trace
any distribution below         gaps in microseconds (whole numbers for pareto, gev, exponential and
                               facebook); the gaps are scaled so that they give the rate, but
                               with -r own they are used unchanged
";

/// The longest gap, in ns (one year). A longer drawn gap is cut to this length.
const GAP_NS_MAX: f64 = 3.2e16;

const USAGE: Usage = Usage {
    name: "gap",
    unit: "microseconds",
    min: 0.0,
    max: 1e9,
    is_whole: false,
    etc: Some(["pareto:16.0292,0.154971,1,1000", "pareto:0.154971,16.0292,1,1000"]),
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Gap {
    Fixed,
    Exponential,
    Trace,
    /// A law of gaps in microseconds.
    Law(Law),
}

impl Gap {
    pub(crate) fn parse(text: &str, files: &Files<'_>) -> Result<Gap, WorkloadError> {
        match text {
            "fixed" => Ok(Gap::Fixed),
            "exponential" => Ok(Gap::Exponential),
            "trace" => Ok(Gap::Trace),
            _ => {
                let law = Law::parse(text, &USAGE, files)?;
                if law.bounds().1 <= 0.0 {
                    return Err(WorkloadError(format!("gap: {text}: all gaps would be 0")));
                }
                Ok(Gap::Law(law))
            }
        }
    }
}

impl Gap {
    /// Returns the path and the histogram of the file from which the gaps come, if there is a file.
    pub(crate) fn file(&self) -> Option<(&Path, &Histogram)> {
        if let Gap::Law(law) = self { law.file() } else { None }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::Fixed => out.write_str("fixed"),
            Gap::Exponential => out.write_str("exponential"),
            Gap::Trace => out.write_str("trace"),
            Gap::Law(law) => write!(out, "{law}"),
        }
    }
}

/// A sampler of gaps. All threads share a sampler.
#[derive(Clone, Debug)]
pub(crate) enum GapSampler {
    Fixed,
    Exponential,
    /// A sampler of gaps in microseconds, and the mean of the gaps in ns.
    Real(RealSampler, f64),
}

impl GapSampler {
    pub(crate) fn new(gap: &Gap) -> Option<GapSampler> {
        match gap {
            Gap::Fixed | Gap::Trace => Some(GapSampler::Fixed),
            Gap::Exponential => Some(GapSampler::Exponential),
            Gap::Law(law) => Some(GapSampler::Real(RealSampler::new(law)?, draw::mean(law) * 1e3)),
        }
    }

    /// Returns the mean gap in ns if a law determines the mean.
    pub(crate) fn own_ns(&self) -> Option<f64> {
        if let GapSampler::Real(_, mean_ns) = self { Some(*mean_ns) } else { None }
    }

    /// Draws the next gap in ns. Gaps that follow a law are scaled to the mean `mean_ns`, unless
    /// `mean_ns` is NaN.
    pub(crate) fn draw(&self, mean_ns: f64, random: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            GapSampler::Fixed => mean_ns,
            GapSampler::Exponential => {
                let times: f64 = Exp1.sample(random);
                mean_ns * times
            }
            GapSampler::Real(real, own_ns) => {
                let gap_ns = real.draw(random.next_u64()) * 1e3;
                if mean_ns.is_nan() { gap_ns } else { gap_ns * (mean_ns / own_ns) }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounding {
    left: f64,
}

impl Rounding {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a year first, and not NaN"
    )]
    pub(crate) fn whole(&mut self, gap_ns: f64) -> u64 {
        let exact = if gap_ns.is_nan() { 0.0 } else { gap_ns.clamp(0.0, GAP_NS_MAX) + self.left };
        // The gap fits an `i64`, and x86 converts a float to `i64`, but not to `u64`, in one
        // instruction.
        let rounded = exact as i64;
        self.left = exact - rounded as f64;
        rounded as u64
    }
}
