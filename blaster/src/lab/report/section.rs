//! The section of the report about one experiment.
//!
//! Where: made from an `Entry`; `page` and `markdown` write the section.
//! Invariant: the texts of a section have no markup. Each readable record has a section.
//! Source: none.

use super::charts::charts;
use super::entry::Entry;
use super::entry::slug;
use super::findings::{compared, remarks};
use super::knee::knees;
use super::profile::profile;
use crate::lab::claims::{Judged, NOISE, Verdict, judge, noise_for};
use crate::lab::experiment::Experiment;
use crate::lab::figures::PREFIX;
use crate::lab::record::Record;
use crate::report::bars::Bars;
use crate::report::chart::Chart;
use crate::report::table::Table;
use crate::words::sentence;

/// Number of words, at the beginning of a kernel's description, with its name and release.
const KERNEL_WORDS: usize = 2;

/// Folders of the kernel, which are the same on each machine.
const KERNEL: [&str; 3] = ["/dev/", "/proc/", "/sys/"];
/// The prefix of a target that is a Unix socket.
const UNIX: &str = "unix:";

/// An experiment with data.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The experiment's name.
    pub name: String,
    /// The name as an HTML id and as a file's name.
    pub slug: String,
    /// The experiment. `None` if it no longer exists.
    pub experiment: Option<Experiment>,
    /// The data.
    pub record: Record,
    /// The claims with their verdicts.
    pub judged: Vec<Judged>,
    /// Sentences without full stops: comparisons of servers, and knees of the throughput.
    pub findings: Vec<String>,
    /// The charts of all figures except the kinds of work.
    pub charts: Vec<Chart>,
    /// The bars of the kinds of work. `None` if no kind of work was measured.
    pub profile: Option<Bars>,
    /// The different remarks with their counts, without full stops.
    pub remarks: Vec<String>,
}

impl Section {
    /// Makes the section of an entry. `None` if the entry has no readable record.
    pub(crate) fn new(entry: &Entry, noise: Option<&Record>) -> Option<Section> {
        let mut record = entry.record.as_ref().ok()?.as_ref()?.clone();
        texts(&mut record).for_each(|text| *text = without_folders(text));
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
        let (noise, unfit) = match noise_for((experiment, &section.record), noise) {
            Ok(noise) => (noise, None),
            Err(why) => (None, Some(why)),
        };
        section.judged = judge(experiment, &section.record, noise);
        section.findings = compared(experiment, &section.record, noise);
        section.findings.extend(knees(experiment, &section.record));
        section.charts = charts(experiment, &section.record);
        section.profile = profile(experiment, &section.record);
        if let Some(orphans) = orphans(experiment, &section.record) {
            section.remarks.push(orphans);
        }
        if let Some(other) = unfit {
            section.remarks.push(format!(
                "The noise between equal servers does not widen the intervals of this experiment, \
                 because the experiment {NOISE} was measured with {other}"
            ));
        }
        Some(section)
    }

    /// The heading.
    pub(crate) fn title(&self) -> &str {
        self.experiment.as_ref().map_or(&self.name, |one| &one.title)
    }

    /// The document that the experiment repeats, and the place in the document.
    pub(crate) fn source(&self) -> String {
        self.experiment
            .as_ref()
            .map_or_else(|| "This experiment no longer exists".to_owned(), source)
    }

    /// Names the figures that no measurement has, in a sentence without a full stop.
    pub(crate) fn without_values(&self) -> Option<String> {
        let is_drawn = |name: &str| {
            let is_profile = self.profile.is_some() && name.starts_with(PREFIX);
            is_profile || self.charts.iter().any(|chart| chart.y.0 == name)
        };
        let figures = self.experiment.iter().flat_map(|one| &one.figures);
        let none: Vec<&str> =
            figures.map(|figure| figure.y.as_str()).filter(|name| !is_drawn(name)).collect();
        (!none.is_empty()).then(|| format!("No measurement has a value for {}", none.join(", ")))
    }

    /// Returns a table with a row for each server or point that could not be measured.
    pub(crate) fn missing(&self) -> Table {
        let mut table = Table::new(&["server", "point", "reason"]);
        let mut told = Vec::new();
        for missing in &self.record.missing {
            if told.contains(&missing) {
                continue;
            }
            told.push(missing);
            let or = |text: &str, all: &str| if text.is_empty() { all } else { text }.to_owned();
            let at = match &self.experiment {
                Some(experiment) => experiment.place(&missing.at),
                None => missing.at.join(", "),
            };
            let failed = if missing.is_failure { "The measurement failed: " } else { "" };
            let why = sentence(&format!("{failed}{}", missing.why));
            table.row(&[or(&missing.server, "all"), or(&at, "all"), why]);
        }
        table
    }

