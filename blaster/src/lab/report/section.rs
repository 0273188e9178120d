//! One experiment in the report: all that the page and the Markdown tell about it.
//!
//! Where: made of an entry, and written by `page` and `markdown`.
//! Invariant: a section has text without markup. It exists for each readable record.
//! Source: none.

use super::Entry;
use super::charts::charts;
use super::findings::{compared, place, remarks};
use super::knee::knees;
use super::profile::profile;
use super::slug;
use crate::lab::claims::{Judged, Verdict, judge};
use crate::lab::experiment::Experiment;
use crate::lab::profile::PREFIX;
use crate::lab::record::Record;
use crate::report::bars::Bars;
use crate::report::chart::Chart;
use crate::report::table::Table;
use crate::words::sentence;

/// The kernel's name and release are the first words of its description.
const KERNEL_WORDS: usize = 2;

/// An experiment with data.
#[derive(Clone, Debug)]
pub struct Section {
    /// The experiment's name.
    pub name: String,
    /// The name as an id and a file's name.
    pub slug: String,
    /// The experiment. `None` if it no longer exists.
    pub experiment: Option<Experiment>,
    /// The data.
    pub record: Record,
    /// The claims with their verdicts.
    pub judged: Vec<Judged>,
    /// Computed sentences without full stops: comparisons and knees.
    pub findings: Vec<String>,
    /// The figures, without the kinds of work.
    pub charts: Vec<Chart>,
    /// The kinds of work, if they were measured.
    pub profile: Option<Bars>,
    /// Counted remarks without full stops.
    pub remarks: Vec<String>,
}

impl Section {
    /// Makes the section of an entry. `None` if the entry has no readable record.
    #[must_use]
    pub fn new(entry: &Entry, noise: Option<&Record>) -> Option<Section> {
        let record = entry.record.as_ref().ok()?.as_ref()?.clone();
        let experiment = entry.experiment.clone();
        let mut section = Section {
            name: entry.name.clone(),
            slug: slug(&entry.name),
            remarks: remarks(&record),
            judged: Vec::new(),
            findings: Vec::new(),
            charts: Vec::new(),
            profile: None,
            experiment,
            record,
        };
        let Some(experiment) = &section.experiment else { return Some(section) };
        section.judged = judge(experiment, &section.record, noise);
        section.findings = compared(experiment, &section.record, noise);
        section.findings.extend(knees(experiment, &section.record));
        section.charts = charts(experiment, &section.record);
        section.profile = profile(experiment, &section.record);
        if let Some(orphans) = orphans(experiment, &section.record) {
            section.remarks.push(orphans);
        }
        Some(section)
    }

    /// The heading.
    #[must_use]
    pub fn title(&self) -> &str {
        self.experiment.as_ref().map_or(&self.name, |one| &one.title)
    }

    /// The source and the place in it.
    #[must_use]
    pub fn source(&self) -> String {
        self.experiment
            .as_ref()
            .map_or_else(|| "This experiment no longer exists".to_owned(), source)
    }

    /// The figures without values, in a sentence without a full stop.
    #[must_use]
    pub fn without_values(&self) -> Option<String> {
        let is_drawn = |name: &str| {
            let is_profile = self.profile.is_some() && name.starts_with(PREFIX);
            is_profile || self.charts.iter().any(|chart| chart.y.0 == name)
        };
        let figures = self.experiment.iter().flat_map(|one| &one.figures);
        let none: Vec<&str> =
            figures.map(|figure| figure.y.as_str()).filter(|name| !is_drawn(name)).collect();
        (!none.is_empty()).then(|| format!("No measurement has a value of {}", none.join(", ")))
    }

    /// All that could not be measured, with a row each.
    #[must_use]
    pub fn missing(&self) -> Table {
        let mut table = Table::new(&["server", "point", "reason"]);
        let mut told = Vec::new();
        for missing in &self.record.missing {
            if told.contains(&missing) {
                continue;
            }
            told.push(missing);
            let or = |text: &str, all: &str| if text.is_empty() { all } else { text }.to_owned();
            let at = match &self.experiment {
                Some(experiment) => place(experiment, &missing.at),
                None => missing.at.join(", "),
            };
            let failed = if missing.is_failure { "It failed: " } else { "" };
            let why = sentence(&format!("{failed}{}", missing.why));
            table.row(&[or(&missing.server, "all"), or(&at, "all"), why]);
        }
        table
    }

    /// Version and command lines of each server, without the folders of programs.
    #[must_use]
    pub fn servers(&self) -> Vec<(String, String)> {
        let server = |one: &crate::lab::record::Started| {
            let commands = one.commands.iter().chain(std::iter::once(&one.driven_by));
            let commands: Vec<String> =
                commands.filter(|text| !text.is_empty()).map(|text| without_folder(text)).collect();
            (format!("{}: {}", one.server, one.version), commands.join("\n"))
        };
        self.record.servers.iter().map(server).collect()
    }

    /// The date, command, machine and versions of the measurements, for the line below a figure.
    #[must_use]
    pub fn conditions(&self) -> String {
        let Record { machine, started, command, kvblaster, .. } = &self.record;
        let kernel: Vec<&str> = machine.kernel.split(' ').take(KERNEL_WORDS).collect();
        // A remark on the version, in brackets, is shown only with the command lines.
        let servers = self.record.servers.iter();
        let mut versions: Vec<&str> =
            servers.filter_map(|one| one.version.split(" (").next()).collect();
        versions.sort_unstable();
        versions.dedup();
        let versions: String = versions.iter().map(|version| format!("{version}, ")).collect();
        let day = started.split('T').next().unwrap_or_default();
        let (processor, kernel) = (processor(&self.record), kernel.join(" "));
        format!(
            "Measured on {day} by `{command}`, on {processor}, {kernel}, with {versions}kvblaster \
             {kvblaster}."
        )
    }

    /// The time, scale and rounds of the measurements.
    #[must_use]
    pub fn made(&self) -> String {
        let Record { started, scale, rounds, rows, .. } = &self.record;
        let scale = format!("{scale:?}").to_lowercase();
        let (count, plural) = (rows.len(), if rows.len() == 1 { "" } else { "s" });
        let rounds = match rounds {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        };
        format!("{count} measurement{plural} since {started}, {scale} scale, {rounds}")
    }
}

/// The model and the number of the machine's CPUs.
#[must_use]
pub fn processor(record: &Record) -> String {
    let machine = &record.machine;
    let model = machine.cpu_model.as_deref().unwrap_or(&machine.architecture);
    format!("{model}, {} CPUs", machine.cpus)
}

/// The document and the place in it.
#[must_use]
pub fn source(experiment: &Experiment) -> String {
    format!("{}: {}", experiment.source.title(), experiment.place)
}

/// The CSS class of a verdict.
#[must_use]
pub fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Confirmed => "good",
        Verdict::NotReproduced => "invalid",
        Verdict::TooShort | Verdict::CannotTell => "warning",
    }
}

/// Counts rows whose server or point is not in the experiment any more.
fn orphans(experiment: &Experiment, record: &Record) -> Option<String> {
    let points = record.points(experiment);
    let is_server = |name: &String| experiment.servers.iter().any(|one| one.name == *name);
    let rows = record.rows.iter();
    let count = rows.filter(|row| !is_server(&row.server) || !points.contains(&row.at)).count();
    (count > 0).then(|| {
        format!("{count} measurements have a server or a point that the experiment no longer has")
    })
}

/// Removes the program's folder from a command line, because the folder depends on the machine.
fn without_folder(command: &str) -> String {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {rest}").trim_end().to_owned()
}
