//! Random choice among weighted places, in constant time.
//!
//! Where: used to draw sizes, gaps and keys.
//! Invariant: the probability of place `n` is weight `n` divided by the sum of all weights, to
//! within 2^-32.
//! Source: M. Vose, "A linear algorithm for generating random numbers with a given distribution",
//! 1991.

use super::random::below;

pub(crate) const WEIGHTS_MAX: usize = 1 << 20;

/// A cell belongs to two places. The lower 32 random bits select one of the two places.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// `first` is selected if the lower 32 bits are below this limit, otherwise `second`.
    limit: u32,
    first: u32,
    second: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Alias {
    cells: Vec<Cell>,
}

impl Alias {
    /// Makes a table of weights. Returns `None` if there are more than `WEIGHTS_MAX` weights, if no
    /// weight is above 0, or if a weight is negative or not finite.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of at most 2^20 weights; shares are clamped to 0..2^32"
    )]
    pub(crate) fn new(weights: &[f64]) -> Option<Alias> {
        let sum: f64 = weights.iter().sum();
        let is_usable = weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite();
        if !is_usable || weights.len() > WEIGHTS_MAX {
            return None;
        }
        // The number of cells that each place must get. Places that need more than 1 cell fill up
        // the cells of places that need less.
        let count = weights.len() as f64;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / sum * count).collect();
        let all = 0..weights.len() as u32;
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            all.clone().partition(|place| shares[*place as usize] < 1.0);
        let mut cells: Vec<Cell> =
            all.map(|place| Cell { limit: u32::MAX, first: place, second: place }).collect();
        while let (Some(less), Some(more)) = (small.pop(), large.last().copied()) {
            let share = shares[less as usize];
            let limit = (share * 2_f64.powi(32)).round() as u32;
            cells[less as usize] = Cell { limit, first: less, second: more };
            shares[more as usize] -= 1.0 - share;
            if shares[more as usize] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // Apart from rounding, each remaining place must get exactly 1 cell. A place of weight 0
        // must not keep a cell.
        let heaviest = (0..).zip(weights).max_by(|one, other| one.1.total_cmp(other.1));
        let heaviest = heaviest.map_or(0, |(place, _)| place);
        for place in small.into_iter().filter(|place| weights[*place as usize] == 0.0) {
            cells[place as usize] = Cell { limit: 0, first: heaviest, second: heaviest };
        }
        Some(Alias { cells })
    }

    /// Returns the place that is selected by 64 random bits.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    pub(crate) fn draw(&self, bits: u64) -> u32 {
        let at = below(bits, self.cells.len() as u64) as usize;
        let Some(cell) = self.cells.get(at) else { return 0 };
        if (bits as u32) < cell.limit { cell.first } else { cell.second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulate::sizes::mix;

    fn shares(weights: &[f64], draws: u64) -> Vec<f64> {
        let alias = Alias::new(weights).unwrap();
        let mut counts = vec![0.0; weights.len()];
        (0..draws).for_each(|n| counts[alias.draw(mix(n)) as usize] += 1.0);
        counts.iter().map(|count| count / draws as f64).collect()
    }

    #[test]
    fn places_are_drawn_by_their_weights() {
        for weights in [&[1.0][..], &[1.0, 1.0], &[3.0, 0.0, 1.0], &[0.0, 96.77, 3.23, 0.0]] {
            let sum: f64 = weights.iter().sum();
            let drawn = shares(weights, 200_000);
            for (weight, share) in weights.iter().zip(&drawn) {
                assert!((share - weight / sum).abs() < 0.005, "{weights:?}: {drawn:?}");
                assert!(*weight > 0.0 || *share == 0.0, "{weights:?}: {drawn:?}");
            }
        }
    }

    #[test]
    fn what_has_no_weights_has_no_table() {
        for weights in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY], &[1e308; 9]] {
            assert!(Alias::new(weights).is_none(), "{weights:?}");
        }
    }
}
