//! The files that a workload names: files of this machine, or files that a controller has sent.
//!
//! Where: the settings of a workload read their files through `Files`. A controller sends
//! `SentFiles` to its agents.
//! Invariant: an agent opens no path that its controller names. All files that are sent have at
//! most `SENT_BYTES_MAX` bytes in total; a receiver checks the announced lengths before it reads
//! files.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of bytes of all files that a controller sends to an agent.
pub(super) const SENT_BYTES_MAX: u64 = 64 << 20;

/// The files that the settings of a workload may name.
#[derive(Debug)]
pub(crate) enum Files<'f> {
    /// The files of this machine. Relative paths are relative to this folder.
    Here(PathBuf),
    /// The files that a controller has sent.
    Sent(&'f SentFiles),
}

impl<'f> Files<'f> {
    /// Returns the files of this machine, with paths relative to `folder`.
    pub(crate) fn here(folder: impl AsRef<Path>) -> Files<'static> {
        let folder = folder.as_ref();
        // A manifest has absolute paths, so that the manifest can be read from any folder.
        let whole = std::path::absolute(folder.join("."));
        Files::Here(whole.unwrap_or_else(|_| folder.to_owned()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Files::Here(folder) => folder.join(name),
            Files::Sent(_) => PathBuf::from(name),
        }
    }

    /// Opens the file with a path that the method `path` returned.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Box<dyn BufRead + 'f>> {
        match self {
            Files::Here(_) => Ok(Box::new(BufReader::new(File::open(path)?))),
            Files::Sent(sent) => Ok(Box::new(sent.contents(path)?)),
        }
    }
}

/// Copies of the files that a workload names. A serialized message has only the paths and lengths
/// of files; the contents follow the message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SentFiles(Vec<SentFile>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentFile {
    path: String,
    bytes: u64,
    /// The contents, in memory that the messages to all agents share.
    #[serde(skip)]
    contents: Arc<Vec<u8>>,
}

impl SentFiles {
    pub(super) fn add(&mut self, path: &Path, bytes_max: u64) -> Result<(), String> {
        let name = path.display().to_string();
        if self.0.iter().any(|file| file.path == name) {
            return Ok(());
        }
        let about = fs::metadata(path).map_err(|error| error.to_string())?;
        if !about.is_file() {
            let why = "not a regular file; --agent needs one, because kvblaster reads it twice";
            return Err(why.to_owned());
        }
        let mut contents = Vec::new();
        let left = bytes_max.saturating_sub(self.0.iter().map(|file| file.bytes).sum());
        let read = File::open(path).and_then(|file| file.take(left + 1).read_to_end(&mut contents));
        read.map_err(|error| error.to_string())?;
        if contents.len() as u64 > left {
            return Err(format!(
                "the file has {} bytes; with --agent, all files of a workload together may have at \
                 most {bytes_max} bytes",
                about.len()
            ));
        }
        let (bytes, contents) = (contents.len() as u64, Arc::new(contents));
        self.0.push(SentFile { path: name, bytes, contents });
        Ok(())
    }

    fn contents(&self, path: &Path) -> io::Result<&[u8]> {
        let name = path.display().to_string();
        let file = self.0.iter().find(|file| file.path == name);
        let file = file.ok_or_else(|| io::Error::other("the controller has not sent this file"))?;
        Ok(&file.contents)
    }

    /// Writes the contents of all files, one file after another.
    pub(crate) fn write_contents(&self, to: &mut impl Write) -> io::Result<()> {
        self.0.iter().try_for_each(|file| to.write_all(&file.contents))
    }

    /// Reads the contents of the files that a message announced.
    pub(crate) fn read_contents(&mut self, from: &mut impl Read) -> Result<(), String> {
        let announced = self.0.iter().try_fold(0, |sum: u64, file| sum.checked_add(file.bytes));
        if announced.is_none_or(|bytes| bytes > SENT_BYTES_MAX) {
            return Err(format!(
                "the files of the workload have more than {SENT_BYTES_MAX} bytes together"
            ));
        }
        for file in &mut self.0 {
            let mut contents = Vec::new();
            let read = from.take(file.bytes).read_to_end(&mut contents);
            read.map_err(|error| error.to_string())?;
            if contents.len() as u64 != file.bytes {
                return Err("the input ended before all files of the workload arrived".to_owned());
            }
            file.contents = Arc::new(contents);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
