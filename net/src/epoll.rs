//! Waiting for sockets: epoll.
//!
//! Where: the head of a column's loop.
//! Invariant: a stream is registered edge-triggered, so a reader must go on until a read came back
//! short (for a stream socket that means drained, see epoll(7)) or remember that it has not; in
//! return the kernel does not look again at every connection it has just reported, and nothing is
//! re-registered while replies fit the socket.
//! Source: epoll(7), "Questions and answers", on short reads.
#![allow(
    unsafe_code,
    reason = "an event's data is a union with a pointer, so Send is ours to give; epoll_pwait2"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::calls::Calls;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A stream: bytes to read, or the peer's end; edge-triggered.
    Read,
    /// A stream whose replies did not fit: room to write; edge-triggered. The peer's end is seen by
    /// writing.
    Write,
    /// A client's stream that connects, or whose requests did not fit: bytes to read and room to
    /// write; edge-triggered.
    Both,
    /// A listener of this column alone; level-triggered.
    Accept,
    /// An eventfd or a timerfd; level-triggered.
    Wake,
    /// A listener several columns share: one of them is woken for each connection; level-triggered.
    AcceptShared,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
            Interest::Write => EventFlags::OUT | EventFlags::ET,
            Interest::Both => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
            Interest::Accept | Interest::Wake => EventFlags::IN,
            Interest::AcceptShared => EventFlags::IN | EventFlags::EXCLUSIVE,
        }
    }
}

/// Bytes of the kernel's signal masks.
const MASK_BYTES: usize = 8;

/// How long `wait` may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Not at all: take what is ready.
    Zero,
    /// At most this long, rounded up to whole milliseconds.
    Within(Duration),
    /// At most this long, to the nanosecond as far as the kernel's timers go: for a sender that
    /// keeps a schedule.
    Exactly(Duration),
    /// Until something happens.
    Never,
}

/// Something happened to the descriptor that was registered with `token`.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// As registered.
    pub token: u64,
    /// There is something to read, or the end of it.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has shut down its side, or the connection is broken: the next reads come to an end.
    pub ended: bool,
}

/// An epoll instance and room for the events of one `wait`.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Box<[MaybeUninit<epoll::Event>]>,
    /// The system lets us wait to the nanosecond, as far as is known.
    is_exact: bool,
}

// SAFETY: what keeps `Epoll` from being `Send` is the pointer variant of the union in an event. The
// only values ever stored there are the integer tokens given to `add` and `change`.
unsafe impl Send for Epoll {}

