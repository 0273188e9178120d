//! Random, well-formed commands of the text protocol, on few keys so that they meet.
//!
//! Path: none, test data. Invariant: a command means the same whenever it is sent: its exptimes
//! lie far from now, and memcached 1.6.18 reads none of its numbers beyond the value's end, as it
//! does with 2^63 and more, and with spaces alone.

use std::time::{SystemTime, UNIX_EPOCH};

/// The most commands sent at once.
const BATCH_COMMANDS_MAX: u64 = 48;

/// Keys of small values, of numbers and of large values.
const KEYS: [&[u8]; 14] = [
    b"a",
    b"b",
    b"key:3",
    b"x\x01y",
    b"caf\xc3\xa9",
    &[b'k'; 250],
    b"c",
    b"n0",
    b"n1",
    b"n2",
    b"n3",
    b"large0",
    b"large1",
    b"large2",
];
const NUMBERS: std::ops::Range<usize> = 7..11;
const LARGE: std::ops::Range<usize> = 11..14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Gets,
    Gat,
    Gats,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    FlushAll,
    Verbosity,
}

use Verb::{
    Add, Append, Cas, Decr, Delete, FlushAll, Gat, Gats, Get, Gets, Incr, Prepend, Replace, Set,
    Touch, Verbosity,
};

/// The verbs, each with its share of a thousand.
const SHARES: [(Verb, u64); 16] = [
    (Get, 170),
    (Gets, 110),
    (Gat, 30),
    (Gats, 30),
    (Set, 180),
    (Add, 60),
    (Replace, 60),
    (Append, 55),
    (Prepend, 45),
    (Cas, 90),
    (Delete, 40),
    (Incr, 45),
    (Decr, 45),
    (Touch, 36),
    (FlushAll, 2),
    (Verbosity, 2),
];

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Get => "get",
            Gets => "gets",
            Gat => "gat",
            Gats => "gats",
            Set => "set",
            Add => "add",
            Replace => "replace",
            Append => "append",
            Prepend => "prepend",
            Cas => "cas",
            Delete => "delete",
            Incr => "incr",
            Decr => "decr",
            Touch => "touch",
            FlushAll => "flush_all",
            Verbosity => "verbosity",
        }
    }

    /// Whether the reply holds values, and so holds on to items until it is sent.
    pub(crate) fn is_fetch(self) -> bool {
        matches!(self, Get | Gets | Gat | Gats)
    }

    fn is_arithmetic(self) -> bool {
        matches!(self, Incr | Decr)
    }
}

/// Which CAS unique a `cas` quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unique {
    /// The one last seen for its key, if any.
    Seen,
    /// The one seen before that.
    Before,
    Number(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    keys: Vec<usize>,
    flags: u32,
    exptime: i64,
    value: Vec<u8>,
    pub(crate) unique: Unique,
    delta: u64,
    noreply: bool,
    /// Commands of one batch are sent at once.
    pub(crate) batch: usize,
}

impl Command {
    /// The first key; empty for commands without.
    pub(crate) fn key(&self) -> &'static [u8] {
        self.keys.first().map_or(b"", |&key| KEYS[key])
    }

    /// Whether two commands can have to do with each other.
    pub(crate) fn meets(&self, other: &Command) -> bool {
        self.verb == FlushAll || self.keys.iter().any(|key| other.keys.contains(key))
    }

    /// The command as it is sent, quoting this unique.
    pub(crate) fn bytes(&self, unique: u64) -> Vec<u8> {
        let mut line = self.verb.name().as_bytes().to_vec();
        let mut word = |word: &[u8]| {
            line.push(b' ');
            line.extend_from_slice(word);
        };
        let exptime = self.exptime.to_string();
        if matches!(self.verb, Gat | Gats) {
            word(exptime.as_bytes());
        }
        for &key in &self.keys {
            word(KEYS[key]);
        }
        match self.verb {
            Set | Add | Replace | Append | Prepend | Cas => {
                word(self.flags.to_string().as_bytes());
                word(exptime.as_bytes());
                word(self.value.len().to_string().as_bytes());
                if self.verb == Cas {
                    word(unique.to_string().as_bytes());
                }
            }
            Incr | Decr => word(self.delta.to_string().as_bytes()),
            Touch => word(exptime.as_bytes()),
            Verbosity => word(b"0"),
            _ => {}
        }
        if self.noreply {
            word(b"noreply");
        }
        line.extend_from_slice(b"\r\n");
        if matches!(self.verb, Set | Add | Replace | Append | Prepend | Cas) {
            line.extend_from_slice(&self.value);
            line.extend_from_slice(b"\r\n");
        }
        line
    }

    pub(crate) fn show(&self) -> String {
        let unique = match self.unique {
            Unique::Number(number) => number,
            Unique::Seen | Unique::Before => 0,
        };
        let quoted = if self.verb == Cas { format!(" ({:?})", self.unique) } else { String::new() };
        crate::live::show(&self.bytes(unique)) + &quoted
    }
}

