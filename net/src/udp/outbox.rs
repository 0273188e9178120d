//! Datagrams that are to be sent: letters, each to its addressee.
//!
//! ```text
//! letter   | head | piece | piece | ...      the head copied, the pieces where they lie
//! message  | letter |                        one send
//!          | letter | letter | letter |      or a run: equally long but for the last, to one peer
//! ```
//!
//! Where: a column's replies, after the turns that made them; a load generator's requests.
//! Invariant: an outbox has room and keeps nothing: pieces are borrowed until `Letters` ends, and
//! what could not be sent by then is gone. Nothing is allocated after `new`. The calls of one
//! `post` are bounded by the letters: each sends one at least, or ends it, or parts a run.
//! Source: sendmmsg(2); udp(7), `UDP_SEGMENT`, and `UDP_MAX_SEGMENTS` for its limit.
#![allow(unsafe_code, reason = "rustix lacks sendmmsg of runs to many peers; it is called as in C")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use super::control::Control;
use super::inbox::NO_HEADER;
use super::peer::Peer;
use super::{BATCH_MAX, Datagrams};
use crate::calls::Calls;

/// Most bytes of a letter's head.
pub const HEAD_BYTES_MAX: usize = 8;
/// Most letters of a run, which the kernel cuts apart (Linux before 6.9 takes 64).
const RUN_LETTERS_MAX: usize = 64;
/// Most bytes of a run: what one IPv4 datagram could carry.
const RUN_BYTES_MAX: usize = 65_507;
/// Most pieces of a message (`UIO_MAXIOV`).
const MESSAGE_PIECES_MAX: usize = 1024;
/// Attempts to send, each of which may only report that an earlier datagram was refused.
const REFUSALS_MAX: u32 = 4;
/// Runs refused one after the other, after which letters go one by one.
const RUNS_REFUSED_MAX: u32 = 8;
/// Letters that do before a run is tried again.
const REST_LETTERS: usize = 1024;

/// Room for letters.
pub struct Outbox {
    letters: Vec<Letter>,
    letters_max: usize,
    /// The pieces of all letters, in order.
    pieces: Vec<libc::iovec>,
    pieces_max: usize,
    /// Heads and pieces of the messages of one call; what lies side by side is one.
    joined: Vec<libc::iovec>,
    runs: Runs,
}

// SAFETY: what is not `Send` in an outbox is the pointers in `pieces` and `joined`. They are
// followed by `Letters::send` alone. There is a `Letters` for as long only as the memory they point
// to is borrowed, and `open` removes those of an earlier one. That memory is `[u8]`, shared, and
// may be read by any thread; and heads, which lie in `letters`.
unsafe impl Send for Outbox {}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbox").field("letters_max", &self.letters_max).finish_non_exhaustive()
    }
}

struct Letter {
    /// None is the connected peer.
    to: Option<Peer>,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// It is in no run with the letters before it.
    begins: bool,
    /// The index behind its last piece.
    pieces_end: usize,
    /// Bytes of head and pieces.
    bytes: usize,
}

/// Letters that are being written and sent.
#[derive(Debug)]
pub struct Letters<'a> {
    outbox: &'a mut Outbox,
    /// The first letter that is neither sent nor dropped.
    next: usize,
    /// Letters before this one go one by one: they were a run that was refused.
    apart_until: usize,
    /// The letter that is added next begins a run.
    begins: bool,
    pieces: PhantomData<&'a [u8]>,
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Letters sent.
    pub sent: usize,
    /// Why the next one was not; none if there is none.
    pub obstacle: Option<Obstacle>,
}

/// Why a letter was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The socket, or the system, has no room now.
    Full,
    /// It is longer than the path carries.
    TooLong,
    /// Its addressee cannot be reached or must not be: no route, a filter, port 0.
    Refused,
}

/// What became of all letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sent.
    pub sent: usize,
    /// Dropped, for there was no room.
    pub full: usize,
    /// Dropped as too long.
    pub too_long: usize,
    /// Dropped as refused.
    pub refused: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.sent += more.sent;
        self.full += more.full;
        self.too_long += more.too_long;
        self.refused += more.refused;
    }
}

impl Outbox {
    /// Room for `letters_max` letters, of `pieces_max` pieces together, at least one of each. With
    /// `runs` equally long letters to one peer are one send, if the kernel takes them so.
    #[must_use]
    pub fn new(letters_max: usize, pieces_max: usize, runs: bool) -> Outbox {
        let (letters_max, pieces_max) = (letters_max.max(1), pieces_max.max(1));
        Outbox {
            letters: Vec::with_capacity(letters_max),
            letters_max,
            pieces: Vec::with_capacity(pieces_max),
            pieces_max,
            joined: Vec::with_capacity(pieces_max + letters_max),
            runs: Runs { wanted: runs, refused: 0, rested: 0 },
        }
    }

