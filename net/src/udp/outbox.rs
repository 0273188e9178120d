//! Datagrams to send, gathered into few system calls.
//!
//! ```text
//! letter   | head | piece | piece | ...   a datagram: the head copied, the pieces where they lie
//!          | datagram | datagram | ...    or several in one piece, equally long but for the last
//! message  | datagram |                   one send
//!          | datagram | datagram | ...    or a run: equally long but for the last, to one peer
//! ```
//!
//! Where: a column's replies, after the turns that made them; a load generator's requests.
//! Invariant: an outbox is only room, and keeps no datagrams: pieces and peers are borrowed until
//! `Letters` ends, and datagrams not sent by then are gone. Nothing is allocated after `new`. The
//! number of datagrams bounds the calls of one `post`: each sends at least one, ends the post, or
//! splits a run.
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
use super::{BATCH_MAX, Datagrams};
use crate::calls::Calls;

/// Most bytes of a datagram's head.
pub const HEAD_BYTES_MAX: usize = 8;
/// Most datagrams of a run, which the kernel splits (Linux before 6.9 takes 64).
const RUN_DATAGRAMS_MAX: usize = 64;
/// Most bytes of a run: the most that one IPv4 datagram could carry.
const RUN_BYTES_MAX: usize = 65_507;
/// Most pieces of a message (`UIO_MAXIOV`).
const MESSAGE_PIECES_MAX: usize = 1024;
/// Attempts to send, each of which may only report that an earlier datagram was refused.
const REFUSALS_MAX: u32 = 4;
/// After this number of consecutive refused runs, datagrams are sent one by one.
const RUNS_REFUSED_MAX: u32 = 8;
/// After this number of datagrams sent one by one, a run is tried again.
const REST_DATAGRAMS: usize = 1024;

/// Room for letters. A letter is what one call of `add` or `add_several` adds: one datagram, or
/// several to one peer.
pub struct Outbox {
    letters: Vec<Letter>,
    letters_max: usize,
    /// The pieces of all letters, in order.
    pieces: Vec<libc::iovec>,
    pieces_max: usize,
    /// Heads and pieces of the messages of one call; adjacent ones are joined.
    joined: Box<[MaybeUninit<libc::iovec>]>,
    runs: Runs,
}

// SAFETY: the fields of an outbox that are not `Send` are the pointers in `letters`, `pieces` and
// `joined`. Only `Letters::send` follows them. A `Letters` exists only as long as the memory that
// they point to is borrowed; `open` removes letters and pieces of an earlier one; and of `joined` a
// call uses only what it has written itself. That memory is `[u8]` and `Peer`, shared, which any
// thread may read; and heads, which lie in `letters`.
unsafe impl Send for Outbox {}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbox").field("letters_max", &self.letters_max).finish_non_exhaustive()
    }
}

struct Letter {
    /// The addressee; null for the connected peer.
    to: *const Peer,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// True if no run continues from the letters before this one, for example to another peer.
    begins: bool,
    /// Index behind the letter's last piece. With several datagrams it has one piece and no head.
    pieces_end: usize,
    /// Number of bytes of head and pieces.
    bytes: usize,
    /// Number of bytes of each datagram but the last, perhaps shorter; 0 only if there are no
    /// bytes.
    each_bytes: usize,
}

impl Letter {
    fn datagrams(&self) -> usize {
        if self.bytes <= self.each_bytes { 1 } else { self.bytes.div_ceil(self.each_bytes) }
    }
}

/// The place of a datagram, from which sending continues.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Index of the letter.
    letter: usize,
    /// Number of datagrams of that letter before this place.
    inside: usize,
    /// Number of datagrams of all letters before this place.
    datagrams: usize,
}

impl Place {
    /// Returns the place `datagrams` further on in `letter`, which is the letter at this place.
    fn within(self, letter: &Letter, datagrams: usize) -> Place {
        let (inside, datagrams) = (self.inside + datagrams, self.datagrams + datagrams);
        match inside * letter.each_bytes < letter.bytes {
            true => Place { inside, datagrams, ..self },
            false => Place { letter: self.letter + 1, inside: 0, datagrams },
        }
    }

    /// Returns the place behind `letters` letters, which have `datagrams` together and begin here.
    fn behind(self, letters: usize, datagrams: usize) -> Place {
        let datagrams = self.datagrams + datagrams;
        Place { letter: self.letter + letters, inside: 0, datagrams }
    }
}

