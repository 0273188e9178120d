//! Replies on their way to one connection, with several ways to send their values.
//!
//! ```text
//! text     | VALUE k 0 3\r\n | \r\nEND\r\nVALUE k 0 3\r\n | \r\nEND\r\n |
//! places                     ^ vvv                        ^ vvv
//! ```
//!
//! Where: between the mirror and the socket. If values are copied, there are no places, and the
//! text is the whole reply.
//! Invariant: bytes sent in place never change and are never freed, because a splice does not tell
//! when the kernel has read them.
//! Source: splice(2), vmsplice(2); `Documentation/networking/msg_zerocopy.rst` of Linux.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use net::{Calls, Pipe, Sent, Stream};

use super::Counts;
use super::answer::Out;

/// Most pieces of one gathered write: 32 replies.
const PIECES_MAX: usize = 64;
/// The alignment of a value's bytes: the kernel takes whole pages.
const PAGE_BYTES: usize = 4096;

/// The way in which values get into the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Copied behind the text before them, and then by the kernel
    #[default]
    Copied,
    /// Copied by the kernel alone, from where they lie (writev)
    Gathered,
    /// By reference, through a pipe (vmsplice and splice)
    Spliced,
    /// By reference (MSG_ZEROCOPY), if the kernel does not copy them nevertheless, which it tells
    Referred,
}

/// All ways with their names.
pub(super) const WAYS: [(Way, &str); 4] = [
    (Way::Copied, "copied"),
    (Way::Gathered, "gathered"),
    (Way::Spliced, "spliced"),
    (Way::Referred, "referred"),
];

/// The connection is over.
#[derive(Debug)]
pub(super) struct Broken;

/// The replies that wait for one connection.
#[derive(Debug)]
pub(super) struct Replies {
    way: Way,
    pipe: Option<Pipe>,
    /// The bytes of every value; empty if values are copied.
    value: &'static [u8],
    text: Vec<u8>,
    text_done: usize,
    /// Places in the text of values that are not sent, or not entirely.
    places: VecDeque<usize>,
    /// Bytes of the first of those values that are sent, or in the pipe.
    value_done: usize,
}

impl Way {
    pub(super) fn named(name: &str) -> Option<Way> {
        WAYS.iter().find(|(_, own)| *own == name).map(|(way, _)| *way)
    }

    /// The bytes of every value, if they are not copied. They stay until the process ends.
    pub(super) fn constant(self, bytes: usize) -> &'static [u8] {
        if self == Way::Copied || bytes == 0 {
            return &[];
        }
        let room = Box::leak(vec![b'v'; bytes + PAGE_BYTES].into_boxed_slice());
        let page = room.as_ptr().align_offset(PAGE_BYTES);
        room.get(page..page + bytes).unwrap_or(&[])
    }
}

impl Replies {
    pub(super) fn new(stream: &Stream, way: Way, value: &'static [u8]) -> io::Result<Replies> {
        if way == Way::Referred {
            stream.allow_references()?;
        }
        Ok(Replies {
            way,
            pipe: if way == Way::Spliced { Some(Pipe::new()?) } else { None },
            value,
            text: Vec::new(),
            text_done: 0,
            places: VecDeque::new(),
            value_done: 0,
        })
    }

    /// Opens the queue for writing more replies.
    pub(super) fn open(&mut self) -> Out<'_> {
        match self.value {
            [] => Out::copied(&mut self.text),
            value => Out::in_place(&mut self.text, &mut self.places, value.len()),
        }
    }

    /// Adds replies that were made earlier.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// Bytes that the socket has not taken yet.
    pub(super) fn bytes_left(&self) -> usize {
        let piped = self.pipe.as_ref().map_or(0, Pipe::bytes);
        self.text.len() - self.text_done + self.places.len() * self.value.len() + piped
            - self.value_done
    }

    /// True if some bytes were sent, and not all.
    pub(super) fn is_begun(&self) -> bool {
        self.text_done > 0 || self.value_done > 0
    }

    /// Sends as much as the socket takes. True if that is all.
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        counts: &Counts,
        calls: &Calls,
    ) -> Result<bool, Broken> {
        if self.way == Way::Referred {
            let told = stream.told_of_references(calls);
            Counts::add(&counts.referred, told.referred);
            Counts::add(&counts.copied, told.copied);
        }
        while self.bytes_left() > 0 {
            let sent = match self.way {
                Way::Copied | Way::Gathered => self.send_gathered(stream, calls),
                Way::Spliced | Way::Referred => self.send_next(stream, calls),
            };
            match sent {
                Sent::Bytes(0) => return Ok(false),
                Sent::Bytes(_) => {}
                Sent::Broken => return Err(Broken),
            }
        }
        self.text.clear();
        self.text_done = 0;
        Ok(true)
    }

    /// The text up to the next value, or to the end.
    fn text_next(&self) -> &[u8] {
        let end = self.places.front().copied().unwrap_or(self.text.len());
        self.text.get(self.text_done..end).unwrap_or(&[])
    }

    fn send_gathered(&mut self, stream: &Stream, calls: &Calls) -> Sent {
        if self.places.is_empty() {
            let sent = stream.write(self.text_next(), calls);
            return self.took_text(sent);
        }
        let mut pieces = Vec::with_capacity(PIECES_MAX);
        let (mut from, mut value_from) = (self.text_done, self.value_done);
        for &place in self.places.iter().take(PIECES_MAX / 2) {
            pieces.push(IoSlice::new(&self.text[from..place]));
            pieces.push(IoSlice::new(&self.value[value_from..]));
            (from, value_from) = (place, 0);
        }
        if self.places.len() < PIECES_MAX / 2 {
            pieces.push(IoSlice::new(&self.text[from..]));
        }
        let sent = stream.write_vectored(&pieces, calls);
        if let Sent::Bytes(bytes) = sent {
            self.advance(bytes);
        }
        sent
    }

    /// Passes over the bytes that a gathered write has taken.
    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let text = self.text_next().len().min(bytes);
            self.text_done += text;
            bytes -= text;
            let value = bytes.min(self.value.len() - self.value_done);
            bytes -= value;
            self.took_value(value);
        }
    }

    /// Sends text up to the next value, or as much of the next value as possible.
    fn send_next(&mut self, stream: &Stream, calls: &Calls) -> Sent {
        if let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.bytes() > 0) {
            return pipe.drain(stream, calls);
        }
        let text = self.text_next();
        if !text.is_empty() {
            let sent = match self.places.is_empty() {
                true => stream.write(text, calls),
                false => stream.write_with_more(text, calls),
            };
            return self.took_text(sent);
        }
        let rest = self.value.get(self.value_done..).unwrap_or(&[]);
        let Some(pipe) = &mut self.pipe else {
            let sent = stream.refer(rest, calls);
            if let Sent::Bytes(bytes) = sent {
                self.took_value(bytes);
            }
            return sent;
        };
        let Ok(piped) = pipe.fill(rest, calls) else { return Sent::Broken };
        let sent = pipe.drain(stream, calls);
        self.took_value(piped);
        sent
    }

    fn took_text(&mut self, sent: Sent) -> Sent {
        if let Sent::Bytes(bytes) = sent {
            self.text_done += bytes;
        }
        sent
    }

    fn took_value(&mut self, bytes: usize) {
        self.value_done += bytes;
        if self.value_done > 0 && self.value_done == self.value.len() {
            self.places.pop_front();
            self.value_done = 0;
        }
    }
}
