//! A command with its bytes, in any of the three protocols.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: a command's bytes depend only on the command and on the CAS uniques that the
//! receiving server has shown, so that the same command can be sent to both servers.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Text,
    Meta,
    Binary,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Unique {
    /// The last unique that the server has shown for the command's key, in any protocol.
    Seen,
    /// The unique that the server has shown for the command's key before the last unique.
    Before,
    Number(u64),
}

/// This number is sent in place of a unique that the server has not shown yet.
const UNIQUE_NEVER_SEEN: u64 = 12_345_678;

impl Unique {
    /// `seen` has all uniques that the server has shown for the key, in order of appearance.
    pub(crate) fn number(self, seen: &[u64]) -> u64 {
        let seen = match self {
            Unique::Number(number) => return number,
            Unique::Seen => seen.last(),
            Unique::Before => seen.iter().rev().nth(1),
        };
        seen.copied().unwrap_or(UNIQUE_NEVER_SEEN)
    }
}

#[derive(Debug, Clone)]
enum Part {
    Bytes(Vec<u8>),
    Decimal(Unique),
    /// The most significant of the eight bytes comes first.
    Eight(Unique),
}

#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) protocol: Protocol,
    /// The name by which `Coverage` and `Liar` know the command, such as `get`, `mg` or `GETQ`.
    pub(crate) name: &'static str,
    pub(crate) flags: Vec<u8>,
    pub(crate) keys: Vec<&'static [u8]>,
    pub(crate) malformed: bool,
    /// Set if the command may change the items of all keys.
    pub(crate) touches_all: bool,
    /// Set if the server holds items while the command's reply is unsent.
    pub(crate) fetches: bool,
    /// Set if the command changes a number. The server changes the number in place if possible.
    pub(crate) counts: bool,
    /// Set if the server closes the connection after the command, which is the last of its batch.
    pub(crate) closes: bool,
    /// All commands with the same number are sent together.
    pub(crate) batch: usize,
    parts: Vec<Part>,
}

impl Command {
    pub(crate) fn new(protocol: Protocol, name: &'static str) -> Command {
        Command {
            protocol,
            name,
            flags: Vec::new(),
            keys: Vec::new(),
            malformed: false,
            touches_all: false,
            fetches: false,
            counts: false,
            closes: false,
            batch: 0,
            parts: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(Part::Bytes(before)) = self.parts.last_mut() {
            before.extend_from_slice(bytes);
        } else {
            self.parts.push(Part::Bytes(bytes.to_vec()));
        }
    }

    /// Puts an `mn` before the command, because an `mn` makes the server send all unsent replies.
    pub(crate) fn flush_before(&mut self) {
        self.parts.insert(0, Part::Bytes(b"mn\r\n".to_vec()));
    }

    pub(crate) fn push_decimal(&mut self, unique: Unique) {
        self.parts.push(Part::Decimal(unique));
    }

    pub(crate) fn push_eight(&mut self, unique: Unique) {
        self.parts.push(Part::Eight(unique));
    }

    pub(crate) fn key(&self) -> &'static [u8] {
        self.keys.first().copied().unwrap_or_default()
    }

    pub(crate) fn meets(&self, other: &Command) -> bool {
        self.touches_all || self.keys.iter().any(|key| other.keys.contains(key))
    }

    pub(crate) fn bytes(&self, seen: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            match part {
                Part::Bytes(more) => bytes.extend_from_slice(more),
                Part::Decimal(unique) => {
                    bytes.extend_from_slice(unique.number(seen).to_string().as_bytes());
                }
                Part::Eight(unique) => {
                    bytes.extend_from_slice(&unique.number(seen).to_be_bytes());
                }
            }
        }
        bytes
    }

    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            text += &match part {
                Part::Bytes(bytes) => brief(bytes),
                Part::Decimal(Unique::Number(number)) => number.to_string(),
                Part::Eight(Unique::Number(number)) => brief(&number.to_be_bytes()),
                Part::Decimal(unique) | Part::Eight(unique) => format!("{{{unique:?}}}"),
            };
        }
        let name = if self.protocol == Protocol::Binary { self.name } else { "" };
        format!("{:?} {name} {text}", self.protocol)
    }
}

fn brief(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 120;
    let mut text = String::new();
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    for run in shown.chunk_by(|one, next| one == next) {
        match run.len() {
            0..8 => text += &run.escape_ascii().to_string(),
            count => text += &format!("{{{}*{count}}}", run[..1].escape_ascii()),
        }
    }
    if shown.len() < bytes.len() {
        text += &format!(" … ({} bytes)", bytes.len());
    }
    text
}
