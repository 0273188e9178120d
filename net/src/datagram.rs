//! UDP: many datagrams with one system call, both ways.
//!
//! ```text
//! Outbox  | datagram | datagram | ...    back to back, so that a run of equal ones is one GSO send
//! Inbox   | slot     | slot     | ...    one datagram each
//! ```
//!
//! Where: beside `stream`, for a load generator and the test servers it is checked against.
//! Invariant: non-blocking; a call takes at most `BATCH_MAX` datagrams; what did not fit a slot is
//! reported as cut, never passed on as whole.
//! Source: sendmmsg(2), recvmmsg(2); udp(7), `UDP_SEGMENT`, and `UDP_MAX_SEGMENTS` for its limit.
#![allow(
    unsafe_code,
    reason = "rustix lacks recvmmsg and the control message of UDP_SEGMENT; both are called as in C"
)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with, sockopt,
};

use crate::calls::Calls;

/// Most datagrams that one call moves.
pub const BATCH_MAX: usize = 64;
/// Most equal datagrams that one send hands over to be cut (Linux before 6.9 takes 64).
const SEGMENTS_MAX: usize = 64;
/// Most bytes of such a send: what one IPv4 datagram could carry.
const RUN_BYTES_MAX: usize = 65_507;
/// What is asked of the kernel for arriving datagrams; it gives `net.core.rmem_max` at most.
const RECEIVE_BYTES: usize = 4 << 20;
/// Room for one control message with two bytes in it.
const CONTROL_BYTES: usize = 24;
/// How often a send is tried again when it only reported that an earlier datagram was refused.
const REFUSALS_MAX: usize = 4;

/// Whence a datagram came, as the kernel wrote it.
#[derive(Clone, Copy)]
pub struct Source {
    address: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Source").finish_non_exhaustive()
    }
}

/// What one call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// So many slots are filled.
    pub datagrams: usize,
    /// There was no more: the next edge comes with the next datagram.
    pub is_drained: bool,
}

/// What one call sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentDatagrams {
    /// So many, from the first on; fewer than asked for when the socket is full.
    Some(usize),
    /// This system does not cut datagrams for us.
    NoGso,
    /// A datagram is larger than the path takes.
    TooLarge,
    /// The socket is broken.
    Broken,
}

