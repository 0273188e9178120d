//! The report as one HTML page, which needs no other file.
//!
//! Where: `kvblaster lab report`. Frame, style and script come from `crate::report`.
//! Invariant: all texts of records and experiments are escaped.
//! Source: WCAG 2.2, see `report`.

use super::entry::Entry;
use super::noise;
use super::overview::{self, READING, SUBJECT};
use super::section::{Section, class};
use crate::report::bars::Bars;
use crate::report::chart::Chart;
use crate::report::document;
use crate::report::words::escaped;
use crate::words::sentence;
use std::fmt::Write;

/// Number of conditions (processor, scale, rounds) that the page shows without a click.
const CONDITIONS_SHOWN: usize = 3;

/// Makes the page.
pub(crate) fn page(entries: &[Entry], sections: &[Section]) -> String {
    let link = |section: &Section| format!("#{}", section.slug);
    let first = overview::conditions(sections).into_iter().take(CONDITIONS_SHOWN);
    let first: Vec<String> = first.map(|(name, value)| format!("{name}: {value}")).collect();
    let mut out = format!(
        "<p class=\"conclusion\">{}</p>\n<p>{}</p>\n",
        escaped(&overview::totals(entries, sections)),
        escaped(&sentence(&noise::sentence(sections)))
    );
    let _ = write!(
        out,
        "<section id=\"manifest\"><details><summary>Machine and versions: {}\
         </summary>\n{}\
         </details></section>\n\
         <section id=\"overview\"><h2>Overview</h2>\n{}<p class=\"note\">{READING}</p>\
         </section>\n",
        escaped(&first.join("; ")),
        overview::conditions_table(sections).html("Machine and versions"),
        overview::table(sections, &link).html("Overview")
    );
    let unmeasured = overview::unmeasured(entries, sections, &link);
    if !unmeasured.is_empty() {
        let summary = overview::unmeasured_in_words(&unmeasured);
        let table = unmeasured.html(&summary);
        let _ = write!(
            out,
            "<section class=\"reasons\"><details><summary>{summary}</summary>\n{table}</details>\
             </section>\n"
        );
    }
    for one in sections {
        section(&mut out, one);
    }
    document(SUBJECT, &overview::when(sections), &out)
}

fn section(out: &mut String, section: &Section) {
    let _ = write!(
        out,
        "<section class=\"experiment\" id=\"{}\"><h2>{}</h2>\n\
         <p class=\"when\">{} · {} · <a href=\"#overview\">all experiments</a></p>\n",
        section.slug,
        escaped(section.title()),
        escaped(&section.name),
        escaped(&section.source())
    );
    source(out, section);
    claims(out, section);
    list(out, "Findings on this machine", &section.findings);
    let noise = noise::table(section);
    if !noise.is_empty() {
        let _ = write!(out, "<div class=\"reasons\"><h3>Noise</h3>{}</div>", noise.html("Noise"));
    }
    figures(out, section);
    if let Some(none) = section.without_values() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(&sentence(&none)));
    }
    let missing = section.missing();
    if !missing.is_empty() {
        let table = missing.html("Not measured");
        let _ = write!(out, "<div class=\"reasons\"><h3>Not measured</h3>{table}</div>");
    }
    list(out, "Remarks of the self-check", &section.remarks);
    commands(out, section);
    out.push_str("</section>\n");
}

/// Writes the figures. Each caption has the conditions of the measurements, because a reader may
/// copy the figure without the rest of the page.
fn figures(out: &mut String, section: &Section) {
    let made = section.conditions();
    let caption = |caption: &str| format!("{caption}\n{made}");
    out.push_str("<div class=\"figures\">\n");
    if let Some(bars) = &section.profile {
        out.push_str(&Bars { caption: caption(&bars.caption), ..bars.clone() }.html());
    }
    for chart in &section.charts {
        out.push_str(&Chart { caption: caption(&chart.caption), ..chart.clone() }.html());
    }
    out.push_str("</div>\n");
}

/// Writes the method and the findings of the source.
fn source(out: &mut String, section: &Section) {
    let Some(experiment) = &section.experiment else { return };
    list(out, "Findings of the source", &experiment.found);
    let _ = writeln!(
        out,
        "<details><summary>Method of the source, and differences here</summary><p>{}</p>",
        escaped(&sentence(&experiment.did))
    );
    if !experiment.differs.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escaped(&sentence(&experiment.differs)));
    }
    out.push_str("</details>\n");
}

fn claims(out: &mut String, section: &Section) {
    if section.judged.is_empty() {
        return;
    }
    out.push_str("<h3>Claims</h3><ul class=\"remarks\">\n");
    for one in &section.judged {
        let _ = writeln!(
            out,
            "<li class=\"{}\"><b>{}</b>: {}<br>Here: {}</li>",
            class(one.verdict),
            one.verdict.words(),
            escaped(&sentence(&one.says)),
            escaped(&sentence(&one.told))
        );
    }
    out.push_str("</ul>\n");
}

fn list(out: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = write!(out, "<div class=\"findings\"><h3>{title}</h3><ul>");
    for one in sentences {
        let _ = write!(out, "<li>{}</li>", escaped(&sentence(one)));
    }
    out.push_str("</ul></div>\n");
}

/// Writes the command that repeats the experiment, and the command lines of the servers.
fn commands(out: &mut String, section: &Section) {
    let _ = writeln!(
        out,
        "<p class=\"note\">{}</p><pre>{}</pre>",
        escaped(&sentence(&section.made())),
        escaped(&section.record.command)
    );
    let servers = section.servers();
    if servers.is_empty() {
        return;
    }
    out.push_str("<details><summary>Servers and command lines</summary>\n");
    for (name, commands) in servers {
        let _ = writeln!(out, "<p>{}</p><pre>{}</pre>", escaped(&name), escaped(&commands));
    }
    out.push_str("</details>\n");
}
