//! Reads replies and normalises them, so that the replies of two servers can be compared.
//!
//! Where: client side.
//! Invariant: a CAS unique is replaced by its ordinal among the uniques of its key. Times are
//! compared with a tolerance, statistics only by status, and all other replies byte by byte.

use crate::binary::{self, FENCE, HEADER_BYTES, NOOP};
use crate::command::{Command, Protocol};
use crate::live::{Stop, Wire};
use crate::values::CHOSEN_UNIQUE;
use std::collections::HashMap;

/// Maximum difference between the servers' times: each server updates an access time only once in
/// 60 s, and the system may have stopped either server for some time.
const SECONDS_APART_MAX: i64 = 200;

/// The mark at the end of a reply that did not arrive in time.
const SILENT: &[u8] = b"<Silent>";

pub(crate) type Seen = HashMap<Vec<u8>, Vec<u64>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) text: Vec<u8>,
    times: Vec<i64>,
    /// The categories that `Coverage` counts: codes, statuses, errors, marks.
    pub(crate) kinds: Vec<String>,
}

impl Reply {
    pub(crate) fn is_like(&self, other: &Reply) -> bool {
        // The time since an old access may wrap around in both servers.
        let near = |(one, two): (&i64, &i64)| (one - two).abs() <= SECONDS_APART_MAX;
        // A missing reply is a fault, even if neither server sends the reply.
        self.text == other.text
            && !self.text.ends_with(SILENT)
            && self.times.len() == other.times.len()
            && self.times.iter().zip(&other.times).all(near)
    }

    pub(crate) fn show(&self) -> String {
        let times =
            if self.times.is_empty() { String::new() } else { format!(" {:?}", self.times) };
        crate::live::show(&self.text) + &times
    }

    pub(crate) fn end(&mut self, how: &str) {
        self.text.extend_from_slice(format!("<{how}>").as_bytes());
        self.kinds.push(how.to_owned());
    }
}

