//! Requests to the kernel about interfaces, addresses and neighbours.
//!
//! ```text
//! 0       4      6       8          12    16
//! | bytes | kind | flags | sequence | pid | body | attribute | attribute | ...
//! attribute: | bytes: 2 | kind: 2 | value ... |   messages and attributes begin at multiples of 4
//! ```
//!
//! Where: called at start, and when the state of an interface is requested.
//! Invariant: the kernel answers for the network namespace in which the socket was opened. Only
//! received bytes are read; a wrong length ends the reading. No call waits: the kernel answers
//! while the request is sent, or while the answer is received.
//! Source: netlink(7), rtnetlink(7).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const HEADER_BYTES: usize = 16;
const ALIGN_BYTES: usize = 4;
/// Size of the buffer for a receive. The kernel splits a long answer into pieces of 32 KiB.
const ANSWER_BYTES_MAX: usize = 32 << 10;
/// Maximum number of receives for one answer. An answer that needs more receives is an error.
const MESSAGES_MAX: usize = 100_000;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
const DONE: u16 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowMany {
    One,
    All,
}

#[derive(Debug)]
pub(crate) struct Netlink(pub(crate) OwnedFd);

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Netlink> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(Netlink(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?))
    }

    /// Sends a request, and calls `each` with the kind and the body of each answer.
    pub(crate) fn ask(
        &self,
        kind: u16,
        many: HowMany,
        body: &[u8],
        each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let flags = if many == HowMany::All { REQUEST | DUMP } else { REQUEST };
        self.send(kind, flags, body)?;
        self.receive(many, each)
    }

    pub(crate) fn enter(&self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, REQUEST | CREATE | ACKNOWLEDGE, body)?;
        self.receive(HowMany::One, |_, _| {})
    }

    fn send(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let bytes = u32::try_from(HEADER_BYTES + body.len()).map_err(io::Error::other)?;
        let mut question = Vec::with_capacity(HEADER_BYTES + body.len());
        question.extend_from_slice(&bytes.to_ne_bytes());
        question.extend_from_slice(&kind.to_ne_bytes());
        question.extend_from_slice(&flags.to_ne_bytes());
        question.extend_from_slice(&[0; 8]);
        question.extend_from_slice(body);
        send(&self.0, &question, SendFlags::empty())?;
        Ok(())
    }

    fn receive(&self, many: HowMany, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            let (_, bytes) = match recv(&self.0, &mut answer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            for (kind, body) in Messages(answer.get(..bytes).unwrap_or(&answer)) {
                match kind {
                    DONE => return Ok(()),
                    ERROR => return error(body),
                    kind => each(kind, body),
                }
            }
            if many == HowMany::One {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's answer is too long"))
    }
}

/// Reads an error message, which holds a negative error number, or 0 for success.
fn error(body: &[u8]) -> io::Result<()> {
    let number = body.first_chunk::<4>().map_or(0, |number| i32::from_ne_bytes(*number));
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number.wrapping_neg())) }
}

struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = u32::from_ne_bytes(*self.0.first_chunk::<4>()?);
        let bytes = usize::try_from(bytes).ok()?;
        let message = self.0.get(..bytes)?;
        let (header, body) = message.split_first_chunk::<HEADER_BYTES>()?;
        self.0 = self.0.get(bytes.next_multiple_of(ALIGN_BYTES)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([header[4], header[5]]), body))
    }
}

pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        /// The bits of an attribute's kind; the two other bits of the field are flags.
        const KIND_MASK: u16 = 0x3fff;
        let ([b0, b1, k0, k1], _) = self.0.split_first_chunk::<4>()?;
        let bytes = usize::from(u16::from_ne_bytes([*b0, *b1]));
        let value = self.0.get(4..bytes)?;
        self.0 = self.0.get(bytes.next_multiple_of(ALIGN_BYTES)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([*k0, *k1]) & KIND_MASK, value))
    }
}

pub(crate) fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let bytes = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    message.extend_from_slice(&bytes.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(ALIGN_BYTES), 0);
}

pub(crate) fn number(value: &[u8]) -> u32 {
    value.first_chunk::<4>().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_of_loopback_and_of_what_is_not_there() {
        let netlink = Netlink::open().unwrap();
        let ask = |index: i32| {
            let mut body = [0; 16];
            body[4..8].copy_from_slice(&index.to_ne_bytes());
            let mut name = None;
            netlink.ask(libc::RTM_GETLINK, HowMany::One, &body, |kind, body| {
                assert_eq!(kind, libc::RTM_NEWLINK);
                let mut attributes = Attributes(&body[16..]);
                name = attributes.find(|(kind, _)| *kind == 3).map(|(_, value)| value.to_vec());
            })?;
            Ok(name)
        };
        let outcome: io::Result<_> = ask(1);
        assert_eq!(outcome.unwrap(), Some(b"lo\0".to_vec()));
        let missing: io::Result<_> = ask(i32::MAX);
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENODEV));
        let mut links = 0;
        netlink.ask(libc::RTM_GETLINK, HowMany::All, &[0; 16], |_, _| links += 1).unwrap();
        assert!(links >= 1);
        // After an error, the socket can be used again.
        assert!(ask(1).unwrap().is_some());
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        let attributes = [6_u16.to_ne_bytes(), [3, 0], [7, 8], [0, 0], [5, 0], [4, 0], [9, 0]];
        let attributes = attributes.concat();
        let all: Vec<_> = Attributes(&attributes).collect();
        assert_eq!(all, [(3, &[7, 8][..]), (4, &[9])]);
        for lie in [0_u16, 3, 7, u16::MAX] {
            let lies = [&lie.to_ne_bytes()[..], &[3, 0, 7, 8]].concat();
            assert_eq!(Attributes(&lies).count(), 0, "{lie}");
        }
        let mut message = vec![0; 20];
        for lie in [0_u32, 15, 21, u32::MAX] {
            message[..4].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(Messages(&message).count(), 0, "{lie}");
        }
        message[..6].copy_from_slice(&[20, 0, 0, 0, 16, 0]);
        assert_eq!(Messages(&message).collect::<Vec<_>>(), [(16, &[0; 4][..])]);
    }
}
