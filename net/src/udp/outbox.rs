//! Datagrams to send, gathered into few system calls.
//!
//! ```text
//! entry    | head | piece | piece | ...   a datagram: the head is copied, the pieces stay in place
//!          | datagram | datagram | ...    or several in one piece, of equal length except the last
//! message  | datagram |                   one send
//!          | datagram | datagram | ...    or a run: of equal length except the last, to one peer
//! ```
//!
//! Where: an outbox holds the replies that a column sends together, or a load generator's requests.
//! Invariant: an outbox provides memory for a `SendBatch`, which borrows pieces and peers. A
//! `SendBatch` that is dropped drops its unsent datagrams. Nothing is allocated after `new`. The
//! number of datagrams limits the number of system calls of one `post`, because each call sends at
//! least one datagram, ends the post, splits a run, or repeats a call that failed.
//! Source: sendmmsg(2); udp(7), `UDP_SEGMENT`, and `UDP_MAX_SEGMENTS` for its limit.
#![allow(unsafe_code, reason = "rustix lacks sendmmsg of runs to many peers; it is called as in C")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;

use memory::plant::{Fault, is};

use super::control::Control;
use super::inbox::NO_HEADER;
use super::peer::Peer;
use super::socket::{BATCH_MAX, Datagrams};
use crate::calls::Calls;

/// Maximum length of a datagram's head.
pub const HEAD_BYTES_MAX: usize = 8;
/// Maximum number of datagrams in a run, which is one send. (Linux before 6.9 accepts at most 64.)
const RUN_DATAGRAMS_MAX: usize = 64;
/// Maximum length of a run: the number of bytes that one IPv4 datagram can carry.
const RUN_BYTES_MAX: usize = 65_507;
/// Maximum number of pieces of a message (`UIO_MAXIOV`).
const MESSAGE_PIECES_MAX: usize = 1024;
/// Maximum number of attempts at one send: an attempt may return the error of an earlier datagram.
const REFUSALS_MAX: u32 = 4;
/// After this number of consecutive refused runs, datagrams are sent one by one.
const RUNS_REFUSED_MAX: u32 = 8;
/// After this number of datagrams sent one by one, a run is tried again.
const REST_DATAGRAMS: usize = 1024;

/// Memory for a `SendBatch`, with one entry for each call of `add` or `add_several`.
pub struct Outbox {
    entries: Vec<Entry>,
    entries_max: usize,
    pieces: Vec<libc::iovec>,
    pieces_max: usize,
    /// Heads and pieces for one system call. Elements that are adjacent in memory are joined.
    joined: Box<[MaybeUninit<libc::iovec>]>,
    runs: Runs,
}

// SAFETY: the fields of an outbox that are not `Send` are the pointers in `entries`, `pieces` and
// `joined`. Only `SendBatch::send` follows these pointers. A `SendBatch` exists only as long as the
// memory to which they point is borrowed; `open` removes the entries and pieces of an earlier
// `SendBatch`; and of `joined`, `send` uses only elements that it has written itself. Any thread
// may read the borrowed memory: `&[u8]` and `&Peer`. Heads are stored in `entries`, not borrowed.
unsafe impl Send for Outbox {}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbox").field("entries_max", &self.entries_max).finish_non_exhaustive()
    }
}

struct Entry {
    /// The addressee; null for the connected peer.
    to: *const Peer,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// True if this entry and the preceding entry must not be in one run.
    begins_run: bool,
    /// Index after the entry's last piece. An entry of several datagrams has one piece and no head.
    pieces_end: usize,
    bytes: usize,
    /// Number of bytes of each datagram except the last, which may be shorter; 0 if `bytes` is 0.
    each_bytes: usize,
}

