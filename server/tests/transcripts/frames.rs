//! Binary frames in transcripts: `set key=k flags=7 value=abc`, as requests and as replies.
//!
//! Where: reads the transcripts in this folder.
//! Invariant: the test fails at an unknown field, and at a byte of a reply that no field describes.
//! Source: the format in `README.md`.

use crate::live::frame::{Frame, OPCODES, REPLY, REQUEST};
use crate::script::{Piece, Values, braces, unescape};
use std::fmt::{self, Display, Formatter};

pub(crate) struct FrameLine {
    text: String,
    opcode: u8,
    fields: Vec<(String, Vec<Piece>)>,
}

const OF_REQUESTS: [&str; 15] = [
    "magic", "keylen", "extlen", "datatype", "vbucket", "bodylen", "opaque", "cas", "extras",
    "flags", "exptime", "delta", "initial", "key", "value",
];
const OF_REPLIES: [&str; 8] =
    ["status", "opaque", "cas", "extras", "flags", "key", "number", "value"];

/// Parses the text after `>>`, `>+`, `<<` or `<+`: a frame, or a count like `*500` and a frame.
pub(crate) fn frame_lines(text: &str, reply: bool) -> Option<Vec<FrameLine>> {
    let known = if reply { &OF_REPLIES[..] } else { &OF_REQUESTS };
    let Some((count, text)) = text.strip_prefix('*').and_then(|rest| rest.split_once(' ')) else {
        return Some(vec![frame_line(text, known)?]);
    };
    let count: usize = count.parse().ok()?;
    (1..=count).map(|number| frame_line(&text.replace('#', &number.to_string()), known)).collect()
}

fn frame_line(text: &str, known: &[&str]) -> Option<FrameLine> {
    // The rest of the line is the value, which may contain spaces.
    let (head, value) = match text.split_once(" value=") {
        Some((head, value)) => (head, Some(value)),
        None => (text, None),
    };
    let mut words = words(head).into_iter();
    let name = words.next()?;
    let opcode = match OPCODES.iter().find(|(one, _)| *one == name) {
        Some((_, opcode)) => *opcode,
        None => u8::from_str_radix(name.strip_prefix("0x")?, 16).ok()?,
    };
    let fields =
        words.map(|word| word.split_once('=')).chain(value.map(|text| Some(("value", text))));
    let fields = fields.map(|field| {
        let (name, text) = field?;
        known.contains(&name).then_some((name.to_owned(), braces(text)?))
    });
    Some(FrameLine { text: text.to_owned(), opcode, fields: fields.collect::<Option<_>>()? })
}

fn words(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_end = |one: char| {
        depth += i32::from(one == '{') - i32::from(one == '}');
        one == ' ' && depth == 0
    };
    text.split(is_end).collect()
}

impl FrameLine {
    fn field(&self, name: &str) -> Option<&[Piece]> {
        let mut fields = self.fields.iter();
        fields.find(|(one, _)| one == name).map(|(_, pieces)| pieces.as_slice())
    }

    fn bytes(&self, name: &str, values: &Values) -> Vec<u8> {
        self.field(name).map(|pieces| values.fill(pieces)).unwrap_or_default()
    }

    /// Returns the value of the field `name`, or `None` if the line does not name the field.
    fn declared<T: TryFrom<u64>>(&self, name: &str, values: &Values) -> Option<T> {
        let text = String::from_utf8(values.fill(self.field(name)?)).unwrap();
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        Some(number.unwrap_or_else(|| panic!("{name} in {}", self.text)))
    }

    fn number<T: TryFrom<u64> + Default>(&self, name: &str, values: &Values) -> T {
        self.declared(name, values).unwrap_or_default()
    }

    /// Returns the extras that the line gives, or by default the extras that the opcode needs.
    fn extras(&self, values: &Values) -> Vec<u8> {
        if self.field("extras").is_some() {
            return hex(&self.bytes("extras", values));
        }
        let exptime = || self.number::<u32>("exptime", values).to_be_bytes();
        let initial = || self.number::<u64>("initial", values).to_be_bytes();
        match self.opcode {
            // The opcodes of set, add and replace.
            0x01..=0x03 | 0x11..=0x13 => {
                let flags: u32 = self.number("flags", values);
                [flags.to_be_bytes(), exptime()].concat()
            }
            // The opcodes of incr and decr.
            0x05 | 0x06 | 0x15 | 0x16 => {
                let delta: u64 = self.declared("delta", values).unwrap_or(1);
                [&delta.to_be_bytes()[..], &initial(), &exptime()].concat()
            }
            // The opcodes of touch, gat and gatk. Only a delayed flush has an exptime.
            0x1c..=0x1e | 0x23 | 0x24 => exptime().to_vec(),
            0x08 | 0x18 if self.field("exptime").is_some() => exptime().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Encodes a request. Header fields that the line names get the line's numbers, even wrong
    /// ones.
    pub(crate) fn request(&self, values: &Values) -> Vec<u8> {
        let (key, value) = (self.bytes("key", values), self.bytes("value", values));
        let truth = Frame::new(REQUEST, self.opcode, &self.extras(values), &key, &value);
        let frame = Frame {
            magic: self.declared("magic", values).unwrap_or(truth.magic),
            key_bytes: self.declared("keylen", values).unwrap_or(truth.key_bytes),
            extras_bytes: self.declared("extlen", values).unwrap_or(truth.extras_bytes),
            datatype: self.number("datatype", values),
            status: self.number("vbucket", values),
            body_bytes: self.declared("bodylen", values).unwrap_or(truth.body_bytes),
            opaque: self.number("opaque", values),
            cas: self.number("cas", values),
            ..truth
        };
        frame.encode()
    }

    /// True if `got` answers another key. The reply to this line's key must then come later.
    pub(crate) fn is_later(&self, values: &Values, got: &Frame) -> bool {
        let (_, key, _) = got.parts();
        got.opcode == self.opcode && !key.is_empty() && key != self.bytes("key", values)
    }

    /// Compares a reply with the line, and records the reply's CAS unique.
    pub(crate) fn matches(&self, values: &mut Values, got: &Frame) -> Result<(), String> {
        let (_, key, value) = got.parts();
        let extras = match self.declared::<u32>("flags", values) {
            Some(flags) => flags.to_be_bytes().to_vec(),
            None => hex(&self.bytes("extras", values)),
        };
        let expected = Frame {
            status: self.number("status", values),
            opaque: self.number("opaque", values),
            cas: got.cas,
            ..Frame::new(REPLY, self.opcode, &extras, key, value)
        };
        let is_unique = |pieces: &[Piece]| pieces.iter().any(|one| matches!(one, Piece::Cas(_)));
        let cas = self.field("cas").unwrap_or_default();
        let cas = match got.cas {
            0 => !is_unique(cas) && matches!(self.declared("cas", values), None | Some(0_u64)),
            unique => values.matches(cas, unique.to_string().as_bytes()).is_ok(),
        };
        let value = match self.declared::<u64>("number", values) {
            Some(number) => value == number.to_be_bytes(),
            None => values.matches(self.field("value").unwrap_or_default(), value).is_ok(),
        };
        let key = values.matches(self.field("key").unwrap_or_default(), key).is_ok();
        if *got == expected && cas && key && value {
            return Ok(());
        }
        Err(format!("expected {}, got {got}", self.text))
    }
}

impl Display for FrameLine {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

fn hex(digits: &[u8]) -> Vec<u8> {
    let text = digits.chunks(2).map(|pair| format!("\\x{}", pair.escape_ascii()));
    unescape(&text.collect::<String>()).unwrap()
}