/// Letters that are being written and sent.
#[derive(Debug)]
pub struct Letters<'a> {
    outbox: &'a mut Outbox,
    /// Place of the first datagram that is neither sent nor dropped.
    next: Place,
    /// Number of datagrams in all letters.
    datagrams: usize,
    /// Datagrams before this one go one by one, because they were a run that was refused.
    apart_until: usize,
    /// True if the next letter begins a run.
    begins: bool,
    /// The addressee of the last letter.
    last_to: Option<&'a Peer>,
    pieces: PhantomData<&'a [u8]>,
}

/// The result of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Number of datagrams sent.
    pub sent: usize,
    /// The reason why the next datagram was not sent; `None` if all were.
    pub obstacle: Option<Obstacle>,
}

/// The reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The socket, or the system, has no room now.
    Full,
    /// The datagram is longer than the path carries.
    TooLong,
    /// The addressee cannot be reached or must not be: no route, a filter, port 0.
    Refused,
}

/// Counts of datagrams by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number sent.
    pub sent: usize,
    /// Number dropped for lack of room.
    pub full: usize,
    /// Number dropped as too long.
    pub too_long: usize,
    /// Number dropped as refused.
    pub refused: usize,
    /// AF_XDP only: number of bytes copied into packets, headers included.
    pub copied_bytes: usize,
    /// AF_XDP only: number of bytes sent in place.
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
    /// Makes room for `letters_max` letters, with `pieces_max` pieces together, at least one of
    /// each. With `runs`, datagrams of equal length to one peer are one send, if the kernel accepts
    /// that.
    #[must_use]
    pub fn new(letters_max: usize, pieces_max: usize, runs: bool) -> Outbox {
        let (letters_max, pieces_max) = (letters_max.max(1), pieces_max.max(1));
        Outbox {
            letters: Vec::with_capacity(letters_max),
            letters_max,
            pieces: Vec::with_capacity(pieces_max),
            pieces_max,
            joined: Box::new_uninit_slice(pieces_max + letters_max + BATCH_MAX),
            runs: Runs { wanted: runs, refused: 0, rested: 0 },
        }
    }

    /// Empties the outbox, to add letters.
    #[inline]
    pub fn open(&mut self) -> Letters<'_> {
        self.letters.clear();
        self.pieces.clear();
        Letters {
            outbox: self,
            next: Place::default(),
            datagrams: 0,
            apart_until: 0,
            begins: false,
            last_to: None,
            pieces: PhantomData,
        }
    }
}

/// The result of a system call.
enum Call {
    /// All datagrams before this place are sent.
    Sent(Place),
    /// The first message was a run up to this place, and was refused.
    RunRefused(Place),
    Stopped(Obstacle),
}

impl<'a> Letters<'a> {
    /// Adds a datagram: `head`, of at most `HEAD_BYTES_MAX` bytes, which is copied, followed by
    /// `pieces`. If `to` is `None` the datagram goes to the connected peer.
    ///
    /// False, and nothing is added, if there is no room: then post, and add it again. A datagram
    /// that does not fit an empty outbox never fits.
    #[inline]
    pub fn add(
        &mut self,
        to: Option<&'a Peer>,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let outbox = &mut *self.outbox;
        let start = outbox.pieces.len();
        let mut letter = Letter {
            to: to.map_or(ptr::null(), ptr::from_ref),
            head: [0; HEAD_BYTES_MAX],
            head_bytes: head.len(),
            begins: self.begins || to != self.last_to,
            pieces_end: start,
            bytes: head.len(),
            each_bytes: 0,
        };
        if outbox.letters.len() >= outbox.letters_max {
            return false;
        }
        let Some(room) = letter.head.get_mut(..head.len()) else { return false };
        room.copy_from_slice(head);
        for piece in pieces {
            // One more piece is needed for the head.
            let has_room = outbox.pieces.len() < outbox.pieces_max
                && outbox.pieces.len() - start + 1 < MESSAGE_PIECES_MAX;
            if !has_room {
                outbox.pieces.truncate(start);
                return false;
            }
            let iov_base = piece.as_ptr().cast_mut().cast();
            let iov_len = piece.len() + usize::from(is(Fault::PieceReadBeyond));
            outbox.pieces.push(libc::iovec { iov_base, iov_len });
            letter.bytes += piece.len();
        }
        (letter.pieces_end, letter.each_bytes) = (outbox.pieces.len(), letter.bytes);
        outbox.letters.push(letter);
        self.datagrams += 1;
        (self.begins, self.last_to) = (false, to);
        true
    }

