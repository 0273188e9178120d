//! What `--help` tells of workloads: settings, distributions and presets, from their own tables.
//!
//! Where: the command line. Invariant: nothing is told that is not there, and nothing left out; no
//! line is longer than 80 columns, but for a long name.

use super::presets::{PRESETS, Preset};
use super::settings::{SETTINGS, Setting};
use super::{gaps, law, popularity};
use crate::words::meant;

/// The column in which explanations begin, and their width.
const INDENT: usize = 25;
const WIDTH: usize = 55;

/// All settings, and how distributions are written.
#[must_use]
pub fn settings() -> String {
    let mut text = String::new();
    for Setting { name, value, help, .. } in &SETTINGS {
        text += &row(&format!("--{name} {value}"), help);
    }
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

/// All presets.
#[must_use]
pub fn presets() -> String {
    PRESETS.iter().map(|Preset { name, about, .. }| row(name, about)).collect()
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
    let mut text = format!("  {name}");
    let mut columns = text.len();
    if columns + 2 > INDENT {
        text.push('\n');
        columns = 0;
    }
    text += &" ".repeat(INDENT - columns);
    let mut width = 0;
    for word in about.split_whitespace() {
        if width > 0 && width + word.len() > WIDTH {
            text += &format!("\n{}", " ".repeat(INDENT));
            width = 0;
        } else if width > 0 {
            text.push(' ');
        }
        text += word;
        width += word.len() + 1;
    }
    text + "\n"
}