impl Entry {
    fn datagrams(&self) -> usize {
        if self.bytes <= self.each_bytes { 1 } else { self.bytes.div_ceil(self.each_bytes) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    entry: usize,
    /// Number of datagrams of the entry `entry` before this position.
    inside: usize,
    /// Number of datagrams of all entries before this position.
    datagrams: usize,
}

impl Position {
    /// Returns the position `datagrams` datagrams further on; `entry` is the entry at `self`.
    fn within(self, entry: &Entry, datagrams: usize) -> Position {
        let (inside, datagrams) = (self.inside + datagrams, self.datagrams + datagrams);
        match inside * entry.each_bytes < entry.bytes {
            true => Position { inside, datagrams, ..self },
            false => Position { entry: self.entry + 1, inside: 0, datagrams },
        }
    }

    /// Returns the position after the next `entries` entries, which have `datagrams` datagrams.
    fn behind(self, entries: usize, datagrams: usize) -> Position {
        let datagrams = self.datagrams + datagrams;
        Position { entry: self.entry + entries, inside: 0, datagrams }
    }
}

/// Datagrams that are gathered and then sent.
#[derive(Debug)]
pub struct SendBatch<'a> {
    outbox: &'a mut Outbox,
    /// Position of the first datagram that is neither sent nor dropped.
    next: Position,
    /// Number of datagrams in all entries.
    datagrams: usize,
    /// The first `separate_until` datagrams are sent one by one: the kernel refused their run.
    separate_until: usize,
    begins_run: bool,
    last_to: Option<&'a Peer>,
    pieces: PhantomData<&'a [u8]>,
}

/// The result of `SendBatch::post`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostResult {
    /// Number of datagrams sent.
    pub sent: usize,
    /// The reason why the next datagram was not sent; `None` if all datagrams were sent.
    pub obstacle: Option<Obstacle>,
}

/// The reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The socket's buffer is full, or the system has no memory now.
    Full,
    /// The datagram is longer than the path allows.
    TooLong,
    /// The kernel refuses the addressee: no route, a filter, or port 0.
    Refused,
}

/// Counts of datagrams that were sent, and of datagrams that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of datagrams sent.
    pub sent: usize,
    /// Number of datagrams dropped because there was no room.
    pub full: usize,
    /// Number of datagrams dropped because they were too long.
    pub too_long: usize,
    /// Number of datagrams dropped because the kernel or the device refused them.
    pub refused: usize,
    /// AF_XDP only: number of bytes copied into packets, headers included.
    pub copied_bytes: usize,
    /// AF_XDP only: number of bytes sent in place, without a copy.
    pub in_place_bytes: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.sent += more.sent;
        self.full += more.full;
        self.too_long += more.too_long;
        self.refused += more.refused;
        self.copied_bytes += more.copied_bytes;
        self.in_place_bytes += more.in_place_bytes;
    }
}

impl Outbox {
    /// Makes an outbox for at most `entries_max` entries, which have at most `pieces_max` pieces in
    /// total; both limits are at least 1. If `runs` is true, consecutive datagrams of equal length
    /// to one peer become one send, if the kernel accepts such sends.
    #[must_use]
    pub fn new(entries_max: usize, pieces_max: usize, runs: bool) -> Outbox {
        let (entries_max, pieces_max) = (entries_max.max(1), pieces_max.max(1));
        Outbox {
            entries: Vec::with_capacity(entries_max),
            entries_max,
            pieces: Vec::with_capacity(pieces_max),
            pieces_max,
            joined: Box::new_uninit_slice(pieces_max + entries_max + BATCH_MAX),
            runs: Runs { wanted: runs, refused: 0, rested: 0 },
        }
    }

    /// Empties the outbox, and returns a batch to which datagrams are added.
    #[inline]
    pub fn open(&mut self) -> SendBatch<'_> {
        self.entries.clear();
        self.pieces.clear();
        SendBatch {
            outbox: self,
            next: Position::default(),
            datagrams: 0,
            separate_until: 0,
            begins_run: false,
            last_to: None,
            pieces: PhantomData,
        }
    }
}

/// The result of one `sendmmsg`.
enum CallResult {
    /// All datagrams before this position are sent.
    Sent(Position),
    /// The kernel has refused the first message, which was a run and ended before this position.
    RunRefused(Position),
    Stopped(Obstacle),
}

impl<'a> SendBatch<'a> {
    /// Adds a datagram: `head`, of at most `HEAD_BYTES_MAX` bytes, which is copied, followed by
    /// `pieces`. If `to` is `None`, the datagram goes to the connected peer. Returns false and adds
    /// nothing if there is no room: the caller then posts, and adds the datagram again. A datagram
    /// that does not fit into an empty outbox never fits.
    #[inline]
    pub fn add(
        &mut self,
        to: Option<&'a Peer>,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let outbox = &mut *self.outbox;
        let start = outbox.pieces.len();
        let mut entry = Entry {
            to: to.map_or(ptr::null(), ptr::from_ref),
            head: [0; HEAD_BYTES_MAX],
            head_bytes: head.len(),
            begins_run: self.begins_run || to != self.last_to,
            pieces_end: start,
            bytes: head.len(),
            each_bytes: 0,
        };
        if outbox.entries.len() >= outbox.entries_max {
            return false;
        }
        let Some(room) = entry.head.get_mut(..head.len()) else { return false };
        room.copy_from_slice(head);
        for piece in pieces {
            // The head may need one more piece.
            let has_room = outbox.pieces.len() < outbox.pieces_max
                && outbox.pieces.len() - start + 1 < MESSAGE_PIECES_MAX;
            if !has_room {
                outbox.pieces.truncate(start);
                return false;
            }
            let iov_base = piece.as_ptr().cast_mut().cast();
            let iov_len = piece.len() + usize::from(is(Fault::PieceReadBeyond));
            outbox.pieces.push(libc::iovec { iov_base, iov_len });
            entry.bytes += piece.len();
        }
        (entry.pieces_end, entry.each_bytes) = (outbox.pieces.len(), entry.bytes);
        outbox.entries.push(entry);
        self.datagrams += 1;
        (self.begins_run, self.last_to) = (false, to);
        true
    }