/// A UDP socket. Closed when dropped.
#[derive(Debug)]
pub struct Datagrams(OwnedFd);

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Datagrams {
    /// A socket with a port of its own that talks to `peer` alone.
    ///
    /// # Errors
    /// No route; no descriptor left.
    pub fn connect(peer: SocketAddr) -> io::Result<Datagrams> {
        let fd = udp_socket(peer)?;
        connect(&fd, &peer)?;
        Ok(Datagrams(fd))
    }

    /// A socket at `address` that hears everybody; port 0 takes a free one. With `shared` others
    /// may be bound there too, and the kernel spreads the senders over them.
    ///
    /// # Errors
    /// The port is taken; the address is not ours.
    pub fn bind(address: SocketAddr, shared: bool) -> io::Result<Datagrams> {
        let fd = udp_socket(address)?;
        sockopt::set_socket_reuseport(&fd, shared)?;
        bind(&fd, &address)?;
        Ok(Datagrams(fd))
    }

    /// Our own address and port.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.0)?).map_err(io::Error::from)
    }

    /// Receives what is there, as far as `inbox` has slots. A refusal reported by the peer's system
    /// is nothing received.
    #[must_use]
    pub fn receive(&self, inbox: &mut Inbox, calls: &Calls) -> Received {
        calls.reads.add(1);
        let asked = inbox.asked.min(BATCH_MAX);
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let slots = inbox.bytes.chunks_exact_mut(inbox.slot_bytes).zip(&mut inbox.arrivals);
        for ((header, piece), (slot, arrival)) in
            headers.iter_mut().zip(&mut pieces).zip(slots).take(asked)
        {
            let bytes = slot.as_mut_ptr().cast();
            let header = header.write(NO_HEADER);
            header.msg_hdr.msg_iov =
                piece.write(libc::iovec { iov_base: bytes, iov_len: slot.len() });
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut arrival.source.address).cast();
            header.msg_hdr.msg_namelen = ADDRESS_BYTES;
        }
        // SAFETY: the first `asked` headers are filled in above (there are as many slots and
        // arrivals: `Inbox::new`); each points to one piece, whose slot is borrowed mutably through
        // `inbox`, and to one address, as long as the call lasts. No timeout is given.
        let count = unsafe {
            libc::recvmmsg(
                self.0.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                libc::c_uint::try_from(asked).unwrap_or(0),
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let datagrams = usize::try_from(count).unwrap_or(0).min(asked);
        for (arrival, header) in inbox.arrivals.iter_mut().zip(&headers[..datagrams]) {
            // SAFETY: as above; the kernel has written lengths and flags.
            let header = unsafe { header.assume_init_ref() };
            arrival.bytes = (header.msg_len as usize).min(inbox.slot_bytes);
            arrival.is_cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            arrival.source.bytes = header.msg_hdr.msg_namelen.min(ADDRESS_BYTES);
        }
        // An error other than "nothing is there" (a refusal) may stand before datagrams.
        let is_over = count >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        inbox.learn(asked, datagrams);
        Received { datagrams, is_drained: is_over && datagrams < asked }
    }

    /// Sends the datagrams of `outbox` from number `first` on, `BATCH_MAX` sends at most. With
    /// `gso` a run of equally long ones to the connected peer is one send.
    #[must_use]
    pub fn send(&self, outbox: &Outbox, first: usize, gso: bool, calls: &Calls) -> SentDatagrams {
        let mut control = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let mut ends = [0; BATCH_MAX];
        let (mut sends, mut next) = (0, first);
        while sends < BATCH_MAX && next < outbox.letters.len() {
            let run = outbox.run(next, gso);
            let letter = &outbox.letters[next];
            let bytes = &outbox.bytes[letter.start..run.end_byte];
            let iov_base = bytes.as_ptr().cast_mut().cast();
            let header = headers[sends].write(NO_HEADER);
            header.msg_hdr.msg_iov =
                pieces[sends].write(libc::iovec { iov_base, iov_len: bytes.len() });
            header.msg_hdr.msg_iovlen = 1;
            if let Some(to) = outbox.to(letter) {
                header.msg_hdr.msg_name = (&raw const to.address).cast_mut().cast();
                header.msg_hdr.msg_namelen = to.bytes;
            }
            if run.letters > 1 {
                let asked = control[sends].write(segment(run.segment_bytes));
                header.msg_hdr.msg_control = asked.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_BYTES;
            }
            next += run.letters;
            ends[sends] = next;
            sends += 1;
        }
        for _ in 0..REFUSALS_MAX {
            calls.writes.add(1);
            // SAFETY: the first `sends` headers are filled in above; each points to one piece,
            // which lies in `outbox.bytes`, and perhaps to an address in `outbox` and to
            // its own control message: all borrowed as long as the call lasts, and only read by it.
            let count = unsafe {
                libc::sendmmsg(
                    self.0.as_raw_fd(),
                    headers.as_mut_ptr().cast(),
                    libc::c_uint::try_from(sends).unwrap_or(0),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Some(last) = usize::try_from(count).ok().filter(|&count| count <= sends) {
                return SentDatagrams::Some(if last == 0 { 0 } else { ends[last - 1] - first });
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return SentDatagrams::Some(0),
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                Some(libc::EMSGSIZE) => return SentDatagrams::TooLarge,
                Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) if gso => {
                    return SentDatagrams::NoGso;
                }
                _ => return SentDatagrams::Broken,
            }
        }
        // Nobody hears them: they are lost, as datagrams are.
        SentDatagrams::Some(next - first)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "128 bytes")]
const ADDRESS_BYTES: libc::socklen_t = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;

// SAFETY: every field of an mmsghdr is an integer or a pointer: zero is valid for it.
const NO_HEADER: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };

/// A control message's bytes, where the kernel may look for its header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// Asks for a send to be cut into datagrams of `bytes`.
///
/// ```text
/// 0      8       12     16      18   24
/// | len  | level | type | bytes | -  |
/// ```
fn segment(bytes: u16) -> Control {
    const LEN: usize = 18;
    let mut control = [0; CONTROL_BYTES];
    control[..8].copy_from_slice(&LEN.to_ne_bytes());
    control[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    control[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    control[16..LEN].copy_from_slice(&bytes.to_ne_bytes());
    Control(control)
}

fn udp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BYTES)?;
    Ok(fd)
}

struct Arrival {
    source: Source,
    bytes: usize,
    is_cut: bool,
}

