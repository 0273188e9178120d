//! Parses a transcript into steps.
//!
//! Where: reads the transcripts in this folder.
//! Invariant: a line that cannot be parsed fails the test.
//! Source: `README.md`, which defines the format.

use crate::frames::{FrameLine, frame_lines};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A parsed transcript. Each step has its line number.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) steps: Vec<(usize, Step)>,
}

pub(crate) enum Step {
    Start(Vec<String>),
    Send(char, Vec<Piece>),
    Expect(char, Vec<Piece>),
    /// The frames go out in one write, now or together with the next frames.
    SendFrames(char, Vec<FrameLine>, When),
    ExpectFrames(char, Vec<FrameLine>),
    /// Skips binary frames until a frame has the key of this line.
    ExpectLater(char, FrameLine),
    Closed(char),
    Waits(char),
    Shut(char),
    Drop(char),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    WithNext,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// A named CAS unique. The first reply with the name sets it; later replies must repeat it.
    Cas(String),
    /// A time, in seconds from now. In a reply, "now" may be any second since the transcript began,
    /// because a loaded machine may answer seconds late.
    Now(i64),
    /// Any bytes up to the next piece's bytes, or up to the end of a binary frame's field.
    Any,
}

/// The name of the connection for a line that names no connection.
const UNNAMED: char = '-';

impl Script {
    /// Skips lines that are marked for a version other than `program`. `None` means the server
    /// under test, for which no line is skipped.
    pub(crate) fn parse(name: &str, text: &str, program: Option<&str>) -> Script {
        let mut script = Script { name: name.to_owned(), steps: Vec::new() };
        let mut only = None;
        for (index, line) in text.lines().enumerate() {
            if let Some(other) = line.strip_prefix("only: ") {
                only = Some(other);
            } else if line.is_empty() {
                only = None;
            } else if !line.starts_with('#')
                && (program.is_none() || only.is_none_or(|one| program == Some(one)))
            {
                let step = step(line)
                    .unwrap_or_else(|| panic!("{name}:{}: invalid line: {line}", index + 1));
                script.steps.push((index + 1, step));
            }
        }
        if !matches!(script.steps.first(), None | Some((_, Step::Start(_)))) {
            script.steps.insert(0, (0, Step::Start(Vec::new())));
        }
        script
    }
}

fn step(line: &str) -> Option<Step> {
    if let Some(flags) = line.strip_prefix("flags:") {
        return Some(Step::Start(flags.split_whitespace().map(str::to_owned).collect()));
    }
    let first = line.chars().next()?;
    let (wire, line) =
        if first.is_ascii_lowercase() { (first, &line[1..]) } else { (UNNAMED, line) };
    match line {
        "! closed" => Some(Step::Closed(wire)),
        "! waits" => Some(Step::Waits(wire)),
        "! shuts" => Some(Step::Shut(wire)),
        "! drops" => Some(Step::Drop(wire)),
        ">" => Some(Step::Send(wire, pieces("")?)),
        "<" => Some(Step::Expect(wire, pieces("")?)),
        _ => match line.split_once(' ')? {
            (">", text) => Some(Step::Send(wire, pieces(text)?)),
            ("<", text) => Some(Step::Expect(wire, pieces(text)?)),
            (">>", text) => Some(Step::SendFrames(wire, frame_lines(text, false)?, When::Now)),
            (">+", text) => Some(Step::SendFrames(wire, frame_lines(text, false)?, When::WithNext)),
            ("<<", text) => Some(Step::ExpectFrames(wire, frame_lines(text, true)?)),
            ("<+", text) => Some(Step::ExpectLater(wire, frame_lines(text, true)?.pop()?)),
            _ => None,
        },
    }
}

/// Appends CRLF to the pieces unless the text ends with a backslash.
fn pieces(text: &str) -> Option<Vec<Piece>> {
    let (text, end) = match text.strip_suffix('\\') {
        Some(text) => (text, ""),
        None => (text, "\r\n"),
    };
    let mut pieces = braces(text)?;
    if let Some(Piece::Bytes(last)) = pieces.last_mut() {
        last.extend_from_slice(end.as_bytes());
    }
    Some(pieces)
}

/// Splits `text` into pieces: each pair of braces with its contents, and each text before, between
/// and after these pairs.
pub(crate) fn braces(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let end = closing(after)?;
        pieces.push(Piece::Bytes(unescape(before)?));
        pieces.push(braced(&after[..end])?);
        rest = &after[end + 1..];
    }
    pieces.push(Piece::Bytes(unescape(rest)?));
    Some(pieces)
}