    /// Begins: there is no letter.
    #[inline]
    pub fn open(&mut self) -> Letters<'_> {
        self.letters.clear();
        self.pieces.clear();
        Letters { outbox: self, next: 0, apart_until: 0, begins: false, pieces: PhantomData }
    }

    /// Shapes messages out of the letters from number `next` on, as many as there is room for in
    /// `shapes`: a message's first letter, its letters and its pieces, which are joined. Letters
    /// before number `apart_until` are a message each. Returns the number of messages.
    fn shape(
        &mut self,
        mut next: usize,
        apart_until: usize,
        shapes: &mut [(usize, usize, usize)],
    ) -> usize {
        let may_run = self.runs.are_tried();
        let mut messages = 0;
        self.joined.clear();
        for shape in shapes {
            if next >= self.letters.len() {
                break;
            }
            let count = if may_run && next >= apart_until { self.run(next) } else { 1 };
            *shape = (next, count, self.join(next, count));
            next += count;
            messages += 1;
        }
        messages
    }

    /// The number of letters that one message takes, from number `first` on.
    fn run(&self, first: usize) -> usize {
        let Letter { to, bytes: each, .. } = &self.letters[first];
        let is_cuttable = (1..=usize::from(u16::MAX)).contains(each);
        let (mut count, mut bytes) = (1, *each);
        while let Some(next) = self.letters.get(first + count).filter(|_| is_cuttable) {
            let pieces = next.pieces_end - self.pieces_start(first) + count + 1;
            let fits = count < RUN_LETTERS_MAX
                && bytes + next.bytes <= RUN_BYTES_MAX
                && pieces <= MESSAGE_PIECES_MAX;
            let is_like = (1..=*each).contains(&next.bytes) && !next.begins && next.to == *to;
            if !fits || !is_like {
                break;
            }
            bytes += next.bytes;
            count += 1;
            if next.bytes < *each {
                break;
            }
        }
        count
    }

    fn pieces_start(&self, letter: usize) -> usize {
        letter.checked_sub(1).map_or(0, |before| self.letters[before].pieces_end)
    }

    /// Appends heads and pieces of `count` letters to `joined`; returns how many pieces these are.
    fn join(&mut self, first: usize, count: usize) -> usize {
        let start = self.joined.len();
        let mut at = self.pieces_start(first);
        for letter in &self.letters[first..first + count] {
            let head = libc::iovec {
                iov_base: letter.head.as_ptr().cast_mut().cast(),
                iov_len: letter.head_bytes,
            };
            let pieces = &self.pieces[at..letter.pieces_end];
            at = letter.pieces_end;
            for piece in std::iter::once(&head).chain(pieces) {
                match self.joined[start..].last_mut() {
                    _ if piece.iov_len == 0 => {}
                    Some(last) if last.iov_base.addr() + last.iov_len == piece.iov_base.addr() => {
                        last.iov_len += piece.iov_len;
                    }
                    _ => self.joined.push(*piece),
                }
            }
        }
        self.joined.len() - start
    }
}

/// What a call to the system came to.
enum Call {
    Sent(usize),
    /// The first message was a run of so many letters, and was refused.
    RunRefused(usize),
    Stopped(Obstacle),
}

impl<'a> Letters<'a> {
    /// Adds a letter: `head`, of `HEAD_BYTES_MAX` bytes at most, which is copied, and behind it
    /// `pieces`. Where `to` is none it goes to the connected peer.
    ///
    /// False, and nothing is added, if there is no room: then post, and add it again. A letter for
    /// which an empty outbox has no room never has any.
    #[inline]
    pub fn add(
        &mut self,
        to: Option<&Peer>,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let outbox = &mut *self.outbox;
        let start = outbox.pieces.len();
        let mut letter = Letter {
            to: to.copied(),
            head: [0; HEAD_BYTES_MAX],
            head_bytes: head.len(),
            begins: self.begins,
            pieces_end: start,
            bytes: head.len(),
        };
        if outbox.letters.len() >= outbox.letters_max {
            return false;
        }
        let Some(room) = letter.head.get_mut(..head.len()) else { return false };
        room.copy_from_slice(head);
        for piece in pieces {
            // One more is for the head.
            let has_room = outbox.pieces.len() < outbox.pieces_max
                && outbox.pieces.len() - start + 1 < MESSAGE_PIECES_MAX;
            if !has_room {
                outbox.pieces.truncate(start);
                return false;
            }
            let iov_base = piece.as_ptr().cast_mut().cast();
            outbox.pieces.push(libc::iovec { iov_base, iov_len: piece.len() });
            letter.bytes += piece.len();
        }
        letter.pieces_end = outbox.pieces.len();
        outbox.letters.push(letter);
        self.begins = false;
        true
    }

    /// Has the next letter begin a run: one that reads a run's first letter only, as what steers
    /// flows does, takes the others for like it.
    #[inline]
    pub fn begin_run(&mut self) {
        self.begins = true;
    }

