//! Opens AF_XDP on an interface: a program for the interface, and a port for each of its queues.
//!
//! ```text
//! interface  ->  program  ->  map: queue -> socket  ->  port
//! ```
//!
//! Where: at start, as root. Afterwards the ports need no privilege.
//! Invariant: the program is attached as long as there is a port; however the process ends, the
//! kernel detaches the program. Another process's program stays attached and is named in the error.
//! If opening fails, the error gives the reason, and nothing stays open.
//! Source: `Documentation/networking/af_xdp.rst` of Linux; `net/core/dev.c`, `dev_xdp_attach`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use memory::arena::Arena;
use rustix::system::uname;

use super::bpf::{self, AttachMode};
use super::lacks::Lack;
use super::port::{CHUNKS_MAX, CHUNKS_MIN, Plan, Port, PortError};
use super::program::{ADDRESSES_MAX, Filter, NETWORKS_MAX, program};
use super::umem::{Umem, chunk_bytes};
use crate::interface::{Interface, VLAN};
use crate::netlink::Netlink;
use crate::nic::nic_settings;
use crate::wire::{ETHERNET_BYTES, Sums};

/// Longest wait for an ending process of ours to detach its program; then opening fails.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// The point on a packet's path at which the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver; if the driver refuses, at the entry to the kernel's stack.
    #[default]
    Any,
    /// Only in the driver.
    Native,
    /// Only at the entry to the kernel's stack, which works with any driver.
    Generic,
}

/// The arguments of `open`.
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    /// The interface's name.
    pub interface: &'a str,
    /// The numbers of the queues to open; `None` opens the first `ports_max` queues.
    pub queues: Option<Range<u32>>,
    /// Maximum number of ports if `queues` is `None`.
    pub ports_max: usize,
    /// Our addresses. `0.0.0.0` and `::` stand for all addresses of the interface.
    pub addresses: &'a [IpAddr],
    /// Our UDP ports.
    pub ports: RangeInclusive<u16>,
    /// The source networks whose packets are taken; empty for all sources.
    pub allow: &'a [IpNet],
    /// Maximum number of chunks of each port, `CHUNKS_MIN` to `CHUNKS_MAX`; rounded down to a power
    /// of two. Half of the chunks are for receiving, and half for sending.
    pub chunks: u32,
    /// Maximum size in bytes of all ports' chunks together.
    pub memory_bytes_max: usize,
    /// The point on a packet's path at which the program runs.
    pub mode: Mode,
    /// Memory for values that are sent in place, in addition to the memory for packets.
    pub values: Option<Values>,
}

/// Memory for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// Maximum size of this memory, in bytes.
    pub memory_bytes_max: usize,
    /// Minimum length of a value's part that is sent in place; shorter parts are copied.
    pub in_place_min: usize,
    /// True if received data may stay in its chunk as part of a value (`Arena::keep`).
    pub keeps: bool,
}

/// The result of `open`.
#[derive(Debug)]
pub struct Opened {
    /// The memory for packets and, if requested, for values.
    pub arena: Arc<Arena>,
    /// One port for each queue, in the queues' order.
    pub ports: Vec<Port>,
    /// Reports the properties and the state of the interface.
    pub watch: Watch,
}

/// Properties of an opened interface and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface's name.
    pub interface: String,
    /// Number of queues that the interface has; there may be fewer ports.
    pub queues: u32,
    /// Maximum length of an IP packet, in bytes.
    pub mtu: u32,
    /// True if the program runs in the driver, false if it runs at the entry to the kernel's stack.
    /// If `is_native` is false, several datagrams may arrive as one packet, because the kernel has
    /// joined the datagrams or a local sender left the segmentation to a card. Such a packet looks
    /// like one datagram if it is no longer than the MTU.
    pub is_native: bool,
    /// True if the driver uses our memory directly; otherwise the kernel copies each packet once.
    pub is_zero_copy: bool,
    /// True if packets may be longer than a chunk. A longer packet arrives in several chunks.
    pub is_long: bool,
    /// Our addresses.
    pub addresses: Vec<IpAddr>,
    /// Total size of all ports' chunks, in bytes.
    pub memory_bytes: usize,
    /// Total size of the chunks for values, in bytes.
    pub value_bytes: usize,
    /// True if parts of values are sent in place; false for an old kernel or a zero-copy driver.
    pub sends_in_place: bool,
}

/// Reports the state of an interface with our program. Any thread may use a `Watch`.
#[derive(Debug)]
pub struct Watch {
    netlink: Netlink,
    index: u32,
    program: u32,
    facts: Facts,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The interface is up, and our program is attached.
    Up {
        /// Maximum length of an IP packet, in bytes.
        mtu: u32,
    },
    /// The interface is switched off, or has no carrier.
    Down,
    /// Our program is not attached: another process has detached it, or the ports are closed.
    /// Packets pass to the kernel's stack.
    Detached,
    /// The interface no longer exists.
    Gone,
}

