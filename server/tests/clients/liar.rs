//! A proxy that falsifies replies. A correct client must notice the false replies.
//!
//! Where: between a client and the server, over TCP.
//! Invariant: apart from the lie, replies pass unchanged, in whatever pieces they arrive.
//! Source: memcached's `protocol.txt` and `protocol_binary.h` define where a reply ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

/// The change that the proxy makes in the replies of all three protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    Nothing,
    Stored,
    /// Changes the last byte of each value, so that the value is no longer a number.
    Altered,
}

/// The bit that `Lie::Altered` flips in a value's last byte. The flip turns a digit into a letter,
/// because with another digit, a client that counts up to a stored number might never end.
const ALTERED_BITS: u8 = 0x40;

/// Starts a lying proxy for a server. A thread of the proxy ends with its connection or the test.
pub(crate) fn liar(server: SocketAddr, lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let (requests, answers) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || pass_on(requests, upstream, <[u8]>::to_vec));
            let mut replies = Replies { lie, waiting: Vec::new() };
            std::thread::spawn(move || pass_on(answers, client, |bytes| replies.change(bytes)));
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&[u8]) -> Vec<u8>) {
    let mut copy = || -> io::Result<()> {
        let _ = to.set_nodelay(true);
        let mut chunk = [0; 64 << 10];
        loop {
            let bytes = from.read(&mut chunk)?;
            if bytes == 0 {
                return Ok(());
            }
            to.write_all(&change(&chunk[..bytes]))?;
        }
    };
    let _ = copy();
    let _ = to.shutdown(Shutdown::Write);
}

struct Replies {
    lie: Lie,
    waiting: Vec<u8>,
}

impl Replies {
    /// Returns the replies that are complete now, changed by the lie.
    fn change(&mut self, arrived: &[u8]) -> Vec<u8> {
        if self.lie == Lie::Nothing {
            return arrived.to_vec();
        }
        self.waiting.extend_from_slice(arrived);
        let (mut changed, mut taken) = (Vec::new(), 0);
        while let Some(bytes) = reply_bytes(&self.waiting[taken..]) {
            let mut reply = self.waiting[taken..taken + bytes].to_vec();
            taken += bytes;
            if reply[0] == frame::MAGIC {
                frame::change(self.lie, &mut reply);
            } else {
                change_line(self.lie, &mut reply);
            }
            changed.extend(reply);
        }
        self.waiting.drain(..taken);
        changed
    }
}

fn reply_bytes(replies: &[u8]) -> Option<usize> {
    if replies.first() == Some(&frame::MAGIC) {
        return frame::bytes(replies);
    }
    let line_bytes = replies.iter().position(|&byte| byte == b'\n')? + 1;
    let bytes = match value_bytes(&replies[..line_bytes]) {
        Some(value_bytes) => line_bytes + value_bytes + 2,
        None => line_bytes,
    };
    (bytes <= replies.len()).then_some(bytes)
}

fn value_bytes(line: &[u8]) -> Option<usize> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let word = match words.next()? {
        "VALUE" => words.nth(2)?,
        "VA" => words.next()?,
        _ => return None,
    };
    word.parse().ok()
}

fn change_line(lie: Lie, reply: &mut Vec<u8>) {
    let line_bytes = reply.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    if lie == Lie::Altered {
        if value_bytes(&reply[..line_bytes]).is_some_and(|bytes| bytes > 0) {
            let last = reply.len() - 3;
            reply[last] ^= ALTERED_BITS;
        }
        return;
    }
    for refused in [&b"EXISTS\r\n"[..], b"NOT_STORED\r\n"] {
        if reply == refused {
            *reply = b"STORED\r\n".to_vec();
        }
    }
    // Changes a meta reply: NS or EX, then the requested flags.
    let is_meta = matches!(reply.get(2), Some(b' ' | b'\r'));
    if is_meta && (reply.starts_with(b"EX") || reply.starts_with(b"NS")) {
        reply[..2].copy_from_slice(b"HD");
    }
}

/// Replies of the binary protocol.
///
/// ```text
/// magic 1 | opcode 1 | key 2 | extras 1 | type 1 | status 2 | body 4 | opaque 4 | cas 8 | body…
/// ```
mod frame {
    use super::{ALTERED_BITS, Lie};

