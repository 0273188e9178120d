//! Received datagrams.
//!
//! ```text
//! slot   | datagram        |          one datagram, or
//!        | d0 | d1 | d2 | d3 |        a burst from one sender: equal lengths except the last
//! ```
//!
//! Where: an inbox holds the requests that a column executes next, or a load generator's answers.
//! Invariant: `datagrams` shows only whole datagrams. A datagram that is longer than its slot is
//! counted as cut and not shown. A burst that is longer than its slot is shown without its cut end.
//! Source: recvmmsg(2); udp(7), `UDP_GRO`.
#![allow(unsafe_code, reason = "rustix lacks recvmmsg, which is called as in C")]

use std::io;
use std::iter::Zip;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::slice::{self, ChunksExact};

use memory::plant::{Fault, is};

use super::control::{CONTROL_BYTES, Control};
use super::peer::{ADDRESS_BYTES, Destination, Peer};
use super::socket::{BATCH_MAX, Datagrams};
use crate::calls::Calls;
use crate::xdp::parted::Pieces;

/// Size of a slot that is long enough for every datagram and every burst.
pub const SLOT_BYTES_MAX: usize = 1 << 16;
/// Size of a cache line. Slots begin an odd number of cache lines apart: at a power of two, the
/// first lines of the slots, which all requests use, would evict each other from the cache.
const LINE_BYTES: usize = 64;

/// A buffer for the datagrams of one `receive`.
pub struct Inbox {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    stride_bytes: usize,
    arrivals: Box<[Arrival]>,
    filled: usize,
    /// Number of slots that the next `receive` offers to the kernel: a few more than will probably
    /// be filled. Each slot costs time, but an empty slot shows that no more datagrams wait.
    offered: usize,
    offered_max: usize,
}

/// A slot's sender, control messages and numbers of bytes, as the kernel has reported them.
#[derive(Debug)]
struct Arrival {
    peer: Peer,
    control: Control,
    /// Number of bytes of all whole datagrams in the slot.
    bytes: usize,
    /// Number of bytes of each datagram except the last, which may be shorter.
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
    /// Number of frames rejected by `wire`; 0 for UDP sockets: the kernel drops such frames.
    pub damaged: usize,
    /// True if the socket is empty: an edge-triggered epoll will report the next datagram.
    pub is_drained: bool,
}

/// A received datagram; `P` is the type of its peer, which differs between sockets and AF_XDP.
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
    /// Makes `slots` slots (1 to `BATCH_MAX`) of `slot_bytes` bytes (1 to `SLOT_BYTES_MAX`). The
    /// system provides a slot's memory when a datagram first arrives in the slot. Slots shorter
    /// than `SLOT_BYTES_MAX` cannot hold the longest bursts, which are cut.
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
            offered: slots.min(2),
            offered_max: slots,
        }
    }

    /// Limits each later `receive` to this number of slots, at least one.
    pub fn limit(&mut self, offered_max: usize) {
        self.offered_max = offered_max.clamp(1, self.arrivals.len());
    }

    /// Returns the datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> DatagramIter<'_> {
        let slots = self.bytes.chunks_exact(self.stride_bytes);
        let slots = self.arrivals[..self.filled].iter().zip(slots);
        DatagramIter { slots, arrival: None, left: 0, rest: &[] }
    }

    /// Number of bytes of all datagrams of the last `receive`.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.arrivals[..self.filled].iter().map(|arrival| arrival.bytes).sum()
    }

    /// Adapts `offered` to the number of filled slots. If no slot was filled, `offered` stays.
    fn adapt(&mut self, offered: usize, filled: usize) {
        let wanted = filled + filled / 4 + 2;
        self.offered = match filled {
            0 => offered,
            _ if filled == offered => offered * 2,
            _ => wanted.max(offered - offered.saturating_sub(wanted) / 2),
        };
        self.offered = self.offered.min(self.arrivals.len());
    }
}