impl Watch {
    /// The properties of the opened interface.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Asks the kernel for the interface's state, by two system calls; `None` if a call fails.
    #[must_use]
    pub fn health(&self) -> Option<Health> {
        match Interface::numbered(&self.netlink, self.index) {
            Ok(now) if now.program != self.program => Some(Health::Detached),
            Ok(now) if now.is_up => Some(Health::Up { mtu: now.mtu }),
            Ok(_) => Some(Health::Down),
            // The interface is gone, or in another network namespace.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Some(Health::Gone),
            Err(_) => None,
        }
    }
}

/// The reason why opening failed, as text for the user.
#[derive(Debug)]
pub enum OpenError {
    /// There is no such interface.
    NoInterface(String),
    /// The interface is not an Ethernet interface.
    NotEthernet(String),
    /// The interface has no such queues.
    Queues {
        /// The requested queues.
        wanted: Range<u32>,
        /// Number of queues of the interface.
        count: u32,
    },
    /// A requested address is missing, or the request has no port or a wrong number of addresses.
    Addresses(String),
    /// There are more networks than a program can hold.
    Networks(usize),
    /// There are VLANs on the interface, and its card hides their tags.
    Vlans(Vec<String>),
    /// The process lacks a privilege.
    Privilege,
    /// The kernel does not support the named feature.
    Unsupported(&'static str, io::Error),
    /// Another XDP program is attached to the interface.
    Program {
        /// The program's id.
        id: u32,
        /// The program's name. A program with our own name belongs to another server.
        name: String,
    },
    /// Another socket uses the queue with this number.
    QueueTaken(u32),
    /// Packets of this MTU are longer than a chunk, and the kernel is too old to split them.
    Mtu(u32),
    /// The ports need at least this number of bytes, which is more than `memory_bytes_max`.
    TooLittle(usize),
    /// The system refuses memory for the chunks.
    Memory(io::Error),
    /// Another system call failed.
    System(&'static str, io::Error),
}

impl std::error::Error for OpenError {}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NoInterface(name) => write!(out, "there is no interface {name}"),
            OpenError::NotEthernet(name) => write!(out, "{name} is no Ethernet interface"),
            OpenError::Queues { wanted, count } => {
                let last = wanted.end.saturating_sub(1);
                let first = wanted.start;
                write!(
                    out,
                    "queues {first} to {last} are requested, but the last queue of the interface \
                     is queue {}",
                    count.saturating_sub(1)
                )
            }
            OpenError::Addresses(why) => write!(out, "{why}"),
            OpenError::Networks(count) => {
                write!(out, "at most {NETWORKS_MAX} networks can be allowed, but {count} are given")
            }
            OpenError::Vlans(names) => write!(
                out,
                "the interface has VLANs ({}), and its network card strips the VLAN tags of \
                 packets; to turn this off, run ethtool -K INTERFACE rxvlan off",
                names.join(", ")
            ),
            OpenError::Privilege => write!(
                out,
                "no privilege: AF_XDP needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
            ),
            OpenError::Unsupported(what, error) => {
                write!(out, "this kernel does not support {what}: {error}")
            }
            OpenError::Program { id, name } if bpf::is_ours(name) => {
                write!(
                    out,
                    "the interface already has the XDP program of another server ({name}, number \
                     {id})"
                )
            }
            OpenError::Program { id, name } => {
                write!(out, "the interface already has the XDP program {name} (number {id})")
            }
            OpenError::QueueTaken(queue) => write!(out, "another AF_XDP socket uses queue {queue}"),
            OpenError::Mtu(mtu) => {
                write!(out, "an MTU of {mtu} needs Linux 6.6 or newer; upgrade, or lower the MTU")
            }
            OpenError::TooLittle(bytes) => {
                write!(out, "the buffers for packets need at least {bytes} bytes of memory")
            }
            OpenError::Memory(error) => {
                write!(out, "cannot allocate memory for packets, or lock it (ulimit -l): {error}")
            }
            OpenError::System(what, error) => write!(out, "the system refuses {what}: {error}"),
        }
    }
}

