//! The section of `--help` about workloads: presets, and forms of distributions.
//!
//! Where: used by the command line.
//! Invariant: every preset and every form is listed; no line is longer than 80 columns, except for
//! a long name.

use super::grammar::entries;
use super::presets::{PRESETS, Preset};
use super::{gaps, law, popularity};
use crate::words::wrapped;

/// Number of characters before the explanations, which are the second column of each list.
const INDENT: usize = 25;

/// Returns the lists of all presets and of all forms of distributions.
pub(crate) fn lists() -> String {
    let mut text = "Workloads:\n".to_owned();
    text.extend(PRESETS.iter().map(|Preset { name, about, .. }| row(name, about)));
    let parts = [
        ("Popularity", popularity::GRAMMAR),
        ("Gaps", gaps::GRAMMAR),
        ("Sizes, batches, ttl and gaps", law::GRAMMAR),
    ];
    for (title, grammar) in parts {
        text += &format!("\n{title}:\n");
        text.extend(entries(grammar).iter().map(|(name, about)| row(name, about)));
    }
    text
}

fn row(name: &str, about: &str) -> String {
    let name = format!("  {name}  ");
    match name.len() > INDENT {
        true => format!("{}\n{}", name.trim_end(), wrapped(&" ".repeat(INDENT), about)),
        false => wrapped(&format!("{name:INDENT$}"), about),
    }
}