    /// Adds the datagrams in `bytes`, of `each_bytes` bytes each but for the last, which may be
    /// shorter; empty `bytes` are one empty datagram. Together they take the room of a one-piece
    /// letter.
    ///
    /// False, and nothing is added, like `add`.
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
        if let Some(letter) = self.outbox.letters.last_mut()
            && each_bytes > 0
        {
            letter.each_bytes = each_bytes.min(letter.bytes);
            self.datagrams += letter.datagrams() - 1;
        }
        true
    }

    /// Has the next letter begin a run. Needed where the flow changes, because a program that
    /// steers flows reads only the first datagram of a run.
    #[inline]
    pub fn begin_run(&mut self) {
        self.begins = true;
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

    /// Sends datagrams in order, until all are sent, which empties the outbox, or one cannot be.
    #[must_use]
    pub fn post(&mut self, socket: &Datagrams, calls: &Calls) -> Posted {
        let before = self.next.datagrams;
        while !self.is_empty() {
            match self.send(socket, calls) {
                Call::Sent(place) => self.next = place,
                Call::RunRefused(end) => self.apart_until = end.datagrams,
                Call::Stopped(obstacle) => {
                    let sent = self.next.datagrams - before;
                    return Posted { sent, obstacle: Some(obstacle) };
                }
            }
        }
        let sent = self.datagrams - before;
        self.clear();
        Posted { sent, obstacle: None }
    }

    /// Sends the datagrams that can be sent and drops the others; the outbox is empty then.
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
            if let Some(letter) = self.outbox.letters.get(self.next.letter) {
                self.next = self.next.within(letter, 1);
            }
        }
    }

    fn clear(&mut self) {
        self.outbox.letters.clear();
        self.outbox.pieces.clear();
        self.next = Place::default();
        (self.datagrams, self.apart_until) = (0, 0);
    }

    /// Makes one call for at most `BATCH_MAX` messages, from the next datagram on.
    fn send(&mut self, socket: &Datagrams, calls: &Calls) -> Call {
        let mut batch = Batch::new();
        self.write(&mut batch);
        for _ in 0..REFUSALS_MAX {
            calls.writes.add(1);
            // SAFETY: `write` has filled in the first `messages` headers. Each points to pieces in
            // `joined`, and may point to an address in a peer and to an element of `controls`.
            // Pieces lie within heads in `letters` and within slices; these slices and the peers
            // are borrowed for `'a`, which outlives `self`, and nothing else changes before the
            // call ends. The call only reads the memory that all of these point to.
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
                return Call::Sent(end);
            }
            let first = batch.end(1, self.next);
            let is_run = first.datagrams > self.next.datagrams + 1;
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    return Call::Stopped(Obstacle::Full);
                }
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                // The run is too long for the path, or the device computes no checksums.
                Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE) if is_run => {
                    self.outbox.runs.refused += 1;
                    return Call::RunRefused(first);
                }
                Some(libc::EMSGSIZE) => return Call::Stopped(Obstacle::TooLong),
                _ => return Call::Stopped(Obstacle::Refused),
            }
        }
        // Nobody listens at the peer: the message counts as sent and is lost.
        Call::Sent(batch.end(1, self.next))
    }

    /// Writes messages into an empty batch, from the next datagram on.
    #[inline]
    fn write(&mut self, batch: &mut Batch) {
        let Outbox { letters, pieces, joined, runs, .. } = &mut *self.outbox;
        let may_run = runs.are_tried();
        let (mut next, mut room) = (self.next, &mut joined[..]);
        // Index of the first piece of the next letter.
        let mut start = next.letter.checked_sub(1).map_or(0, |before| letters[before].pieces_end);
        let mut messages = 0;
        let slots = batch.headers.iter_mut().zip(&mut batch.controls).zip(&mut batch.ends);
        for ((header, control), end) in slots {
            let Some((letter, others)) = letters[next.letter..].split_first() else { break };
            *end = match may_run && next.datagrams >= self.apart_until {
                true => run((letter, others), next, start),
                false => next.within(letter, 1),
            };
            let (count, whole) = (end.datagrams - next.datagrams, end.letter - next.letter);
            let is_one_piece = letter.pieces_end == start + 1 && letter.head_bytes == 0;
            let joined = if is_one_piece && whole <= 1 {
                room[0].write(part(pieces[start], letter, next.inside, count));
                1
            } else {
                join(&letters[next.letter..end.letter], start, pieces, room)
            };
            let (own, behind) = room.split_at_mut(joined);
            let mut message = NO_HEADER;
            message.msg_hdr.msg_iov = own.as_mut_ptr().cast();
            message.msg_hdr.msg_iovlen = joined;
            address(&mut message.msg_hdr, control, letter, count);
            header.write(message);
            match whole {
                0 => {}
                1 => start = letter.pieces_end,
                _ => start = others[whole - 2].pieces_end,
            }
            (next, room) = (*end, behind);
            messages += 1;
        }
        batch.messages = messages;
    }
}

