//! The overview of all experiments: totals, the machine, and a row for each experiment.
//!
//! Where: at the top of the page, and in the Markdown's `README.md`.
//! Invariant: each entry with data has a row for each claim, or one row if it has no claims. An
//! entry without data has a row, with the reason, in another table. If a condition differs between
//! records, all its values are listed.
//! Source: none.

use super::entry::Entry;
use super::section::{Section, class, processor, source};
use crate::lab::claims::Verdict;
use crate::lab::record::Record;
use crate::report::table::Table;
use crate::words::size;

/// The subject of the report.
pub(crate) const SUBJECT: &str = "Published measurements of caches, repeated";

/// The explanation of the verdicts, for the end of the overview.
pub(crate) const READING: &str = "\
A value is the mean over the rounds: the geometric mean if all values are positive, otherwise the \
arithmetic mean. Brackets and bars are 95 % intervals by Student's t. A claim is confirmed if the \
interval lies within the claim's limits, and not reproduced if the interval lies outside these \
limits; otherwise the measurement is too short to tell. The noise between equal servers widens the \
interval of a ratio. If kvblaster, which makes the load, was the limit, this machine cannot tell.";

/// Counts the measured experiments and the verdicts, in words.
pub(crate) fn totals(entries: &[Entry], sections: &[Section]) -> String {
    let measured = sections.iter().filter(|one| !one.record.rows.is_empty()).count();
    let verdicts: Vec<Verdict> =
        sections.iter().flat_map(|one| &one.judged).map(|one| one.verdict).collect();
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    format!(
        "{measured} of {} experiments are measured. Of their {} claims, {} are confirmed and {} \
         are not reproduced; for {} the measurements are too short to tell, for {} this machine \
         cannot tell, and {} are not measured at this scale.",
        entries.len(),
        verdicts.len(),
        count(Verdict::Confirmed),
        count(Verdict::NotReproduced),
        count(Verdict::TooShort),
        count(Verdict::CannotTell),
        count(Verdict::NotAtScale)
    )
}

/// Returns the dates of the earliest and the latest record.
pub(crate) fn when(sections: &[Section]) -> String {
    let dates = sections.iter().map(|one| one.record.started.as_str()).filter(|it| !it.is_empty());
    let day = |time: &str| time.split('T').next().unwrap_or(time).to_owned();
    match (dates.clone().min(), dates.max()) {
        (Some(first), Some(last)) if day(first) != day(last) => {
            format!("{} to {}", day(first), day(last))
        }
        (Some(first), _) => day(first),
        _ => "date unknown".to_owned(),
    }
}

/// Returns the names and values of conditions: machine, scale, rounds and versions.
pub(crate) fn conditions(sections: &[Section]) -> Vec<(&'static str, String)> {
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
    let memory =
        |one: &Record| one.machine.memory_bytes.iter().map(|it| size(*it as f64)).collect();
    let servers = |one: &Record| one.servers.iter().map(|it| it.version.clone()).collect();
    let rows = [
        ("processor", values(&|one| vec![processor(one)])),
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

/// Returns a table of all conditions.
pub(crate) fn conditions_table(sections: &[Section]) -> Table {
    let mut table = Table::new(&["condition", "value"]);
    for (name, value) in conditions(sections) {
        table.row(&[name.to_owned(), value]);
    }
    table
}

/// Returns a table of the experiments with data. `link` gives the address of a section.
pub(crate) fn table(sections: &[Section], link: &dyn Fn(&Section) -> String) -> Table {
    let mut table = Table::new(&["experiment", "verdict", "claim", "here"]);
    for section in sections.iter().filter(|one| !one.record.rows.is_empty()) {
        let name = || section.name.clone();
        for one in &section.judged {
            let cells =
                [name(), one.verdict.words().to_owned(), one.says.clone(), one.told.clone()];
            table.linked(link(section), class(one.verdict), &cells);
        }
        if section.judged.is_empty() {
            let is_known = section.experiment.is_some();
            let verdict = if is_known { "no claim" } else { "no longer an experiment" };
            let here = section.findings.first().cloned();
            let here =
                here.unwrap_or_else(|| format!("{} measurements", section.record.rows.len()));
            let cells = [name(), verdict.to_owned(), String::new(), here];
            table.linked(link(section), "", &cells);
        }
    }
    table
}

/// Returns a table of the experiments without data, with the reasons.
pub(crate) fn unmeasured(
    entries: &[Entry],
    sections: &[Section],
    link: &dyn Fn(&Section) -> String,
) -> Table {
    let mut table = Table::new(&["experiment", "reason", "source"]);
    for entry in entries {
        let section = sections.iter().find(|section| section.name == entry.name);
        if section.is_some_and(|section| !section.record.rows.is_empty()) {
            continue;
        }
        let missing = section.and_then(|section| section.record.missing.first());
        let why = match (&entry.record, missing) {
            (Err(error), _) => format!("the data cannot be read: {error}"),
            (_, Some(missing)) => missing.why.clone(),
            (Ok(Some(_)), None) => "the data have no measurement".to_owned(),
            (Ok(None), None) => "the experiment was not run".to_owned(),
        };
        let unknown = || "no experiment of this kvblaster has this name".to_owned();
        let of = entry.experiment.as_ref().map_or_else(unknown, source);
        let cells = [entry.name.clone(), why, of];
        match section {
            Some(section) => table.linked(link(section), "", &cells),
            None => table.row(&cells),
        }
    }
    table
}

/// The number of experiments without data, in words.
pub(crate) fn unmeasured_in_words(table: &Table) -> String {
    match table.len() {
        1 => "1 experiment is not measured".to_owned(),
        count => format!("{count} experiments are not measured"),
    }
}
