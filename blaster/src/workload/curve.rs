//! Continuous distributions between two bounds. A value is drawn by inverting the distribution.
//!
//! Where: sizes and gaps are drawn from curves.
//! Invariant: drawn values lie within the bounds. `at` never returns a smaller value for a greater
//! fraction.
//! Source: Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012,
//! section 5. The exact shares of ETC's shortest values come from mutilate and Lancet.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Pareto {
        location: f64,
        scale: f64,
        shape: f64,
    },
    Gev {
        location: f64,
        scale: f64,
        shape: f64,
    },
    Exponential {
        mean: f64,
    },
    /// Sizes of the values in Facebook's ETC pool: listed shares for sizes up to 14 bytes, and a
    /// generalized Pareto distribution for longer values.
    Facebook,
}

/// The shares of the values in ETC that have 0, 1, ... 14 bytes.
const FACEBOOK_SHORT: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];
/// The distribution of the values in ETC that have more than 14 bytes.
const FACEBOOK_LONG: Form = Form::Pareto { location: 15.0, scale: 214.476, shape: 0.348_238 };
/// The lower bound of the longer values, which are rounded to 15 bytes or more.
const FACEBOOK_LONG_FROM: f64 = 14.5;
/// A distribution is refused if a smaller share of it lies between the bounds.
const MASS_MIN: f64 = 1e-9;
/// Number of intervals for the integration of a mean; even, because Simpson's rule requires this.
const INTERVALS: u32 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Curve {
    form: Form,
    min: f64,
    max: f64,
    /// The share of values of `form` that are less than `min`.
    below: f64,
    /// The share of values of `form` that lie between `min` and `max`.
    mass: f64,
}