impl AsFd for Epoll {
    /// It is readable when it has events: another instance may watch it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Epoll {
    /// Makes an instance whose `wait` takes at most `events_max` events.
    ///
    /// # Errors
    /// No descriptor is left, or no memory.
    pub fn new(events_max: usize) -> io::Result<Epoll> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Epoll { fd, events: Box::new_uninit_slice(events_max), is_exact: true })
    }

    /// Watches `source`; its events carry `token`. Closing the descriptor ends the watch.
    ///
    /// # Errors
    /// `ENOMEM`, or `ENOSPC` past `fs.epoll.max_user_watches`.
    pub fn add(
        &self,
        source: impl AsFd,
        token: u64,
        on: Interest,
        calls: &Calls,
    ) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::add(&self.fd, source, EventData::new_u64(token), on.flags())?)
    }

    /// Watches `source` for something else from now on. What is ready already is reported again.
    ///
    /// # Errors
    /// `source` is not watched here.
    pub fn change(
        &self,
        source: impl AsFd,
        token: u64,
        on: Interest,
        calls: &Calls,
    ) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::modify(&self.fd, source, EventData::new_u64(token), on.flags())?)
    }

    /// Stops watching `source`.
    ///
    /// # Errors
    /// `source` is not watched here.
    pub fn remove(&self, source: impl AsFd, calls: &Calls) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::delete(&self.fd, source)?)
    }

    /// Sleeps until something happens or `timeout` is over; what happened, at most `events_max`. A
    /// signal ends the sleep with no events.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn wait(
        &mut self,
        timeout: Timeout,
        calls: &Calls,
    ) -> io::Result<impl ExactSizeIterator<Item = Event>> {
        calls.waits.add(1);
        let limit = match timeout {
            Timeout::Zero => Some(timespec(Duration::ZERO)),
            Timeout::Exactly(most) if self.is_exact => {
                return self.wait_exactly(most).map(<[_]>::iter).map(all_seen);
            }
            Timeout::Within(most) | Timeout::Exactly(most) => Some(timespec(most)),
            Timeout::Never => None,
        };
        Ok(all_seen(self.wait_at_most(limit.as_ref())?.iter()))
    }

    fn wait_at_most(&mut self, limit: Option<&Timespec>) -> io::Result<&[epoll::Event]> {
        match epoll::wait(&self.fd, &mut self.events[..], limit) {
            Ok((events, _)) => Ok(events),
            Err(rustix::io::Errno::INTR) => Ok(&[]),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps to the nanosecond: `epoll::wait` rounds up to milliseconds, for the sake of kernels
    /// before 5.11. On such it is all there is, and where a filter forbids the newer call, with
    /// whatever error.
    fn wait_exactly(&mut self, most: Duration) -> io::Result<&[epoll::Event]> {
        let limit = libc::timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::from(i32::MAX)),
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        let room = libc::c_long::try_from(self.events.len()).unwrap_or(libc::c_long::MAX);
        let events = self.events.as_mut_ptr();
        // SAFETY: the descriptor is an epoll's; there is room for `room` events, which are laid out
        // as the kernel's (see the assertion below); no signal mask is given. The limit is the
        // kernel's own timespec, of two words of 64 bits (see below).
        let got = unsafe {
            let fd = libc::c_long::from(self.fd.as_raw_fd());
            let (limit, mask) = (&raw const limit, std::ptr::null::<libc::sigset_t>());
            libc::syscall(libc::SYS_epoll_pwait2, fd, events, room, limit, mask, MASK_BYTES)
        };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::INTR) => Ok(&[]),
                _ => {
                    self.is_exact = false;
                    self.wait_at_most(Some(&timespec(most)))
                }
            };
        };
        // SAFETY: the kernel has written the first `got` of them.
        Ok(unsafe { std::slice::from_raw_parts(events.cast_const().cast(), got) })
    }
}

const _: () = assert!(
    size_of::<epoll::Event>() == size_of::<libc::epoll_event>()
        && align_of::<epoll::Event>() == align_of::<libc::epoll_event>()
        && size_of::<libc::timespec>() == 16
);

fn all_seen(events: std::slice::Iter<'_, epoll::Event>) -> impl ExactSizeIterator<Item = Event> {
    events.map(seen)
}

fn seen(event: &epoll::Event) -> Event {
    let flags = event.flags;
    let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    Event {
        token: event.data.u64(),
        readable: flags.contains(EventFlags::IN) || ended,
        writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
        ended,
    }
}

/// Whole milliseconds, rounded up, so that the kernel takes the cheap call and we never wake too
/// early.
fn timespec(span: Duration) -> Timespec {
    let up_ms = span.subsec_nanos().div_ceil(1_000_000);
    Timespec {
        tv_sec: i64::try_from(span.as_secs() + u64::from(up_ms / 1000))
            .unwrap_or(i64::from(i32::MAX)),
        tv_nsec: i64::from(up_ms % 1000 * 1_000_000),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn where_the_system_knows_only_milliseconds_it_waits_for_these() {
        let mut epoll = Epoll::new(4).unwrap();
        let bell = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        for is_exact in [true, false] {
            epoll.is_exact = is_exact;
            let wait = Timeout::Exactly(Duration::from_micros(1));
            assert_eq!(epoll.wait(wait, &Calls::default()).unwrap().len(), 0);
        }
        epoll.add(&bell, 7, Interest::Wake, &Calls::default()).unwrap();
        for is_exact in [true, false] {
            epoll.is_exact = is_exact;
            let wait = Timeout::Exactly(Duration::from_secs(60));
            let calls = Calls::default();
            let tokens: Vec<u64> = epoll.wait(wait, &calls).unwrap().map(|it| it.token).collect();
            assert_eq!(tokens, [7]);
        }
    }
}