struct Batch {
    headers: [MaybeUninit<libc::mmsghdr>; BATCH_MAX],
    controls: [MaybeUninit<Control>; BATCH_MAX],
    /// For each message, the place behind it.
    ends: [Place; BATCH_MAX],
    messages: usize,
}

impl Batch {
    #[inline(always)]
    fn new() -> Batch {
        Batch {
            headers: [const { MaybeUninit::uninit() }; BATCH_MAX],
            controls: [const { MaybeUninit::uninit() }; BATCH_MAX],
            ends: [Place::default(); BATCH_MAX],
            messages: 0,
        }
    }

    /// Returns the place behind the first `messages` messages; the first one begins at `first`.
    fn end(&self, messages: usize, first: Place) -> Place {
        self.ends[..self.messages].get(messages - 1).map_or(first, |end| *end)
    }
}

/// Returns the place behind one message from `place` on: behind a part of the letter there, or
/// behind it and letters that follow it. The letter's pieces begin at `start`.
#[inline]
fn run((first, others): (&Letter, &[Letter]), place: Place, start: usize) -> Place {
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
        let begins = next.begins && !is(Fault::RunOfTwoPeers);
        if !(is_full && fits && is_like) || begins || datagrams + more > RUN_DATAGRAMS_MAX {
            break;
        }
        bytes += next.bytes;
        datagrams += more;
        count += 1;
    }
    place.behind(count, datagrams)
}

/// Returns `datagrams` datagrams of a letter's one piece, from the datagram `inside` on.
fn part(piece: libc::iovec, letter: &Letter, inside: usize, datagrams: usize) -> libc::iovec {
    let from = (inside * letter.each_bytes).min(piece.iov_len);
    let iov_len = (datagrams * letter.each_bytes).min(piece.iov_len - from);
    let iov_base = piece.iov_base.cast::<u8>().wrapping_add(from).cast();
    libc::iovec { iov_base, iov_len }
}

/// Writes heads and pieces of letters into `room`, which has room for them all; the pieces of the
/// first letter begin at `start`. Returns the number of joined pieces.
#[inline]
fn join(
    letters: &[Letter],
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
    for letter in letters {
        if letter.head_bytes > 0 {
            let iov_base = letter.head.as_ptr().cast_mut().cast();
            add(libc::iovec { iov_base, iov_len: letter.head_bytes });
        }
        pieces[start..letter.pieces_end].iter().for_each(|piece| add(*piece));
        start = letter.pieces_end;
    }
    if last.iov_len > 0 {
        room[count].write(last);
        count += 1;
    }
    count
}

/// Writes the addressee of a message, and its control messages; `count` is its number of datagrams.
#[inline]
fn address(
    header: &mut libc::msghdr,
    control: &mut MaybeUninit<Control>,
    letter: &Letter,
    count: usize,
) {
    // SAFETY: null, or from a reference that `Letters::add` was given and that lives as long as the
    // `Letters`, which has called this: `Outbox::open` removes the letters of an earlier one.
    let to = unsafe { letter.to.as_ref() };
    if let Some(to) = to {
        header.msg_name = to.address.bytes.as_ptr().cast_mut().cast();
        header.msg_namelen = to.address.len;
    }
    if count == 1 && !to.is_some_and(Peer::has_source) {
        return;
    }
    let control = control.write(Control::EMPTY);
    let mut bytes = to.map_or(0, |to| to.leave_from(control, 0));
    if let (2.., Ok(each)) = (count, u16::try_from(letter.each_bytes)) {
        bytes = control.push(bytes, libc::SOL_UDP, libc::UDP_SEGMENT, &each.to_ne_bytes());
    }
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = bytes;
}

/// Decides if runs are worth trying. A peer behind a narrow path does not take runs from the other
/// peers, and a device that refuses all of them does not cost a call for each.
#[derive(Debug)]
struct Runs {
    wanted: bool,
    /// Number of consecutive runs refused.
    refused: u32,
    /// Number of datagrams sent one by one since.
    rested: usize,
}

impl Runs {
    fn are_tried(&mut self) -> bool {
        if self.refused >= RUNS_REFUSED_MAX && self.rested >= REST_DATAGRAMS {
            (self.refused, self.rested) = (RUNS_REFUSED_MAX - 1, 0);
        }
        self.wanted && self.refused < RUNS_REFUSED_MAX
    }

    /// Notes the messages and datagrams that the kernel took in one call.
    fn passed(&mut self, messages: usize, datagrams: usize) {
        if datagrams > messages {
            self.refused = 0;
        } else if self.refused >= RUNS_REFUSED_MAX {
            self.rested += messages;
        }
    }
}