/// Opens a port for each requested queue of the interface, and directs the packets for our
/// addresses to these ports. Afterwards the process may drop its privileges.
pub fn open(wanted: &OpenOptions<'_>) -> Result<Opened, OpenError> {
    let netlink = Netlink::open().map_err(|error| OpenError::System("a netlink socket", error))?;
    let interface = Interface::named(&netlink, wanted.interface)
        .map_err(|_| OpenError::NoInterface(wanted.interface.to_owned()))?;
    if interface.mac.is_none() {
        return Err(OpenError::NotEthernet(interface.name));
    }
    let settings = nic_settings(&interface.name);
    let setting = |name| settings.iter().find(|(one, _)| *one == name).map_or(0, |(_, it)| *it);
    let count = (setting("rx-channels") + setting("combined-channels")).max(1);
    let all = count.min(u32::try_from(wanted.ports_max).unwrap_or(u32::MAX));
    let queues = wanted.queues.clone().unwrap_or(0..all);
    if queues.is_empty() || queues.end > count {
        return Err(OpenError::Queues { wanted: queues, count });
    }
    let vlans = interface.above(VLAN, &netlink).map_err(asked)?;
    if !vlans.is_empty() && setting("rx-vlan") != 0 {
        return Err(OpenError::Vlans(vlans));
    }
    let addresses = addresses(wanted, &interface, &netlink)?;
    let filter = Filter { addresses, ports: wanted.ports.clone(), allow: wanted.allow.to_vec() };
    let (chunk_bytes, is_long) = chunk_bytes(interface.mtu as usize + ETHERNET_BYTES);
    let chunks = chunks(wanted, queues.len(), chunk_bytes)?;
    let map = bpf::create_map(queues.end);
    let map = map.map_err(|error| refused("the BPF map type XSKMAP", error))?;
    let code = program(&filter, map.as_raw_fd().unsigned_abs());
    let loaded = bpf::load(&code, is_long, bpf::NAME);
    let loaded = loaded.map_err(|error| refused("the XDP program", error))?;
    let (link, attached) = attach(&loaded, &interface, &netlink, wanted.mode)?;
    let link = Arc::new(link);
    let arena = arena(wanted, (chunks, queues.len()), chunk_bytes).map_err(OpenError::Memory)?;
    let (mut umem, mut ports) = (Umem::new(Arc::clone(&arena)), Vec::<Port>::new());
    for queue in queues.clone() {
        let first = (queue - queues.start) * chunks;
        let plan = Plan {
            interface: interface.index,
            queue,
            mtu: interface.mtu,
            chunks: first..first + chunks,
            may_zero_copy: attached == AttachMode::Native,
            sums: sums_of(&interface.kind),
            kernel_sums: is_seen_to_sum(&interface.kind) && !Lack::Sums.is_planted(),
            in_place_min: wanted.values.map(|values| values.in_place_min),
        };
        let enter = |socket: BorrowedFd<'_>| bpf::enter(map.as_fd(), queue, socket);
        let opened = plan.open(&mut umem, ports.first(), &link, enter);
        ports.push(opened.map_err(|stopped| match stopped {
            PortError::Socket(error) => refused("AF_XDP", error),
            PortError::Memory(error) => OpenError::Memory(error),
            PortError::Taken => OpenError::QueueTaken(queue),
            PortError::Long => OpenError::Mtu(interface.mtu),
            PortError::Bind(error) => refused("AF_XDP on this interface", error),
        })?);
    }
    let program = bpf::id_of(loaded.as_fd())
        .map_err(|error| OpenError::System("the id of the XDP program", error))?;
    let facts = Facts {
        interface: interface.name,
        queues: count,
        mtu: interface.mtu,
        is_native: attached == AttachMode::Native,
        is_zero_copy: ports.iter().all(Port::is_zero_copy),
        is_long,
        addresses: filter.addresses,
        memory_bytes: ports.iter().map(Port::memory_bytes).sum(),
        value_bytes: arena.value_bytes(),
        sends_in_place: ports.iter().all(Port::sends_in_place),
    };
    Ok(Opened { arena, ports, watch: Watch { netlink, index: interface.index, program, facts } })
}

fn chunks(wanted: &OpenOptions<'_>, ports: usize, chunk_bytes: usize) -> Result<u32, OpenError> {
    let afforded = wanted.memory_bytes_max / chunk_bytes / ports;
    if afforded < CHUNKS_MIN as usize {
        return Err(OpenError::TooLittle(CHUNKS_MIN as usize * chunk_bytes * ports));
    }
    let afforded = u32::try_from(afforded).unwrap_or(u32::MAX);
    Ok(1 << wanted.chunks.clamp(CHUNKS_MIN, CHUNKS_MAX).min(afforded).ilog2())
}

