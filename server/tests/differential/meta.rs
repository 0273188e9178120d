//! Random, well-formed commands of the meta protocol, with any known flags in any order, including
//! flags that the command ignores.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: a command has no flag twice, and no more flags than memcached accepts.
//! Source: memcached 1.6.45 `_meta_flag_preparse` and `doc/protocol.txt`.

use crate::command::{Command, Protocol, Unique};
use crate::values::{KEYS, Values};

/// The verb and the relative frequency of each meta command.
pub(crate) const SHARES: [(&str, u64); 6] =
    [("mg", 400), ("ms", 300), ("md", 90), ("ma", 160), ("me", 60), ("mn", 10)];

/// The flags that each verb uses, including `q`.
pub(crate) const USED: [(&str, &[u8]); 4] = [
    ("mg", b"bcfhklOqstuvCENRT"),
    ("ms", b"bckqsOCEFIMNT"),
    ("md", b"bkqxOCEFIT"),
    ("ma", b"bckqtvOCDEJMNT"),
];

/// The flags of `USED` with the same meaning in all versions of memcached since 1.6.18.
pub(crate) const USED_LONG: [(&str, &[u8]); 4] =
    [("mg", b"bcfhklOqstvNRT"), ("ms", b"bckqOCFIMT"), ("md", b"bkqOCIT"), ("ma", b"bcktvOCDJMNT")];

/// All meta flags that memcached 1.6.45 accepts.
pub(crate) const KNOWN: &[u8; 25] = b"bcfhklqstuvxCDEFIJLMNOPRT";

/// Maximum number of flags: memcached accepts 20 words, and command, key and length are words too.
const FLAGS_MAX: usize = 16;

const OPAQUE_BYTES_MAX: u64 = 31;

#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    /// Adds flags that a verb ignores, or that only memcached 1.6.45 answers like this server.
    pub(crate) all: bool,
    /// Adds `E`, and values of `C` that no server gave out.
    pub(crate) chosen_uniques: bool,
    /// Set if each store gets a larger CAS unique than all earlier stores, as in memcached. In this
    /// server a key's uniques grow only while the key exists. `I` with a unique from before the
    /// key's deletion shows the difference.
    pub(crate) ordered: bool,
}

pub(crate) struct Line {
    pub(crate) verb: &'static str,
    pub(crate) key: usize,
    /// The key in the form that is sent, which may be base64.
    pub(crate) key_text: Vec<u8>,
    pub(crate) flags: Vec<Flag>,
    pub(crate) value: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) struct Flag {
    pub(crate) letter: u8,
    pub(crate) text: Vec<u8>,
    pub(crate) unique: Option<Unique>,
}

impl Line {
    /// `value_bytes` is the word for the value's length.
    pub(crate) fn command(&self, value_bytes: &[u8]) -> Command {
        let mut command = Command::new(Protocol::Meta, self.verb);
        command.push(self.verb.as_bytes());
        if self.verb != "mn" {
            command.push(b" ");
            command.push(&self.key_text);
            command.keys = vec![KEYS[self.key]];
        }
        if self.value.is_some() {
            command.push(b" ");
            command.push(value_bytes);
        }
        for flag in &self.flags {
            command.push(&[b' ', flag.letter]);
            command.push(&flag.text);
            if let Some(unique) = flag.unique {
                command.push_decimal(unique);
            }
            command.flags.push(flag.letter);
        }
        command.push(b"\r\n");
        if let Some(value) = &self.value {
            command.push(value);
            command.push(b"\r\n");
        }
        command.fetches = self.verb == "mg";
        command.counts = self.verb == "ma";
        command
    }

    pub(crate) fn well_formed(&self) -> Command {
        let bytes = self.value.as_ref().map_or(0, Vec::len);
        self.command(bytes.to_string().as_bytes())
    }

    fn has(&self, letter: u8) -> bool {
        self.flags.iter().any(|flag| flag.letter == letter)
    }
}

