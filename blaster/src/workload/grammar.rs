//! The notation of distributions: numbers, and the forms that a grammar lists.
//!
//! Where: used by the parsers of laws, popularity, mixes and histograms, and by `help`.
//! Invariant: a form that an error suggests is a form of the grammar.

use crate::words::{suggestion, without_suffix};

/// Parses a finite number, which may have the suffix k, m or g.
pub(crate) fn number(text: &str) -> Option<f64> {
    let starts = text.starts_with(|first: char| first.is_ascii_digit() || "-.".contains(first));
    without_suffix(text).parse().ok().filter(|value: &f64| starts && value.is_finite())
}

/// Splits a grammar into pairs of the names of forms and the explanation of these forms.
pub(super) fn entries(grammar: &str) -> Vec<(&str, String)> {
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