    /// Version and command lines of each server.
    pub(crate) fn servers(&self) -> Vec<(String, String)> {
        let server = |one: &crate::lab::record::Started| {
            let commands = one.commands.iter().chain(std::iter::once(&one.driven_by));
            let commands: Vec<&str> =
                commands.map(String::as_str).filter(|text| !text.is_empty()).collect();
            (format!("{}: {}", one.server, one.version), commands.join("\n"))
        };
        self.record.servers.iter().map(server).collect()
    }

    /// The date, command, machine and versions of the measurements, for the line below a figure.
    pub(crate) fn conditions(&self) -> String {
        let Record { machine, started, command, kvblaster, .. } = &self.record;
        let kernel: Vec<&str> = machine.kernel.split(' ').take(KERNEL_WORDS).collect();
        // Words in brackets after a version are shown with the command lines, but not here.
        let servers = self.record.servers.iter();
        let mut versions: Vec<&str> =
            servers.filter_map(|one| one.version.split(" (").next()).collect();
        versions.sort_unstable();
        versions.dedup();
        let own = format!("kvblaster {kvblaster}");
        let with = match versions.as_slice() {
            [simulated] if simulated.ends_with(&own) => (*simulated).to_owned(),
            servers => format!("with {}", [servers, &[&own]].concat().join(", ")),
        };
        let day = started.split('T').next().unwrap_or_default();
        let (processor, kernel) = (processor(&self.record), kernel.join(" "));
        format!("Measured on {day} by `{command}`, on {processor}, {kernel}, {with}.")
    }

    /// The rounds, scale and time of the measurements.
    pub(crate) fn made(&self) -> String {
        let Record { started, scale, rounds, rows, .. } = &self.record;
        let scale = format!("{scale:?}").to_lowercase();
        let (count, plural) = (rows.len(), if rows.len() == 1 { "" } else { "s" });
        let rounds = match rounds {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        };
        format!("{count} measurement{plural} in {rounds} at the scale {scale}, begun at {started}")
    }
}

/// Returns the model and the number of the machine's CPUs.
pub(crate) fn processor(record: &Record) -> String {
    let machine = &record.machine;
    let model = machine.cpu_model.as_deref().unwrap_or(&machine.architecture);
    format!("{model}, {} CPUs", machine.cpus)
}

/// Returns the title of a document, and the place in the document.
pub(crate) fn source(experiment: &Experiment) -> String {
    format!("{}: {}", experiment.source.title(), experiment.place)
}

/// The CSS class of a verdict.
pub(crate) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Confirmed => "good",
        Verdict::NotReproduced => "invalid",
        Verdict::TooShort | Verdict::CannotTell | Verdict::NotAtScale => "warning",
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

/// Returns the texts of a record that may contain paths.
fn texts(record: &mut Record) -> impl Iterator<Item = &mut String> {
    let Record { command, servers, rows, missing, .. } = record;
    let servers =
        servers.iter_mut().flat_map(|one| one.commands.iter_mut().chain([&mut one.driven_by]));
    let rows = rows.iter_mut().flat_map(|row| row.bound.iter_mut().chain(&mut row.remarks));
    let missing = missing.iter_mut().map(|one| &mut one.why);
    servers.chain(rows).chain(missing).chain([command])
}

/// Removes the folders from the absolute paths in a text, because folders depend on the machine.
/// Paths in the folders `KERNEL` stay whole.
pub(super) fn without_folders(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        // A path between quotes may have spaces.
        let is_quoted = rest.starts_with('/') && out.ends_with('\'');
        let is_end = |one: char| match is_quoted {
            true => one == '\'',
            false => one.is_whitespace() || "'\"`=,;()".contains(one),
        };
        let (word, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        let (scheme, path) = word.split_at(word.rfind(UNIX).map_or(0, |at| at + UNIX.len()));
        let path = match path.trim_end_matches('/').rsplit_once('/') {
            Some((_, name))
                if path.starts_with('/') && !KERNEL.iter().any(|one| path.starts_with(one)) =>
            {
                name
            }
            _ => path,
        };
        let end = after.chars().next();
        out.extend([scheme, path]);
        out.extend(end);
        rest = &after[end.map_or(0, char::len_utf8)..];
    }
    out
}
