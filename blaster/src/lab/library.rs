//! The experiments, from this program or from a folder that the user names.
//!
//! Where: the verbs of `kvblaster lab` look experiments up by name.
//! Invariant: an experiment is one TOML file, so that a new experiment needs no new code.
//! Source: none.

use super::experiment::Experiment;
use crate::words::suggestion;
use include_dir::{Dir, include_dir};
use std::fs;
use std::io;
use std::path::Path;

/// The files of the experiments that are compiled into this program.
static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/experiments");
const EXTENSION: &str = "toml";
/// Maximum length of an experiment's file. A longer file is an error.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns all experiments, ordered by name. Fails if the folder cannot be read, or one of its
/// files is no experiment.
pub fn all(folder: Option<&Path>) -> Result<Vec<Experiment>, String> {
    let mut texts = match folder {
        Some(folder) => in_folder(folder)?,
        None => built_in(),
    };
    texts.sort();
    texts.iter().map(|(name, text)| Experiment::parse(name, text)).collect()
}

/// Returns the experiments with these names, in the order of the names and without repetitions.
/// Fails if a name is unknown, or `all` fails.
pub(crate) fn named(names: &[String], folder: Option<&Path>) -> Result<Vec<Experiment>, String> {
    let all = all(folder)?;
    let find = |name: &String| {
        let found = all.iter().find(|experiment| experiment.name == *name).cloned();
        found.ok_or_else(|| {
            let names = all.iter().map(|experiment| experiment.name.as_str());
            let meant = suggestion(name, names);
            format!(
                "no experiment is called {name} (`kvblaster lab list` lists all experiments){meant}"
            )
        })
    };
    let is_first = |(nth, name): &(usize, &String)| !names[..*nth].contains(name);
    names.iter().enumerate().filter(is_first).map(|(_, name)| find(name)).collect()
}

fn built_in() -> Vec<(String, String)> {
    let text = |file: &include_dir::File<'_>| {
        let name = file.path().file_stem()?.to_str()?.to_owned();
        Some((name, file.contents_utf8()?.to_owned()))
    };
    let files = FILES.files().filter(|file| is_experiment(file.path()));
    files.filter_map(text).collect()
}

fn in_folder(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if is_experiment(&path) {
            let bytes = fs::metadata(&path).map_err(failed(&path))?.len();
            if bytes > FILE_BYTES_MAX {
                return Err(failed(&path)(io::Error::other("the file is longer than 1 MiB")));
            }
            texts.push((name.to_owned(), fs::read_to_string(&path).map_err(failed(&path))?));
        }
    }
    Ok(texts)
}

fn is_experiment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_the_binary_is_an_experiment() {
        for (name, text) in built_in() {
            Experiment::parse(&name, &text).unwrap();
        }
    }

    /// Each row of `headlines.tsv` has a document, a place, and words that an experiment must cite.
    #[test]
    fn every_headline_number_of_the_documents_is_cited() {
        let all = all(None).unwrap();
        for row in include_str!("headlines.tsv").lines() {
            let [document, place, words] = row.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{row}: not three columns");
            };
            let is_cited = all.iter().any(|experiment| {
                format!("{:?}", experiment.source).to_lowercase() == document
                    && experiment.found.iter().any(|found| found.contains(words))
            });
            assert!(is_cited, "{document}, {place}: no experiment cites \"{words}\"");
        }
    }

    #[test]
    fn a_name_given_twice_names_one_experiment() {
        let names = ["own-noise", "own-ways", "own-noise"].map(str::to_owned);
        let found: Vec<String> =
            named(&names, None).unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(found, ["own-noise", "own-ways"]);
    }

    #[test]
    fn a_wrong_name_brings_the_right_one_to_mind() {
        let wrong = format!("{}x", all(None).unwrap()[0].name);
        let told = named(std::slice::from_ref(&wrong), None).unwrap_err().to_string();
        assert!(told.contains(&wrong) && told.contains("do you mean"), "{told}");
    }
}