    pub(super) const MAGIC: u8 = 0x81;

    const HEADER_BYTES: usize = 24;

    /// Opcodes whose reply has a value: GET, GETQ, GETK, GETKQ, GAT, GATQ, GATK, GATKQ.
    const READS: [u8; 8] = [0x00, 0x09, 0x0c, 0x0d, 0x1d, 0x1e, 0x23, 0x24];

    const REFUSED: [[u8; 2]; 2] = [[0, 2], [0, 5]];

    pub(super) fn bytes(replies: &[u8]) -> Option<usize> {
        let body: [u8; 4] = replies.get(8..12)?.try_into().unwrap();
        let bytes = HEADER_BYTES + usize::try_from(u32::from_be_bytes(body)).unwrap();
        (bytes <= replies.len()).then_some(bytes)
    }

    pub(super) fn change(lie: Lie, reply: &mut Vec<u8>) {
        let status = [reply[6], reply[7]];
        if lie == Lie::Stored && REFUSED.contains(&status) {
            // A successful reply has no body.
            reply.truncate(HEADER_BYTES);
            reply[6..12].fill(0);
        }
        let names_bytes =
            usize::from(reply[4]) + usize::from(reply[2]) * 256 + usize::from(reply[3]);
        let holds_value = reply.len() > HEADER_BYTES + names_bytes;
        if lie == Lie::Altered && status == [0, 0] && READS.contains(&reply[1]) && holds_value {
            let last = reply.len() - 1;
            reply[last] ^= ALTERED_BITS;
        }
    }
}

/// Replies of the server, and their changed forms for `Lie::Stored` and `Lie::Altered`.
const LIES: [[&[u8]; 3]; 11] = [
    [b"STORED\r\n", b"STORED\r\n", b"STORED\r\n"],
    [b"EXISTS\r\n", b"STORED\r\n", b"EXISTS\r\n"],
    [b"NOT_STORED\r\n", b"STORED\r\n", b"NOT_STORED\r\n"],
    [
        b"VALUE a 0 9\r\n\nEXISTS\r\n\r\n",
        b"VALUE a 0 9\r\n\nEXISTS\r\n\r\n",
        b"VALUE a 0 9\r\n\nEXISTS\rJ\r\n",
    ],
    [b"VALUE a 0 0\r\n\r\n", b"VALUE a 0 0\r\n\r\n", b"VALUE a 0 0\r\n\r\n"],
    [b"EX c1\r\n", b"HD c1\r\n", b"EX c1\r\n"],
    [b"NS\r\n", b"HD\r\n", b"NS\r\n"],
    [b"VA 2 c1 t0\r\nab\r\n", b"VA 2 c1 t0\r\nab\r\n", b"VA 2 c1 t0\r\na\"\r\n"],
    // A GETK that hits, a GETK that misses, and an ADD of an existing key.
    [
        b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x07opaqcas-cas-flagkab",
        b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x07opaqcas-cas-flagkab",
        b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x07opaqcas-cas-flagka\"",
    ],
    [
        b"\x81\x0c\0\x01\0\0\0\x01\0\0\0\x01opaqcas-cas-k",
        b"\x81\x0c\0\x01\0\0\0\x01\0\0\0\x01opaqcas-cas-k",
        b"\x81\x0c\0\x01\0\0\0\x01\0\0\0\x01opaqcas-cas-k",
    ],
    [
        b"\x81\x02\0\0\0\0\0\x02\0\0\0\x04opaqcas-cas-text",
        b"\x81\x02\0\0\0\0\0\0\0\0\0\0opaqcas-cas-",
        b"\x81\x02\0\0\0\0\0\x02\0\0\0\x04opaqcas-cas-text",
    ],
];

#[test]
fn a_liar_changes_nothing_but_its_lie() {
    for piece_bytes in [1, 7, 1000] {
        for (column, lie) in [(0, Lie::Nothing), (1, Lie::Stored), (2, Lie::Altered)] {
            let mut replies = Replies { lie, waiting: Vec::new() };
            let sent = LIES.map(|row| row[0]).concat();
            let changed: Vec<u8> =
                sent.chunks(piece_bytes).flat_map(|piece| replies.change(piece)).collect();
            let expected = LIES.map(|row| row[column]).concat();
            assert_eq!(changed.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
}
