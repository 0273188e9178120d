//! Zipf's law for any exponent of 0 or more and any number of keys, without a table of all keys.
//!
//! Where: `popularity` draws ranks. Invariant: a rank is below the number of keys.
//! Source: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", 1996, as in Apache Commons RNG. For the most popular ranks, this code
//! uses an alias table instead, at a tenth of the cost.

use super::alias::Alias;
use super::random::fraction;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// The maximum number of ranks in the table, so that the table fits a core's cache.
const HEAD_MAX: u64 = 4096;
/// After this number of rejected draws, the last draw is used. Nine draws in ten are accepted.
const TRIES_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    exponent: f64,
    keys: u64,
    head: u64,
    /// A table of the first ranks. The table's last place means all other ranks, the tail.
    alias: Alias,
    /// The area under the density up to the first rank of the tail.
    area_from: f64,
    area_to: f64,
    /// A draw within this distance of its rank is accepted without a check.
    near: f64,
}

impl Zipf {
    /// Makes a law for `keys` keys. Returns `None` if `keys` is 0.
    pub(crate) fn new(exponent: f64, keys: u64) -> Option<Zipf> {
        let head = keys.min(HEAD_MAX);
        let density = |rank: f64| (-exponent * rank.ln()).exp();
        let (first, last) = (head as f64, keys as f64);
        // Computes the sum of the tail's densities by the Euler-Maclaurin formula. A tail begins
        // after rank 4096, so the error is below 1e-12.
        let ends = (density(last) - density(first)) / 2.0;
        let slopes = exponent / 12.0 * (density(first) / first - density(last) / last);
        let tail = area(exponent, last) - area(exponent, first) + ends + slopes;
        let shares = (1..=head).map(|rank| density(rank as f64));
        let tail = if keys > head { tail.max(0.0) } else { 0.0 };
        let alias = Alias::new(&shares.chain([tail]).collect::<Vec<_>>())?;
        let next = first + 1.0;
        Some(Zipf {
            exponent,
            keys,
            head,
            alias,
            area_from: area(exponent, next + 0.5) - density(next),
            area_to: area(exponent, last + 0.5),
            near: 2.0 - place(exponent, area(exponent, 2.5) - density(2.0)),
        })
    }

    /// Draws a rank. Rank 0 is drawn most often.
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let rank = u64::from(self.alias.draw(random.next_u64()));
        if rank < self.head { rank } else { self.tail(random) }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the ranks of the tail first"
    )]
    fn tail(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let mut rank = 0.0;
        for _ in 0..TRIES_MAX {
            let along = fraction(random.next_u64());
            let at = self.area_to + along * (self.area_from - self.area_to);
            let x = place(self.exponent, at);
            rank = x.round().clamp(self.head as f64 + 1.0, self.keys as f64);
            let density = || (-self.exponent * rank.ln()).exp();
            if rank - x <= self.near || at >= area(self.exponent, rank + 0.5) - density() {
                break;
            }
        }
        rank as u64 - 1
    }
}

/// The area under x^-exponent from 1 to x.
fn area(exponent: f64, x: f64) -> f64 {
    let log = x.ln();
    let stretch = (1.0 - exponent) * log;
    // Computes (e^t - 1) / t for t = `stretch`; the value at 0 is 1.
    let ratio = if stretch.abs() > 1e-8 { stretch.exp_m1() / stretch } else { 1.0 + stretch / 2.0 };
    log * ratio
}

fn place(exponent: f64, area: f64) -> f64 {
    let stretch = (area * (1.0 - exponent)).max(-1.0);
    // Computes ln(1 + t) / t for t = `stretch`; the value at 0 is 1.
    let ratio = if stretch.abs() > 1e-8 { stretch.ln_1p() / stretch } else { 1.0 - stretch / 2.0 };
    (area * ratio).exp()
}
