//! Replays text and meta commands: puts the server's CAS uniques and times into requests, and
//! removes CAS uniques, times and the version from replies.
//!
//! Where: between a recording and the wire.
//! Invariant: the bytes of a value are neither parsed nor changed.
//! Source: `../data/oracle/README.md`.

use crate::form::{Form, Uniques};
use crate::live::{Stop, Wire, show};
use crate::recording::Exchange;
use std::time::{SystemTime, UNIX_EPOCH};

/// memcached's time when the recording began. Absolute times in recorded requests are 500 s later.
const RECORDED_AT_S: u64 = 1_795_214_630;

/// Numbers in this range are absolute times in the recorded requests.
const RECORDED_TIMES_S: std::ops::Range<u64> = 1_795_214_000..1_795_216_000;

/// Replaces a CAS unique that no reply has shown, in a classic command. In a meta command,
/// `UNSEEN_META` replaces it.
const UNSEEN_CLASSIC: u64 = 12_345_678;
const UNSEEN_META: u64 = 99;

const FENCE: &[u8] = b"mn\r\n";
const FENCE_REPLY: &[u8] = b"MN\r\n";

pub(crate) struct Text {
    uniques: Uniques,
    elapsed_s: u64,
}

impl Form for Text {
    fn fence() -> Vec<u8> {
        FENCE.to_vec()
    }

    fn quotes_unique(exchange: &Exchange) -> bool {
        find(&exchange.input, b"{CAS ").is_some()
    }

    fn request(&self, exchange: &Exchange) -> Vec<u8> {
        let recorded = &exchange.input;
        let line_bytes = find(recorded, b"\r\n").unwrap_or(recorded.len());
        let (line, body) = recorded.split_at(line_bytes);
        let mut request = self.with_times(&self.with_uniques(line));
        request.extend_from_slice(body);
        request
    }

    fn read(wire: &mut Wire, reply: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            let line = wire.line()?;
            if line == FENCE_REPLY {
                return Ok(());
            }
            reply.extend_from_slice(&line);
        }
    }

    fn reply(&mut self, request: &[u8], reply: &[u8]) -> Vec<u8> {
        let mut result = Vec::with_capacity(reply.len());
        let mut rest = reply;
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(end);
            let value_bytes = self.line(request, line, &mut result).min(after.len());
            result.extend_from_slice(&after[..value_bytes]);
            rest = &after[value_bytes..];
        }
        result
    }

    fn show(reply: &[u8]) -> String {
        show(reply)
    }
}

impl Text {
    pub(crate) fn new() -> Text {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Text { uniques: Uniques::from(0), elapsed_s: now_s.saturating_sub(RECORDED_AT_S) }
    }

    fn with_uniques(&self, line: &[u8]) -> Vec<u8> {
        let meta = line.starts_with(b"m");
        let mut rest = line;
        let mut result = Vec::with_capacity(line.len());
        while let Some(at) = find(rest, b"{CAS ") {
            let end = find(&rest[at..], b"}").unwrap() + at;
            let unseen = if meta { UNSEEN_META } else { UNSEEN_CLASSIC };
            let seen = self.uniques.last(&rest[at + 5..end]);
            result.extend_from_slice(&rest[..at]);
            result.extend_from_slice(seen.unwrap_or(unseen).to_string().as_bytes());
            rest = &rest[end + 1..];
        }
        result.extend_from_slice(rest);
        result
    }

    fn with_times(&self, line: &[u8]) -> Vec<u8> {
        let mut result = Vec::with_capacity(line.len());
        for token in line.split_inclusive(|&byte| byte == b' ') {
            let flag = usize::from(token.first().is_some_and(u8::is_ascii_uppercase));
            let end = token.trim_ascii_end().len().max(flag);
            match number(&token[flag..end]).filter(|time_s| RECORDED_TIMES_S.contains(time_s)) {
                Some(time_s) => {
                    result.extend_from_slice(&token[..flag]);
                    result.extend_from_slice((time_s + self.elapsed_s).to_string().as_bytes());
                    result.extend_from_slice(&token[end..]);
                }
                None => result.extend_from_slice(token),
            }
        }
        result
    }

    /// Returns the number of bytes of the value that follows the line.
    fn line(&mut self, request: &[u8], line: &[u8], result: &mut Vec<u8>) -> usize {
        let trimmed = line.strip_suffix(b"\r\n").unwrap_or(line);
        let mut words = trimmed.split(|&byte| byte == b' ');
        match words.next() {
            Some(b"VERSION") => {
                result.extend_from_slice(b"VERSION x\r\n");
                0
            }
            Some(b"VALUE") => self.value_line(line, result),
            Some(b"VA" | b"HD" | b"NS" | b"NF" | b"EX") => self.meta_line(request, line, result),
            _ => {
                result.extend_from_slice(line);
                0
            }
        }
    }

    fn value_line(&mut self, line: &[u8], result: &mut Vec<u8>) -> usize {
        let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        match words[..] {
            [_, key, flags, bytes, unique] => {
                let name = self.name(key, unique);
                result.extend_from_slice(&[b"VALUE", key, flags, bytes, &name].join(&b' '));
                result.extend_from_slice(b"\r\n");
                value_bytes(bytes)
            }
            [_, _, _, bytes] => {
                result.extend_from_slice(line);
                value_bytes(bytes)
            }
            _ => {
                result.extend_from_slice(line);
                0
            }
        }
    }

    fn meta_line(&mut self, request: &[u8], line: &[u8], result: &mut Vec<u8>) -> usize {
        let key = request.split(|&byte| byte == b' ' || byte == b'\r').nth(1).unwrap_or_default();
        let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        let is_value = words[0] == b"VA";
        for (at, word) in words.iter().enumerate() {
            if at > 0 {
                result.push(b' ');
            }
            match word.split_first() {
                Some((b'c', unique)) if is_number(unique) => {
                    result.push(b'c');
                    let name = self.name(key, unique);
                    result.extend_from_slice(&name);
                }
                Some((b't', time)) if is_number(time) => {
                    let tens = (number(time).unwrap() + 5) / 10;
                    result.extend_from_slice(format!("t~{}", tens * 10).as_bytes());
                }
                Some((b'l', time)) if is_number(time) => result.extend_from_slice(b"l~"),
                _ => result.extend_from_slice(word),
            }
        }
        result.extend_from_slice(&line[line.trim_ascii_end().len()..]);
        if is_value && words.len() > 1 { value_bytes(words[1]) } else { 0 }
    }

    fn name(&mut self, key: &[u8], unique: &[u8]) -> Vec<u8> {
        // A word that is not a number, or is too large a number, stays unchanged.
        let Some(unique) = number(unique) else { return unique.to_vec() };
        format!("CAS{}", self.uniques.number(key, unique)).into_bytes()
    }
}

/// Returns the length that `word` gives, plus the length of the line end.
fn value_bytes(word: &[u8]) -> usize {
    number(word).map_or(0, |bytes| usize::try_from(bytes).unwrap() + 2)
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

fn number(word: &[u8]) -> Option<u64> {
    if !is_number(word) {
        return None;
    }
    str::from_utf8(word).ok()?.parse().ok()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