impl Curve {
    /// Cuts `form` off at `min` and `max`. An error says which numbers are allowed.
    pub(crate) fn new(form: Form, min: f64, max: f64) -> Result<Curve, &'static str> {
        let (is_sane, why) = match form {
            Form::Pareto { location, scale, shape } | Form::Gev { location, scale, shape } => (
                location.abs() <= 1e12 && 0.0 < scale && scale <= 1e12 && shape.abs() <= 1e4,
                "SCALE must be above 0 and at most 1e12, SHAPE must be -1e4 to 1e4, and LOCATION \
                 must be -1e12 to 1e12",
            ),
            Form::Exponential { mean } => {
                (0.0 < mean && mean <= 1e12, "MEAN must be above 0 and at most 1e12")
            }
            Form::Facebook => (true, ""),
        };
        if !is_sane {
            return Err(why);
        }
        if !(min <= max && min.abs() <= 1e12 && max.abs() <= 1e12) {
            return Err("MIN and MAX must be -1e12 to 1e12, and MIN must not be above MAX");
        }
        let below = form.share_below(min);
        let mass = form.share_below(max) - below;
        if mass < MASS_MIN {
            return Err("almost no values of the distribution are between MIN and MAX");
        }
        Ok(Curve { form, min, max, below, mass })
    }

    pub(crate) fn bounds(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// Returns the curve with `min` lowered by `by` and `max` raised by `by`.
    pub(crate) fn widened(&self, by: f64) -> Option<Curve> {
        Curve::new(self.form, self.min - by, self.max + by).ok()
    }

    /// Returns the part of the curve above `value`, or `None` if its share is less than `MASS_MIN`.
    pub(crate) fn above(&self, value: f64) -> Option<Curve> {
        Curve::new(self.form, value, self.max).ok()
    }

    pub(crate) fn share_below(&self, value: f64) -> f64 {
        let share = (self.form.share_below(value) - self.below) / self.mass;
        if value < self.min { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns the value below which the share `fraction` of all values lies.
    pub(crate) fn at(&self, fraction: f64) -> f64 {
        self.form.at(self.below + fraction * self.mass).clamp(self.min, self.max)
    }

    /// Computes the mean: `min` plus the integral, over all values, of the share above the value.
    /// Steps are short near `min`, where the curvature is greatest.
    pub(crate) fn mean(&self) -> f64 {
        let last = (self.max - self.min).ln_1p();
        let step = last / f64::from(INTERVALS);
        let term = |n: u32| {
            let weight = match n {
                0 | INTERVALS => 1.0,
                n if n % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let along = f64::from(n) * step;
            let above = 1.0 - self.share_below(self.min + along.exp_m1());
            weight * above * along.exp()
        };
        self.min + (0..=INTERVALS).map(term).sum::<f64>() * step / 3.0
    }
}

impl Form {
    fn share_below(self, value: f64) -> f64 {
        match self {
            Form::Pareto { location, scale, shape } => {
                let z = (value - location) / scale;
                if z <= 0.0 {
                    0.0
                } else if shape == 0.0 {
                    -(-z).exp_m1()
                } else if 1.0 + shape * z <= 0.0 {
                    1.0
                } else {
                    -(-(shape * z).ln_1p() / shape).exp_m1()
                }
            }
            Form::Gev { location, scale, shape } => {
                let z = (value - location) / scale;
                if shape == 0.0 {
                    (-(-z).exp()).exp()
                } else if 1.0 + shape * z <= 0.0 {
                    if shape > 0.0 { 0.0 } else { 1.0 }
                } else {
                    (-(-(shape * z).ln_1p() / shape).exp()).exp()
                }
            }
            Form::Exponential { mean } => -(-value.max(0.0) / mean).exp_m1(),
            Form::Facebook => {
                let short = (0..).zip(FACEBOOK_SHORT).filter(|(bytes, _)| {
                    // A size covers all values that are rounded to the size.
                    f64::from(*bytes) + 0.5 <= value
                });
                let short: f64 = short.map(|(_, share)| share).sum();
                let long = 1.0 - FACEBOOK_SHORT.iter().sum::<f64>();
                // The longer values begin at 14.5, so that size 15, too, covers a whole byte.
                short + long * FACEBOOK_LONG.share_below(value.max(FACEBOOK_LONG_FROM) + 0.5)
            }
        }
    }

    fn at(self, fraction: f64) -> f64 {
        match self {
            Form::Pareto { location, scale, shape } => {
                let exponent = -(-fraction).ln_1p();
                location + scale * stretched(exponent, shape)
            }
            Form::Gev { location, scale, shape } => {
                location + scale * stretched(-(-fraction.ln()).ln(), shape)
            }
            Form::Exponential { mean } => -mean * (-fraction).ln_1p(),
            Form::Facebook => {
                let mut left = fraction;
                for (bytes, share) in (0..).zip(FACEBOOK_SHORT) {
                    if left < share {
                        return f64::from(bytes);
                    }
                    left -= share;
                }
                let long = 1.0 - FACEBOOK_SHORT.iter().sum::<f64>();
                FACEBOOK_LONG.at((left / long).clamp(0.0, 1.0)) - 0.5
            }
        }
    }
}

/// (e^(shape * exponent) - 1) / shape; for shape 0, the limit of this expression.
fn stretched(exponent: f64, shape: f64) -> f64 {
    if shape == 0.0 { exponent } else { (shape * exponent).exp_m1() / shape }
}

impl fmt::Display for Curve {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { min, max, .. } = self;
        match self.form {
            Form::Pareto { location: 0.0, scale, shape } => {
                write!(out, "pareto:{scale},{shape},{min},{max}")
            }
            Form::Pareto { location, scale, shape } => {
                write!(out, "pareto:{scale},{shape},{min},{max},{location}")
            }
            Form::Gev { location, scale, shape } => {
                write!(out, "gev:{location},{scale},{shape},{min},{max}")
            }
            Form::Exponential { mean } => write!(out, "exponential:{mean},{min},{max}"),
            Form::Facebook => write!(out, "facebook:{min},{max}"),
        }
    }
}
