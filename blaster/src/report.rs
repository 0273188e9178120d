//! `kvblaster report`: shows results side by side on one HTML page that needs no other file.
//!
//! Where: used after the runs; reads the folders that `run`, `capacity` and `compare` wrote.
//! Invariant: the page loads nothing (its Content-Security-Policy forbids it), and texts from files
//! are escaped, so a result cannot run a script.
//! Source: WCAG 2.2 for contrast and text alternatives.

pub(crate) mod bars;
#[cfg(test)]
pub(crate) mod browser;
pub(crate) mod chart;
pub(crate) mod conclusion;
pub(crate) mod entry;
pub(crate) mod figures;
pub(crate) mod flags;
pub(crate) mod table;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use crate::measure::steady::UNSTEADY;
use crate::result::{ResultError, RunResult};
use crate::run::compare::Comparison;
use crate::words::command_line;
pub(crate) use entry::Entry;
use entry::{named, remarks_of};
use std::fmt::Write;
use std::path::PathBuf;
use words::escaped;

/// The largest number of results on one page.
pub(crate) const RESULTS_MAX: usize = 64;

const STYLE: &str = concat!(include_str!("report/chart.css"), include_str!("report/page.css"));
const SCRIPT: &str = include_str!("report/page.js");

/// The reason why the page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A result cannot be read.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// No result was named.
    #[error(
        "no results: name the folders that `kvblaster run -o`, `capacity -o` or `compare -o` wrote"
    )]
    Nothing,
    /// The page cannot be written.
    #[error("{0}: {1}")]
    Page(PathBuf, #[source] std::io::Error),
    /// There are more results than fit on a page.
    #[error("{0} results are too many for one page; the maximum is {RESULTS_MAX}")]
    TooMany(usize),
}

/// Reads results and comparisons, and makes a page of them. Fails if a result cannot be read, or
/// there are no results or too many.
pub(crate) fn report(folders: &[PathBuf]) -> Result<String, ReportError> {
    if folders.is_empty() {
        return Err(ReportError::Nothing);
    }
    let (mut results, mut compared) = (Vec::new(), Vec::new());
    for folder in folders {
        if Comparison::is_at(folder) {
            let comparison = Comparison::read(folder)?;
            results.extend(comparison.servers.iter().cloned());
            compared.push(comparison);
        } else if folders.len() <= RESULTS_MAX {
            results.push(RunResult::read(folder)?);
        }
    }
    let all = results.len().max(folders.len());
    if all > RESULTS_MAX {
        return Err(ReportError::TooMany(all));
    }
    Ok(page(&named(results), &compared))
}

/// Returns the page as HTML.
pub(crate) fn page(entries: &[Entry], compared: &[Comparison]) -> String {
    let mut out = format!(
        "<p class=\"conclusion\">{}</p>\n",
        escaped(&conclusion::sentence(entries, compared))
    );
    out.push_str(&conclusion::findings(compared));
    remarks(&mut out, entries);
    out.push_str(&tables::glance(entries));
    out.push_str(&tables::capacities(entries));
    out.push_str("<div class=\"figures\">\n");
    for figure in figures::all(entries) {
        out.push_str(&figure);
    }
    out.push_str("</div>\n");
    out.push_str(&tables::types(entries));
    out.push_str(&tables::processors(entries));
    out.push_str(&tables::manifests(entries));
    workloads(&mut out, entries);
    document(&conclusion::subject(entries, compared), &conclusion::when(entries), &out)
}

pub(crate) fn document(subject: &str, when: &str, main: &str) -> String {
    let (subject, when) = (escaped(subject), escaped(when));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{subject}, {when}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{subject}</h1>\
         <button type=\"button\" id=\"theme\" hidden>Dark or light</button></header>\n\
         <p class=\"when\">kvblaster, {when}</p>\n<main>\n{main}\
         </main>\n<footer>Made by kvblaster {}. A response time counts from the moment when a \
         request was due, a service time from the moment when the request was sent.</footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Writes each result's remarks and asserts, which precede all figures of the page.
fn remarks(out: &mut String, entries: &[Entry]) {
    out.push_str("<section><h2>Can these figures be trusted?</h2>\n<ul class=\"remarks\">\n");
    for Entry { name, result } in entries {
        let lines = remarks_of(result);
        let is = |class| lines.iter().any(|(other, _)| *other == class);
        let (class, verdict) = match (is("invalid"), is("warning")) {
            (true, _) => ("invalid", "not without a check"),
            _ if result.verdict.has(UNSTEADY) => ("warning", "yes, except the unsteady figures"),
            (false, true) => ("warning", "yes, with remarks"),
            (false, false) => ("good", "yes"),
        };
        let name = escaped(name);
        let _ = write!(out, "<li class=\"{class}\"><b>{name}</b>: {verdict}");
        let sentence = |(_, sentence): &(&str, String)| escaped(&crate::words::sentence(sentence));
        // The page shows one reason or remark; the rest is in a folded list, to fit a phone.
        let is_why = |(class, _): &&(&str, String)| *class == "invalid";
        let why: Vec<_> = lines.first().filter(is_why).into_iter().collect();
        let rest = lines.get(why.len()..).unwrap_or_default();
        for one in &why {
            let _ = write!(out, ". {}", sentence(one));
        }
        match rest {
            [] if why.is_empty() => {
                out.push_str("; the self-check found no sign that the generator was the limit");
            }
            [] => {}
            [only] if why.is_empty() => {
                let _ = write!(out, ". {}", sentence(only));
            }
            all => {
                let remarks = if all.len() == 1 { "remark" } else { "remarks" };
                let more = if why.is_empty() { "" } else { " more" };
                let count = all.len();
                let _ = writeln!(out, "<details><summary>{count}{more} {remarks}</summary><ul>");
                for one in all {
                    let _ = writeln!(out, "<li>{}</li>", sentence(one));
                }
                out.push_str("</ul></details>");
            }
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul></section>\n");
}

fn workloads(out: &mut String, entries: &[Entry]) {
    out.push_str("<section><h2>Workloads and command lines</h2>\n");
    for Entry { name, result } in entries {
        let manifest = &result.manifest;
        let _ = writeln!(
            out,
            "<details><summary>{}</summary><pre>{}</pre><pre>{}</pre></details>",
            escaped(name),
            escaped(&command_line(&manifest.command_line)),
            escaped(manifest.workload_toml.trim_end())
        );
    }
    out.push_str("</section>\n");
}
