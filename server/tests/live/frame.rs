//! A binary frame: a header of 24 bytes and a body. Tests decode and encode frames.
//!
//! Where: client side.
//! Invariant: encoding a decoded frame gives the original bytes. No field is assumed to be correct.
//! Source: memcached's `protocol_binary.h`.
//!
//! ```text
//! 0      1       2         4        5         6         8         12      16   24
//! magic  opcode  key       extras   datatype  vbucket   body      opaque  cas  extras key value
//!                length:2  length   0         /status:2 length:4  :4      :8
//! ```

use super::{Stop, Wire};
use std::fmt::{self, Display, Formatter};
use std::time::Instant;

pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const REQUEST: u8 = 0x80;
pub(crate) const REPLY: u8 = 0x81;
pub(crate) const NOOP: u8 = 0x0a;
pub(crate) const VERSION: u8 = 0x0b;

pub(crate) const OPCODES: [(&str, u8); 35] = [
    ("get", 0x00),
    ("set", 0x01),
    ("add", 0x02),
    ("replace", 0x03),
    ("delete", 0x04),
    ("incr", 0x05),
    ("decr", 0x06),
    ("quit", 0x07),
    ("flush", 0x08),
    ("getq", 0x09),
    ("noop", NOOP),
    ("version", VERSION),
    ("getk", 0x0c),
    ("getkq", 0x0d),
    ("append", 0x0e),
    ("prepend", 0x0f),
    ("stat", 0x10),
    ("setq", 0x11),
    ("addq", 0x12),
    ("replaceq", 0x13),
    ("deleteq", 0x14),
    ("incrq", 0x15),
    ("decrq", 0x16),
    ("quitq", 0x17),
    ("flushq", 0x18),
    ("appendq", 0x19),
    ("prependq", 0x1a),
    ("touch", 0x1c),
    ("gat", 0x1d),
    ("gatq", 0x1e),
    ("sasl-list", 0x20),
    ("sasl-auth", 0x21),
    ("sasl-step", 0x22),
    ("gatk", 0x23),
    ("gatkq", 0x24),
];

/// The length fields are those of the header, even if they do not match the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) magic: u8,
    pub(crate) opcode: u8,
    pub(crate) key_bytes: u16,
    pub(crate) extras_bytes: u8,
    pub(crate) datatype: u8,
    /// The status in a reply; the virtual bucket in a request.
    pub(crate) status: u16,
    pub(crate) body_bytes: u32,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    /// Sets the length fields to match the body.
    pub(crate) fn new(magic: u8, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Frame {
        let body = [extras, key, value].concat();
        Frame {
            magic,
            opcode,
            key_bytes: u16::try_from(key.len()).unwrap(),
            extras_bytes: u8::try_from(extras.len()).unwrap(),
            body_bytes: u32::try_from(body.len()).unwrap(),
            body,
            ..Frame::default()
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.magic, self.opcode];
        bytes.extend(self.key_bytes.to_be_bytes());
        bytes.extend([self.extras_bytes, self.datatype]);
        bytes.extend(self.status.to_be_bytes());
        bytes.extend(self.body_bytes.to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Returns `None` if the first frame in `bytes` is incomplete.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Frame> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let body_bytes = u32::from_be_bytes(*header[8..].first_chunk()?);
        Some(Frame {
            magic: header[0],
            opcode: header[1],
            key_bytes: u16::from_be_bytes(*header[2..].first_chunk()?),
            extras_bytes: header[4],
            datatype: header[5],
            status: u16::from_be_bytes(*header[6..].first_chunk()?),
            body_bytes,
            opaque: u32::from_be_bytes(*header[12..].first_chunk()?),
            cas: u64::from_be_bytes(*header[16..].first_chunk()?),
            body: body.get(..usize::try_from(body_bytes).unwrap())?.to_vec(),
        })
    }

    /// Returns extras, key and value. None of the three extends beyond the body's end.
    pub(crate) fn parts(&self) -> (&[u8], &[u8], &[u8]) {
        let extras_bytes = usize::from(self.extras_bytes).min(self.body.len());
        let (extras, rest) = self.body.split_at(extras_bytes);
        let (key, value) = rest.split_at(usize::from(self.key_bytes).min(rest.len()));
        (extras, key, value)
    }
}

impl Display for Frame {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match OPCODES.iter().find(|(_, opcode)| *opcode == self.opcode) {
            Some((name, _)) => write!(to, "{name}")?,
            None => write!(to, "0x{:02x}", self.opcode)?,
        }
        if self.magic != REPLY {
            write!(to, " magic=0x{:02x}", self.magic)?;
        }
        let (extras, key, value) = self.parts();
        write!(to, " status={} opaque={} cas={}", self.status, self.opaque, self.cas)?;
        write!(to, " datatype={} extras=", self.datatype)?;
        extras.iter().try_for_each(|byte| write!(to, "{byte:02x}"))?;
        write!(to, " key={} value={}", key.escape_ascii(), super::show(value))
    }
}

impl Wire {
    /// Reads a frame. If only a part of the frame arrives, `rest` returns this part.
    pub(crate) fn frame(&mut self) -> Result<Frame, Stop> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(frame) = Frame::decode(&self.arrived[self.taken..]) {
                self.take(HEADER_BYTES + frame.body.len());
                return Ok(frame);
            }
            self.receive(deadline)?;
        }
    }
}
