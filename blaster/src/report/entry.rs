//! A result on the page, and the remarks on it.
//!
//! Where: made by `report`; all parts of the page show entries.
//! Invariant: no two entries of a page have the same name.

use crate::measure::verdict::Severity;
use crate::result::RunResult;
use crate::search::SearchResult;
use std::collections::BTreeMap;

/// A result on the page.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The result's name, which is unique on the page.
    pub name: String,
    /// The measured result.
    pub result: RunResult,
}

/// Names each result by its label. If several results have the same label, adds numbers.
pub(crate) fn named(results: Vec<RunResult>) -> Vec<Entry> {
    let mut labels: BTreeMap<String, usize> = BTreeMap::new();
    for result in &results {
        *labels.entry(result.manifest.label.clone()).or_default() += 1;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let entry = |result: RunResult| {
        let label = &result.manifest.label;
        let nth = seen.entry(label.clone()).or_default();
        *nth += 1;
        let label = if label.is_empty() { "unnamed" } else { label };
        let is_alone = labels.get(&result.manifest.label) == Some(&1);
        let name = if is_alone { label.to_owned() } else { format!("{label} #{nth}") };
        Entry { name, result }
    };
    results.into_iter().map(entry).collect()
}

/// Returns the CSS class and the sentence of each remark, assert and note, `invalid` ones first.
pub(super) fn remarks_of(result: &RunResult) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let search = result.search.as_ref().and_then(SearchResult::remark);
    let search = search.filter(|remark| !result.verdict.has(&remark.rule));
    for remark in result.verdict.remarks.iter().chain(&search) {
        let (class, word) = match remark.severity {
            Severity::Invalid => ("invalid", "Invalid"),
            Severity::Warning => ("warning", "Note"),
        };
        lines.push((class, format!("{word} ({}): {}", remark.rule, remark.sentence)));
    }
    for judgement in &result.judgements {
        let class = if judgement.is_met { "good" } else { "invalid" };
        lines.push((class, format!("Asserted: {}", judgement.sentence)));
    }
    if result.is_interrupted {
        let sentence = "Note: the run was interrupted; the figures were measured until then";
        lines.push(("warning", sentence.to_owned()));
    }
    lines.sort_by_key(|(class, _)| *class != "invalid");
    lines
}
