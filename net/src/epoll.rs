//! Waits with epoll until sockets are ready.
//!
//! Where: the start of each iteration of a column's loop.
//! Invariant: each stream is registered edge-triggered. Therefore the kernel does not check a
//! reported stream again at the next wait, and no registration changes while the replies fit the
//! socket's buffer. A reader must therefore read until a read returns fewer bytes than requested
//! (the socket is then empty), or must read later without a new event.
//! Source: epoll(7), "Questions and answers", on short reads.
#![allow(
    unsafe_code,
    reason = "an event's data is a union with a pointer, so Send is implemented here; epoll_pwait2"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::calls::Calls;

/// The readiness for which a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A stream has bytes to read, or its peer has shut down its side. Edge-triggered.
    Read,
    /// A stream has room for replies again. Edge-triggered. A peer's shutdown is not reported.
    Write,
    /// A client's stream has connected, has bytes to read, or has room to write. Edge-triggered.
    Both,
    /// A connection waits at a listener that only this column watches. Level-triggered.
    Accept,
    /// An eventfd or a timerfd is readable. Level-triggered.
    Wake,
    /// A connection waits at a listener of several columns; the kernel wakes some. Level-triggered.
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

/// Size of the kernel's signal mask in bytes.
const MASK_BYTES: usize = 8;

/// The longest time that `wait` may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// `wait` does not sleep; it returns the events that are ready.
    Zero,
    /// `wait` sleeps at most for this span, rounded up to whole milliseconds.
    Within(Duration),
    /// `wait` sleeps at most for this span, as exactly as the kernel's timers allow.
    Exactly(Duration),
    /// `wait` sleeps until there is an event.
    Never,
}

/// The readiness of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The number that was given to `add` or `change` with the descriptor.
    pub token: u64,
    /// True if there are bytes to read, or if a read would return end of file or an error.
    pub readable: bool,
    /// True if there is room to write, or if a write would return an error.
    pub writable: bool,
    /// True if the peer has shut down its side, or if the connection broke.
    pub ended: bool,
}

/// An epoll instance and room for the events of one `wait`.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Box<[MaybeUninit<epoll::Event>]>,
    /// False after `epoll_pwait2` has failed: `Timeout::Exactly` is then rounded like `Within`.
    is_exact: bool,
}

// SAFETY: `Epoll` is not `Send` by itself only because the union in an event has a pointer variant.
// This union only ever holds the integer tokens that are given to `add` and `change`.
unsafe impl Send for Epoll {}

impl AsFd for Epoll {
    /// Returns the instance's own descriptor, which is readable while events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Epoll {
    /// Makes an instance whose `wait` returns at most `events_max` events. Fails if no descriptor
    /// or no memory is left.
    pub fn new(events_max: usize) -> io::Result<Epoll> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Epoll { fd, events: Box::new_uninit_slice(events_max), is_exact: true })
    }

    /// Watches `descriptor`; its events carry `token`. Closing the descriptor ends the watch. Fails
    /// if no memory is left, or if the user already has `fs.epoll.max_user_watches` watches.
    pub fn add(
        &self,
        descriptor: impl AsFd,
        token: u64,
        on: Interest,
        calls: &Calls,
    ) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::add(&self.fd, descriptor, EventData::new_u64(token), on.flags())?)
    }

    /// Changes the readiness for which `descriptor` is watched; fails if it is not watched. If the
    /// descriptor is ready already, the next `wait` reports the readiness.
    pub fn change(
        &self,
        descriptor: impl AsFd,
        token: u64,
        on: Interest,
        calls: &Calls,
    ) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::modify(&self.fd, descriptor, EventData::new_u64(token), on.flags())?)
    }

    /// Stops watching `descriptor`; fails if the descriptor is not watched.
    pub fn remove(&self, descriptor: impl AsFd, calls: &Calls) -> io::Result<()> {
        calls.controls.add(1);
        Ok(epoll::delete(&self.fd, descriptor)?)
    }

    /// Sleeps until there is an event or `timeout` is over. Returns at most `events_max` events, or
    /// no event if a signal interrupted the sleep. Never fails in a correct program.
    pub fn wait(
        &mut self,
        timeout: Timeout,
        calls: &Calls,
    ) -> io::Result<impl ExactSizeIterator<Item = Event>> {
        calls.waits.add(1);
        let limit = match timeout {
            Timeout::Zero => Some(timespec(Duration::ZERO)),
            Timeout::Exactly(most) if self.is_exact => {
                return self.wait_exactly(most).map(<[_]>::iter).map(decoded);
            }
            Timeout::Within(most) | Timeout::Exactly(most) => Some(timespec(most)),
            Timeout::Never => None,
        };
        Ok(decoded(self.wait_at_most(limit.as_ref())?.iter()))
    }

    fn wait_at_most(&mut self, limit: Option<&Timespec>) -> io::Result<&[epoll::Event]> {
        match epoll::wait(&self.fd, &mut self.events[..], limit) {
            Ok((events, _)) => Ok(events),
            Err(rustix::io::Errno::INTR) => Ok(&[]),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits to the nanosecond by `epoll_pwait2`. If this call fails (Linux before 5.11 lacks it,
    /// and a seccomp filter may reject it), all later waits are rounded up to whole milliseconds.
    fn wait_exactly(&mut self, most: Duration) -> io::Result<&[epoll::Event]> {
        let limit = libc::timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::from(i32::MAX)),
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        let room = libc::c_long::try_from(self.events.len()).unwrap_or(libc::c_long::MAX);
        let events = self.events.as_mut_ptr();
        // SAFETY: `fd` is an epoll instance, which stays open as long as `self`. `events` has room
        // for `room` events in the kernel's layout (asserted below) and is borrowed mutably.
        // `limit` is a local variable in the layout of the kernel's timespec: two words of 64 bits
        // (asserted below). A null signal mask is allowed.
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
        // SAFETY: the kernel has written the first `got` events, and `got` is at most `room`.
        Ok(unsafe { std::slice::from_raw_parts(events.cast_const().cast(), got) })
    }
}

const _: () = assert!(
    size_of::<epoll::Event>() == size_of::<libc::epoll_event>()
        && align_of::<epoll::Event>() == align_of::<libc::epoll_event>()
        && size_of::<libc::timespec>() == 16
);

fn decoded(events: std::slice::Iter<'_, epoll::Event>) -> impl ExactSizeIterator<Item = Event> {
    events.map(decode)
}

fn decode(event: &epoll::Event) -> Event {
    let flags = event.flags;
    let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    Event {
        token: event.data.u64(),
        readable: flags.contains(EventFlags::IN) || ended,
        writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
        ended,
    }
}

/// Rounds `span` up to whole milliseconds, because rustix calls `epoll_pwait2` for other spans.
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
    fn without_epoll_pwait2_it_waits_by_milliseconds() {
        let mut epoll = Epoll::new(4).unwrap();
        let ready = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        for is_exact in [true, false] {
            epoll.is_exact = is_exact;
            let wait = Timeout::Exactly(Duration::from_micros(1));
            assert_eq!(epoll.wait(wait, &Calls::default()).unwrap().len(), 0);
        }
        epoll.add(&ready, 7, Interest::Wake, &Calls::default()).unwrap();
        for is_exact in [true, false] {
            epoll.is_exact = is_exact;
            let wait = Timeout::Exactly(Duration::from_secs(60));
            let calls = Calls::default();
            let tokens: Vec<u64> = epoll.wait(wait, &calls).unwrap().map(|it| it.token).collect();
            assert_eq!(tokens, [7]);
        }
    }
}
