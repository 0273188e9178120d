//! Traces: recorded requests that are replayed.
//!
//! Where: if a workload names a trace, recorded requests replace drawn requests.
//! Invariant: keys are numbered without gaps, in the order of their first requests. There are 1 to
//! `REQUESTS_MAX` requests.
//! Source: the CSV format of Twitter's cache-trace (Yang et al., OSDI 2020), and `simulate::trace`.

use super::files::Files;
use super::limits::{EXPTIME_S_MAX, VALUE_BYTES_MAX, WorkloadError};
use super::request::Verb;
use crate::words::hex;
use md5::{Digest, Md5};
use simulate::trace::Trace;
use simulate::unpacked::DecompressingReader;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The maximum number of requests of a trace, so that a small file cannot fill the memory.
pub(crate) const REQUESTS_MAX: usize = 1 << 26;
const LINE_BYTES_MAX: u64 = 4096;
const KEY_BYTES_MAX: u8 = 250;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replay {
    pub(crate) path: PathBuf,
    pub(crate) keys: u32,
    pub(crate) requests: Vec<u32>,
    /// The fields of each request besides the key, if they were recorded.
    pub(crate) details: Option<Details>,
    /// The MD5 sum of all replayed data, which identifies the trace.
    pub(crate) sum: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub(crate) operations: Vec<Operation>,
    /// For each second in which there are requests: the second, and the index of its first request.
    pub(crate) seconds: Vec<(u32, u32)>,
    pub(crate) key_bytes: Vec<u8>,
    /// Length in bytes of each key's first value that is not empty.
    pub(crate) value_bytes: Vec<u32>,
    /// Number of requests with an operation that `Verb` lacks. These requests use the nearest verb.
    pub(crate) replaced: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) verb: Verb,
    pub(crate) value_bytes: u32,
    pub(crate) exptime_s: u32,
}

impl Replay {
    /// Reads a trace, or only its first `requests` requests if `requests` is not 0.
    pub(crate) fn read(
        files: &Files<'_>,
        path: &Path,
        requests: u64,
    ) -> Result<Replay, WorkloadError> {
        let wrong = |why: String| WorkloadError(format!("trace: {}: {why}", path.display()));
        let most = usize::try_from(requests).unwrap_or(REQUESTS_MAX).min(REQUESTS_MAX);
        let file = files.open(path).map_err(|error| wrong(error.to_string()))?;
        if path.to_string_lossy().ends_with(".u32.zst") {
            let trace = Trace::decode(path, file);
            let mut trace = trace.map_err(|error| WorkloadError(format!("trace: {error}")))?;
            if requests > 0 && most < trace.requests.len() {
                trace.requests.truncate(most);
                trace = Trace::new(&trace.name, trace.requests);
            }
            let Trace { keys, requests, .. } = trace;
            return Ok(Replay::new(path, keys, requests, None));
        }
        let source = DecompressingReader::new(file).map_err(|error| wrong(error.to_string()))?;
        Replay::decode(path, BufReader::new(source), requests)
            .map_err(|(line, why)| wrong(format!("line {line}: {why}")))
    }

    /// True if a file, which may be compressed, begins with a line of a cache-trace CSV.
    pub(crate) fn is_csv(path: &Path) -> bool {
        let first_line = || {
            let source =
                DecompressingReader::new(BufReader::new(std::fs::File::open(path).ok()?)).ok()?;
            let mut row = Vec::new();
            BufReader::new(source).take(LINE_BYTES_MAX).read_until(b'\n', &mut row).ok()?;
            Some(row)
        };
        let is_row = |row: Vec<u8>| row.starts_with(b"timestamp") || Fields::parse(&row).is_some();
        first_line().is_some_and(is_row)
    }

    /// Returns the key of each get, or no keys if the trace has no `details`.
    pub(crate) fn looked_up(&self) -> Vec<u32> {
        let operations = self.details.iter().flat_map(|details| &details.operations);
        let gets = self.requests.iter().zip(operations).filter(|(_, one)| one.verb == Verb::Get);
        gets.map(|(key, _)| *key).collect()
    }

