//! Received datagrams.
//!
//! ```text
//! slot   | datagram        |          one, or
//!        | d0 | d1 | d2 | d3 |        a burst: equally long but for the last, all from one sender
//! ```
//!
//! Where: a column's receive, before its turn; a load generator's answers.
//! Invariant: `datagrams` shows only whole datagrams. A datagram that is longer than its slot is
//! counted as cut and not shown; in a burst longer than its slot, those that fit whole are shown.
//! Source: recvmmsg(2); udp(7), `UDP_GRO`.
#![allow(unsafe_code, reason = "rustix lacks recvmmsg, which is called as in C")]

use std::io;
use std::iter::Zip;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::slice::{self, ChunksExact};

use memory::plant::{Fault, is};

use super::control::{CONTROL_BYTES, Control};
use super::peer::{ADDRESS_BYTES, Asked, Peer};
use super::{BATCH_MAX, Datagrams};
use crate::calls::Calls;
use crate::xdp::Pieces;

/// Size of a slot that holds every datagram and every burst.
pub const SLOT_BYTES_MAX: usize = 1 << 16;
/// Slots begin an odd number of cache lines apart: at a power of two their first cache lines, the
/// only ones that short requests touch, would displace each other from the cache.
const LINE_BYTES: usize = 64;

/// Room for the datagrams of one `receive`.
pub struct Inbox {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    stride_bytes: usize,
    arrivals: Box<[Arrival]>,
    /// Number of slots that the last call filled.
    filled: usize,
    /// Number of slots that the next call offers to the kernel, a few more than will be filled:
    /// each one costs a little, and a slot that stays empty shows that no datagram waits.
    asked: usize,
    /// Most slots that one `receive` offers.
    asked_max: usize,
}

/// The contents of a slot, and what the kernel writes beside them.
#[derive(Debug)]
struct Arrival {
    peer: Peer,
    control: Control,
    /// Number of bytes of whole datagrams.
    bytes: usize,
    /// Number of bytes of each datagram but the last.
    each_bytes: usize,
    datagrams: usize,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of datagrams that the inbox shows.
    pub datagrams: usize,
    /// Number of datagrams that were longer than their slot.
    pub cut: usize,
    /// Number of frames refused as damaged or not ours; 0 for sockets, where the kernel drops them.
    pub damaged: usize,
    /// True if the socket is empty: an edge-triggered epoll will report the next datagram.
    pub is_drained: bool,
}

/// A received datagram; `P` is the type of the peer for its path.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a, P = Peer> {
    /// The datagram's payload, or the first piece of it.
    pub bytes: &'a [u8],
    /// The other pieces of the payload, if there are any.
    pub more: Option<&'a Pieces>,
    /// The sender, and the address that the datagram was sent to.
    pub peer: &'a P,
}

impl<'a, P> Datagram<'a, P> {
    /// Length of the payload in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.more.map_or(0, |pieces| pieces.iter().map(<[u8]>::len).sum())
    }

    /// True if the payload is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inbox").field("slot_bytes", &self.slot_bytes).finish_non_exhaustive()
    }
}

impl Inbox {
    /// Makes `slots` slots, 1 to `BATCH_MAX`, of `slot_bytes` each, 1 to `SLOT_BYTES_MAX`. The
    /// system provides a slot's pages when datagrams first touch them. If slots are shorter than
    /// `SLOT_BYTES_MAX`, bursts are cut.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Inbox {
        let slots = slots.clamp(1, BATCH_MAX);
        let slot_bytes = slot_bytes.clamp(1, SLOT_BYTES_MAX);
        let stride_bytes = (slot_bytes.div_ceil(LINE_BYTES) | 1) * LINE_BYTES;
        let arrival = || Arrival {
            peer: Peer::NONE,
            control: Control::EMPTY,
            bytes: 0,
            each_bytes: 0,
            datagrams: 0,
        };
        Inbox {
            bytes: vec![0; stride_bytes * slots].into_boxed_slice(),
            slot_bytes,
            stride_bytes,
            arrivals: (0..slots).map(|_| arrival()).collect(),
            filled: 0,
            asked: slots.min(2),
            asked_max: slots,
        }
    }

    /// Limits each later `receive` to this number of slots, at least one; each slot takes a
    /// datagram or a burst.
    pub fn limit(&mut self, asked_max: usize) {
        self.asked_max = asked_max.clamp(1, self.arrivals.len());
    }

    /// Returns the datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> Arrived<'_> {
        let slots = self.bytes.chunks_exact(self.stride_bytes);
        let slots = self.arrivals[..self.filled].iter().zip(slots);
        Arrived { slots, arrival: None, left: 0, rest: &[] }
    }

    /// Number of bytes of those datagrams.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.arrivals[..self.filled].iter().map(|arrival| arrival.bytes).sum()
    }

    /// Adapts the number of slots offered to the number filled. An empty receive changes nothing,
    /// because it does not predict the next.
    fn adapt(&mut self, asked: usize, came: usize) {
        let wanted = came + came / 4 + 2;
        self.asked = match came {
            0 => asked,
            _ if came == asked => asked * 2,
            _ => wanted.max(asked - asked.saturating_sub(wanted) / 2),
        };
        self.asked = self.asked.min(self.arrivals.len());
    }
}

