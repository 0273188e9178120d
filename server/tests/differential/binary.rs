//! Random, well-formed frames of the binary protocol.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: no frame has the opaque of a `fence`, the NOOP that follows each command.
//! Source: memcached 1.6.45 `protocol_binary.h` and `proto_bin.c`.

use crate::command::{Command, Protocol, Unique};
use crate::values::{KEYS, Values};

pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const NOOP: u8 = 0x0a;

/// The upper 16 bits of the opaque of a `fence`.
pub(crate) const FENCE: u32 = 0xfe0d_0000;

/// Opcode, name and relative frequency of each command. memcached lacks the last seven opcodes.
pub(crate) const OPCODES: [(u8, &str, u64); 39] = [
    (0x00, "GET", 90),
    (0x01, "SET", 100),
    (0x02, "ADD", 40),
    (0x03, "REPLACE", 40),
    (0x04, "DELETE", 30),
    (0x05, "INCREMENT", 40),
    (0x06, "DECREMENT", 40),
    (0x07, "QUIT", 2),
    (0x08, "FLUSH", 2),
    (0x09, "GETQ", 40),
    (0x0a, "NOOP", 10),
    (0x0b, "VERSION", 4),
    (0x0c, "GETK", 50),
    (0x0d, "GETKQ", 40),
    (0x0e, "APPEND", 30),
    (0x0f, "PREPEND", 30),
    (0x10, "STAT", 4),
    (0x11, "SETQ", 50),
    (0x12, "ADDQ", 20),
    (0x13, "REPLACEQ", 20),
    (0x14, "DELETEQ", 20),
    (0x15, "INCREMENTQ", 20),
    (0x16, "DECREMENTQ", 20),
    (0x17, "QUITQ", 2),
    (0x18, "FLUSHQ", 2),
    (0x19, "APPENDQ", 20),
    (0x1a, "PREPENDQ", 20),
    (0x1c, "TOUCH", 30),
    (0x1d, "GAT", 20),
    (0x1e, "GATQ", 20),
    (0x23, "GATK", 20),
    (0x24, "GATKQ", 20),
    (0x1b, "VERBOSITY", 3),
    (0x20, "SASL_LIST_MECHS", 3),
    (0x21, "SASL_AUTH", 3),
    (0x22, "SASL_STEP", 3),
    (0x30, "RGET", 3),
    (0x3c, "RDECRQ", 3),
    (0xff, "255", 3),
];

/// A binary frame whose fields can also be set to wrong values. A length that is `None` is the true
/// length of the key, the extras or the body.
pub(crate) struct Frame {
    pub(crate) name: &'static str,
    pub(crate) magic: u8,
    pub(crate) opcode: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) extras: Vec<u8>,
    pub(crate) data_type: u8,
    pub(crate) vbucket: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: Unique,
    pub(crate) value: Vec<u8>,
    pub(crate) key_bytes: Option<u16>,
    pub(crate) extras_bytes: Option<u8>,
    pub(crate) body_bytes: Option<u32>,
}

impl Frame {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(Protocol::Binary, self.name);
        self.append_to(&mut command);
        if let Some(key) = KEYS.iter().find(|key| self.key == **key) {
            command.keys.push(key);
        }
        command.fetches = self.name.starts_with("GA") || self.name.starts_with("GET");
        command.fetches |= self.name == "TOUCH";
        command.counts = self.name.contains("CREMENT");
        command.closes = self.name.starts_with("QUIT");
        command
    }

    pub(crate) fn append_to(&self, command: &mut Command) {
        let len = self.key.len() + self.extras.len() + self.value.len();
        let key_bytes = self.key_bytes.unwrap_or(u16::try_from(self.key.len()).unwrap());
        let extras_bytes = self.extras_bytes.unwrap_or(u8::try_from(self.extras.len()).unwrap());
        let body_bytes = self.body_bytes.unwrap_or(u32::try_from(len).unwrap());
        command.push(&[self.magic, self.opcode]);
        command.push(&key_bytes.to_be_bytes());
        command.push(&[extras_bytes, self.data_type]);
        command.push(&self.vbucket.to_be_bytes());
        command.push(&body_bytes.to_be_bytes());
        command.push(&self.opaque.to_be_bytes());
        command.push_eight(self.cas);
        command.push(&[&self.extras[..], &self.key, &self.value].concat());
    }

    fn bare(opcode: u8, name: &'static str) -> Frame {
        Frame {
            name,
            magic: 0x80,
            opcode,
            key: Vec::new(),
            extras: Vec::new(),
            data_type: 0,
            vbucket: 0,
            opaque: 0,
            cas: Unique::Number(0),
            value: Vec::new(),
            key_bytes: None,
            extras_bytes: None,
            body_bytes: None,
        }
    }
}

