//! The sending half of a queue: writes datagrams into chunks, and puts descriptors of the chunks
//! into the tx ring.
//!
//! ```text
//! copied     | frame: headers, head, piece, piece ...                |  one descriptor
//!
//! in place   | metadata | headers, head, piece | last piece |           two descriptors ...
//!                                      | value's part |                 ... and one between them
//! ```
//!
//! This module computes the UDP checksum over all parts, unless the kernel does so (see `link`).
//!
//! Where: below `outbox`, under the lock of the queue's sending half.
//! Invariant: only descriptors that the kernel accepts are written, because an invalid descriptor
//! may never complete. For each part of a value that is sent in place, the outbox has a reference
//! to the part's chunk until the part has left.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_generic_xmit`,
//! `xsk_build_skb`.

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::completion::{Completion, FreeChunk};
use super::lacks::Lack;
use super::peer::Peer;
use super::ring::{ConsumerRing, ProducerRing};
use super::socket::Socket;
use super::umem::{self, Span, Umem};
use crate::udp::Tally;
use crate::wire::{self, Sum};

/// Maximum number of descriptors of one datagram. A kernel that copies accepts 18.
pub(super) const PARTS_MAX: usize = 8;

pub(super) type TxRings = (ProducerRing<XdpDesc>, ConsumerRing<u64>);

#[derive(Debug)]
pub(super) struct Tx {
    ring: ProducerRing<XdpDesc>,
    pub(super) completion: Completion,
    frame_bytes_max: usize,
    /// Minimum length of a value's part that is sent in place. With `None`, all parts are copied.
    in_place_min: Option<usize>,
}

impl Tx {
    /// Makes the sending half, which has `chunks` chunks from chunk `first` on, for frames of at
    /// most `frame_bytes_max` bytes.
    pub(super) fn new(
        (ring, completion): TxRings,
        first: u32,
        chunks: u32,
        frame_bytes_max: usize,
    ) -> Tx {
        let completion = Completion::new(completion, first, chunks);
        Tx { ring, completion, frame_bytes_max, in_place_min: None }
    }

    pub(super) fn send_in_place(&mut self, bytes_min: usize) {
        self.in_place_min = Some(bytes_min);
    }

    /// Maximum length of a datagram's payload, copied or in place.
    pub(super) fn payload_bytes_max(&self, to: &Peer, umem: &Umem) -> usize {
        let room = umem.chunk_bytes() - umem.metadata_bytes();
        self.frame_bytes_max.min(room).saturating_sub(to.back.header_bytes())
    }

    #[inline]
    pub(super) fn add<'p>(
        &mut self,
        socket: &Socket,
        to: &Peer,
        (head, pieces): (&[u8], impl IntoIterator<Item = &'p [u8]>),
        tally: &mut Tally,
    ) -> bool {
        let Some(mut own) = self.completion.free_chunk(socket) else { return false };
        if self.in_place_min.is_some() {
            return self.add_in_place(socket, (own, to), (head, pieces), tally);
        }
        let (chunk, room) = own.room(&socket.umem);
        let at = socket.umem.metadata_bytes();
        let bytes_max = self.frame_bytes_max.min(room.len() - at);
        let room = &mut room[at..at + bytes_max];
        let Some(bytes) = gather(room, to.back.header_bytes(), head, pieces) else {
            self.completion.free.push(own);
            tally.too_long += 1;
            return true;
        };
        let is_written = wire::write(&mut room[..bytes], &to.back);
        let descriptor = socket.umem.descriptor(Span { chunk, at, bytes });
        if !is_written || !self.ring.push(descriptor) {
            self.completion.free.push(own);
            return false;
        }
        self.completion.expect(chunk, 1);
        tally.sent += 1;
        tally.copied_bytes += bytes;
        true
    }

    /// Adds a datagram. Pieces in the arena are sent in place if possible; the rest is copied.
    fn add_in_place<'p>(
        &mut self,
        socket: &Socket,
        (mut own, to): (FreeChunk, &Peer),
        (head, pieces): (&[u8], impl IntoIterator<Item = &'p [u8]>),
        tally: &mut Tally,
    ) -> bool {
        if self.ring.room() < PARTS_MAX {
            self.completion.reap(socket);
            self.completion.free.push(own);
            return false;
        }
        let (chunk, room) = own.room(&socket.umem);
        let mut draft = Draft::new(socket, (chunk, room), to.back.header_bytes());
        let bytes_min = self.in_place_min.unwrap_or(usize::MAX);
        let is_whole = draft.copy(head)
            && pieces.into_iter().all(|piece| draft.name(piece, bytes_min) || draft.copy(piece))
            && draft.bytes() <= self.frame_bytes_max
            && draft.finish(to);
        if !is_whole {
            draft.give_up();
            self.completion.free.push(own);
            tally.too_long += 1;
            return true;
        }
        let (parts, last) = (draft.parts(), draft.parts().len() - 1);
        for (number, part) in parts.iter().enumerate() {
            let mut part = *part;
            part.options.set(XdpDescOptions::XDP_PKT_CONTD, number < last);
            let is_pushed = self.ring.push(part);
            debug_assert!(is_pushed, "there is room for all parts");
        }
        self.completion.expect(chunk, draft.own);
        tally.sent += 1;
        tally.copied_bytes += draft.bytes() - draft.named_bytes;
        tally.in_place_bytes += draft.named_bytes;
        true
    }