    /// Adds datagrams that lie one after another in `bytes`. Each datagram has `each_bytes` bytes,
    /// except the last, which may be shorter. Empty `bytes` are one empty datagram. Returns false
    /// and adds nothing if there is no room.
    #[inline]
    pub fn add_several(
        &mut self,
        to: Option<&'a Peer>,
        bytes: &'a [u8],
        each_bytes: usize,
    ) -> bool {
        if !self.add(to, b"", [bytes]) {
            return false;
        }
        if let Some(entry) = self.outbox.entries.last_mut()
            && each_bytes > 0
        {
            entry.each_bytes = each_bytes.min(entry.bytes);
            self.datagrams += entry.datagrams() - 1;
        }
        true
    }

    /// Makes the next datagram begin a run. Call `begin_run` when the flow changes, because the
    /// kernel reads only the flow of a run's first datagram (see `steer`).
    #[inline]
    pub fn begin_run(&mut self) {
        self.begins_run = true;
    }

    /// Number of datagrams that wait to be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams - self.next.datagrams
    }

    /// True if no datagram waits to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends datagrams in order, up to the first datagram that cannot be sent.
    #[must_use]
    pub fn post(&mut self, socket: &Datagrams, calls: &Calls) -> PostResult {
        let before = self.next.datagrams;
        while !self.is_empty() {
            match self.send(socket, calls) {
                CallResult::Sent(place) => self.next = place,
                CallResult::RunRefused(end) => self.separate_until = end.datagrams,
                CallResult::Stopped(obstacle) => {
                    let sent = self.next.datagrams - before;
                    return PostResult { sent, obstacle: Some(obstacle) };
                }
            }
        }
        let sent = self.datagrams - before;
        self.clear();
        PostResult { sent, obstacle: None }
    }

    /// Sends the datagrams that can be sent, and drops all others. Afterwards the outbox is empty.
    pub fn post_or_drop(&mut self, socket: &Datagrams, calls: &Calls) -> Tally {
        let mut tally = Tally::default();
        loop {
            let posted = self.post(socket, calls);
            tally.sent += posted.sent;
            match posted.obstacle {
                Some(Obstacle::Full) => tally.full += self.len(),
                Some(Obstacle::TooLong) => tally.too_long += 1,
                Some(Obstacle::Refused) => tally.refused += 1,
                None => return tally,
            }
            if posted.obstacle == Some(Obstacle::Full) || is(Fault::RefusedStopsAll) {
                self.clear();
                return tally;
            }
            if let Some(entry) = self.outbox.entries.get(self.next.entry) {
                self.next = self.next.within(entry, 1);
            }
        }
    }

    fn clear(&mut self) {
        self.outbox.entries.clear();
        self.outbox.pieces.clear();
        self.next = Position::default();
        (self.datagrams, self.separate_until) = (0, 0);
    }

    /// Sends at most `BATCH_MAX` messages from the next datagram on, by one system call. Repeats
    /// the call if the call has only returned the error of an earlier datagram.
    fn send(&mut self, socket: &Datagrams, calls: &Calls) -> CallResult {
        let mut batch = MessageBatch::new();
        self.write(&mut batch);
        for _ in 0..REFUSALS_MAX {
            calls.writes.add(1);
            // SAFETY: `write` has filled in the first `messages` headers. A header points to pieces
            // in `joined`, and may point to an address in a peer and to an element of `controls`.
            // Each piece lies in a head in `entries` or in a slice. The slices and the peers are
            // borrowed for `'a`, which outlives `self`, and the outbox does not change before the
            // call ends. The call only reads through all these pointers.
            let count = unsafe {
                libc::sendmmsg(
                    socket.0.as_raw_fd(),
                    batch.headers.as_mut_ptr().cast(),
                    libc::c_uint::try_from(batch.messages).unwrap_or(0),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Ok(sent @ 1..) = usize::try_from(count) {
                let end = batch.end(sent, self.next);
                self.outbox.runs.passed(sent, end.datagrams - self.next.datagrams);
                return CallResult::Sent(end);
            }
            let first = batch.end(1, self.next);
            let is_run = first.datagrams > self.next.datagrams + 1;
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    return CallResult::Stopped(Obstacle::Full);
                }
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                // The datagrams are too long for the path, or the device cannot compute checksums.
                Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE) if is_run => {
                    self.outbox.runs.refused += 1;
                    return CallResult::RunRefused(first);
                }
                Some(libc::EMSGSIZE) => return CallResult::Stopped(Obstacle::TooLong),
                _ => return CallResult::Stopped(Obstacle::Refused),
            }
        }
        // The peer's port is closed: the message counts as sent and is lost.
        CallResult::Sent(batch.end(1, self.next))
    }

    #[inline]
    fn write(&mut self, batch: &mut MessageBatch) {
        let Outbox { entries, pieces, joined, runs, .. } = &mut *self.outbox;
        let may_run = runs.are_tried();
        let (mut next, mut room) = (self.next, &mut joined[..]);
        // Index of the first piece of the next entry.
        let mut start = next.entry.checked_sub(1).map_or(0, |before| entries[before].pieces_end);
        let mut messages = 0;
        let slots = batch.headers.iter_mut().zip(&mut batch.controls).zip(&mut batch.ends);
        for ((header, control), end) in slots {
            let Some((entry, others)) = entries[next.entry..].split_first() else { break };
            *end = match may_run && next.datagrams >= self.separate_until {
                true => run((entry, others), next, start),
                false => next.within(entry, 1),
            };
            let (count, whole) = (end.datagrams - next.datagrams, end.entry - next.entry);
            let is_one_piece = entry.pieces_end == start + 1 && entry.head_bytes == 0;
            let joined = if is_one_piece && whole <= 1 {
                room[0].write(part(pieces[start], entry, next.inside, count));
                1
            } else {
                join(&entries[next.entry..end.entry], start, pieces, room)
            };
            let (own, behind) = room.split_at_mut(joined);
            let mut message = NO_HEADER;
            message.msg_hdr.msg_iov = own.as_mut_ptr().cast();
            message.msg_hdr.msg_iovlen = joined;
            address(&mut message.msg_hdr, control, entry, count);
            header.write(message);
            match whole {
                0 => {}
                1 => start = entry.pieces_end,
                _ => start = others[whole - 2].pieces_end,
            }
            (next, room) = (*end, behind);
            messages += 1;
        }
        batch.messages = messages;
    }
}

