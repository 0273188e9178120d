//! What `--help` tells of workloads: distributions and presets, from their own tables.
//!
//! Where: the command line. Invariant: nothing is told that is not there, and nothing left out; no
//! line is longer than 80 columns, but for a long name.

use super::presets::{PRESETS, Preset};
use super::{gaps, law, popularity};
use crate::words::{meant, wrapped};

/// The column in which explanations begin.
const INDENT: usize = 25;

/// All presets, and how distributions are written.
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

/// The names of a grammar, each with what is said of it, from lines in two columns.
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

/// How what has this name in a grammar is written, as words behind what is wrong with it; or which
/// name was probably meant.
pub(super) fn form(grammar: &str, kind: &str) -> String {
    let entries = entries(grammar);
    let forms = || entries.iter().flat_map(|(names, _)| names.split(", "));
    let of = |form: &str| form.find([':', '[']).unwrap_or(form.len());
    match forms().find(|form| form[..of(form)] == *kind) {
        Some(form) if form == kind => String::new(),
        Some(form) => format!("; it is written {form}"),
        // Numbers are told by capital letters.
        None => {
            let is_name = |name: &&str| !name.contains(|one: char| one.is_ascii_uppercase());
            meant(kind, forms().map(|form| &form[..of(form)]).filter(is_name))
        }
    }
}

/// A name and what it is, side by side.
fn row(name: &str, about: &str) -> String {
    let name = format!("  {name}  ");
    match name.len() > INDENT {
        true => format!("{}\n{}", name.trim_end(), wrapped(&" ".repeat(INDENT), about)),
        false => wrapped(&format!("{name:INDENT$}"), about),
    }
}
