//! Keys from a file, one per line.
//!
//! Where: if a workload names a file of keys, these keys replace computed names.
//! Invariant: there are 1 to `KEYS_MAX` keys. All keys differ, and memcached accepts every key. An
//! error names the line.
//! Source: the KV-Cache paper, section 5.2.2: a set of keys that was made before the run, in the
//! order of the keys' popularity.

use super::files::Files;
use super::limits::{KEY_BYTES_MAX, WorkloadError};
use crate::words::hex;
use md5::{Digest, Md5};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// The maximum number of keys. Even if all keys have the greatest length, offsets fit 32 bits.
pub(crate) const KEYS_MAX: usize = 1 << 24;
/// The maximum length of a line in bytes: the longest key and a line end of two bytes.
const LINE_BYTES_MAX: u64 = KEY_BYTES_MAX as u64 + 2;

#[derive(Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    /// The bytes of all keys, without separators.
    text: Vec<u8>,
    ends: Vec<u32>,
    pub(crate) sum: String,
}

impl KeyFile {
    pub(crate) fn read(files: &Files<'_>, path: &Path) -> Result<KeyFile, WorkloadError> {
        let wrong = |why: String| WorkloadError(format!("key-file: {}: {why}", path.display()));
        let file = files.open(path).map_err(|error| wrong(error.to_string()))?;
        let key_file = KeyFile::parse(path, file);
        key_file.map_err(|(line, why)| wrong(format!("line {line}: {why}")))
    }

    fn parse(path: &Path, mut source: impl BufRead) -> Result<KeyFile, (usize, String)> {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let (mut row, mut sum) = (Vec::new(), Md5::new());
        loop {
            row.clear();
            let line = ends.len() + 1;
            let read = (&mut source).take(LINE_BYTES_MAX).read_until(b'\n', &mut row);
            if read.map_err(|error| (line, error.to_string()))? == 0 {
                break;
            }
            sum.update(&row);
            let key = row.strip_suffix(b"\n").unwrap_or(&row);
            let key = key.strip_suffix(b"\r").unwrap_or(key);
            let is_fit = |byte: &u8| *byte > b' ' && *byte != 0x7f;
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) || !key.iter().all(is_fit) {
                let why = "a key is 1 to 250 bytes, without spaces and control characters";
                return Err((line, why.to_owned()));
            }
            if line > KEYS_MAX {
                return Err((line, format!("the file has more than {KEYS_MAX} keys")));
            }
            text.extend_from_slice(key);
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        if ends.is_empty() {
            return Err((1, "the file has no keys".to_owned()));
        }
        let sum = hex(&sum.finalize());
        let key_file = KeyFile { path: path.to_owned(), text, ends, sum };
        key_file.all_differ().map(|()| key_file)
    }

    /// Checks that no key occurs twice, because such a key would have two values and two shares.
    fn all_differ(&self) -> Result<(), (usize, String)> {
        let mut lines = HashMap::with_capacity(self.ends.len());
        for (line, key) in (1..).zip(0..self.keys()) {
            match lines.entry(self.key(key)) {
                Entry::Vacant(vacant) => *vacant.insert(line),
                Entry::Occupied(first) => {
                    return Err((line, format!("the same key as in line {}", first.get())));
                }
            };
        }
        Ok(())
    }

    pub(crate) fn keys(&self) -> u64 {
        self.ends.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the key with this number, or an empty key if there is no such number.
    pub(crate) fn key(&self, key: u64) -> &[u8] {
        let at = usize::try_from(key).unwrap_or(usize::MAX);
        let end = |at: usize| self.ends.get(at).map(|end| *end as usize);
        let from = at.checked_sub(1).map_or(Some(0), end);
        from.zip(end(at)).and_then(|(from, to)| self.text.get(from..to)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<KeyFile, (usize, String)> {
        KeyFile::parse(Path::new("keys"), text)
    }

    #[test]
    fn keys_are_read_whole_and_in_their_order() {
        let long = "k".repeat(250);
        for text in
            [format!("a\nuser:7\r\n{long}\r\n\u{e9}\n"), format!("a\nuser:7\n{long}\n\u{e9}")]
        {
            let key_file = parse(text.as_bytes()).unwrap();
            let keys: Vec<_> = (0..key_file.keys()).map(|key| key_file.key(key)).collect();
            assert_eq!(keys, ["a", "user:7", &long, "\u{e9}"].map(str::as_bytes));
            assert_eq!((key_file.bytes(), key_file.key(4)), (259, &b""[..]));
        }
        // The sum that `printf 'a\nb\n' | md5sum` prints.
        assert_eq!(parse(b"a\nb\n").unwrap().sum, "dd8c6a395b5dd36c56d23275028f526c");
    }

    #[test]
    fn what_is_no_key_is_told_with_its_line() {
        let no_key = "a key is 1 to 250 bytes, without spaces and control characters";
        let long = format!("a\n{}\n", "k".repeat(251));
        for (text, line, why) in [
            ("", 1, "the file has no keys"),
            ("a\n\nb\n", 2, no_key),
            ("a\nb c\n", 2, no_key),
            ("a\tb\n", 1, no_key),
            ("a\nb\n\x7f", 3, no_key),
            (&long, 2, no_key),
            ("a\nb\nc\nb\n", 4, "the same key as in line 2"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), (line, why.to_owned()), "{text:?}");
        }
        let many: String = (0..=KEYS_MAX).map(|key| format!("{key:x}\n")).collect();
        let error = parse(many.as_bytes()).unwrap_err();
        assert_eq!(error, (KEYS_MAX + 1, "the file has more than 16777216 keys".to_owned()));
    }
}
