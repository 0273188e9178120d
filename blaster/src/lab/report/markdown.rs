//! The report as Markdown: `README.md` with the overview, and a file and a drawing per experiment.
//!
//! ```text
//! README.md: overview | NAME.md: a section | NAME.svg: its figures | each: MADE, contents
//! ```
//!
//! Where: `kvblaster lab report --markdown`.
//! Invariant: all texts of records and experiments are escaped, or are in a code block that the
//! text cannot end. A link leads to a file that the same report writes. Each file begins with
//! `MADE`, so that a later report knows the files that it may replace or remove.
//! Source: the specification of GitHub Flavored Markdown.

use super::entry::Entry;
use super::noise;
use super::overview::{self, READING, SUBJECT};
use super::section::Section;
use crate::report::chart::sheet;
use crate::report::words::escaped_markdown;
use crate::words::sentence;
use std::fmt::Write;

/// The first line of each file.
pub(crate) const MADE: &str =
    "<!-- Made by kvblaster lab report, which replaces or removes this file. -->";

/// Returns the name and the contents of each file.
pub(crate) fn files(entries: &[Entry], sections: &[Section]) -> Vec<(String, String)> {
    let mut files = vec![("README.md".to_owned(), readme(entries, sections))];
    for one in sections {
        files.push((format!("{}.md", one.slug), section(one)));
        if !one.charts.is_empty() {
            files.push((format!("{}.svg", one.slug), sheet(&one.charts)));
        }
    }
    files.iter_mut().for_each(|(_, text)| text.insert_str(0, &format!("{MADE}\n")));
    files
}

fn readme(entries: &[Entry], sections: &[Section]) -> String {
    let link = |section: &Section| format!("{}.md", section.slug);
    let unmeasured = overview::unmeasured(entries, sections, &link);
    let unmeasured = match unmeasured.is_empty() {
        true => String::new(),
        false => {
            let summary = overview::unmeasured_in_words(&unmeasured);
            folded(&summary, &unmeasured.markdown())
        }
    };
    format!(
        "# {SUBJECT}\n\nMeasured with `kvblaster lab run` ({}), and written by `kvblaster lab \
         report --markdown`.\n\n\
         {}\n\n{}\n\n## Machine and versions\n\n{}\n## Overview\n\n{}\n{READING}\n{unmeasured}",
        escaped(&overview::when(sections)),
        escaped(&overview::totals(entries, sections)),
        escaped(&sentence(&noise::sentence(sections))),
        overview::conditions_table(sections).markdown(),
        overview::table(sections, &link).markdown()
    )
}

fn section(section: &Section) -> String {
    let mut out = format!(
        "# {}\n\n{} · {} · [all experiments](README.md)\n",
        escaped(section.title()),
        escaped(&section.name),
        escaped(&section.source())
    );
    if let Some(experiment) = &section.experiment {
        list(&mut out, "Findings of the source", &experiment.found);
        let _ = writeln!(out, "\nMethod: {}", escaped(&sentence(&experiment.did)));
        if !experiment.differs.is_empty() {
            let _ = writeln!(out, "\nDifferences: {}", escaped(&sentence(&experiment.differs)));
        }
    }
    if !section.judged.is_empty() {
        out.push_str("\n## Claims\n\n");
        for one in &section.judged {
            let (says, told) = (sentence(&one.says), sentence(&one.told));
            let verdict = one.verdict.words();
            let _ =
                writeln!(out, "- **{verdict}**: {}<br>Here: {}", escaped(&says), escaped(&told));
        }
    }
    list(&mut out, "Findings on this machine", &section.findings);
    let noise = noise::table(section);
    if !noise.is_empty() {
        let _ = write!(out, "\n## Noise\n\n{}", noise.markdown());
    }
    figures(&mut out, section);
    let missing = section.missing();
    if !missing.is_empty() {
        let _ = write!(out, "\n## Not measured\n\n{}", missing.markdown());
    }
    list(&mut out, "Remarks of the self-check", &section.remarks);
    let _ = write!(out, "\n## Command\n\n{}\n\n", escaped(&sentence(&section.made())));
    out += &code(&section.record.command);
    let servers = section.servers().into_iter();
    let servers =
        servers.map(|(name, commands)| format!("{}\n\n{}", escaped(&name), code(&commands)));
    let servers: Vec<String> = servers.collect();
    if !servers.is_empty() {
        out += &folded("Servers and command lines", &servers.join("\n"));
    }
    out
}

fn figures(out: &mut String, section: &Section) {
    if !section.charts.is_empty() {
        let _ = writeln!(
            out,
            "\n## Figures\n\n![Charts of the figures; the tables below have the values]({}.svg)",
            section.slug
        );
    }
    let made = escaped(&section.conditions());
    if section.profile.is_some() || !section.charts.is_empty() {
        let _ = writeln!(out, "\n{made}");
    }
    let profile = section.profile.iter().map(|one| (&one.title, &one.caption, &one.table));
    let charts = section.charts.iter().map(|one| (&one.title, &one.caption, &one.table));
    for (title, caption, table) in profile.chain(charts) {
        let _ = writeln!(out, "\n### {}\n\n{}", escaped(title), escaped(caption));
        if let Some(table) = table {
            let _ = write!(out, "\n{}", table.markdown());
        }
    }
    if let Some(none) = section.without_values() {
        let _ = writeln!(out, "\n{}", escaped(&sentence(&none)));
    }
}

fn list(out: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = write!(out, "\n## {title}\n\n");
    for one in sentences {
        let _ = writeln!(out, "- {}", escaped(&sentence(one)).replace('\n', " "));
    }
}

/// Escapes a text. Words between backticks stay code.
fn escaped(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let is_plain = |one: char| one.is_ascii_graphic() || one == ' ';
    let is_code = |part: &&str| !part.is_empty() && part.chars().all(is_plain);
    if parts.len().is_multiple_of(2) || !parts.iter().skip(1).step_by(2).all(is_code) {
        return escaped_markdown(text);
    }
    let escaped = |(nth, part): (usize, &&str)| match nth % 2 {
        0 => escaped_markdown(part),
        _ => format!("`{part}`"),
    };
    parts.iter().enumerate().map(escaped).collect()
}

/// Returns a section that is hidden until the reader clicks on `summary`.
fn folded(summary: &str, contents: &str) -> String {
    format!("\n<details><summary>{summary}</summary>\n\n{contents}\n</details>\n")
}

/// Returns a code block. Its fence is longer than any run of backticks in the text.
fn code(text: &str) -> String {
    let runs = text.split(|one: char| one != '`').map(str::len);
    let fence = "`".repeat(3.max(runs.max().unwrap_or(0) + 1));
    format!("{fence}text\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn words_between_backticks_are_code_unless_they_could_end_it() {
        for (text, markdown) in [
            ("a_b: `c_d` and `<e>`.", "a\\_b: `c_d` and `<e>`."),
            ("one ` only_", "one \\` only\\_"),
            ("``a``", "\\`\\`a\\`\\`"),
            ("`a\nb`", "\\`a\nb\\`"),
        ] {
            assert_eq!(escaped(text), markdown);
        }
    }
}