    /// Publishes the added descriptors to the kernel. Returns the number of descriptors that the
    /// kernel has not taken, and true if the kernel sleeps until it is called.
    pub(super) fn publish(&mut self) -> (u32, bool) {
        self.ring.publish();
        (self.ring.waiting(), self.ring.needs_wakeup())
    }

    /// Number of descriptors that the kernel has not taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.ring.waiting()
    }
}

struct Draft<'s> {
    socket: &'s Socket,
    chunk: u32,
    room: &'s mut [u8],
    /// The bytes of `room` from `from` to `to` were copied, and are not in a part yet.
    from: usize,
    to: usize,
    /// Parts of the frame: `own` of them lie in `chunk`, all others in chunks held by `in_flight`.
    parts: [XdpDesc; PARTS_MAX],
    count: usize,
    own: u8,
    named_bytes: usize,
    /// Sum of the parts after the first. Not used if the kernel computes the checksum.
    rest: Sum,
}

impl<'s> Draft<'s> {
    fn new(socket: &'s Socket, (chunk, room): (u32, &'s mut [u8]), header_bytes: usize) -> Self {
        let from = socket.umem.metadata_bytes();
        let none = XdpDesc { addr: 0, len: 0, options: XdpDescOptions::empty() };
        let parts = [none; PARTS_MAX];
        let (to, named_bytes) = (from + header_bytes, 0);
        let rest = Sum::default();
        Draft { socket, chunk, room, from, to, parts, count: 0, own: 0, named_bytes, rest }
    }

    fn bytes(&self) -> usize {
        self.to - self.socket.umem.metadata_bytes() + self.named_bytes
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) -> bool {
        let room = self.room.get_mut(self.to..self.to + bytes.len());
        let is_room = room.map(|room| room.copy_from_slice(bytes)).is_some();
        self.to += if is_room { bytes.len() } else { 0 };
        is_room
    }

    /// Makes `bytes` a part that is sent in place. Returns false if `bytes` must be copied.
    #[inline]
    fn name(&mut self, bytes: &[u8], bytes_min: usize) -> bool {
        // Bytes copied before this part need a part, and bytes copied after it may need another.
        let more = usize::from(self.to > self.from) + 2;
        if bytes.len() < bytes_min || self.count + more > PARTS_MAX {
            return false;
        }
        let Some(span) = self.socket.umem.value(bytes) else { return false };
        if !self.socket.in_flight.hold(span.chunk) {
            return false;
        }
        self.close();
        if !self.is_summed_later() {
            self.rest = self.rest.add_behind(self.bytes(), bytes);
        }
        self.push(span);
        self.named_bytes += span.bytes;
        true
    }

    /// Ends the part that consists of the bytes copied since the last part, if there are any.
    fn close(&mut self) {
        if self.to > self.from {
            let (at, bytes) = (self.from, self.to - self.from);
            if self.count > 0 && !self.is_summed_later() {
                let copied = &self.room[self.from..self.to];
                self.rest = self.rest.add_behind(self.bytes() - bytes, copied);
            }
            self.push(Span { chunk: self.chunk, at, bytes });
            (self.from, self.own) = (self.to, self.own + 1);
        }
    }

    /// True if metadata make the kernel compute the checksum.
    fn is_summed_later(&self) -> bool {
        self.socket.umem.metadata_bytes() > 0
    }

    fn push(&mut self, span: Span) {
        self.parts[self.count] = self.socket.umem.descriptor(span);
        self.count += 1;
    }

    /// Writes the headers, with the checksum over all parts.
    fn finish(&mut self, to: &Peer) -> bool {
        self.close();
        let at = self.socket.umem.metadata_bytes();
        let first = &mut self.parts[0];
        if self.count == 1 {
            return wire::write(&mut self.room[at..self.to], &to.back);
        }
        let (metadata, frame) = self.room.split_at_mut(at);
        let beyond_bytes = self.to - at + self.named_bytes - first.len as usize;
        let frame = &mut frame[..first.len as usize];
        if metadata.is_empty() {
            return wire::write_before(frame, beyond_bytes, self.rest, &to.back);
        }
        let Some(sum) = wire::write_partly(frame, beyond_bytes, &to.back) else { return false };
        if !Lack::Sums.is_planted() {
            first.options |= umem::HAS_METADATA;
        }
        umem::sum_up(metadata, sum)
    }

    fn parts(&self) -> &[XdpDesc] {
        &self.parts[..self.count]
    }

    fn give_up(&self) {
        for part in self.parts() {
            let span = self.socket.umem.span(part.addr, 0);
            if let Some(span) = span.filter(|span| span.chunk != self.chunk) {
                self.socket.in_flight.release(span.chunk);
            }
        }
    }
}

/// Copies a head and pieces to `room` from `at` on. Returns the end; `None` if there is no room.
#[inline]
fn gather<'p>(
    room: &mut [u8],
    at: usize,
    head: &[u8],
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Option<usize> {
    let mut end = at + head.len();
    room.get_mut(at..end)?.copy_from_slice(head);
    for piece in pieces {
        room.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    Some(end)
}