/// Returns the position in `text` of the brace that closes the brace just before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn braced(inside: &str) -> Option<Piece> {
    if let Some(name) = inside.strip_prefix("cas ") {
        return Some(Piece::Cas(name.to_owned()));
    }
    if let Some(offset) = inside.strip_prefix("now") {
        return Some(Piece::Now(if offset.is_empty() { 0 } else { offset.parse().ok()? }));
    }
    if inside == "*" {
        return Some(Piece::Any);
    }
    let (text, count) = inside.rsplit_once('*')?;
    Some(Piece::Bytes(repeat(text, count.parse().ok()?)?))
}

/// Returns `count` copies of `text`, with repetitions expanded. In copy N, each `#` becomes N.
fn repeat(text: &str, count: usize) -> Option<Vec<u8>> {
    if !text.contains('#') {
        return Some(once(text)?.repeat(count));
    }
    let mut result = Vec::new();
    for number in 1..=count {
        result.extend(once(&text.replace('#', &number.to_string()))?);
    }
    Some(result)
}

/// Expands repetitions that contain no other repetition.
fn once(text: &str) -> Option<Vec<u8>> {
    let mut result = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let end = closing(after)?;
        let (inner, count) = after[..end].rsplit_once('*')?;
        result.extend(unescape(before)?);
        result.extend(unescape(inner)?.repeat(count.parse().ok()?));
        rest = &after[end + 1..];
    }
    result.extend(unescape(rest)?);
    Some(result)
}

/// Resolves `\r \n \t \\ \xHH`, and `\s`, which is a space at the beginning or end of a text.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut result = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            result.push(byte);
            continue;
        }
        result.push(match bytes.next()? {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b's' => b' ',
            b'\\' => b'\\',
            b'x' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(result)
}

fn shown(pieces: &[Piece]) -> String {
    let shown = pieces.iter().map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.escape_ascii().to_string(),
        Piece::Cas(name) => format!("{{cas {name}}}"),
        Piece::Now(offset_s) => format!("{{now{offset_s:+}}}"),
        Piece::Any => "{*}".to_owned(),
    });
    shown.collect()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) struct Values {
    uniques: HashMap<String, Vec<u8>>,
    began_s: u64,
}

impl Values {
    pub(crate) fn new() -> Self {
        Self { uniques: HashMap::new(), began_s: now_s() }
    }

    /// Replaces the names of CAS uniques and times by their values.
    pub(crate) fn fill(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut result = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => result.extend_from_slice(bytes),
                Piece::Cas(name) => result.extend_from_slice(&self.uniques[name]),
                Piece::Now(offset_s) => {
                    let time_s = now_s().checked_add_signed(*offset_s).unwrap();
                    result.extend_from_slice(time_s.to_string().as_bytes());
                }
                Piece::Any => panic!("{{*}} can only be expected"),
            }
        }
        result
    }

    /// Compares a line with pieces, and records the line's CAS uniques.
    pub(crate) fn matches(&mut self, pieces: &[Piece], line: &[u8]) -> Result<(), String> {
        let error = || format!("expected {}, got {}", shown(pieces), line.escape_ascii());
        let mut rest = line;
        for (at, piece) in pieces.iter().enumerate() {
            let taken = match piece {
                Piece::Any => match pieces.get(at + 1) {
                    Some(Piece::Bytes(next)) if !next.is_empty() => {
                        let mut windows = rest.windows(next.len());
                        windows.position(|window| window == next).unwrap_or(rest.len())
                    }
                    _ => rest.len(),
                },
                Piece::Cas(_) | Piece::Now(_) => {
                    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
                }
                Piece::Bytes(bytes) => bytes.len().min(rest.len()),
            };
            let (got, after) = rest.split_at(taken);
            rest = after;
            let alike = match piece {
                Piece::Any => true,
                Piece::Cas(name) => self.is_same_unique(name, got),
                Piece::Bytes(bytes) => got == bytes,
                Piece::Now(offset_s) => self.is_since_began(*offset_s, got),
            };
            if !alike {
                return Err(error());
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(error()) }
    }

    /// True if the time `got` minus `offset_s` lies between the transcript's start and now.
    fn is_since_began(&self, offset_s: i64, got: &[u8]) -> bool {
        let got = str::from_utf8(got).ok().and_then(|digits| digits.parse::<u64>().ok());
        let from_s = got.and_then(|time_s| time_s.checked_sub_signed(offset_s));
        from_s.is_some_and(|from_s| (self.began_s..=now_s()).contains(&from_s))
    }

    fn is_same_unique(&mut self, name: &str, got: &[u8]) -> bool {
        !got.is_empty()
            && *self.uniques.entry(name.to_owned()).or_insert_with(|| got.to_vec()) == got
    }
}