/// An iterator over received datagrams.
#[derive(Clone, Debug)]
pub struct Arrived<'a> {
    /// The slots that follow.
    slots: Zip<slice::Iter<'a, Arrival>, ChunksExact<'a, u8>>,
    /// The slot whose datagrams are being shown; `None` before the first.
    arrival: Option<&'a Arrival>,
    /// Number of datagrams left in that slot.
    left: usize,
    /// The bytes of those datagrams.
    rest: &'a [u8],
}

impl<'a> Iterator for Arrived<'a> {
    type Item = Datagram<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a>> {
        while self.left == 0 {
            let (arrival, slot) = self.slots.next()?;
            self.rest = slot.get(..arrival.bytes)?;
            (self.arrival, self.left) = (Some(arrival), arrival.datagrams);
        }
        let arrival = self.arrival?;
        let (bytes, rest) = self.rest.split_at(arrival.each_bytes.min(self.rest.len()));
        self.left -= 1;
        self.rest = rest;
        Some(Datagram { bytes, more: None, peer: &arrival.peer })
    }
}

impl Arrival {
    /// Records a message of `bytes` bytes in a slot of `slot_bytes`, which may hold only its
    /// beginning. Returns the number of datagrams that were cut.
    fn note(&mut self, bytes: usize, slot_bytes: usize, control_bytes: usize) -> usize {
        let mut each_bytes = None;
        self.peer.asked = Asked::Bound;
        for (level, kind, value) in self.control.read(control_bytes) {
            if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
                let each = value.first_chunk::<4>().map_or(0, |value| i32::from_ne_bytes(*value));
                each_bytes = usize::try_from(each).ok().filter(|&each| each > 0);
            } else if let Some(asked) = Asked::read(level, kind, value) {
                self.peer.asked = if is(Fault::AskedForgotten) { Asked::Bound } else { asked };
            }
        }
        let (each, came) = match each_bytes {
            None => (bytes.max(1), 1),
            Some(each) => (each, bytes.div_ceil(each).max(1)),
        };
        self.each_bytes = each;
        (self.datagrams, self.bytes) = (came, bytes);
        if bytes > slot_bytes && !is(Fault::CutDatagramShown) {
            self.datagrams = slot_bytes / each;
            self.bytes = self.datagrams * each;
        }
        came - self.datagrams
    }
}

impl Datagrams {
    /// Receives at most one datagram or burst per slot of `inbox`, and forgets those of the last
    /// call. A refusal that the peer's system reports counts as nothing received.
    #[must_use]
    pub fn receive(&self, inbox: &mut Inbox, calls: &Calls) -> Received {
        calls.reads.add(1);
        let slot_bytes = inbox.slot_bytes;
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let mut asked = 0;
        let slots = inbox.bytes.chunks_exact_mut(inbox.stride_bytes).zip(&mut inbox.arrivals);
        for ((header, piece), (slot, arrival)) in
            headers.iter_mut().zip(&mut pieces).zip(slots).take(inbox.asked.min(inbox.asked_max))
        {
            let iov_base = slot.as_mut_ptr().cast();
            let header = header.write(NO_HEADER);
            header.msg_hdr.msg_iov = piece.write(libc::iovec { iov_base, iov_len: slot_bytes });
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = arrival.peer.address.bytes.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME_BYTES;
            header.msg_hdr.msg_control = arrival.control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            asked += 1;
        }
        // SAFETY: the loop above has filled in the first `asked` headers and counted them. Each
        // points to one element of `pieces`, which points to `slot_bytes` bytes of a slot, whose
        // size is at least that (`stride_bytes`); and to the `NAME_BYTES` and `CONTROL_BYTES` bytes
        // of one arrival. Slots and arrivals are borrowed mutably through `inbox` as long as the
        // call lasts, and any bytes are valid for them. A null timeout is allowed. `MSG_TRUNC` has
        // the kernel return the full length of a datagram, but never write beyond a slot.
        let count = unsafe {
            libc::recvmmsg(
                self.0.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                libc::c_uint::try_from(asked).unwrap_or(0),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        let filled = usize::try_from(count).unwrap_or(0).min(asked);
        let (mut datagrams, mut cut) = (0, 0);
        for (arrival, header) in inbox.arrivals.iter_mut().zip(&headers[..filled]) {
            // SAFETY: this is among the first `asked` headers, which the loop above filled in.
            let header = unsafe { header.assume_init_ref() };
            let (bytes, control) = (header.msg_len as usize, header.msg_hdr.msg_controllen);
            arrival.peer.address.len = header.msg_hdr.msg_namelen.min(NAME_BYTES);
            cut += arrival.note(bytes, slot_bytes, control);
            datagrams += arrival.datagrams;
        }
        // After another error than `EAGAIN`, such as a refusal, datagrams may still wait.
        let is_conclusive =
            count >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        inbox.filled = filled;
        inbox.adapt(asked, filled);
        Received { datagrams, cut, damaged: 0, is_drained: is_conclusive && filled < asked }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "28 bytes")]
const NAME_BYTES: libc::socklen_t = ADDRESS_BYTES as libc::socklen_t;

// SAFETY: every field of an mmsghdr is an integer or a pointer, for which zero is valid.
pub(super) const NO_HEADER: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