/// The arguments of one `sendmmsg`.
struct MessageBatch {
    headers: [MaybeUninit<libc::mmsghdr>; BATCH_MAX],
    controls: [MaybeUninit<Control>; BATCH_MAX],
    /// For each message, the position after its last datagram.
    ends: [Position; BATCH_MAX],
    messages: usize,
}

impl MessageBatch {
    #[inline(always)]
    fn new() -> MessageBatch {
        MessageBatch {
            headers: [const { MaybeUninit::uninit() }; BATCH_MAX],
            controls: [const { MaybeUninit::uninit() }; BATCH_MAX],
            ends: [Position::default(); BATCH_MAX],
            messages: 0,
        }
    }

    /// Returns the position after the first `messages` messages; the batch begins at `first`.
    fn end(&self, messages: usize, first: Position) -> Position {
        self.ends[..self.messages].get(messages - 1).map_or(first, |end| *end)
    }
}

/// Returns the end of the longest message that begins at `place`: some datagrams of the entry at
/// `place`, or this whole entry and entries after it. The pieces of this entry begin at `start`.
#[inline]
fn run((first, others): (&Entry, &[Entry]), place: Position, start: usize) -> Position {
    let each = first.each_bytes;
    if !(1..=usize::from(u16::MAX)).contains(&each) {
        return place.within(first, 1);
    }
    let mut datagrams = first.datagrams() - place.inside;
    let mut bytes = first.bytes - place.inside * each;
    if datagrams > RUN_DATAGRAMS_MAX || bytes > RUN_BYTES_MAX {
        return place.within(first, RUN_DATAGRAMS_MAX.min(RUN_BYTES_MAX / each).max(1));
    }
    if place.inside > 0 {
        return place.within(first, datagrams);
    }
    let mut count = 1;
    for next in others {
        let is_full = bytes == datagrams * each;
        let pieces = next.pieces_end - start + count + 1;
        let fits = bytes + next.bytes <= RUN_BYTES_MAX && pieces <= MESSAGE_PIECES_MAX;
        let (more, each_more) = (next.datagrams(), next.each_bytes);
        let is_like = each_more == each || more == 1 && (1..each).contains(&each_more);
        let begins_run = next.begins_run && !is(Fault::RunOfTwoPeers);
        if !(is_full && fits && is_like) || begins_run || datagrams + more > RUN_DATAGRAMS_MAX {
            break;
        }
        bytes += next.bytes;
        datagrams += more;
        count += 1;
    }
    place.behind(count, datagrams)
}

