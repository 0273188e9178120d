//! The scale of an axis: maps figures to positions in a plot, with ticks at round figures.
//!
//! Where: used by every plot, on HTML pages and on terminals.
//! Invariant: the length of a scale is greater than zero, even if there are no figures. A scale has
//! at most `TICKS_MAX` ticks, all of them inside the scale.
//! Source: none; ticks are 1, 2 or 5 times a power of ten, as in most plots.

const TICKS_MAX: u8 = 9;
/// Minimum number of ticks with which a logarithmic axis can be read.
const TICKS_MIN: usize = 3;
/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 5.0;

/// The way in which figures are mapped to an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Linear; the axis starts at zero, or at the least figure if that figure is negative.
    Linear,
    /// Linear; the axis extends from the least figure to the greatest.
    Within,
    /// Logarithmic. Figures that are zero or negative are not drawn.
    Log,
}

/// The scale of one axis of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    spread: Spread,
    from: f64,
    to: f64,
}

impl Axis {
    /// Returns a scale for the figures. A logarithmic scale ignores zero and negative figures.
    pub(crate) fn new(spread: Spread, figures: impl Iterator<Item = f64>) -> Axis {
        let figures = figures.filter(|figure| figure.is_finite());
        let figures = figures.filter(|figure| spread != Spread::Log || *figure > 0.0);
        let (least, most) = figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), figure| {
            (l.min(figure), m.max(figure))
        });
        let (from, to) = match spread {
            _ if least > most => (1.0, 10.0),
            Spread::Linear => (least.min(0.0), if most > least.min(0.0) { most } else { 1.0 }),
            Spread::Within if most > least => (least, most),
            Spread::Within => (least - 0.5, most + 0.5),
            Spread::Log if most / least < 2.0 => (least / 1.5, most * 1.5),
            Spread::Log => (least, most),
        };
        Axis { spread, from, to }
    }

    /// If a logarithmic scale has fewer than `TICKS_MIN` ticks, extends the scale to round figures.
    pub(crate) fn with_ticks(self) -> Axis {
        if self.spread != Spread::Log || self.ticks().len() >= TICKS_MIN {
            return self;
        }
        let decade = |figure: f64| 10f64.powf(figure.log10().floor());
        let steps = |figure: f64| [1.0, 2.0, 5.0, 10.0].map(|step| step * decade(figure));
        let from = steps(self.from).into_iter().rev().find(|step| *step <= self.from);
        let to = steps(self.to).into_iter().find(|step| *step >= self.to);
        Axis { from: from.unwrap_or(self.from), to: to.unwrap_or(self.to), ..self }
    }

    /// The position of a figure: 0 is the start of the axis, and 1 is its end. `None` if the axis
    /// cannot show the figure, for example zero on a logarithmic axis.
    pub(crate) fn place(&self, figure: f64) -> Option<f64> {
        let place = match self.spread {
            Spread::Linear | Spread::Within => (figure - self.from) / (self.to - self.from),
            Spread::Log => (figure.ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
        };
        place.is_finite().then_some(place)
    }

    /// The figure at a position; the inverse of `place`.
    pub(crate) fn at(&self, place: f64) -> f64 {
        match self.spread {
            Spread::Linear | Spread::Within => self.from + (self.to - self.from) * place,
            Spread::Log => (self.from.ln() + (self.to.ln() - self.from.ln()) * place).exp(),
        }
    }

    /// Returns round figures inside the scale.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let ticks = match self.spread {
            Spread::Linear | Spread::Within => self.linear(),
            Spread::Log => {
                let all = self.log(&[1.0, 2.0, 5.0], 1);
                if all.len() <= usize::from(TICKS_MAX) {
                    all
                } else {
                    let decades = self.log(&[1.0], 1);
                    let every = decades.len().div_ceil(usize::from(TICKS_MAX));
                    decades.into_iter().step_by(every.max(1)).collect()
                }
            }
        };
        ticks.into_iter().take(usize::from(TICKS_MAX)).collect()
    }

    fn linear(&self) -> Vec<f64> {
        let rough = (self.to - self.from) / TICKS;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|of| of * decade)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.from / step).ceil();
        let ticks = (0..TICKS_MAX).map(|nth| (first + f64::from(nth)) * step);
        ticks.take_while(|tick| *tick <= self.to * (1.0 + 1e-9)).collect()
    }

    fn log(&self, of: &[f64], every: i32) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut decade = self.from.log10().floor();
        while 10f64.powf(decade) <= self.to && ticks.len() < 200 {
            let figures = of.iter().map(|one| one * 10f64.powf(decade));
            let inside = |tick: &f64| *tick >= self.from * 0.999 && *tick <= self.to * 1.001;
            ticks.extend(figures.filter(inside));
            decade += f64::from(every);
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = Axis::new(Spread::Linear, [3.0, 97.0].into_iter());
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let axis = Axis::new(Spread::Log, [80.0, 3000.0].into_iter());
        assert_eq!(
            axis.ticks().iter().map(|tick| tick.round()).collect::<Vec<_>>(),
            [100.0, 200.0, 500.0, 1000.0, 2000.0]
        );
        let wide = Axis::new(Spread::Log, [1.0, 1e11].into_iter()).ticks();
        assert!(wide.len() <= usize::from(TICKS_MAX) && wide.len() > 4, "{wide:?}");
    }

    #[test]
    fn a_short_logarithmic_scale_extends_to_round_figures() {
        let ticks = |least, most| Axis::new(Spread::Log, [least, most].into_iter()).with_ticks();
        let ticks = |least, most| ticks(least, most).ticks().into_iter().map(f64::round);
        assert!(ticks(7.0, 23.0).eq([5.0, 10.0, 20.0, 50.0]));
        assert!(ticks(11.0, 12.0).eq([5.0, 10.0, 20.0]));
        assert!(ticks(30.0, 700.0).eq([50.0, 100.0, 200.0, 500.0]));
    }

    #[test]
    fn anything_has_a_scale() {
        for spread in [Spread::Linear, Spread::Within, Spread::Log] {
            for figures in [vec![], vec![0.0], vec![5.0], vec![f64::NAN, -1.0], vec![1e-300, 1e300]]
            {
                let axis = Axis::new(spread, figures.iter().copied()).with_ticks();
                assert!(axis.ticks().len() <= usize::from(TICKS_MAX), "{spread:?} {figures:?}");
                for figure in figures.into_iter().filter(|figure| *figure > 0.0) {
                    let place = axis.place(figure).unwrap();
                    assert!((-1e-9..=1.0 + 1e-9).contains(&place), "{spread:?} {figure}: {place}");
                }
            }
        }
        let log = Axis::new(Spread::Log, [10.0, 1000.0].into_iter());
        assert!((log.place(100.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((log.place(0.0), log.place(-1.0)), (None, None));
        let within = Axis::new(Spread::Within, [10.0, 1000.0].into_iter());
        let linear = Axis::new(Spread::Linear, [10.0, 1000.0].into_iter());
        let middles = [log, within, linear].map(|axis| axis.at(0.5).round());
        assert_eq!(middles, [100.0, 505.0, 500.0]);
    }
}
