//! The overview of all experiments: totals, the machine, and a row for each experiment.
//!
//! Where: at the top of the page, and in the Markdown's `README.md`.
//! Invariant: each entry has a row. Without data the row says `not measured`, with the reason if
//! one is known. Conditions that differ between records are all told.
//! Source: none.

use super::Entry;
use super::section::{Section, in_short, source};
use crate::lab::claims::Verdict;
use crate::lab::record::Record;
use crate::report::table::Table;
use crate::words::size;

/// The word for experiments without data.
const NOT_MEASURED: &str = "not measured";

/// The subject of the report.
pub const SUBJECT: &str = "Published measurements of caches, repeated";

/// The explanation of the verdicts, for the end of the overview.
pub const READING: &str = "\
A value is the mean over the rounds, of positive values the geometric mean. Brackets and bars are \
95 % intervals by Student's t. A claim is confirmed if the interval lies within the claim's \
limits, and not reproduced if it lies outside; the noise between equal servers widens the interval \
of a ratio. Otherwise the measurement is too short to tell.";

/// The totals in a sentence.
#[must_use]
pub fn totals(entries: &[Entry], sections: &[Section]) -> String {
    let measured = sections.iter().filter(|one| !one.record.rows.is_empty()).count();
    let verdicts: Vec<Verdict> =
        sections.iter().flat_map(|one| &one.judged).map(|one| one.verdict).collect();
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    format!(
        "{measured} of {} experiments are measured. Of their {} claims, {} are confirmed, {} are \
         not reproduced, for {} the measurements are too short to tell, and {} this machine \
         cannot tell.",
        entries.len(),
        verdicts.len(),
        count(Verdict::Confirmed),
        count(Verdict::NotReproduced),
        count(Verdict::TooShort),
        count(Verdict::CannotTell)
    )
}

/// The dates of the first and the last record.
#[must_use]
pub fn when(sections: &[Section]) -> String {
    let dates = sections.iter().map(|one| one.record.started.as_str()).filter(|it| !it.is_empty());
    let day = |time: &str| time.split('T').next().unwrap_or(time).to_owned();
    match (dates.clone().min(), dates.max()) {
        (Some(first), Some(last)) if day(first) != day(last) => {
            format!("{} to {}", day(first), day(last))
        }
        (Some(first), _) => day(first),
        _ => "without a date".to_owned(),
    }
}

/// The machine, the versions and the size of the experiments, by name.
#[must_use]
pub fn conditions(sections: &[Section]) -> Vec<(&'static str, String)> {
    let measured = || sections.iter().filter(|section| !section.record.rows.is_empty());
    let values = |of: &dyn Fn(&Record) -> Vec<String>| {
        let mut found: Vec<String> = Vec::new();
        for value in measured().flat_map(|one| of(&one.record)) {
            if !value.is_empty() && !found.contains(&value) {
                found.push(value);
            }
        }
        found.join("; ")
    };
    let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let cpu = |record: &Record| {
        let machine = &record.machine;
        let model = machine.cpu_model.as_deref().unwrap_or(&machine.architecture);
        if model.is_empty() { Vec::new() } else { vec![format!("{model}, {} CPUs", machine.cpus)] }
    };
    let memory =
        |one: &Record| one.machine.memory_bytes.iter().map(|it| size(*it as f64)).collect();
    let servers = |one: &Record| one.servers.iter().map(|it| it.version.clone()).collect();
    let rows = [
        ("processor", values(&cpu)),
        ("scale", values(&|one| vec![format!("{:?}", one.scale).to_lowercase()])),
        ("rounds", values(&|one| vec![one.rounds.to_string()])),
        ("memory", values(&memory)),
        ("kernel", values(&|one| vec![one.machine.kernel.clone()])),
        ("CPUs of servers", values(&|one| vec![list(&one.server_cpus)])),
        ("CPUs of kvblaster", values(&|one| vec![list(&one.client_cpus)])),
        ("servers", values(&servers)),
        ("kvblaster", values(&|one| vec![one.kvblaster.clone()])),
    ];
    rows.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The conditions as a table.
#[must_use]
pub fn conditions_table(sections: &[Section]) -> Table {
    let mut table = Table::new(&["condition", "value"]);
    for (name, value) in conditions(sections) {
        table.row(&[name.to_owned(), value]);
    }
    table
}

/// A row for each experiment; those without data are last. `link` gives the address of a section.
#[must_use]
pub fn table(entries: &[Entry], sections: &[Section], link: &dyn Fn(&Section) -> String) -> Table {
    let mut table = Table::new(&["experiment", "verdict", "claim", "here", "source"]);
    let section = |entry: &Entry| sections.iter().find(|section| section.name == entry.name);
    let mut entries: Vec<(&Entry, Option<&Section>)> =
        entries.iter().map(|entry| (entry, section(entry))).collect();
    entries.sort_by_key(|(_, section)| section.is_none_or(|one| one.record.rows.is_empty()));
    for (entry, section) in entries {
        let cells = row(entry, section);
        match section {
            Some(section) => table.linked(link(section), &cells),
            None => table.row(&cells),
        }
    }
    table
}

fn row(entry: &Entry, section: Option<&Section>) -> [String; 5] {
    let of = entry
        .experiment
        .as_ref()
        .map_or_else(|| "no experiment of this kvblaster has this name".to_owned(), source);
    let claims = entry.experiment.as_ref().map_or(&[][..], |one| &one.claims);
    let says = || match claims.len() {
        0 => String::new(),
        1 => "1 claim".to_owned(),
        count => format!("{count} claims"),
    };
    let cells = |verdict: &str, says: String, here: String| {
        [entry.name.clone(), verdict.to_owned(), says, here, of.clone()]
    };
    let section = match (&entry.record, section) {
        (Err(error), _) => return cells("not readable", says(), error.clone()),
        (Ok(_), Some(section)) => section,
        (Ok(_), None) => return cells(NOT_MEASURED, says(), String::new()),
    };
    if section.record.rows.is_empty() {
        let why = section.record.missing.first().map(|missing| missing.why.clone());
        return cells(NOT_MEASURED, says(), why.unwrap_or_default());
    }
    if section.judged.is_empty() {
        let verdict =
            if entry.experiment.is_some() { "no claim" } else { "no longer an experiment" };
        let here = section.findings.first().cloned();
        let here = here.unwrap_or_else(|| format!("{} measurements", section.record.rows.len()));
        return cells(verdict, String::new(), here);
    }
    let short: Vec<[String; 3]> =
        section.judged.iter().map(|judged| in_short(judged, claims)).collect();
    let column = |at: usize| lines(&short.iter().map(|one| one[at].clone()).collect::<Vec<_>>());
    cells(&column(0), column(1), column(2))
}

/// Texts in one cell, numbered if there are several.
fn lines(texts: &[String]) -> String {
    match texts {
        [only] => only.clone(),
        all => {
            let numbered = all.iter().enumerate().map(|(nth, one)| format!("{}. {one}", nth + 1));
            numbered.collect::<Vec<_>>().join("\n")
        }
    }
}
