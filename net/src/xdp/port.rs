//! A port: the AF_XDP socket of one queue of an interface.
//!
//! ```text
//! chunks   | inbox's ...                       | outbox's ...                      |
//!            fill ring      -> kernel            tx ring         -> kernel
//!            rx ring        <- kernel            completion ring <- kernel
//! ```
//!
//! Where: a column uses a port in place of a UDP socket.
//! Invariant: one thread uses a port. Other threads may steal from the port's queue, and send
//! answers through that queue. The inbox and the outbox have separate chunks and rings, so that the
//! outbox can send an answer while the inbox shows the request. When a port is dropped, packets of
//! its queue pass to the kernel's stack again.
//! Source: `Documentation/networking/af_xdp.rst` of Linux.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_send_buffer_size_force, set_xdp_rx_ring_size, set_xdp_tx_ring_size,
    set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size, xdp_mmap_offsets, xdp_options,
    xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::in_flight::InFlight;
use super::inbox::Inbox;
use super::lacks::Lack;
use super::outbox::Outbox;
use super::queue::{Frames, Queue};
use super::ring::{ConsumerRing, ProducerRing};
use super::rx::RxRings;
use super::socket::Socket;
use super::tx::{PARTS_MAX, TxRings};
use super::umem::{Umem, chunk_bytes};
use crate::option::set_option;
use crate::udp::BATCH_MAX;
use crate::wire::{ETHERNET_BYTES, Sums};

/// Minimum number of chunks of a port. The inbox holds at most `BATCH_MAX` of the chunks for
/// receiving, so the kernel always has some chunks. A kernel without chunks would drop all packets
/// and wake no column.
pub const CHUNKS_MIN: u32 = 256;
/// Maximum number of chunks of a port.
pub const CHUNKS_MAX: u32 = 1 << 16;
/// Number of packets that one call may send in copy mode. Setting this number needs Linux 6.17.
const SENT_PER_CALL: u32 = 256;
/// Number of descriptors per sending chunk if values are sent in place. A datagram of the length
/// that memcached uses has headers and text, and one or two parts of a value.
const PARTS_PER_CHUNK: u32 = 4;
const _: () = assert!(CHUNKS_MIN as usize / 2 >= 2 * BATCH_MAX);
const _: () = assert!((CHUNKS_MIN / 2 * PARTS_PER_CHUNK) as usize >= 2 * PARTS_MAX);

/// Longest wait for a queue that an earlier, closed socket still occupies; then opening fails. A
/// worker of the kernel releases the queue, and may have to wait for a processor: with sixteen
/// threads on two processors, two seconds were too short for 2 of 3,000 starts.
const RELEASE_WAIT: Duration = Duration::from_secs(10);
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// The socket of one queue, with an inbox and an outbox.
#[derive(Debug)]
pub struct Port {
    /// The receiving half.
    pub inbox: Inbox,
    /// The sending half.
    pub outbox: Outbox,
    socket: Arc<Socket>,
    /// The link, shared by all ports. The program stays attached as long as the link is open.
    _link: Arc<OwnedFd>,
    queue: u32,
    chunks: usize,
    is_zero_copy: bool,
    sends_in_place: bool,
}

impl AsFd for Port {
    /// Returns a descriptor for epoll (edge-triggered or level-triggered), which is readable while
    /// datagrams wait. While the interface is down, the kernel reports nothing and loses pending
    /// events. If all chunks hold datagrams at that time, no new datagram can cause an event. A
    /// thread that sleeps must therefore call `receive` regularly even without an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

/// Numbers of a port's chunks by state. `lent`, `held`, `free` and `sent` add up to `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Number of all chunks of the port.
    pub all: usize,
    /// Number of chunks lent to the kernel, empty or with a frame that is not received yet.
    pub lent: usize,
    /// Number of chunks with a frame that was received and is not released.
    pub held: usize,
    /// Number of chunks that are free for sending.
    pub free: usize,
    /// Number of chunks with datagrams that the kernel has not sent yet.
    pub sent: usize,
    /// Number of descriptors for parts of values sent in place, whose chunks `all` does not count.
    pub values: usize,
}

/// The kernel's counts for a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of packets dropped because they exceeded a chunk, or because no chunk was lent.
    pub dropped: u64,
    /// Number of packets dropped because the rx ring was full.
    pub ring_full: u64,
    /// Number of packets that arrived while no chunk was lent. If the kernel copies packets,
    /// `dropped` counts these packets too; otherwise the card has dropped them.
    pub no_chunk: u64,
    /// Number of our descriptors that the kernel found invalid; 0 unless our code is wrong.
    pub invalid: u64,
}

