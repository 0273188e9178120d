//! Traces of keys, read from files.
//!
//! Where: the first step of a simulation. Invariant: a trace has at least one request, and its keys
//! are numbered without gaps in order of first appearance, whatever numbers the file has.

use crate::unpacked::DecompressingReader;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum number of requests of a trace, so that a small file cannot fill the memory.
pub const REQUESTS_MAX: usize = 1 << 28;
/// Bytes decoded at a time; a multiple of 4.
const PIECE_BYTES: usize = 1 << 16;

/// A sequence of requests.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The name of the trace in reports.
    pub name: String,
    /// The key of each request, below `keys`.
    pub requests: Vec<u32>,
    /// Number of different keys.
    pub keys: u32,
}

/// The reason why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// The file is not compressed with zstd.
    #[error("{0}: not compressed with zstd")]
    NotZstd(PathBuf),
    /// The file ends too early, or was damaged.
    #[error("{0}: truncated or damaged after {1} requests: {2}")]
    Damaged(PathBuf, usize, String),
    /// The decompressed length is not a multiple of four bytes.
    #[error("{0}: {1} bytes follow the last key number, which has 4 bytes (u32)")]
    Odd(PathBuf, usize),
    /// The file has no requests.
    #[error("{0}: no requests")]
    Empty(PathBuf),
    /// The file has too many requests.
    #[error("{0}: more than {REQUESTS_MAX} requests")]
    Long(PathBuf),
}

impl Trace {
    /// Makes a trace of `requests` and renumbers their keys.
    #[must_use]
    pub fn new(name: &str, requests: Vec<u32>) -> Trace {
        let mut trace = Trace { name: name.to_owned(), requests, keys: 0 };
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        for key in &mut trace.requests {
            let next = trace.keys;
            let number = *numbers.entry(*key).or_insert(next);
            trace.keys += u32::from(number == next);
            *key = number;
        }
        trace
    }

    /// The name of a file's trace: the file's name up to the first dot.
    #[must_use]
    pub fn name_of(path: &Path) -> String {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        name.split('.').next().unwrap_or_default().to_owned()
    }

    /// Reads a file of little-endian u32 numbers, compressed with zstd.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let io = |error| TraceError::Io(path.to_owned(), error);
        Trace::decode(path, BufReader::new(File::open(path).map_err(io)?))
    }

    /// Like `read`, but reads the file's bytes from `source`. `path` gives the trace's name, and is
    /// shown in errors.
    ///
    /// # Errors
    /// The bytes cannot be read, or have another format.
    pub fn decode(path: &Path, mut source: impl BufRead) -> Result<Trace, TraceError> {
        let mut requests = Vec::new();
        let damaged = |requests: &Vec<u32>, why: io::Error| {
            TraceError::Damaged(path.to_owned(), requests.len(), why.to_string())
        };
        let is_empty = source.fill_buf().map_err(|error| TraceError::Io(path.to_owned(), error));
        if is_empty?.is_empty() {
            return Err(TraceError::Empty(path.to_owned()));
        }
        let mut source =
            DecompressingReader::new(source).map_err(|error| damaged(&requests, error))?;
        if matches!(source, DecompressingReader::Plain(_)) {
            return Err(TraceError::NotZstd(path.to_owned()));
        }
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let got =
                read_all(&mut source, &mut piece).map_err(|error| damaged(&requests, error))?;
            let (words, rest) = piece[..got].as_chunks::<4>();
            requests.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
            if requests.len() > REQUESTS_MAX {
                return Err(TraceError::Long(path.to_owned()));
            }
            if !rest.is_empty() {
                return Err(TraceError::Odd(path.to_owned(), rest.len()));
            }
            if got < piece.len() {
                break;
            }
        }
        if requests.is_empty() {
            return Err(TraceError::Empty(path.to_owned()));
        }
        Ok(Trace::new(&Trace::name_of(path), requests))
    }

    /// Replaces each request by `copies` requests, each for a different new key.
    pub fn copied(self, copies: u32) -> Result<Trace, TraceError> {
        let long = || TraceError::Long(PathBuf::from(&self.name));
        let requests = self.requests.len().checked_mul(copies as usize).ok_or_else(long)?;
        if requests > REQUESTS_MAX || self.keys.checked_mul(copies).is_none() {
            return Err(long());
        }
        let of = |key: &u32| (key * copies)..(key * copies + copies);
        let requests = self.requests.iter().flat_map(of).collect();
        Ok(Trace { name: self.name, requests, keys: self.keys * copies })
    }
}

fn read_all(source: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read(&mut bytes[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
