//! Finds what is installed: the programs of servers, and the folder of traces.
//!
//! Where: the needs of an experiment, and all code that starts a program of the lab.
//! Invariant: if something is missing, the error says which variable can name it.

use super::experiment::Program;
use std::env;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names the folder with the traces.
pub(super) const TRACES: &str = "TRACES";

/// The reason why a row was not measured.
#[derive(Debug)]
pub enum MeasureError {
    /// The machine or its software lacks something, or the measurement was too short.
    Lacking(String),
    /// The measurement failed although the machine has all that it needs.
    Failed(String),
    /// The user stopped the lab.
    Stopped,
}

impl<E: Error> From<E> for MeasureError {
    fn from(error: E) -> MeasureError {
        MeasureError::Failed(error.to_string())
    }
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::Lacking(why) | MeasureError::Failed(why) => f.write_str(why),
            MeasureError::Stopped => f.write_str("the lab was stopped by Ctrl-C or SIGTERM"),
        }
    }
}

impl Program {
    /// Finds the program: at the path in its environment variable, beside kvblaster, or on `PATH`.
    /// Fails if the program is not there.
    pub fn path(self) -> Result<PathBuf, MeasureError> {
        let (variable, file) = match self {
            Program::Hypostyle => ("HYPOSTYLE", "hypostyle"),
            Program::Memcached => ("MEMCACHED", "memcached"),
            Program::Redis => ("REDIS", "redis-server"),
            Program::BagLru => ("BAG_LRU", ""),
            Program::Reflect | Program::Policy => return Ok(env::current_exe()?),
        };
        let beside = env::current_exe()?.with_file_name(file);
        if self == Program::Hypostyle && env::var_os(variable).is_none() && beside.is_file() {
            return Ok(beside);
        }
        located(variable, file)
    }
}

/// Finds a program: at the path in the environment variable `variable`, or as `file` on `PATH`, if
/// `file` is not empty.
pub(super) fn located(variable: &str, file: &str) -> Result<PathBuf, MeasureError> {
    if let Some(named) = env::var_os(variable) {
        let path = std::path::absolute(named)?;
        let lacking = || format!("{variable}={}: there is no such file", path.display());
        return path.is_file().then(|| path.clone()).ok_or_else(|| lacking_of(lacking()));
    }
    let found = (!file.is_empty()).then(|| on_path(file)).flatten();
    found.ok_or_else(|| match file {
        "" => lacking_of(format!(
            "the environment variable {variable} does not name the program's path"
        )),
        _ => lacking_of(format!(
            "{file} is not on PATH, and the environment variable {variable} does not name its path"
        )),
    })
}

pub(super) fn lacking_of(why: String) -> MeasureError {
    MeasureError::Lacking(why)
}

/// Returns the first file of this name in the folders of `PATH`.
pub(crate) fn on_path(file: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(file));
    found.into_iter().find(|path| path.is_file())
}

/// Returns the name and the version that a program prints for `--version`.
pub(super) fn version(path: &Path, name: &str) -> Result<String, MeasureError> {
    let output = Command::new(path).arg("--version").output()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lacking =
        || lacking_of(format!("{} --version does not print the name {name}", path.display()));
    version_in(&text, name).ok_or_else(lacking)
}

/// Finds `name` and its version: `This is nutcracker-0.5.0`, `memcached 1.6.45 (hypostyle 0.1.0)`.
fn version_in(text: &str, name: &str) -> Option<String> {
    let own = text[text.find(name)?..].split([')', '\n']).next()?;
    Some(own.replacen('-', " ", 1))
}

/// Returns the folder with the traces. Fails if the variable names no folder.
pub(super) fn traces() -> Result<PathBuf, MeasureError> {
    let named = env::var_os(TRACES).map(PathBuf::from);
    let why = match &named {
        Some(folder) if folder.is_dir() => return Ok(folder.clone()),
        Some(folder) => format!("{TRACES}={}: there is no such folder", folder.display()),
        None => format!("the environment variable {TRACES} does not name a folder with traces"),
    };
    Err(lacking_of(why))
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn a_version_is_the_programs_own() {
        for (text, name, own) in [
            ("This is nutcracker-0.5.0\n\n", "nutcracker", Some("nutcracker 0.5.0")),
            ("memcached 1.6.45 (hypostyle 0.1.0)\n", "hypostyle", Some("hypostyle 0.1.0")),
            ("memcached 1.6.45\n", "hypostyle", None),
        ] {
            assert_eq!(version_in(text, name).as_deref(), own);
        }
    }
}