    fn decode(path: &Path, source: impl Read, most: u64) -> Result<Replay, (u64, String)> {
        let mut source = BufReader::new(source);
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        let (mut requests, mut details) = (Vec::new(), Details::default());
        let (mut row, mut line) = (Vec::new(), 0);
        while most == 0 || (requests.len() as u64) < most {
            row.clear();
            line += 1;
            let mut limited = (&mut source).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut row);
            read.map_err(|error| (line, error.to_string()))?;
            if row.is_empty() {
                break;
            }
            if row.len() as u64 == LINE_BYTES_MAX {
                return Err((line, format!("the line has more than {LINE_BYTES_MAX} bytes")));
            }
            if line == 1 && row.starts_with(b"timestamp") {
                continue;
            }
            let fields = Fields::parse(&row).ok_or_else(|| (line, expected(&row)))?;
            if requests.len() == REQUESTS_MAX {
                let why = format!(
                    "the trace has more than {REQUESTS_MAX} requests: set trace-requests to replay \
                     fewer"
                );
                return Err((line, why));
            }
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let key = match numbers.get(fields.key) {
                Some(key) => *key,
                None => {
                    numbers.insert(fields.key.to_vec(), next);
                    next
                }
            };
            details.add(key, &fields, u32::try_from(requests.len()).unwrap_or(u32::MAX));
            requests.push(key);
        }
        if requests.is_empty() {
            return Err((line, "the trace has no requests".to_owned()));
        }
        let keys = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        Ok(Replay::new(path, keys, requests, Some(details)))
    }

    fn new(path: &Path, keys: u32, requests: Vec<u32>, details: Option<Details>) -> Replay {
        let mut sum = Md5::new();
        let mut add = |number: u32| sum.update(number.to_le_bytes());
        requests.iter().for_each(|key| add(*key));
        if let Some(Details { operations, seconds, key_bytes, value_bytes, .. }) = &details {
            for Operation { verb, value_bytes, exptime_s } in operations {
                [*verb as u32, *value_bytes, *exptime_s].into_iter().for_each(&mut add);
            }
            seconds.iter().flat_map(|(second, first)| [*second, *first]).for_each(&mut add);
            key_bytes.iter().for_each(|bytes| add(u32::from(*bytes)));
            value_bytes.iter().for_each(|bytes| add(*bytes));
        }
        let sum = hex(&sum.finalize());
        Replay { path: path.to_owned(), keys, requests, details, sum }
    }

    /// Returns the due time of a request, in ns from the start. The requests of a second are spread
    /// evenly over the second. `cursor` keeps the index of the second where the next search begins.
    pub(crate) fn due_ns(&self, request: usize, cursor: &mut usize) -> Option<u64> {
        let seconds = &self.details.as_ref()?.seconds;
        let first = |at: usize| seconds.get(at).map_or(self.requests.len(), |one| one.1 as usize);
        if request < first(*cursor) {
            *cursor = 0;
        }
        while *cursor + 1 < seconds.len() && first(*cursor + 1) <= request {
            *cursor += 1;
        }
        let second = u64::from(seconds.get(*cursor)?.0 - seconds.first()?.0);
        let count = (first(*cursor + 1) - first(*cursor)).max(1) as u64;
        Some(second * 1_000_000_000 + (request - first(*cursor)) as u64 * 1_000_000_000 / count)
    }

    pub(crate) fn length_ns(&self) -> Option<u64> {
        let seconds = &self.details.as_ref()?.seconds;
        Some((u64::from(seconds.last()?.0 - seconds.first()?.0) + 1) * 1_000_000_000)
    }
}

impl Details {
    fn add(&mut self, key: u32, fields: &Fields, request: u32) {
        let Fields { second, key_bytes, value_bytes, exptime_s, .. } = *fields;
        let (verb, is_exact) = fields.verb;
        self.replaced += u64::from(!is_exact);
        let bytes = if verb.writes() { value_bytes } else { 0 };
        self.operations.push(Operation { verb, value_bytes: bytes, exptime_s });
        // If the recorded clock went back, the row counts for the latest second so far.
        let second = second.max(self.seconds.last().map_or(0, |last| last.0));
        if self.seconds.last().is_none_or(|last| last.0 < second) {
            self.seconds.push((second, request));
        }
        if key as usize == self.key_bytes.len() {
            self.key_bytes.push(key_bytes);
            self.value_bytes.push(0);
        }
        if let Some(known) = self.value_bytes.get_mut(key as usize)
            && *known == 0
        {
            *known = value_bytes;
        }
    }
}

struct Fields<'a> {
    second: u32,
    key: &'a [u8],
    key_bytes: u8,
    value_bytes: u32,
    /// The verb, and true if the recorded operation is this verb and not only similar.
    verb: (Verb, bool),
    exptime_s: u32,
}

impl<'a> Fields<'a> {
    /// Splits a line. A key may contain commas, so fields are counted from both ends of the line.
    fn parse(row: &'a [u8]) -> Option<Fields<'a>> {
        let row = row.trim_ascii_end();
        let comma = row.iter().position(|byte| *byte == b',')?;
        let (second, rest) = (&row[..comma], &row[comma + 1..]);
        let mut parts = rest.rsplitn(6, |byte| *byte == b',');
        let mut part = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
        let (ttl, verb, client) = (part()?, part()?, part()?);
        let (value_bytes, key_bytes) = (part()?, part()?);
        let key = parts.next()?;
        let _: u64 = client.parse().ok()?;
        let exptime_s: u64 = ttl.parse().ok()?;
        let bytes: u64 = value_bytes.parse().ok()?;
        let key_bytes: u64 = key_bytes.parse().ok()?;
        Some(Fields {
            second: std::str::from_utf8(second).ok()?.parse().ok()?,
            key,
            key_bytes: u8::try_from(key_bytes).unwrap_or(KEY_BYTES_MAX).clamp(1, KEY_BYTES_MAX),
            value_bytes: u32::try_from(bytes).unwrap_or(u32::MAX).min(VALUE_BYTES_MAX),
            verb: verb_of(verb)?,
            exptime_s: u32::try_from(exptime_s).unwrap_or(u32::MAX).min(EXPTIME_S_MAX),
        })
    }
}

/// Returns the verb of an operation and true, or, if there is none, the nearest verb and false.
fn verb_of(name: &str) -> Option<(Verb, bool)> {
    match name {
        "get" => Some((Verb::Get, true)),
        "gets" => Some((Verb::Get, false)),
        "set" => Some((Verb::Set, true)),
        "add" => Some((Verb::Add, true)),
        "replace" => Some((Verb::Replace, true)),
        "cas" | "incr" | "decr" => Some((Verb::Set, false)),
        "append" => Some((Verb::Append, true)),
        "prepend" => Some((Verb::Append, false)),
        "delete" => Some((Verb::Delete, true)),
        _ => None,
    }
}

fn expected(row: &[u8]) -> String {
    let row = String::from_utf8_lossy(row.trim_ascii_end());
    let row: String = row.chars().take(80).collect();
    format!("a row must be timestamp,key,key size,value size,client,operation,ttl: {row}")
}

#[cfg(test)]
mod tests;
