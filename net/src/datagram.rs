//! UDP: one system call sends or receives many datagrams.
//!
//! ```text
//! Outbox  | datagram | datagram | ...    back to back: a run of equally long ones is one GSO send
//! Inbox   | slot     | slot     | ...    one datagram each
//! ```
//!
//! Where: beside `stream`, for a load generator and the test servers it is checked against.
//! Invariant: no call blocks; a call receives at most `BATCH_MAX` datagrams and makes at most
//! `BATCH_MAX` sends; a datagram longer than its slot is reported as cut, never passed on as whole.
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

/// Most datagrams that one call receives, and most sends that one call makes.
pub const BATCH_MAX: usize = 64;
/// Most datagrams of one GSO send, which the kernel cuts apart (Linux before 6.9 takes 64).
const SEGMENTS_MAX: usize = 64;
/// Most bytes of a GSO send: what one IPv4 datagram could carry.
const RUN_BYTES_MAX: usize = 65_507;
/// The receive buffer asked of the kernel, which gives at most `net.core.rmem_max`.
const RECEIVE_BYTES: usize = 4 << 20;
/// Room for one control message with two bytes in it.
const CONTROL_BYTES: usize = 24;
/// Attempts to send, each of which may only report that an earlier datagram was refused.
const REFUSALS_MAX: usize = 4;

/// The address of a datagram's sender, as the kernel wrote it.
#[derive(Clone, Copy)]
pub struct Sender {
    address: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of slots filled, from the first on.
    pub datagrams: usize,
    /// The socket is empty: an edge-triggered epoll will report the next datagram.
    pub is_drained: bool,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentDatagrams {
    /// The number of datagrams sent, from the first asked for; fewer when the socket is full.
    Some(usize),
    /// This system does not support GSO.
    NoGso,
    /// A datagram is larger than the path carries.
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
    /// Makes a socket on a free port that sends to `peer` and receives from `peer` alone.
    ///
    /// # Errors
    /// No route; no descriptor left.
    pub fn connect(peer: SocketAddr) -> io::Result<Datagrams> {
        let fd = udp_socket(peer)?;
        connect(&fd, &peer)?;
        Ok(Datagrams(fd))
    }

    /// Makes a socket at `address` that receives from everybody; for port 0 the system chooses a
    /// free one. With `shared` other sockets may be bound there too, and the kernel spreads the
    /// senders over them.
    ///
    /// # Errors
    /// The port is taken; the address is not this machine's.
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

    /// Receives the datagrams that have arrived, at most as many as `inbox` has slots. A refusal
    /// that the peer's system reports counts as nothing received.
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
            header.msg_hdr.msg_name = (&raw mut arrival.sender.address).cast();
            header.msg_hdr.msg_namelen = ADDRESS_BYTES;
        }
        // SAFETY: the loop above has filled in the first `asked` headers, for `Inbox::new` makes
        // `BATCH_MAX` slots and arrivals. Each header points to one element of `pieces`, which
        // points to a slot, and to one address; slots and addresses are borrowed mutably through
        // `inbox` as long as the call lasts. A null timeout is allowed.
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
            // SAFETY: among the first `asked` headers, which the loop above filled in.
            let header = unsafe { header.assume_init_ref() };
            arrival.bytes = (header.msg_len as usize).min(inbox.slot_bytes);
            arrival.is_cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            arrival.sender.bytes = header.msg_hdr.msg_namelen.min(ADDRESS_BYTES);
        }
        // After another error than `EAGAIN`, such as a refusal, datagrams may still wait.
        let is_conclusive =
            count >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        inbox.adapt(asked, datagrams);
        Received { datagrams, is_drained: is_conclusive && datagrams < asked }
    }

    /// Sends the datagrams of `outbox` from number `first` on, by at most `BATCH_MAX` sends. With
    /// `gso` a run of equally long datagrams to the connected peer is one send.
    #[must_use]
    pub fn send(&self, outbox: &Outbox, first: usize, gso: bool, calls: &Calls) -> SentDatagrams {
        let mut control = [const { MaybeUninit::<Control>::uninit() }; BATCH_MAX];
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MAX];
        let mut ends = [0; BATCH_MAX];
        let (mut sends, mut next) = (0, first);
        while sends < BATCH_MAX && next < outbox.datagrams.len() {
            let run = outbox.run(next, gso);
            let datagram = &outbox.datagrams[next];
            let bytes = &outbox.bytes[datagram.start..run.end_byte];
            let iov_base = bytes.as_ptr().cast_mut().cast();
            let header = headers[sends].write(NO_HEADER);
            header.msg_hdr.msg_iov =
                pieces[sends].write(libc::iovec { iov_base, iov_len: bytes.len() });
            header.msg_hdr.msg_iovlen = 1;
            if let Some(to) = outbox.to(datagram) {
                header.msg_hdr.msg_name = (&raw const to.address).cast_mut().cast();
                header.msg_hdr.msg_namelen = to.bytes;
            }
            if run.datagrams > 1 {
                let asked = control[sends].write(segment(run.segment_bytes));
                header.msg_hdr.msg_control = asked.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_BYTES;
            }
            next += run.datagrams;
            ends[sends] = next;
            sends += 1;
        }
        for _ in 0..REFUSALS_MAX {
            calls.writes.add(1);
            // SAFETY: the loop above has filled in the first `sends` headers. Each points to one
            // element of `pieces`, which points into `outbox.bytes`, and may point to an address in
            // `outbox` and to an element of `control`. The call only reads what they point to, all
            // of which outlives the call.
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
        // Nobody listens at the peer: the datagrams count as sent and lost.
        SentDatagrams::Some(next - first)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "128 bytes")]