/// Returns the range of `piece` with `datagrams` datagrams of `entry`, from datagram `inside` on.
fn part(piece: libc::iovec, entry: &Entry, inside: usize, datagrams: usize) -> libc::iovec {
    let from = (inside * entry.each_bytes).min(piece.iov_len);
    let iov_len = (datagrams * entry.each_bytes).min(piece.iov_len - from);
    let iov_base = piece.iov_base.cast::<u8>().wrapping_add(from).cast();
    libc::iovec { iov_base, iov_len }
}

/// Writes the heads and pieces of `entries` into `room`; joins pieces that are adjacent in memory.
/// The pieces of the first entry begin at `start`. Returns the number of elements written.
#[inline]
fn join(
    entries: &[Entry],
    mut start: usize,
    pieces: &[libc::iovec],
    room: &mut [MaybeUninit<libc::iovec>],
) -> usize {
    let mut last = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let mut count = 0;
    let mut add = |piece: libc::iovec| {
        if last.iov_base.addr() + last.iov_len == piece.iov_base.addr() {
            last.iov_len += piece.iov_len;
        } else if piece.iov_len > 0 {
            if last.iov_len > 0 {
                room[count].write(last);
                count += 1;
            }
            last = piece;
        }
    };
    for entry in entries {
        if entry.head_bytes > 0 {
            let iov_base = entry.head.as_ptr().cast_mut().cast();
            add(libc::iovec { iov_base, iov_len: entry.head_bytes });
        }
        pieces[start..entry.pieces_end].iter().for_each(|piece| add(*piece));
        start = entry.pieces_end;
    }
    if last.iov_len > 0 {
        room[count].write(last);
        count += 1;
    }
    count
}

/// Writes the addressee and the control messages of a message of `count` datagrams.
#[inline]
fn address(
    header: &mut libc::msghdr,
    control: &mut MaybeUninit<Control>,
    entry: &Entry,
    count: usize,
) {
    // SAFETY: `to` is null, or comes from a reference that was given to `SendBatch::add`. The
    // reference outlives the `SendBatch` that calls this function, because `Outbox::open` has
    // removed the entries of an earlier `SendBatch`.
    let to = unsafe { entry.to.as_ref() };
    if let Some(to) = to {
        header.msg_name = to.address.bytes.as_ptr().cast_mut().cast();
        header.msg_namelen = to.address.len;
    }
    if count == 1 && !to.is_some_and(Peer::has_source) {
        return;
    }
    let control = control.write(Control::EMPTY);
    let mut bytes = to.map_or(0, |to| to.leave_from(control, 0));
    if let (2.., Ok(each)) = (count, u16::try_from(entry.each_bytes)) {
        bytes = control.push(bytes, libc::SOL_UDP, libc::UDP_SEGMENT, &each.to_ne_bytes());
    }
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = bytes;
}

/// Decides if runs are tried. After `RUNS_REFUSED_MAX` consecutive refusals, `REST_DATAGRAMS`
/// datagrams are sent separately before a run is tried again, because a device may refuse all runs.
/// A path with a small MTU refuses only some runs, which rarely reaches this limit.
#[derive(Debug)]
struct Runs {
    wanted: bool,
    /// Number of consecutive refused runs.
    refused: u32,
    /// Number of datagrams sent separately since `refused` reached `RUNS_REFUSED_MAX`.
    rested: usize,
}

impl Runs {
    fn are_tried(&mut self) -> bool {
        if self.refused >= RUNS_REFUSED_MAX && self.rested >= REST_DATAGRAMS {
            (self.refused, self.rested) = (RUNS_REFUSED_MAX - 1, 0);
        }
        self.wanted && self.refused < RUNS_REFUSED_MAX
    }

    fn passed(&mut self, messages: usize, datagrams: usize) {
        if datagrams > messages {
            self.refused = 0;
        } else if self.refused >= RUNS_REFUSED_MAX {
            self.rested += messages;
        }
    }
}