/// Makes an arena: `chunks` chunks for each of `ports` ports, followed by chunks for values.
fn arena(
    wanted: &OpenOptions<'_>,
    (chunks, ports): (u32, usize),
    chunk_bytes: usize,
) -> io::Result<Arc<Arena>> {
    let value_bytes = wanted.values.map_or(0, |values| values.memory_bytes_max);
    let count = |chunks| u32::try_from(chunks).map_err(io::Error::other);
    let ring_chunks = count(chunks as usize * ports)?;
    let arena = Arena::new(ring_chunks, count(value_bytes / chunk_bytes)?, chunk_bytes)?;
    Ok(Arc::new(arena.keeping(wanted.values.is_some_and(|values| values.keeps))))
}

/// A packet from this machine may have only a partial checksum. A veth receives such packets, and
/// so does a bridge that has a veth as a port.
fn sums_of(kind: &str) -> Sums {
    if ["veth", "bridge"].contains(&kind) { Sums::PartialToo } else { Sums::Whole }
}

/// Pairs of interface kind and kernel version that were seen to compute the checksums that metadata
/// request. For all other pairs our code computes the checksum, because some kernels ignore the
/// request without an error (virtio before 6.18).
const SEEN_TO_SUM: [(&str, &str); 1] = [("veth", "6.18")];

fn is_seen_to_sum(kind: &str) -> bool {
    let system = uname();
    let release = system.release().to_str().unwrap_or_default();
    let is_it = |seen: &str| {
        let patch = release.strip_prefix(seen);
        patch.is_some_and(|patch| !patch.starts_with(|next: char| next.is_ascii_digit()))
    };
    SEEN_TO_SUM.iter().any(|(of, seen)| *of == kind && is_it(seen))
}

fn asked(error: io::Error) -> OpenError {
    OpenError::System("a netlink request", error)
}

fn refused(what: &'static str, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::Privilege,
        Some(
            libc::ENOSYS
            | libc::EINVAL
            | libc::EAFNOSUPPORT
            | libc::EOPNOTSUPP
            | libc::EPROTONOSUPPORT,
        ) => OpenError::Unsupported(what, error),
        Some(libc::ENOMEM | libc::ENOBUFS) => OpenError::Memory(error),
        _ => OpenError::System(what, error),
    }
}

/// Returns our addresses, with all addresses of the interface instead of `0.0.0.0` and `::`.
fn addresses(
    wanted: &OpenOptions<'_>,
    interface: &Interface,
    netlink: &Netlink,
) -> Result<Vec<IpAddr>, OpenError> {
    if wanted.allow.len() > NETWORKS_MAX {
        return Err(OpenError::Networks(wanted.allow.len()));
    }
    let own = interface.addresses(netlink).map_err(asked)?;
    let mut all = Vec::new();
    for ip in wanted.addresses {
        if ip.is_unspecified() {
            all.extend(own.iter().filter(|own| own.is_ipv4() == ip.is_ipv4()));
        } else if own.contains(ip) {
            all.push(*ip);
        } else {
            let why = format!("{} does not have the address {ip}", interface.name);
            return Err(OpenError::Addresses(why));
        }
    }
    if wanted.ports.is_empty() {
        return Err(OpenError::Addresses("no port is requested".to_owned()));
    }
    all.sort();
    all.dedup();
    match all.len() {
        0 => Err(OpenError::Addresses(format!("{} has no IP address", interface.name))),
        1..=ADDRESSES_MAX => Ok(all),
        count => Err(OpenError::Addresses(format!(
            "at most {ADDRESSES_MAX} addresses can be served, but {count} are requested"
        ))),
    }
}

/// Attaches the program, in the driver if `mode` and the driver allow it.
fn attach(
    loaded: &OwnedFd,
    interface: &Interface,
    netlink: &Netlink,
    mode: Mode,
) -> Result<(OwnedFd, AttachMode), OpenError> {
    let deadline = Instant::now() + RELEASE_WAIT;
    let mut tried = if mode == Mode::Generic { AttachMode::Generic } else { AttachMode::Native };
    loop {
        let error = match bpf::attach(loaded.as_fd(), interface.index, tried) {
            Ok(link) => return Ok((link, tried)),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {}
            Some(libc::EPERM | libc::ENODEV) => return Err(refused("XDP", error)),
            _ if tried == AttachMode::Native && mode == Mode::Any => {
                tried = AttachMode::Generic;
                continue;
            }
            _ => return Err(refused("XDP on this interface", error)),
        }
        let now = Interface::numbered(netlink, interface.index);
        let id = now.map_or(0, |now| now.program);
        let name = if id == 0 { Ok(String::new()) } else { bpf::name_of(id) };
        let name = name.unwrap_or_default();
        // A program with our name may soon be detached, because its process may be ending.
        let may_go = id == 0 || bpf::is_ours(&name);
        if !may_go || Instant::now() >= deadline {
            return Err(OpenError::Program { id, name });
        }
        std::thread::sleep(RELEASE_PAUSE);
    }
}
