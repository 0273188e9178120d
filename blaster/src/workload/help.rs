//! The section of `--help` about workloads: presets, and forms of distributions.
//!
//! Where: used by the command line.
//! Invariant: every preset and every form is listed; no line is longer than 80 columns, except for
//! a long name.

use super::presets::{PRESETS, Preset};
use super::{gaps, law, popularity};
use crate::words::{suggestion, wrapped};

/// Number of characters before the explanations, which are the second column of each list.
const INDENT: usize = 25;

/// Returns the lists of all presets and of all forms of distributions.
#[must_use]
pub fn lists() -> String {
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

/// Splits a grammar into pairs of the names of forms and the explanation of these forms.
fn entries(grammar: &str) -> Vec<(&str, String)> {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for line in grammar.lines() {
        match entries.last_mut() {
            Some((_, about)) if line.starts_with(' ') => {
                about.push(' ');
                about.push_str(line.trim());
            }
            _ => {
                let (name, about) = line.split_once("  ").unwrap_or((line, ""));
                entries.push((name, about.trim().to_owned()));
            }
        }
    }
    entries
}

/// Returns the end of an error text: the form of the distribution `kind`, or, if the grammar has no
/// such distribution, a suggestion of the name that was probably meant.
pub(super) fn form(grammar: &str, kind: &str) -> String {
    let entries = entries(grammar);
    let forms = || entries.iter().flat_map(|(names, _)| names.split(", "));
    let name_end = |form: &str| form.find([':', '[']).unwrap_or(form.len());
    match forms().find(|form| form[..name_end(form)] == *kind) {
        Some(form) if form == kind => String::new(),
        Some(form) => format!("; the form is {form}"),
        // Forms with capital letters (`N`, `A-B`) stand for numbers, so they are not suggested.
        None => {
            let is_name = |name: &&str| !name.contains(|one: char| one.is_ascii_uppercase());
            suggestion(kind, forms().map(|form| &form[..name_end(form)]).filter(is_name))
        }
    }
}

fn row(name: &str, about: &str) -> String {
    let name = format!("  {name}  ");
    match name.len() > INDENT {
        true => format!("{}\n{}", name.trim_end(), wrapped(&" ".repeat(INDENT), about)),
        false => wrapped(&format!("{name:INDENT$}"), about),
    }
}
