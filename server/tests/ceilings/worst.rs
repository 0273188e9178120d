//! The worst legal forms of all commands, as bytes.
//!
//! Where: generated from the tables of text and binary commands.
//! Invariant: each row of the tables has at least one form. If a binary command gets a new shape,
//! this file does not compile until it has a form for the shape.

use std::ops::RangeInclusive;

use columns::limits::MESSAGE_BYTES_MAX;
use protocol::binary::opcode::{OPCODES, Opcode, Shape};
use protocol::binary::{Header, MAGIC_REQUEST};
use protocol::{COMMANDS, KEY_BYTES_MAX};

const VALUE_BYTES: usize = 60_000;

pub(crate) struct WorstForm {
    pub(crate) name: String,
    bytes: Vec<u8>,
}

impl WorstForm {
    pub(crate) fn once(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    pub(crate) fn often(&self) -> Vec<u8> {
        self.filling(MESSAGE_BYTES_MAX)
    }

    /// Repeats the form as often as it fits in `bytes` bytes. A form that does not fit is
    /// truncated.
    pub(crate) fn filling(&self, bytes: usize) -> Vec<u8> {
        let mut all = self.bytes.repeat((bytes / self.bytes.len()).max(1));
        all.truncate(bytes);
        all
    }
}

pub(crate) fn all() -> Vec<WorstForm> {
    let text = COMMANDS.iter().flat_map(|command| command.worst).map(|worst| WorstForm {
        name: (*worst).to_owned(),
        bytes: [&expanded(worst)[..], b"\r\n"].concat(),
    });
    text.chain(OPCODES.iter().flat_map(binary)).collect()
}

/// Expands `{text*N}` to N copies of the text. In copy number n, each `#` becomes n.
fn expanded(text: &str) -> Vec<u8> {
    let mut all = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, behind) = behind.split_once('}').unwrap();
        let (part, count) = inside.rsplit_once('*').unwrap();
        let numbers: RangeInclusive<u32> = 1..=count.parse().unwrap();
        all.push_str(before);
        numbers.for_each(|number| all.push_str(&part.replace('#', &number.to_string())));
        rest = behind;
    }
    all.push_str(rest);
    all.into_bytes()
}

fn binary(opcode: &Opcode) -> Vec<WorstForm> {
    let key = |text: &str| (0, text.as_bytes().to_vec(), 0);
    let longest = vec![b'k'; KEY_BYTES_MAX];
    let forms = match opcode.shape {
        Shape::Get { .. } => vec![key("b"), key("v")],
        Shape::GetAndTouch { .. } | Shape::Touch => vec![(4, b"b".to_vec(), 0)],
        Shape::Store(_) => vec![(8, longest, VALUE_BYTES)],
        Shape::Extend(_) => vec![(0, b"v".to_vec(), 1)],
        Shape::Delete => vec![(0, longest, 0)],
        Shape::Delta { .. } => vec![(20, b"n".to_vec(), 0)],
        Shape::Flush => vec![(4, Vec::new(), 0)],
        Shape::Noop | Shape::Version | Shape::Quit | Shape::SaslList => vec![key("")],
        Shape::Sasl => vec![(0, b"PLAIN".to_vec(), VALUE_BYTES)],
        Shape::Stat => {
            let text = COMMANDS.iter().flat_map(|command| command.worst);
            text.filter_map(|worst| worst.strip_prefix("stats")).map(|it| key(it.trim())).collect()
        }
    };
    let form = |(extras_bytes, key, value_bytes): (u8, Vec<u8>, usize)| {
        let body_bytes = usize::from(extras_bytes) + key.len() + value_bytes;
        let header = Header {
            magic: MAGIC_REQUEST,
            opcode: opcode.code,
            extras_bytes,
            key_bytes: u16::try_from(key.len()).unwrap(),
            body_bytes: u32::try_from(body_bytes).unwrap(),
            ..Header::default()
        };
        // The extras have an exptime of one day, so that no item expires before the next request.
        let extras = &[0, 1, 0x51, 0x80].repeat(5)[..usize::from(extras_bytes)];
        let value = vec![b'v'; value_bytes];
        let name = format!("binary {} {}", opcode.name, key.escape_ascii());
        WorstForm { name, bytes: [&header.to_bytes()[..], extras, &key, &value].concat() }
    };
    forms.into_iter().map(form).collect()
}
