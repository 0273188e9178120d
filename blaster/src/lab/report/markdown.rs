//! The report as Markdown: `README.md` with the overview, and a file and a drawing an experiment.
//!
//! ```text
//! README.md: overview | NAME.md: a section | NAME.svg: its figures
//! ```
//!
//! Where: `kvblaster lab report --markdown`.
//! Invariant: all texts of records and experiments are escaped, or stand in a block of code that
//! they cannot end. A link leads to a file that is written with it.
//! Source: the specification of GitHub Flavored Markdown.

use super::Entry;
use super::noise;
use super::overview::{self, READING, SUBJECT};
use super::section::Section;
use crate::report::chart::sheet;
use crate::report::words::escaped_markdown as escaped;
use crate::words::sentence;
use std::fmt::Write;

/// Makes all files: name and contents.
#[must_use]
pub fn files(entries: &[Entry], sections: &[Section]) -> Vec<(String, String)> {
    let mut files = vec![("README.md".to_owned(), readme(entries, sections))];
    for one in sections {
        files.push((format!("{}.md", one.slug), section(one)));
        if !one.charts.is_empty() {
            files.push((format!("{}.svg", one.slug), sheet(&one.charts)));
        }
    }
    files
}

fn readme(entries: &[Entry], sections: &[Section]) -> String {
    let link = |section: &Section| format!("{}.md", section.slug);
    format!(
        "# {SUBJECT}\n\n{}, by `kvblaster lab run` and `kvblaster lab report --markdown`.\n\n\
         {}\n\n{}\n\n## Machine and versions\n\n{}\n## Overview\n\n{}\n{READING}\n",
        escaped(&overview::when(sections)),
        escaped(&overview::totals(entries, sections)),
        escaped(&sentence(&noise::sentence(sections))),
        overview::conditions_table(sections).markdown(),
        overview::table(entries, sections, &link).markdown()
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
        list(&mut out, "The source", &experiment.found);
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
            let _ = writeln!(out, "- **{verdict}**: {}<br>{}", escaped(&says), escaped(&told));
        }
    }
    list(&mut out, "Found here", &section.findings);
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
    let _ = write!(out, "\n## Repeat it\n\n{}\n\n", escaped(&sentence(&section.made())));
    out += &code(&section.record.command);
    for (name, commands) in section.servers() {
        let _ = write!(out, "\nServer {}\n\n{}", escaped(&name), code(&commands));
    }
    out
}

fn figures(out: &mut String, section: &Section) {
    if !section.charts.is_empty() {
        let _ =
            writeln!(out, "\n## Figures\n\n![The figures, see the tables]({}.svg)", section.slug);
    }
    for chart in &section.charts {
        let _ = writeln!(out, "\n### {}\n\n{}", escaped(&chart.title), escaped(&chart.caption));
        if let Some(table) = &chart.table {
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

/// A block of code that the text cannot end: its fence is longer than any run of backticks.
fn code(text: &str) -> String {
    let runs = text.split(|one: char| one != '`').map(str::len);
    let fence = "`".repeat(3.max(runs.max().unwrap_or(0) + 1));
    format!("{fence}text\n{text}\n{fence}\n")
}