pub(crate) fn fence(protocol: Protocol, number: usize) -> Vec<u8> {
    match protocol {
        Protocol::Text | Protocol::Meta => format!("md fence Of{number}\r\n").into_bytes(),
        Protocol::Binary => binary::fence(number),
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Fence(usize),
    Line(Vec<u8>, Option<Vec<u8>>),
    Frame([u8; HEADER_BYTES], Vec<u8>),
}

pub(crate) fn read(wire: &mut Wire, protocol: Protocol) -> Result<Piece, Stop> {
    if protocol == Protocol::Binary {
        return read_frame(wire);
    }
    let line = wire.line()?;
    if let Some(number) = line.strip_prefix(b"NF Of").and_then(|rest| decimal(rest.trim_ascii())) {
        return Ok(Piece::Fence(usize::try_from(number).unwrap()));
    }
    let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
    let bytes = match words[..] {
        [b"VALUE", _, _, bytes] | [b"VALUE", _, _, bytes, _] | [b"VA", bytes, ..] => decimal(bytes),
        _ => None,
    };
    let value = match bytes {
        Some(bytes) => Some(wire.exactly(usize::try_from(bytes).unwrap() + 2)?),
        None => None,
    };
    Ok(Piece::Line(line, value))
}

fn read_frame(wire: &mut Wire) -> Result<Piece, Stop> {
    let header: [u8; HEADER_BYTES] = wire.exactly(HEADER_BYTES)?.try_into().unwrap();
    let opaque = u32_at(&header, 12);
    if header[1] == NOOP && opaque & 0xffff_0000 == FENCE {
        return Ok(Piece::Fence(usize::try_from(opaque & 0xffff).unwrap()));
    }
    // Without the magic of a reply, the header's length field is not valid.
    let body_bytes = if header[0] == 0x81 { u32_at(&header, 8) } else { 0 };
    let body = wire.exactly(usize::try_from(body_bytes).unwrap())?;
    Ok(Piece::Frame(header, body))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn decimal(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

pub(crate) fn append(reply: &mut Reply, command: &Command, piece: Piece, seen: &mut Seen) {
    match piece {
        Piece::Fence(_) => {}
        Piece::Line(line, value) => {
            append_line(reply, command, &line, seen);
            reply.text.extend_from_slice(&value.unwrap_or_default());
        }
        Piece::Frame(header, body) => append_frame(reply, command, &header, &body, seen),
    }
}

fn append_line(reply: &mut Reply, command: &Command, line: &[u8], seen: &mut Seen) {
    let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
    let code = String::from_utf8_lossy(words[0]).into_owned();
    match words[..] {
        [b"VALUE", key, flags, bytes, ref unique @ ..] => {
            reply.text.extend_from_slice(&[b"VALUE", key, flags, bytes].join(&b' '));
            for unique in unique {
                append_unique(reply, key, unique, seen);
            }
            reply.text.extend_from_slice(b"\r\n");
        }
        [b"ME", .., exp, la, cas, fetch, _, _] if exp.starts_with(b"exp=") => {
            let key = &words[..words.len() - 6];
            reply.text.extend_from_slice(&[&key.join(&b' '), fetch].join(&b' '));
            append_time(reply, &exp[4..]);
            append_time(reply, &la[3..]);
            append_unique(reply, command.key(), &cas[4..], seen);
            reply.text.extend_from_slice(b"\r\n");
        }
        [b"HD" | b"VA" | b"NS" | b"EX" | b"NF" | b"EN", ref flags @ ..] => {
            reply.text.extend_from_slice(words[0]);
            for flag in flags {
                append_flag(reply, command, flag, seen);
            }
            reply.text.extend_from_slice(b"\r\n");
        }
        _ => reply.text.extend_from_slice(line),
    }
    let of_code = match words[0] {
        b"HD" | b"VA" | b"NS" | b"EX" | b"NF" | b"EN" => {
            let marks = words.iter().filter(|word| matches!(**word, b"W" | b"X" | b"Z"));
            let marks = marks.map(|mark| format!("{} {}", command.name, mark.escape_ascii()));
            reply.kinds.extend(marks);
            format!("{} {code}", command.name)
        }
        b"CLIENT_ERROR" | b"SERVER_ERROR" => line.trim_ascii().escape_ascii().to_string(),
        number if decimal(number).is_some() => "number".to_owned(),
        word if word.len() > 1 && word.iter().all(|byte| byte.is_ascii_uppercase()) => code,
        b"NOT_FOUND" | b"NOT_STORED" => code,
        _ => return,
    };
    reply.kinds.push(of_code);
}

fn append_flag(reply: &mut Reply, command: &Command, flag: &[u8], seen: &mut Seen) {
    match flag {
        [b't', seconds @ ..] | [b'l', seconds @ ..] if decimal(seconds).is_some() => {
            reply.text.extend_from_slice(&[b' ', flag[0]]);
            append_time(reply, seconds);
        }
        [b'c', unique @ ..] if decimal(unique).is_some() => {
            reply.text.extend_from_slice(b" c");
            append_unique(reply, command.key(), unique, seen);
        }
        _ => {
            reply.text.push(b' ');
            reply.text.extend_from_slice(flag);
        }
    }
}

/// Appends a time. memcached prints the remaining seconds in 32 bits, signed or unsigned.
fn append_time(reply: &mut Reply, seconds: &[u8]) {
    let seconds = str::from_utf8(seconds).ok().and_then(|text| text.parse::<i64>().ok());
    match seconds {
        Some(-1) => reply.text.extend_from_slice(b" -1"),
        Some(seconds) => reply.times.push(seconds),
        None => reply.text.extend_from_slice(b" <no time>"),
    }
}

/// Appends the ordinal of a CAS unique, or the unique itself if a client chose the unique.
fn append_unique(reply: &mut Reply, key: &[u8], unique: &[u8], seen: &mut Seen) {
    let text = match decimal(unique) {
        Some(unique) => appearance(key, unique, seen),
        None => "<no number>".to_owned(),
    };
    reply.text.extend_from_slice(b" unique ");
    reply.text.extend_from_slice(text.as_bytes());
}

fn appearance(key: &[u8], unique: u64, seen: &mut Seen) -> String {
    if unique == 0 {
        return "none".to_owned();
    }
    let known = seen.entry(key.to_vec()).or_default();
    let at = match known.iter().rposition(|&one| one == unique) {
        Some(at) => at,
        None => {
            known.push(unique);
            known.len() - 1
        }
    };
    if unique > CHOSEN_UNIQUE { unique.to_string() } else { format!("#{at}") }
}

fn append_frame(
    reply: &mut Reply,
    command: &Command,
    header: &[u8; HEADER_BYTES],
    body: &[u8],
    seen: &mut Seen,
) {
    let status = u16::from_be_bytes([header[6], header[7]]);
    let key_bytes = u16::from_be_bytes([header[2], header[3]]);
    reply.kinds.push(format!("{} {status:#04x}", command.name));
    reply.kinds.push(format!("status {status:#04x}"));
    // The two servers have different statistics.
    if command.name == "STAT" && key_bytes > 0 {
        reply.kinds.truncate(2);
        return;
    }
    let mut shown = *header;
    shown[16..].fill(0);
    reply.text.extend_from_slice(&shown[..16]);
    let unique = u64::from_be_bytes(header[16..].try_into().unwrap());
    let unique = appearance(command.key(), unique, seen);
    reply.text.extend_from_slice(format!(" unique {unique} ").as_bytes());
    reply.text.extend_from_slice(body);
}