/// Reads a port's statistics from any thread.
#[derive(Clone, Debug)]
pub struct Meter(Weak<Socket>);

impl Meter {
    /// The kernel's counts; `None` once the port is closed.
    #[must_use]
    pub fn read(&self) -> Option<Statistics> {
        let counted = xdp_statistics(&self.0.upgrade()?.fd).ok()?;
        Some(Statistics {
            dropped: counted.rx_dropped,
            ring_full: counted.rx_ring_full.unwrap_or(0),
            no_chunk: counted.rx_fill_ring_empty_descs.unwrap_or(0),
            invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) interface: u32,
    pub(super) queue: u32,
    pub(super) mtu: u32,
    /// The port's chunks, whose number is a power of two; half of them receive, and half send.
    pub(super) chunks: Range<u32>,
    /// True if the driver may use our memory directly, so that the kernel copies no packet.
    pub(super) may_zero_copy: bool,
    pub(super) sums: Sums,
    /// True if a kernel that supports metadata may compute the checksum of frames in several parts.
    pub(super) kernel_sums: bool,
    /// Minimum length of a value's part that is sent in place. With `None`, all parts are copied.
    pub(super) in_place_min: Option<usize>,
}

/// The step at which opening a port failed, with the system's error.
#[derive(Debug)]
pub(super) enum PortError {
    /// The process may not open an AF_XDP socket, or the kernel does not support AF_XDP.
    Socket(io::Error),
    /// The system has no memory for the socket.
    Memory(io::Error),
    /// Another socket uses the queue.
    Taken,
    /// Packets may be longer than a chunk, and the kernel cannot split them.
    Long,
    /// The interface refuses the socket.
    Bind(io::Error),
}

impl Plan {
    fn frame_bytes_max(&self) -> usize {
        self.mtu as usize + ETHERNET_BYTES
    }

    /// Opens and binds the socket; `enter` puts the socket into the program's map. The socket uses
    /// the memory of the port `shared`, or registers the memory if `shared` is `None`.
    pub(super) fn open(
        self,
        umem: &mut Umem,
        shared: Option<&Port>,
        link: &Arc<OwnedFd>,
        enter: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<Port, PortError> {
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let fd = fd.map_err(|error| PortError::Socket(error.into()))?;
        let half = (self.chunks.end - self.chunks.start) / 2;
        let (is_long, has_values) = (self.is_long(umem), self.in_place_min.is_some());
        // A datagram may have several descriptors only if values are sent in place.
        let send_entries = if has_values { half * PARTS_PER_CHUNK } else { half };
        let sized = (|| -> io::Result<()> {
            if shared.is_none() {
                umem.register(&fd, has_values && self.kernel_sums)?;
            }
            set_xdp_umem_fill_ring_size(&fd, half)?;
            set_xdp_umem_completion_ring_size(&fd, send_entries)?;
            set_xdp_rx_ring_size(&fd, half)?;
            Ok(set_xdp_tx_ring_size(&fd, send_entries)?)
        })();
        sized.map_err(PortError::Memory)?;
        let in_flight = InFlight::new(umem.arena(), has_values);
        let socket = Arc::new(Socket { fd, umem: umem.clone(), in_flight });
        let fd = socket.fd.as_fd();
        // The kernel limits the bytes in transmission to this size, and counts a part of a frame as
        // a whole page. With the default size, too few datagrams could be in transmission.
        let part_bytes = if has_values { memory::map::page_bytes() } else { umem.chunk_bytes() };
        let send_bytes = send_entries as usize * 2 * part_bytes;
        let _ = set_socket_send_buffer_size_force(fd, send_bytes.min(i32::MAX as usize / 2));
        set_sent_per_call(fd, SENT_PER_CALL.min(send_entries));
        let (incoming, outgoing) = rings(fd, half, send_entries).map_err(PortError::Memory)?;
        let frames =
            Frames { bytes_max: self.frame_bytes_max(), are_long: is_long, sums: self.sums };
        let chunks = self.chunks.clone();
        let queue = Queue::new(Arc::clone(&socket), incoming, outgoing, chunks, frames);
        let queue = Arc::new(queue);
        let mut port = Port {
            inbox: Inbox::new(Arc::clone(&queue)),
            outbox: Outbox::new(queue),
            socket,
            _link: Arc::clone(link),
            queue: self.queue,
            chunks: half as usize * 2,
            is_zero_copy: false,
            sends_in_place: false,
        };
        // `Queue::new` has lent chunks already, because the driver takes them in `bind`.
        let fd = port.socket.fd.as_fd();
        let is_parted = self.bind(fd, shared, is_long)?;
        enter(fd).map_err(PortError::Bind)?;
        port.is_zero_copy = Lack::Copies.is_planted()
            || xdp_options(fd)
                .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        // No zero-copy driver was seen to send frames in several parts.
        if let Some(bytes_min) = self.in_place_min
            && is_parted
            && !port.is_zero_copy
        {
            port.sends_in_place = true;
            port.inbox.queue().tx().send_in_place(bytes_min);
        }
        Ok(port)
    }

    fn is_long(&self, umem: &Umem) -> bool {
        chunk_bytes(self.frame_bytes_max()) == (umem.chunk_bytes(), true)
    }

    /// Binds the socket after its queue is free. True if frames may have several descriptors.
    fn bind(
        &self,
        fd: BorrowedFd<'_>,
        shared: Option<&Port>,
        is_long: bool,
    ) -> Result<bool, PortError> {
        let mut is_parted = is_long || self.in_place_min.is_some();
        let deadline = Instant::now() + RELEASE_WAIT;
        loop {
            let bound = match shared {
                None if is_parted && Lack::Parts.is_planted() => Err(Errno::INVAL),
                None => {
                    bind(fd, &SocketAddrXdp::new(self.flags(is_parted), self.interface, self.queue))
                }
                Some(port) => {
                    let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
                    let address = SocketAddrXdp::new(flags, self.interface, self.queue);
                    let shared_umem_fd = port.as_fd();
                    bind(fd, &SocketAddrXdpWithSharedUmem { addr: address, shared_umem_fd })
                }
            };
            return match bound {
                Ok(()) => Ok(is_parted && shared.is_none_or(|port| port.sends_in_place || is_long)),
                Err(Errno::BUSY) if Instant::now() < deadline => {
                    std::thread::sleep(RELEASE_PAUSE);
                    continue;
                }
                Err(Errno::BUSY) => Err(PortError::Taken),
                // The kernel is too old, or the driver sends no frames in parts: values are copied.
                Err(Errno::INVAL | Errno::OPNOTSUPP) if is_parted && !is_long => {
                    is_parted = false;
                    continue;
                }
                Err(Errno::INVAL) if is_long => Err(PortError::Long),
                Err(error) => Err(PortError::Bind(error.into())),
            };
        }
    }

    fn flags(&self, is_parted: bool) -> SocketAddrXdpFlags {
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_COPY, !self.may_zero_copy);
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, is_parted);
        flags
    }
}

fn rings(fd: BorrowedFd<'_>, rx_entries: u32, tx_entries: u32) -> io::Result<(RxRings, TxRings)> {
    let offsets = xdp_mmap_offsets(fd)?;
    let fill = ProducerRing::new(fd, rx_entries, &offsets.fr, XDP_UMEM_PGOFF_FILL_RING)?;
    let completion =
        ConsumerRing::new(fd, tx_entries, &offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)?;
    let rx = ConsumerRing::new(fd, rx_entries, &offsets.rx, XDP_PGOFF_RX_RING)?;
    let tx = ProducerRing::new(fd, tx_entries, &offsets.tx, XDP_PGOFF_TX_RING)?;
    Ok(((rx, fill), (tx, completion)))
}

/// Sets the number of packets that one call sends in copy mode; an older kernel sends 32.
fn set_sent_per_call(fd: BorrowedFd<'_>, packets: u32) {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let _ = set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &packets);
}

impl Port {
    /// The number of the interface's queue.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// True if the driver uses our memory directly; otherwise the kernel copies each packet once.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// True if parts of values in the arena are sent in place; otherwise they are copied.
    #[must_use]
    pub fn sends_in_place(&self) -> bool {
        self.sends_in_place
    }

    /// Number of the port's chunks in each state.
    #[must_use]
    pub fn chunks(&self) -> Chunks {
        let (lent, held) = self.inbox.lent_and_held();
        let (free, sent) = self.outbox.free_and_sent();
        let values = self.socket.in_flight.sum() as usize;
        Chunks { all: self.chunks, lent, held, free, sent, values }
    }

    /// Total size in bytes of the port's chunks, which are locked into memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.chunks * self.socket.umem.chunk_bytes()
    }

    /// A reader of the port's statistics, for other threads.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.socket))
    }
}