const ADDRESS_BYTES: libc::socklen_t = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;

// SAFETY: every field of an mmsghdr is an integer or a pointer, for which zero is valid.
const NO_HEADER: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };

/// The bytes of a control message, aligned for the kernel's `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The control message that has the kernel cut a send into datagrams of `bytes`.
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
    sender: Sender,
    bytes: usize,
    is_cut: bool,
}

/// Room for the datagrams of one `receive`.
pub struct Inbox {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    arrivals: Box<[Arrival]>,
    /// Slots that the next call offers to the kernel, about twice as many as datagrams come: each
    /// slot offered costs a little.
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
    /// The datagram's payload.
    pub bytes: &'a [u8],
    /// The datagram was longer than its slot: `bytes` is only its beginning.
    pub is_cut: bool,
    /// Who sent it.
    pub sender: &'a Sender,
}

impl Inbox {
    /// Makes slots for `BATCH_MAX` datagrams of at most `slot_bytes` each; 0 counts as 1.
    #[must_use]
    pub fn new(slot_bytes: usize) -> Inbox {
        let slot_bytes = slot_bytes.max(1);
        // SAFETY: a sockaddr_storage is integers only, for which zero is valid.
        let address = unsafe { MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init() };
        let arrival = || Arrival { sender: Sender { address, bytes: 0 }, bytes: 0, is_cut: false };
        Inbox {
            bytes: vec![0; slot_bytes * BATCH_MAX].into_boxed_slice(),
            slot_bytes,
            arrivals: (0..BATCH_MAX).map(|_| arrival()).collect(),
            asked: 2,
        }
    }

    /// The datagram that the last `receive` put into the slot at `index`.
    #[must_use]
    pub fn datagram(&self, index: usize) -> Option<Datagram<'_>> {
        let arrival = self.arrivals.get(index)?;
        let start = index * self.slot_bytes;
        let bytes = self.bytes.get(start..start + arrival.bytes)?;
        Some(Datagram { bytes, is_cut: arrival.is_cut, sender: &arrival.sender })
    }

    /// Adapts the number of slots offered to how many of them were filled.
    fn adapt(&mut self, asked: usize, came: usize) {
        if came == asked {
            self.asked = (asked * 2).min(BATCH_MAX);
        } else if came * 4 < asked {
            self.asked = (asked / 2).max(2);
        }
    }
}

/// A datagram to be sent. Addresses are large and a client needs none, so they stand apart.
#[derive(Debug)]
struct Outgoing {
    /// The index of its first byte in `Outbox::bytes`.
    start: usize,
    /// The index of its receiver in `Outbox::addresses`; `None` is the connected peer.
    to: Option<usize>,
}

/// Datagrams to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    datagrams: Vec<Outgoing>,
    addresses: Vec<Sender>,
}

/// Datagrams that one send hands over.
struct Run {
    datagrams: usize,
    segment_bytes: u16,
    end_byte: usize,
}

impl Outbox {
    /// An empty outbox.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Begins a datagram to the connected peer, or back `to` a sender. The caller appends the
    /// datagram's bytes to the vector returned.
    #[inline]
    pub fn begin(&mut self, to: Option<Sender>) -> &mut Vec<u8> {
        let to = to.map(|to| {
            self.addresses.push(to);
            self.addresses.len() - 1
        });
        self.datagrams.push(Outgoing { start: self.bytes.len(), to });
        &mut self.bytes
    }

    /// The receiver of `datagram`; `None` is the connected peer.
    fn to(&self, datagram: &Outgoing) -> Option<&Sender> {
        self.addresses.get(datagram.to?)
    }

    /// Removes the datagram that was begun last.
    pub fn take_back(&mut self) {
        if let Some(datagram) = self.datagrams.pop() {
            self.bytes.truncate(datagram.start);
            self.addresses.truncate(datagram.to.unwrap_or(self.addresses.len()));
        }
    }

    /// The number of datagrams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// True if there is no datagram.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The bytes of all datagrams.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the datagram that was begun last.
    #[must_use]
    pub fn last_bytes(&self) -> usize {
        self.datagrams.last().map_or(0, |datagram| self.bytes.len() - datagram.start)
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
        self.addresses.clear();
    }

    fn end(&self, number: usize) -> usize {
        self.datagrams.get(number + 1).map_or(self.bytes.len(), |next| next.start)
    }

    /// The run of equally long datagrams that begins with number `first`. The last datagram of a
    /// run may be shorter.
    fn run(&self, first: usize, gso: bool) -> Run {
        let start = self.datagrams[first].start;
        let each = self.end(first) - start;
        let segment_bytes = u16::try_from(each).unwrap_or(0);
        let mut run = Run { datagrams: 1, segment_bytes, end_byte: start + each };
        if !gso || self.datagrams[first].to.is_some() || segment_bytes == 0 {
            return run;
        }
        while let Some(next) = self.datagrams.get(first + run.datagrams) {
            let end = self.end(first + run.datagrams);
            let bytes = end - next.start;
            let fits = run.datagrams < SEGMENTS_MAX && end - start <= RUN_BYTES_MAX;
            if !fits || bytes > each || bytes == 0 || next.to.is_some() {
                break;
            }
            run.datagrams += 1;
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
