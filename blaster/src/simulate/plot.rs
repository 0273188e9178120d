//! Miss ratio against size, drawn as SVG: one chart per trace, one line per policy.
//!
//! Where: written to the file that `--svg` names. Invariant: the same as that of `report::chart`.

use crate::plot::axis::Spread;
use crate::report::chart::{Chart, Dot, KINDS, Line, Ticks, sheet};
use crate::report::words;
use simulate::jobs::{Outcome, Plan};

/// Draws all charts as one SVG.
pub(crate) fn svg(plan: &Plan, outcomes: &[Outcome]) -> String {
    let charts: Vec<Chart> = outcomes.iter().map(|outcome| chart(plan, outcome)).collect();
    sheet(&charts)
}

fn chart(plan: &Plan, outcome: &Outcome) -> Chart {
    let line = |(at, name): (usize, String)| {
        let dot = |(bytes, misses): &(u64, Vec<u64>)| Dot {
            x: *bytes as f64,
            y: misses[at] as f64 / outcome.requests as f64,
            is_hollow: false,
            range: None,
        };
        let mut points: Vec<Dot> = outcome.sizes.iter().map(dot).collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        Line { name, kind: at, is_dashed: at >= KINDS, points }
    };
    let ticks = plan.sizes.iter().zip(&outcome.sizes);
    let mut ticks: Vec<(f64, String)> =
        ticks.map(|(size, (bytes, _))| (*bytes as f64, size.to_string())).collect();
    ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
    Chart {
        id: "".into(),
        title: outcome.trace.clone(),
        caption: String::new(),
        x: ("cache size".into(), Spread::Log, words::count),
        y: ("miss ratio".into(), Spread::Within, words::plain),
        x_ticks: Ticks::At(ticks),
        y_also: Vec::new(),
        table: None,
        lines: plan.policies.iter().map(ToString::to_string).enumerate().map(line).collect(),
    }
}
