//! The results of a simulation: tables and plots for people, JSON for programs.
//!
//! Where: printed when all simulations have ended.
//! Invariant: text and JSON give the sizes of the items and the kind of budget, because traces do
//! not record them.

use super::chart;
use crate::words::wrapped;
use serde_json::{Value, json};
use simulate::Eviction;
use simulate::contestant::SimulatedPolicy;
use simulate::engine::Budget;
use simulate::jobs::{Outcome, Plan};
use std::fmt::Write;

const CELL: usize = 10;

/// Formats tables and plots of each policy's misses on each trace, and a summary.
pub(crate) fn text(plan: &Plan, outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", settings(plan));
    for outcome in outcomes {
        trace(&mut out, plan, outcome);
    }
    summary(&mut out, plan, outcomes);
    out
}

fn settings(plan: &Plan) -> String {
    let (segments, budget) = engine(plan);
    let sets = match plan.set_percent {
        0 => String::new(),
        percent => format!(" After {percent} % of the hits, a set stores the value again."),
    };
    let copies = match plan.copies {
        1 => String::new(),
        copies => format!(" Each request is replayed as {copies} requests for different keys."),
    };
    let ours = format!(
        "{segments}; the cache size includes {budget}; {} evicted keys are remembered for each \
         item in the cache.",
        plan.settings.ghost
    );
    wrapped("Items: ", &format!("{}.", plan.items))
        + &wrapped("Hypostyle's policies: ", &ours)
        + &wrapped("Other policies: ", "simulated item by item, without overhead.")
        + &wrapped("", &format!("After each miss, the cache stores the key.{sets}{copies}"))
}

fn engine(plan: &Plan) -> (String, &'static str) {
    let segments = match plan.settings.segments {
        Some(segments) => format!("{segments} segments"),
        None => "one segment for each item".to_owned(),
    };
    let budget = match plan.settings.budget {
        Budget::Memory => "all segments, also the free ones",
        Budget::Live => "only live items",
    };
    (segments, budget)
}

fn trace(out: &mut String, plan: &Plan, outcome: &Outcome) {
    let Outcome { trace, requests, keys, sizes } = outcome;
    let _ = writeln!(out, "{trace}: {requests} requests for {keys} distinct keys");
    let _ = writeln!(out, "Miss ratio, and reduction of the misses compared with LRU:");
    let _ = write!(out, "{:20}", "cache size");
    for size in &plan.sizes {
        let _ = write!(out, "{:>w$}", size.to_string(), w = 2 * CELL);
    }
    out.push('\n');
    for (at, contestant) in plan.policies.iter().enumerate() {
        let _ = write!(out, "  {contestant:18}");
        for (size, (_, misses)) in sizes.iter().enumerate() {
            let ratio = misses[at] as f64 / *requests as f64;
            let reduction = outcome.reduction_percent(size, at);
            let _ = write!(out, "{ratio:>CELL$.4}{reduction:>+w$.2} %", w = CELL - 2);
        }
        out.push('\n');
    }
    out.push('\n');
    chart::draw(out, plan, outcome);
    out.push('\n');
}

/// Writes by how much each policy reduces misses: the mean and the worst case compared with LRU,
/// and the worst case compared with FIFO.
fn summary(out: &mut String, plan: &Plan, outcomes: &[Outcome]) {
    let fifo = SimulatedPolicy::Ours(Eviction::Fifo);
    let fifo = plan.policies.iter().position(|contestant| *contestant == fifo);
    let cells: Vec<(&Outcome, usize)> = outcomes
        .iter()
        .flat_map(|outcome| (0..outcome.sizes.len()).map(move |size| (outcome, size)))
        .collect();
    let count = cells.len();
    let _ = writeln!(out, "Reduction of the misses, over {count} pairs of trace and cache size:");
    let _ = writeln!(out, "{:20}{:>12}{:>10}{:>10}", "", "mean", "worst", "worst");
    let _ = writeln!(out, "{:20}{:>12}{:>10}{:>10}", "compared with", "lru", "lru", "fifo");
    for (at, contestant) in plan.policies.iter().enumerate() {
        let against = |base: usize| {
            let reduction = |(outcome, size): &(&Outcome, usize)| {
                let misses = &outcome.sizes[*size].1;
                100.0 * (1.0 - misses[at] as f64 / (misses[base] as f64).max(1.0))
            };
            cells.iter().map(reduction).collect::<Vec<f64>>()
        };
        let lru = against(0);
        let mean = lru.iter().sum::<f64>() / cells.len().max(1) as f64;
        let worst = lru.iter().copied().fold(f64::INFINITY, f64::min);
        let _ = write!(out, "  {contestant:18}{mean:>+10.2} %{worst:>+w$.2} %", w = CELL - 2);
        if let Some(fifo) = fifo {
            let worst = against(fifo).into_iter().fold(f64::INFINITY, f64::min);
            let _ = write!(out, "{worst:>+w$.2} %", w = CELL - 2);
        }
        out.push('\n');
    }
}

/// Formats all results as one JSON object.
pub(crate) fn json(plan: &Plan, outcomes: &[Outcome]) -> String {
    let results: Vec<Value> = outcomes.iter().flat_map(|outcome| cells(plan, outcome)).collect();
    let traces: Vec<Value> = outcomes
        .iter()
        .map(|Outcome { trace, requests, keys, .. }| {
            json!({ "name": trace, "requests": requests, "keys": keys })
        })
        .collect();
    let (segments, budget) = engine(plan);
    let whole = json!({
        "items": plan.items.to_string(),
        "segments": segments,
        "budget": budget,
        "ghost": plan.settings.ghost,
        "set_percent": plan.set_percent,
        "copies": plan.copies,
        "traces": traces,
        "results": results,
    });
    format!("{whole:#}\n")
}

fn cells(plan: &Plan, outcome: &Outcome) -> Vec<Value> {
    let mut cells = Vec::new();
    for (size, (bytes, misses)) in outcome.sizes.iter().enumerate() {
        for (at, contestant) in plan.policies.iter().enumerate() {
            cells.push(json!({
                "trace": outcome.trace,
                "size": plan.sizes[size].to_string(),
                "bytes": bytes,
                "policy": contestant.to_string(),
                "misses": misses[at],
                "miss_ratio": misses[at] as f64 / outcome.requests as f64,
                "fewer_than_lru_percent": outcome.reduction_percent(size, at),
            }));
        }
    }
    cells
}