/// A binary NOOP, which makes the server send all earlier replies. Its opaque contains `number`.
pub(crate) fn fence(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    (bytes[0], bytes[1]) = (0x80, NOOP);
    let opaque = FENCE | u32::try_from(number).unwrap();
    bytes[12..16].copy_from_slice(&opaque.to_be_bytes());
    bytes
}

pub(crate) fn frame(values: &mut Values, opcode: u8, name: &'static str, all: bool) -> Frame {
    let mut frame = Frame::bare(opcode, name);
    let key = values.random.index(KEYS.len());
    frame.opaque = u32::try_from(values.random.below(u64::from(FENCE))).unwrap();
    if all && values.random.one_in(20) {
        // Neither server reads `data_type` and `vbucket`.
        frame.data_type = values.random.next().to_le_bytes()[0];
        frame.vbucket = u16::try_from(values.random.below(1 << 16)).unwrap();
    }
    if values.random.one_in(4) {
        frame.cas = values.unique();
    }
    frame.key = KEYS[key].to_vec();
    match name.trim_end_matches('Q') {
        "SET" | "ADD" | "REPLACE" => {
            frame.extras.extend_from_slice(&values.client_flags().to_be_bytes());
            frame.extras.extend_from_slice(&exptime(values));
            frame.value = values.value(key);
        }
        "APPEND" | "PREPEND" => frame.value = values.piece(key),
        "INCREMENT" | "DECREMENT" => {
            let initial = values.random.below(2000);
            frame.extras.extend_from_slice(&values.delta().to_be_bytes());
            frame.extras.extend_from_slice(&initial.to_be_bytes());
            let none = values.random.one_in(2) || !Values::may_count(key);
            frame.extras.extend(if none { [0xff; 4] } else { exptime(values) });
        }
        "TOUCH" | "GAT" | "GATK" => frame.extras = exptime(values).to_vec(),
        "GET" | "GETK" | "DELETE" => {}
        "STAT" => {
            let named: [&[u8]; 4] = [b"", b"reset", b"settings", b"nothing"];
            frame.key = values.random.pick(&named).to_vec();
        }
        "SASL_AUTH" | "SASL_STEP" => {
            frame.key = b"PLAIN".to_vec();
            frame.value = b"\0user\0secret".to_vec();
        }
        // After extras and key, memcached skips `body_bytes` more bytes, which the value supplies.
        "VERBOSITY" => {
            frame.extras = vec![0; 4];
            frame.key.clear();
            frame.value = vec![0; 4];
            frame.body_bytes = Some(4);
        }
        "RGET" | "RDECR" | "255" => {
            frame.value = vec![b'x'; frame.key.len() + 7];
            frame.body_bytes = Some(u32::try_from(frame.key.len() + 7).unwrap());
        }
        _ => frame.key.clear(),
    }
    frame
}

fn exptime(values: &mut Values) -> [u8; 4] {
    match values.exptime() {
        -1 => [0xff; 4],
        exptime => u32::try_from(exptime).unwrap().to_be_bytes(),
    }
}

/// A binary flush of memcached keeps items of the same second, so the command deletes all keys too.
pub(crate) fn flush(values: &mut Values, opcode: u8, name: &'static str) -> Command {
    let mut frame = Frame::bare(opcode, name);
    let delays: [&[u8]; 3] = [b"", &[0; 4], &[0, 1, 0, 0]];
    frame.extras = values.random.pick(&delays).to_vec();
    let mut command = frame.command();
    command.touches_all = true;
    for key in KEYS {
        let mut set = Frame::bare(0x11, "SETQ");
        (set.key, set.extras) = (key.to_vec(), vec![0; 8]);
        set.append_to(&mut command);
        let mut delete = Frame::bare(0x14, "DELETEQ");
        delete.key = key.to_vec();
        delete.append_to(&mut command);
    }
    command
}