/// Makes commands from a seed.
pub(crate) struct Generator {
    state: u64,
    now_s: i64,
    flushes: bool,
    batches: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64, flushes: bool) -> Generator {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Generator { state: seed, now_s: i64::try_from(now_s).unwrap(), flushes, batches: 0 }
    }

    /// Commands to be sent at once: one in four batches holds just one.
    pub(crate) fn batch(&mut self) -> Vec<Command> {
        self.batches += 1;
        let count = if self.below(4) == 0 { 1 } else { self.below(BATCH_COMMANDS_MAX) + 1 };
        let mut batch: Vec<Command> = Vec::new();
        for _ in 0..count {
            let command = self.command();
            // An item that an unsent reply holds is copied by memcached's incr, where it would
            // otherwise be changed in place; that shows in the length of the text.
            let fetched = |before: &Command| before.verb.is_fetch() && before.meets(&command);
            if command.verb.is_arithmetic() && batch.iter().any(fetched) {
                continue;
            }
            batch.push(command);
        }
        if batch.is_empty() { self.batch() } else { batch }
    }

    fn command(&mut self) -> Command {
        let verb = self.verb();
        let key = self.key();
        let mut keys = vec![key];
        if verb.is_fetch() && self.below(3) == 0 {
            for _ in 0..self.below(20) {
                keys.push(self.key());
            }
        }
        if matches!(verb, FlushAll | Verbosity) {
            keys.clear();
        }
        let value = match verb {
            Set | Add | Replace | Cas => self.value(key),
            Append | Prepend => self.piece(key),
            _ => Vec::new(),
        };
        Command {
            verb,
            keys,
            flags: self.flags(),
            exptime: self.exptime(),
            value,
            unique: self.unique(),
            delta: self.delta(),
            noreply: !verb.is_fetch() && self.below(12) == 0,
            batch: self.batches,
        }
    }

    fn verb(&mut self) -> Verb {
        loop {
            let total = SHARES.iter().map(|(_, share)| share).sum();
            let mut rest = self.below(total);
            for (verb, share) in SHARES {
                if rest < share {
                    if verb == FlushAll && !self.flushes {
                        break;
                    }
                    return verb;
                }
                rest -= share;
            }
        }
    }

    fn key(&mut self) -> usize {
        self.index(KEYS.len())
    }

    fn flags(&mut self) -> u32 {
        [0, 0, 0, 1, 77, u32::MAX][self.index(6)]
    }

    fn exptime(&mut self) -> i64 {
        match self.below(20) {
            0 => -1,
            1 => 2_592_001,
            2 => 2_592_000,
            3 => self.now_s + 5000,
            4 => self.now_s - 5000,
            5 | 6 => 1000,
            _ => 0,
        }
    }

    fn unique(&mut self) -> Unique {
        match self.below(8) {
            0 => Unique::Before,
            1 => Unique::Number(self.below(3)),
            2 => Unique::Number(u64::MAX),
            _ => Unique::Seen,
        }
    }

    fn delta(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => self.below(1_000_000_000_000),
            2 => 100_000,
            _ => self.below(30),
        }
    }

    /// A whole value, of the size and kind that its key is there for.
    fn value(&mut self, key: usize) -> Vec<u8> {
        if NUMBERS.contains(&key) && self.below(10) > 0 {
            let number = match self.below(6) {
                0 => self.below(1_000_000_000_000),
                _ => self.below(2000),
            };
            return number.to_string().into_bytes();
        }
        let bytes_max = match self.below(20) {
            // A text too long for the log is no number here, in memcached only from 512 KiB on.
            _ if NUMBERS.contains(&key) => 200,
            0..4 if LARGE.contains(&key) => 200_000,
            4 => 8000,
            5 | 6 => 1500,
            7 => 1,
            _ => 200,
        };
        let bytes = self.index(bytes_max);
        self.bytes(bytes)
    }

    /// What is appended or prepended.
    fn piece(&mut self, key: usize) -> Vec<u8> {
        if NUMBERS.contains(&key) && self.below(4) > 0 {
            return format!(" {} ", self.below(12)).into_bytes();
        }
        let bytes_max = if LARGE.contains(&key) { 20_000 } else { 60 };
        let bytes = self.index(bytes_max);
        self.bytes(bytes)
    }

    /// Any bytes, line ends and zeros included; the first is a letter, so that memcached's
    /// reading of numbers never runs past the value's end.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        const ALPHABET: &[u8; 16] = b"abcdefgXYZ09\r\n\0 ";
        let mut random = self.next() | 1;
        let mut value = Vec::with_capacity(count);
        for index in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let letters = if index == 0 { 7 } else { 16 };
            value.push(ALPHABET[usize::from(random.to_le_bytes()[3]) % letters]);
        }
        value
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(u64::try_from(limit).unwrap())).unwrap()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
