//! The head of the page: its title, and the conclusions above all figures.
//!
//! Where: the top of the page.
//! Invariant: only differences greater than the noise are stated. Invalid results are named.

use super::entry::{Entry, remarks_of};
use super::words::{escaped, shortened};
use crate::run::compare::Comparison;
use crate::run::text::compared::{findings as sentences, most_telling};
use crate::words::{grouped, percent, time, whole};
use std::fmt::Write;

/// The maximum number of results that the title and the sentences name.
const NAMED_MAX: usize = 3;
const TITLE_CHARS: usize = 100;

/// Returns the letter and the name of each server.
fn servers(one: &Comparison) -> Vec<(String, String)> {
    let letters = ('A'..='Z').map(|letter| letter.to_string());
    letters.zip(one.servers.iter().map(|server| server.manifest.label.clone())).collect()
}

/// Returns the page's title: the results' names.
pub(crate) fn subject(entries: &[Entry], compared: &[Comparison]) -> String {
    let names: Vec<String> = match compared {
        [one] if entries.len() == one.servers.len() => {
            servers(one).into_iter().map(|(_, label)| label).collect()
        }
        _ => entries.iter().map(|entry| entry.name.clone()).collect(),
    };
    let between = if compared.is_empty() { ", " } else { " against " };
    let more = names.len().saturating_sub(NAMED_MAX);
    let some = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(between);
    let some = shortened(&some, TITLE_CHARS);
    if more > 0 { format!("{some} and {more} more") } else { some }
}

/// Returns the time of the first result, and that of the last result if the dates differ.
pub(crate) fn when(entries: &[Entry]) -> String {
    let mut all: Vec<&str> =
        entries.iter().map(|entry| entry.result.manifest.started.as_str()).collect();
    all.retain(|started| !started.is_empty());
    all.sort_unstable();
    match (all.first(), all.last()) {
        (Some(first), Some(last)) if first.get(..10) != last.get(..10) => {
            format!("{first} to {last}")
        }
        (Some(first), _) => (*first).to_owned(),
        _ => "date unknown".to_owned(),
    }
}

/// Returns the conclusion in a few sentences.
pub(crate) fn sentence(entries: &[Entry], compared: &[Comparison]) -> String {
    let mut conclusions: Vec<String> = compared.iter().flat_map(of_comparison).collect();
    if compared.is_empty() {
        // If there is only one result, there is room for more objectives.
        let goals = if entries.len() > 1 { 1 } else { NAMED_MAX };
        conclusions
            .extend(entries.iter().take(NAMED_MAX).filter_map(|entry| of_entry(entry, goals)));
    }
    let doubted: Vec<&str> = entries
        .iter()
        .filter(|entry| remarks_of(&entry.result).iter().any(|(class, _)| *class == "invalid"))
        .map(|entry| entry.name.as_str())
        .collect();
    if !doubted.is_empty() {
        let names = doubted.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        let results = if doubted.len() > 1 { "results" } else { "result" };
        let more = match doubted.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        conclusions.push(match doubted.len() == entries.len() && entries.len() > 1 {
            true => "Check all results before use; the reasons are below.".to_owned(),
            false => {
                format!("Check the {results} of {names}{more} before use; the reasons are below.")
            }
        });
    }
    if conclusions.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    conclusions.join(" ")
}

fn of_comparison(one: &Comparison) -> Vec<String> {
    let servers = servers(one);
    let lines = servers.iter().enumerate().skip(1).map(|(nth, (letter, label))| {
        let none = || {
            let first = servers.first().map_or("A", |(_, label)| label);
            format!("No difference between {first} and {label} is greater than the noise.")
        };
        most_telling(one, nth, letter).unwrap_or_else(none)
    });
    lines.collect()
}

fn of_entry(entry: &Entry, goals: usize) -> Option<String> {
    if let Some(search) = &entry.result.search {
        let parts = search.capacities.iter().map(|one| match one.rate_per_s {
            Some(rate) => format!("{} up to {} requests a second", one.objective, grouped(rate)),
            None => format!("{} at no rate", one.objective),
        });
        let parts: Vec<String> = parts.take(goals).collect();
        return (!parts.is_empty()).then(|| format!("{} meets {}.", entry.name, parts.join(", ")));
    }
    let all = entry.result.merged.as_ref()?;
    let total = all.tally.total();
    let mut text =
        format!("{} answered {} requests a second", entry.name, grouped(all.achieved_per_s()));
    if all.asked_per_s.is_some() {
        let _ = write!(text, " of {} that were due", grouped(all.offered_per_s()));
    }
    if let Some(ns) = total.response_ns.quantile_ns(0.5) {
        let _ = write!(text, ", half of them within {}", time(ns));
    }
    if let Some(ns) = total.response_ns.reliable_quantile_ns(0.99) {
        let _ = write!(text, ", 99 % of them within {}", time(whole(ns)));
    }
    let failed = all.tally.failure_ratio().filter(|ratio| *ratio > 0.0);
    if let Some(ratio) = failed {
        let _ = write!(text, "; {} failed", percent(ratio));
    }
    Some(text + ".")
}

/// Returns the comparisons' findings as HTML, with one sentence per figure.
pub(crate) fn findings(compared: &[Comparison]) -> String {
    let mut out = String::new();
    for one in compared {
        let servers = servers(one);
        let names: Vec<&str> = servers.iter().map(|(_, label)| label.as_str()).collect();
        let _ = write!(
            out,
            "<section class=\"findings\"><h2>Results of {} rounds in which the servers took \
             turns</h2>\n<p class=\"note\">{}. Brackets give the {:.0} % confidence interval of a \
             ratio.</p>\n",
            one.rounds,
            escaped(&names.join("; ")),
            100.0 * one.confidence
        );
        for (nth, (letter, _)) in servers.iter().enumerate().skip(1) {
            out.push_str("<ul>");
            for finding in sentences(one, nth, letter) {
                let _ = writeln!(out, "<li>{}</li>", escaped(&finding));
            }
            out.push_str("</ul>\n");
        }
        if let Some(why) = one.failed.as_ref().filter(|_| one.is_interrupted) {
            let _ = writeln!(
                out,
                "<p class=\"note\">The comparison ended early: {}.</p>",
                escaped(why)
            );
        }
        out.push_str("</section>\n");
    }
    out
}