/// Room for the datagrams of one `receive`.
pub struct Inbox {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    arrivals: Box<[Arrival]>,
    /// How many the next call asks for: about twice what comes, as each slot costs a little.
    asked: usize,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inbox").field("slot_bytes", &self.slot_bytes).finish_non_exhaustive()
    }
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// What it carries.
    pub bytes: &'a [u8],
    /// It was longer than its slot: `bytes` is only its beginning.
    pub is_cut: bool,
    /// Whence it came.
    pub source: &'a Source,
}

impl Inbox {
    /// Slots for `BATCH_MAX` datagrams of at most `slot_bytes` each, at least one byte.
    #[must_use]
    pub fn new(slot_bytes: usize) -> Inbox {
        let slot_bytes = slot_bytes.max(1);
        // SAFETY: a sockaddr_storage is integers only, for which zero is valid.
        let address = unsafe { MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init() };
        let arrival = || Arrival { source: Source { address, bytes: 0 }, bytes: 0, is_cut: false };
        Inbox {
            bytes: vec![0; slot_bytes * BATCH_MAX].into_boxed_slice(),
            slot_bytes,
            arrivals: (0..BATCH_MAX).map(|_| arrival()).collect(),
            asked: 2,
        }
    }

    /// What the slot at `index` holds since the last `receive`.
    #[must_use]
    pub fn datagram(&self, index: usize) -> Option<Datagram<'_>> {
        let arrival = self.arrivals.get(index)?;
        let start = index * self.slot_bytes;
        let bytes = self.bytes.get(start..start + arrival.bytes)?;
        Some(Datagram { bytes, is_cut: arrival.is_cut, source: &arrival.source })
    }

    fn learn(&mut self, asked: usize, came: usize) {
        if came == asked {
            self.asked = (asked * 2).min(BATCH_MAX);
        } else if came * 4 < asked {
            self.asked = (asked / 2).max(2);
        }
    }
}

/// Where a datagram begins, and where among the addresses its own is: an address is large, and a
/// client sends to one peer alone.
#[derive(Debug)]
struct Letter {
    start: usize,
    to: Option<usize>,
}

/// Datagrams to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    letters: Vec<Letter>,
    addresses: Vec<Source>,
}

struct Run {
    letters: usize,
    segment_bytes: u16,
    end_byte: usize,
}

impl Outbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Begins a datagram to the connected peer, or back `to` whom one came from; its bytes are to
    /// be appended to what is returned.
    #[inline]
    pub fn begin(&mut self, to: Option<Source>) -> &mut Vec<u8> {
        let to = to.map(|to| {
            self.addresses.push(to);
            self.addresses.len() - 1
        });
        self.letters.push(Letter { start: self.bytes.len(), to });
        &mut self.bytes
    }

    /// Whom a datagram is sent back to.
    fn to(&self, letter: &Letter) -> Option<&Source> {
        self.addresses.get(letter.to?)
    }

    /// Takes back what was begun last.
    pub fn take_back(&mut self) {
        if let Some(letter) = self.letters.pop() {
            self.bytes.truncate(letter.start);
            self.addresses.truncate(letter.to.unwrap_or(self.addresses.len()));
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// All their bytes together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the one begun last.
    #[must_use]
    pub fn last_bytes(&self) -> usize {
        self.letters.last().map_or(0, |letter| self.bytes.len() - letter.start)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.letters.clear();
        self.addresses.clear();
    }

    fn end(&self, number: usize) -> usize {
        self.letters.get(number + 1).map_or(self.bytes.len(), |next| next.start)
    }

    /// The run of equally long datagrams that begins with number `first`; the last may be shorter.
    fn run(&self, first: usize, gso: bool) -> Run {
        let start = self.letters[first].start;
        let each = self.end(first) - start;
        let segment_bytes = u16::try_from(each).unwrap_or(0);
        let mut run = Run { letters: 1, segment_bytes, end_byte: start + each };
        if !gso || self.letters[first].to.is_some() || segment_bytes == 0 {
            return run;
        }
        while let Some(next) = self.letters.get(first + run.letters) {
            let end = self.end(first + run.letters);
            let bytes = end - next.start;
            let fits = run.letters < SEGMENTS_MAX && end - start <= RUN_BYTES_MAX;
            if !fits || bytes > each || bytes == 0 || next.to.is_some() {
                break;
            }
            run.letters += 1;
            run.end_byte = end;
            if bytes < each {
                break;
            }
        }
        run
    }
}

#[cfg(test)]
mod tests;
