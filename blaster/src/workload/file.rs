//! Workloads as TOML files, which contain settings by name.
//!
//! Where: read before a run; printed into manifests and for agents.
//! Invariant: an error in a file names the line. If a printed workload is read, the result is the
//! same workload.

use super::files::{Files, SENT_BYTES_MAX, SentFiles};
use super::limits::WorkloadError;
use super::presets;
use super::settings::SETTINGS;
use super::traffic::Workload;
use crate::words::suggestion;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// The setting that names a preset. The other settings of a file change this preset.
const PRESET: &str = "preset";

impl Workload {
    /// Returns the preset with this name, or the workload in the file with this name.
    pub(crate) fn named(text: &str) -> Result<Workload, String> {
        match Workload::preset(text) {
            Some(workload) => Ok(workload),
            None if !Path::new(text).exists() => {
                let (names, meant) = (presets::listed(), suggestion(text, presets::names()));
                Err(format!("{text} is neither a preset ({names}) nor a file{meant}"))
            }
            None => Workload::read(Path::new(text)).map_err(|error| error.to_string()),
        }
    }

    /// Reads a TOML file of settings. If the file has `preset = "NAME"`, the file's other settings
    /// change this preset. Paths in the file are relative to the file's folder. Fails if the file
    /// cannot be read, or a setting is unknown or wrong; the message names the line.
    pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
        let wrong = |why: String| WorkloadError(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| wrong(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("the file has more than {FILE_BYTES_MAX} bytes")));
        }
        let base = path.parent().unwrap_or(Path::new(""));
        parse(&text, &Files::here(base))
            .map_err(|(line, why)| WorkloadError(format!("{}:{line}: {why}", path.display())))
    }

    /// Makes a workload from the output of `to_toml` and the files that a controller has sent.
    /// Fails if a file is missing or invalid.
    pub(crate) fn from_sent(text: &str, sent: &SentFiles) -> Result<Workload, WorkloadError> {
        parse(text, &Files::Sent(sent)).map_err(|(_, why)| WorkloadError(why))
    }

    /// Returns all settings as TOML for a manifest. Reading the TOML gives the same workload.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        for setting in &SETTINGS {
            let Some(value) = (setting.get)(self) else { continue };
            let is_bare = value.parse::<i64>().is_ok_and(|number| number.to_string() == value)
                || value == "true"
                || value == "false";
            let value = if is_bare { value } else { toml::Value::String(value).to_string() };
            text += &format!("{} = {value}\n", setting.name);
        }
        text + &contents(self)
    }
}

impl SentFiles {
    /// Reads the files that `workload` names when it is printed. Fails if the files are too long.
    pub(crate) fn read(workload: &Workload) -> Result<SentFiles, WorkloadError> {
        let mut sent = SentFiles::default();
        for (setting, path) in paths(workload) {
            let added = sent.add(path, SENT_BYTES_MAX);
            added.map_err(|why| WorkloadError(format!("{setting}: {}: {why}", path.display())))?;
        }
        Ok(sent)
    }
}

pub(super) fn parse(text: &str, files: &Files<'_>) -> Result<Workload, (usize, String)> {
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        (line(error.span().map_or(0, |span| span.start)), error.message().to_owned())
    })?;
    let table = table.get_ref();
    let mut workload = Workload::default();
    if let Some(name) = table.get(PRESET) {
        let wrong = |why: String| (line(name.span().start), why);
        let preset = written(name).map_err(wrong)?;
        workload = Workload::preset(&preset).ok_or_else(|| {
            let (names, meant) = (presets::listed(), suggestion(&preset, presets::names()));
            wrong(format!("preset: {preset}: no such preset; the presets are {names}{meant}"))
        })?;
    }
    let mut rows: Vec<_> = table.iter().filter(|(name, _)| name.get_ref() != PRESET).collect();
    rows.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in rows {
        let wrong = |why: String| (line(name.span().start), why);
        let value = written(value).map_err(|why| wrong(format!("{}: {why}", name.get_ref())))?;
        let set = workload.set_from(name.get_ref(), &value, files);
        set.map_err(|WorkloadError(why)| wrong(why))?;
    }
    workload.check().map_err(|WorkloadError(why)| (line(0), why))?;
    Ok(workload)
}

/// Formats a TOML value in the notation of flags: `{ get = 9, set = 1 }` becomes `get=9,set=1`.
fn written(value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(is_so) => Ok(is_so.to_string()),
        DeValue::Table(rows) => {
            let mut pairs = Vec::new();
            for (name, value) in rows {
                if matches!(value.get_ref(), DeValue::Table(_)) {
                    return Err("a table cannot contain a table here".to_owned());
                }
                pairs.push(format!("{}={}", name.get_ref(), written(value)?));
            }
            Ok(pairs.join(","))
        }
        other => Err(format!("must be a string or a number, not this {}", other.type_str())),
    }
}

/// Returns the setting, path and checksum of each key file and histogram that `print` names. A mix
/// is left out, because `print` writes the numbers of a mix instead of a file name.
fn listed(workload: &Workload) -> impl Iterator<Item = (&'static str, &Path, &str)> {
    let Workload { key_file, popularity, key_size, value_size, batch, gap, ttl, .. } = workload;
    let laws = [
        ("popularity", popularity.file()),
        ("key-size", key_size.law.file()),
        ("value-size", value_size.law.file()),
        ("batch", batch.law.file()),
        ("gap", gap.file()),
        ("ttl", ttl.law.file()),
    ];
    let laws = laws.into_iter().filter_map(|(name, file)| {
        file.map(|(path, histogram)| (name, path, histogram.sum.as_str()))
    });
    let keys = key_file.iter().map(|file| ("key-file", &*file.path, file.sum.as_str()));
    keys.chain(laws)
}

fn paths(workload: &Workload) -> impl Iterator<Item = (&'static str, &Path)> {
    let trace = workload.trace.iter().map(|trace| ("trace", &*trace.path));
    listed(workload).map(|(name, path, _)| (name, path)).chain(trace)
}

/// Returns comment lines with the checksums of the files that a workload names. A manifest does not
/// contain the files themselves; checksums show if the files have changed.
fn contents(workload: &Workload) -> String {
    let row = |(name, _, sum): (&str, &Path, &str)| format!("# md5 of {name}'s file: {sum}\n");
    let mut text: String = listed(workload).map(row).collect();
    if let Some(trace) = &workload.trace {
        let (requests, keys) = (trace.requests.len(), trace.keys);
        let sum = &trace.sum;
        text +=
            &format!("# the trace: {requests} requests for {keys} distinct keys; its md5: {sum}\n");
    }
    text
}
