//! `kvblaster lab report`: writes all experiments to an HTML page and, if asked, to Markdown files.
//!
//! ```text
//! experiments, records -> sections: charts, claims, findings -> page, Markdown with SVG
//! ```
//!
//! Where: after `kvblaster lab run`; the verbs of `flags` call `write`.
//! Invariant: each experiment has a row in the overview, even if it has no data. The report
//! mentions each empty, partial, unreadable or orphaned record, and still shows all other records.
//! All texts are escaped, and no text has the path of a folder of this machine.
//! Source: none; see `claims` for the verdicts.

pub(crate) mod charts;
pub(crate) mod entry;
pub(crate) mod findings;
pub(crate) mod glossary;
pub(crate) mod knee;
pub(crate) mod markdown;
pub(crate) mod noise;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod section;
#[cfg(test)]
mod tests;

use super::claims::NOISE;
use super::library;
use super::record::Record;
use crate::result::put;
use crate::words::Failure;
use entry::Entry;
use markdown::MADE;
use section::{Section, without_folders};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The ending of a record's file name.
const RECORD: &str = "json";
/// The name of the page's file in the folder of the records, unless the user names another file.
const PAGE: &str = "report.html";

/// Reads the records of a folder, and adds the experiments of `library` that have no record. The
/// experiment `NOISE` is the first entry; all other entries are sorted by name. Fails if the folder
/// cannot be read or has no records, or an experiment is wrong.
pub(crate) fn entries(folder: &Path, library: Option<&Path>) -> Result<Vec<Entry>, Failure> {
    let experiments = library::all(library)?;
    let recorded = names(folder).map_err(unusable(folder))?;
    if recorded.is_empty() {
        let folder = folder.display();
        return Err(format!(
            "{folder}: the folder has no data of an experiment; `kvblaster lab run -o` writes data"
        )
        .into());
    }
    let all: BTreeSet<&str> = experiments
        .iter()
        .map(|one| one.name.as_str())
        .chain(recorded.iter().map(String::as_str))
        .collect();
    let entry = |name: &str| Entry {
        name: name.to_owned(),
        experiment: experiments.iter().find(|one| one.name == name).cloned(),
        record: Record::read(folder, name).map_err(|error| without_folders(&error.to_string())),
    };
    let mut entries: Vec<Entry> = all.into_iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.name != NOISE);
    Ok(entries)
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Returns the names, without `.json`, of all files that may be records.
fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == RECORD) {
            names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
        }
    }
    Ok(names)
}

/// Makes a section of each entry that has a record, in the order of the entries.
pub(crate) fn sections(entries: &[Entry]) -> Vec<Section> {
    let noise = entries.iter().find(|entry| entry.name == NOISE);
    let noise = noise.and_then(|entry| entry.record.as_ref().ok()?.as_ref());
    entries.iter().filter_map(|entry| Section::new(entry, noise)).collect()
}

/// Writes the page and, if `markdown` names a folder, the Markdown files. Returns a text to print,
/// which is the page itself if `out` is `-`. Fails if `entries` fails, or a file cannot be written.
pub(crate) fn write(
    folder: &Path,
    out: Option<&Path>,
    (markdown, library): (Option<&Path>, Option<&Path>),
) -> Result<String, Failure> {
    let entries = entries(folder, library)?;
    let sections = sections(&entries);
    if let Some(markdown) = markdown {
        fs::create_dir_all(markdown).map_err(unusable(markdown))?;
        let files = markdown::files(&entries, &sections);
        let paths: BTreeSet<PathBuf> = files.iter().map(|(name, _)| markdown.join(name)).collect();
        if let Some(foreign) = paths.iter().find(|path| path.exists() && !is_ours(path)) {
            return Err(format!(
                "{}: kvblaster does not replace this file, because no earlier report wrote it; \
                 name another folder, or move the file",
                foreign.display()
            )
            .into());
        }
        for (name, text) in &files {
            put(&markdown.join(name), text.as_bytes())?;
        }
        // Removes files that an earlier report made for experiments that no longer have data.
        for entry in fs::read_dir(markdown).map_err(unusable(markdown))? {
            let path = entry.map_err(unusable(markdown))?.path();
            if !paths.contains(&path) && is_ours(&path) {
                fs::remove_file(&path).map_err(unusable(&path))?;
            }
        }
    }
    let page = page::page(&entries, &sections);
    let path = out.map_or_else(|| folder.join(PAGE), Path::to_owned);
    if path.as_os_str() == "-" {
        return Ok(page);
    }
    put(&path, page.as_bytes())?;
    let also = markdown.map(|folder| format!("; Markdown is in {}", folder.display()));
    Ok(format!("the page is {}{}\n", path.display(), also.unwrap_or_default()))
}

/// True if an earlier report made this file.
fn is_ours(path: &Path) -> bool {
    let mut begin = vec![0; MADE.len()];
    let is_file = fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
    let read = |mut file: fs::File| file.read_exact(&mut begin);
    is_file && fs::File::open(path).and_then(read).is_ok() && begin == MADE.as_bytes()
}
