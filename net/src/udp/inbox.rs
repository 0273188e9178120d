//! Datagrams that have arrived.
//!
//! ```text
//! slot   | datagram        |          one, or
//!        | d0 | d1 | d2 | d3 |        a burst: equally long but for the last, all from one sender
//! ```
//!
//! Where: a column's receive, before its turn; a load generator's answers.
//! Invariant: `datagrams` shows whole datagrams only. One that is longer than its slot is counted
//! as cut and never shown; of a burst that is, those that are whole are shown.
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

/// A slot of as many bytes holds whatever can come: no datagram and no burst is longer.
pub const SLOT_BYTES_MAX: usize = 1 << 16;
/// Slots begin an odd number of cache lines apart: at a power of two their first lines, which are
/// all that short requests touch, would displace each other.
const LINE_BYTES: usize = 64;

/// Room for what one `receive` takes.
pub struct Inbox {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    stride_bytes: usize,
    arrivals: Box<[Arrival]>,
    /// Slots that the last call filled.
    filled: usize,
    /// Slots that the next call offers to the kernel, some more than are filled: each slot offered
    /// costs a little, and one that stays empty says that no datagram waits.
    asked: usize,
    /// The most that one `receive` asks for.
    asked_max: usize,
}

/// What a slot holds, and what the kernel writes beside it.
#[derive(Debug)]
struct Arrival {
    peer: Peer,
    control: Control,
    /// Bytes of whole datagrams.
    bytes: usize,
    /// Bytes of each but the last.
    each_bytes: usize,
    /// How many these are.
    datagrams: usize,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of datagrams that the inbox shows.
    pub datagrams: usize,
    /// The number of datagrams that were longer than their slot.
    pub cut: usize,
    /// The number of those that were damaged, which a kernel's socket drops itself.
    pub damaged: usize,
    /// The socket is empty: an edge-triggered epoll will report the next datagram.
    pub is_drained: bool,
}

/// One received datagram, by whichever path a `P` leads back.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a, P = Peer> {
    /// The datagram's payload, or the first piece of it.
    pub bytes: &'a [u8],
    /// What of it lies elsewhere.
    pub more: Option<&'a Pieces>,
    /// Who sent it, and where to.
    pub peer: &'a P,
}

impl<'a, P> Datagram<'a, P> {
    /// Bytes of the payload.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.more.map_or(0, |pieces| pieces.iter().map(<[u8]>::len).sum())
    }

    /// True if it has no payload.
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
    /// Makes `slots` slots, 1 to `BATCH_MAX`, of `slot_bytes` each, 1 to `SLOT_BYTES_MAX`. Only
    /// what datagrams have touched of them is memory. Where slots are shorter than
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

    /// From now on a `receive` takes at most so many datagrams or bursts of them, and at least one.
    pub fn limit(&mut self, asked_max: usize) {
        self.asked_max = asked_max.clamp(1, self.arrivals.len());
    }

    /// The datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> Arrived<'_> {
        let slots = self.bytes.chunks_exact(self.stride_bytes);
        let slots = self.arrivals[..self.filled].iter().zip(slots);
        Arrived { slots, arrival: None, left: 0, rest: &[] }
    }

    /// The bytes of those datagrams.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.arrivals[..self.filled].iter().map(|arrival| arrival.bytes).sum()
    }

    /// Adapts the number of slots offered to how many of them were filled. That nothing came says
    /// nothing of how many come.
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

/// An iterator over what has arrived.
#[derive(Clone, Debug)]
pub struct Arrived<'a> {
    /// The slots that come next.
    slots: Zip<slice::Iter<'a, Arrival>, ChunksExact<'a, u8>>,
    /// What the slot holds that is being taken apart; none before the first.
    arrival: Option<&'a Arrival>,
    /// Datagrams left in it.
    left: usize,
    /// Their bytes.
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
    /// Takes down what came into a slot of `slot_bytes`: a message of `bytes`, of which the slot
    /// may hold only the beginning. Returns the number of datagrams that were cut.
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
    /// Receives what has arrived, at most as many bursts as `inbox` has slots; what was in `inbox`
    /// is gone. A refusal that the peer's system reports counts as nothing received.
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
        // points to one element of `pieces`, which points to `slot_bytes` bytes of a slot, which
        // has `stride_bytes`, no fewer; and to the `NAME_BYTES` and `CONTROL_BYTES` bytes of one
        // arrival. Slots and arrivals are borrowed mutably through `inbox` as long as the call
        // lasts, and any bytes are valid for them. A null timeout is allowed. `MSG_TRUNC` has the
        // kernel tell how long a datagram was, and never has it write beyond a slot.
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
            // SAFETY: among the first `asked` headers, which the loop above filled in.
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