/// An iterator over received datagrams.
#[derive(Clone, Debug)]
pub struct DatagramIter<'a> {
    slots: Zip<slice::Iter<'a, Arrival>, ChunksExact<'a, u8>>,
    /// The slot whose datagrams are being returned; `None` before the first slot.
    arrival: Option<&'a Arrival>,
    /// Number of datagrams of this slot that are not yet returned; `rest` has their bytes.
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for DatagramIter<'a> {
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
    /// Records a message of `bytes` bytes. The slot has `slot_bytes` bytes, and may hold only the
    /// beginning of the message. Returns the number of datagrams that were cut.
    fn note(&mut self, bytes: usize, slot_bytes: usize, control_bytes: usize) -> usize {
        let mut each_bytes = None;
        self.peer.destination = Destination::Bound;
        for (level, kind, value) in self.control.read(control_bytes) {
            if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
                let each = value.first_chunk::<4>().map_or(0, |value| i32::from_ne_bytes(*value));
                each_bytes = usize::try_from(each).ok().filter(|&each| each > 0);
            } else if let Some(destination) = Destination::read(level, kind, value) {
                self.peer.destination = if is(Fault::DestinationNotRecorded) {
                    Destination::Bound
                } else {
                    destination
                };
            }
        }
        let (each, count) = match each_bytes {
            None => (bytes.max(1), 1),
            Some(each) => (each, bytes.div_ceil(each).max(1)),
        };
        self.each_bytes = each;
        (self.datagrams, self.bytes) = (count, bytes);
        if bytes > slot_bytes && !is(Fault::CutDatagramShown) {
            self.datagrams = slot_bytes / each;
            self.bytes = self.datagrams * each;
        }
        count - self.datagrams
    }
}

impl Datagrams {
    /// Receives at most one datagram or burst per slot, and forgets the datagrams of the last call.
    /// Receives nothing if the peer's system has reported that the port is closed.
    #[must_use]
    pub fn receive(&self, inbox: &mut Inbox, calls: &Calls) -> Received {
        calls.reads.add(1);
        let slot_bytes = inbox.slot_bytes;
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let mut offered = 0;
        let slots = inbox.bytes.chunks_exact_mut(inbox.stride_bytes).zip(&mut inbox.arrivals);
        for ((header, piece), (slot, arrival)) in headers
            .iter_mut()
            .zip(&mut pieces)
            .zip(slots)
            .take(inbox.offered.min(inbox.offered_max))
        {
            let iov_base = slot.as_mut_ptr().cast();
            let header = header.write(NO_HEADER);
            header.msg_hdr.msg_iov = piece.write(libc::iovec { iov_base, iov_len: slot_bytes });
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = arrival.peer.address.bytes.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME_BYTES;
            header.msg_hdr.msg_control = arrival.control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            offered += 1;
        }
        // SAFETY: the loop above has filled in the first `offered` headers and counted them. A
        // header points to the `NAME_BYTES` and `CONTROL_BYTES` bytes of one arrival, and to one
        // element of `pieces`, which points to the first `slot_bytes` bytes of a slot of
        // `stride_bytes` bytes. Slots and arrivals are borrowed mutably through `inbox` until the
        // call ends, and any bytes are valid for them. A null timeout is allowed. `MSG_TRUNC` makes
        // the kernel return the full length of a datagram, but the kernel never writes beyond a
        // slot.
        let count = unsafe {
            libc::recvmmsg(
                self.0.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                libc::c_uint::try_from(offered).unwrap_or(0),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        let filled = usize::try_from(count).unwrap_or(0).min(offered);
        let (mut datagrams, mut cut) = (0, 0);
        for (arrival, header) in inbox.arrivals.iter_mut().zip(&headers[..filled]) {
            // SAFETY: the loop above filled in the first `offered` headers; `filled` is not larger.
            let header = unsafe { header.assume_init_ref() };
            let (bytes, control) = (header.msg_len as usize, header.msg_hdr.msg_controllen);
            arrival.peer.address.len = header.msg_hdr.msg_namelen.min(NAME_BYTES);
            cut += arrival.note(bytes, slot_bytes, control);
            datagrams += arrival.datagrams;
        }
        // After an error other than `EAGAIN`, such as `ECONNREFUSED`, datagrams may be waiting.
        let is_conclusive =
            count >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        inbox.filled = filled;
        inbox.adapt(offered, filled);
        Received { datagrams, cut, damaged: 0, is_drained: is_conclusive && filled < offered }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "28 bytes")]
const NAME_BYTES: libc::socklen_t = ADDRESS_BYTES as libc::socklen_t;

// SAFETY: every field of an mmsghdr is an integer or a pointer, for which zero is valid.
pub(super) const NO_HEADER: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
