//! The unsent replies of one connection, and several methods of sending their values.
//!
//! ```text
//! text     | VALUE k 0 3\r\n | \r\nEND\r\nVALUE k 0 3\r\n | \r\nEND\r\n |
//! places                     ^ vvv                        ^ vvv
//! ```
//!
//! Where: between a `Responder` and the socket. If values are copied, the text contains them.
//! Invariant: values that are not copied never change and are never freed, because splice(2) does
//! not report when the kernel has finished reading them.
//! Source: splice(2), vmsplice(2); `Documentation/networking/msg_zerocopy.rst` of Linux.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use net::{Calls, Pipe, Stream, WriteResult};

use super::answer::ReplyBuffer;
use super::counts::Counts;

/// Maximum number of pieces that one writev(2) sends: text and value of 32 replies.
const PIECES_MAX: usize = 64;
/// The alignment of a value: one page, because the kernel passes whole pages by reference.
const PAGE_BYTES: usize = 4096;

/// The way in which values reach the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMethod {
    /// Values are copied into the reply's text, and the kernel copies the text to the socket.
    #[default]
    Copied,
    /// The kernel copies values from the memory in which they are stored (writev).
    Gathered,
    /// Values are passed by reference through a pipe (vmsplice and splice).
    Spliced,
    /// Values are passed by reference (MSG_ZEROCOPY), though the kernel may copy them.
    Referred,
}

pub(super) const SEND_METHODS: [(SendMethod, &str); 4] = [
    (SendMethod::Copied, "copied"),
    (SendMethod::Gathered, "gathered"),
    (SendMethod::Spliced, "spliced"),
    (SendMethod::Referred, "referred"),
];

#[derive(Debug)]
pub(super) struct Broken;

#[derive(Debug)]
pub(super) struct ReplyQueue {
    method: SendMethod,
    pipe: Option<Pipe>,
    /// The value, which is the same for all keys; empty if values are copied.
    value: &'static [u8],
    text: Vec<u8>,
    text_done: usize,
    /// Positions in `text` at which values belong, for the values that are not sent completely.
    places: VecDeque<usize>,
    /// Number of bytes of the first value in `places` that were sent or are in the pipe.
    value_done: usize,
}

impl SendMethod {
    pub(super) fn named(name: &str) -> Option<SendMethod> {
        SEND_METHODS.iter().find(|(_, own)| *own == name).map(|(method, _)| *method)
    }

    /// Makes a value, which is never freed. Returns an empty slice if values are copied.
    pub(super) fn constant(self, bytes: usize) -> &'static [u8] {
        if self == SendMethod::Copied || bytes == 0 {
            return &[];
        }
        let room = Box::leak(vec![b'v'; bytes + PAGE_BYTES].into_boxed_slice());
        let page = room.as_ptr().align_offset(PAGE_BYTES);
        room.get(page..page + bytes).unwrap_or(&[])
    }
}

impl ReplyQueue {
    pub(super) fn new(
        stream: &Stream,
        method: SendMethod,
        value: &'static [u8],
    ) -> io::Result<ReplyQueue> {
        if method == SendMethod::Referred {
            stream.allow_references()?;
        }
        Ok(ReplyQueue {
            method,
            pipe: if method == SendMethod::Spliced { Some(Pipe::new()?) } else { None },
            value,
            text: Vec::new(),
            text_done: 0,
            places: VecDeque::new(),
            value_done: 0,
        })
    }

    pub(super) fn buffer(&mut self) -> ReplyBuffer<'_> {
        match self.value {
            [] => ReplyBuffer::copied(&mut self.text),
            value => ReplyBuffer::in_place(&mut self.text, &mut self.places, value.len()),
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    pub(super) fn bytes_left(&self) -> usize {
        let piped = self.pipe.as_ref().map_or(0, Pipe::bytes);
        self.text.len() - self.text_done + self.places.len() * self.value.len() + piped
            - self.value_done
    }

    pub(super) fn is_begun(&self) -> bool {
        self.text_done > 0 || self.value_done > 0
    }

    /// Sends as many bytes as the socket accepts. Returns true if all bytes are sent.
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        counts: &Counts,
        calls: &Calls,
    ) -> Result<bool, Broken> {
        if self.method == SendMethod::Referred {
            let told = stream.completions(calls);
            Counts::add(&counts.referred, told.sends);
            Counts::add(&counts.copied, told.copied);
        }
        while self.bytes_left() > 0 {
            let sent = match self.method {
                SendMethod::Copied | SendMethod::Gathered => self.send_gathered(stream, calls),
                SendMethod::Spliced | SendMethod::Referred => self.send_next(stream, calls),
            };
            match sent {
                WriteResult::Bytes(0) => return Ok(false),
                WriteResult::Bytes(_) => {}
                WriteResult::Broken => return Err(Broken),
            }
        }
        self.text.clear();
        self.text_done = 0;
        Ok(true)
    }

    fn text_next(&self) -> &[u8] {
        let end = self.places.front().copied().unwrap_or(self.text.len());
        self.text.get(self.text_done..end).unwrap_or(&[])
    }

    fn send_gathered(&mut self, stream: &Stream, calls: &Calls) -> WriteResult {
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
        if let WriteResult::Bytes(bytes) = sent {
            self.advance(bytes);
        }
        sent
    }

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

    /// Sends bytes from the pipe. If the pipe is empty, sends the text up to the next value, or the
    /// value if no text is left before it.
    fn send_next(&mut self, stream: &Stream, calls: &Calls) -> WriteResult {
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
            if let WriteResult::Bytes(bytes) = sent {
                self.took_value(bytes);
            }
            return sent;
        };
        let Ok(piped) = pipe.fill(rest, calls) else { return WriteResult::Broken };
        let sent = pipe.drain(stream, calls);
        self.took_value(piped);
        sent
    }

    fn took_text(&mut self, sent: WriteResult) -> WriteResult {
        if let WriteResult::Bytes(bytes) = sent {
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