pub(crate) fn line(values: &mut Values, verb: &'static str, dialect: Dialect) -> Line {
    let key = values.random.index(KEYS.len());
    let mut line = Line { verb, key, key_text: KEYS[key].to_vec(), flags: Vec::new(), value: None };
    let table = if dialect.all { &USED } else { &USED_LONG };
    let used = table.iter().find(|(one, _)| *one == verb).map_or(&b""[..], |(_, used)| used);
    let mut letters: Vec<u8> = Vec::new();
    let often = values.random.pick(&[2, 4, 8]);
    for &letter in KNOWN {
        let once = if used.contains(&letter) { often } else { 60 };
        let wanted = (dialect.all || used.contains(&letter)) && verb != "mn";
        if wanted && values.random.one_in(once) && letters.len() < FLAGS_MAX {
            letters.push(letter);
        }
    }
    // A key with a space needs base64; the longest key's base64 would be too long.
    letters.retain(|letter| *letter != b'b');
    let in_text = !KEYS[key].contains(&b' ');
    if verb != "mn" && (!in_text || KEYS[key].len() < 100 && values.random.one_in(4)) {
        letters.push(b'b');
        line.key_text = base64(KEYS[key]);
    }
    if verb == "ma" && !Values::may_count(key) {
        letters.retain(|letter| *letter != b'N');
    }
    if !dialect.chosen_uniques || !dialect.all {
        letters.retain(|letter| *letter != b'E');
    }
    values.random.shuffle(&mut letters);
    if verb == "me" {
        // `me` accepts `b` only as the first of several flags. A single `b` has no effect.
        let base64 = letters.contains(&b'b');
        letters =
            if base64 { values.random.pick(&[&b"bv"[..], b"bv", b"b"]) } else { b"" }.to_vec();
    }
    line.flags = letters.iter().map(|&letter| flag(values, verb, letter, dialect)).collect();
    if verb == "ms" {
        let piece = line.flags.iter().any(|flag| matches!(flag.text.first(), Some(b'A' | b'P')));
        let adds = piece && line.has(b'M');
        line.value = Some(if adds { values.piece(key) } else { values.value(key) });
    }
    if line.has(b'I') && !dialect.ordered {
        for flag in line.flags.iter_mut().filter(|flag| flag.letter == b'C') {
            flag.unique = Some(values.chosen_unique());
        }
    }
    if verb == "ma" && (line.has(b'E') || line.has(b'T')) {
        stay_in_place(&mut line);
        values.random.shuffle(&mut line.flags);
    }
    line
}

/// Makes the command a decrement, so that the number's text cannot grow. If the text grows,
/// memcached copies the item and applies `E` and `T` to the old item.
pub(crate) fn stay_in_place(line: &mut Line) {
    line.flags.retain(|flag| flag.letter != b'M');
    line.flags.push(Flag { letter: b'M', text: b"D".to_vec(), unique: None });
}

fn flag(values: &mut Values, verb: &str, letter: u8, dialect: Dialect) -> Flag {
    let mut unique = None;
    let text = match letter {
        b'N' | b'T' => values.exptime().to_string(),
        b'R' => values.recache().to_string(),
        b'F' => values.client_flags().to_string(),
        b'D' => values.delta().to_string(),
        b'J' if dialect.all && values.random.one_in(8) => u64::MAX.to_string(),
        b'J' => values.random.below(2000).to_string(),
        b'O' => opaque(values),
        b'L' | b'P' => values.random.pick(&["", "path", "1"]).to_owned(),
        b'M' if verb == "ma" => values.random.pick(&["I", "D", "+", "-"]).to_owned(),
        b'M' => values.random.pick(&["E", "A", "P", "R", "S", "A", "P"]).to_owned(),
        b'C' | b'E' => {
            unique = Some(match (letter, dialect.chosen_uniques) {
                (b'E', _) => values.chosen_unique(),
                (_, true) => values.unique(),
                (_, false) => Unique::Seen,
            });
            String::new()
        }
        _ => String::new(),
    };
    Flag { letter, text: text.into_bytes(), unique }
}

fn opaque(values: &mut Values) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPcfhklstuvWXZ0123";
    let bytes = match values.random.below(10) {
        0 => OPAQUE_BYTES_MAX,
        1 => 0,
        _ => 1 + values.random.below(8),
    };
    (0..bytes).map(|_| char::from(values.random.pick(LETTERS))).collect()
}

/// Encodes `bytes` as base64 with padding (RFC 4648).
pub(crate) fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = LETTERS[usize::try_from(bits >> shift & 63).unwrap()];
            text.push(if at <= three.len() { letter } else { b'=' });
        }
    }
    text
}