    /// The number of letters that wait to be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outbox.letters.len() - self.next
    }

    /// True if no letter waits to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends letters in their order, until all are sent or one cannot be. When all are, there is
    /// room again.
    #[must_use]
    pub fn post(&mut self, socket: &Datagrams, calls: &Calls) -> Posted {
        let mut sent = 0;
        while !self.is_empty() {
            match self.send(socket, calls) {
                Call::Sent(count) => {
                    self.next += count;
                    sent += count;
                }
                Call::RunRefused(count) => self.apart_until = self.next + count,
                Call::Stopped(obstacle) => return Posted { sent, obstacle: Some(obstacle) },
            }
        }
        self.clear();
        Posted { sent, obstacle: None }
    }

    /// Sends what can be sent and drops the rest: there is no letter then, and room.
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
            if posted.obstacle == Some(Obstacle::Full) {
                self.clear();
                return tally;
            }
            self.next += 1;
        }
    }

    fn clear(&mut self) {
        self.outbox.letters.clear();
        self.outbox.pieces.clear();
        (self.next, self.apart_until) = (0, 0);
    }

    /// One call: messages from the next letter on, `BATCH_MAX` at most.
    fn send(&mut self, socket: &Datagrams, calls: &Calls) -> Call {
        let outbox = &mut *self.outbox;
        let mut shapes = [(0, 0, 0); BATCH_MAX];
        let messages = outbox.shape(self.next, self.apart_until, &mut shapes);
        let shapes = &shapes[..messages];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let mut joined = &outbox.joined[..];
        for ((header, control), &(first, count, pieces)) in
            headers.iter_mut().zip(&mut controls).zip(shapes)
        {
            let (own, rest) = joined.split_at(pieces);
            joined = rest;
            write(header.write(NO_HEADER), control, &outbox.letters[first], count, own);
        }
        for _ in 0..REFUSALS_MAX {
            calls.writes.add(1);
            // SAFETY: the loop above has filled in the first `messages` headers. Each points to
            // pieces in `joined`, and may point to an address in `letters` and to an element of
            // `controls`; none of these changes before the call ends. Pieces point to heads in
            // `letters` and to slices that are borrowed for `'a`, which outlives `self`. The call
            // only reads what all of these point to.
            let count = unsafe {
                libc::sendmmsg(
                    socket.0.as_raw_fd(),
                    headers.as_mut_ptr().cast(),
                    libc::c_uint::try_from(messages).unwrap_or(0),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Ok(sent @ 1..) = usize::try_from(count) {
                let sent = &shapes[..sent.min(messages)];
                outbox.runs.passed(sent);
                return Call::Sent(sent.iter().map(|(_, count, _)| count).sum());
            }
            let run = shapes.first().map_or(0, |&(_, count, _)| count);
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    return Call::Stopped(Obstacle::Full);
                }
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                // Too long for the path with its headers, or a device that computes no checksums.
                Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE) if run > 1 => {
                    outbox.runs.refused += 1;
                    return Call::RunRefused(run);
                }
                Some(libc::EMSGSIZE) => return Call::Stopped(Obstacle::TooLong),
                _ => return Call::Stopped(Obstacle::Refused),
            }
        }
        // Nobody listens at the peer: the message counts as sent and lost.
        Call::Sent(shapes.first().map_or(0, |&(_, count, _)| count))
    }
}

/// Fills in the header of a message: a letter, or with `count - 1` more a run.
#[inline]
fn write(
    header: &mut libc::mmsghdr,
    control: &mut MaybeUninit<Control>,
    letter: &Letter,
    count: usize,
    pieces: &[libc::iovec],
) {
    header.msg_hdr.msg_iov = pieces.as_ptr().cast_mut();
    header.msg_hdr.msg_iovlen = pieces.len();
    if let Some(to) = &letter.to {
        header.msg_hdr.msg_name = to.address.bytes.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = to.address.len;
    }
    let has_source = letter.to.as_ref().is_some_and(Peer::has_source);
    if count == 1 && !has_source {
        return;
    }
    let control = control.write(Control::EMPTY);
    let mut bytes = 0;
    if let Some(to) = &letter.to {
        bytes = to.leave_from(control, bytes);
    }
    if let (2.., Ok(each)) = (count, u16::try_from(letter.bytes)) {
        bytes = control.push(bytes, libc::SOL_UDP, libc::UDP_SEGMENT, &each.to_ne_bytes());
    }
    header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = bytes;
}

/// Whether runs are worth trying. One peer behind a narrow path does not take them from the others,
/// and a device that refuses all of them does not cost a call for each.
#[derive(Debug)]
struct Runs {
    wanted: bool,
    /// One after the other.
    refused: u32,
    /// Letters sent since.
    rested: usize,
}

impl Runs {
    fn are_tried(&mut self) -> bool {
        if self.refused >= RUNS_REFUSED_MAX && self.rested >= REST_LETTERS {
            (self.refused, self.rested) = (RUNS_REFUSED_MAX - 1, 0);
        }
        self.wanted && self.refused < RUNS_REFUSED_MAX
    }

    /// Takes down which messages the kernel took.
    fn passed(&mut self, sent: &[(usize, usize, usize)]) {
        if sent.iter().any(|&(_, count, _)| count > 1) {
            self.refused = 0;
        } else if self.refused >= RUNS_REFUSED_MAX {
            self.rested += sent.len();
        }
    }
}
