//! UDP over AF_XDP, which bypasses the kernel's network stack. An AF_XDP port receives and sends
//! the packets of one queue of the interface, and belongs to one column.
//!
//! Where: `run` opens the ports after the listeners, while the process may still be root. The
//! kernel's UDP sockets stay open, because the ports leave some packets to the kernel. If the
//! interface disappears, the sockets receive all packets.
//! Invariant: the memory for packets counts towards `-m` and is allocated at the start. If no port
//! can be opened, the server reports the reason and does not start. With `--xdp-fallback` the
//! server starts without ports, and all UDP packets pass through the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use columns::datapath::xdp::Interface;
use memory::arena::{Arena, CHUNK_BYTES};
use net::xdp::{self, OpenError, OpenOptions, Port, Values};
use protocol::ProtocolMode;

use crate::limits::{RING_CHUNKS_MAX, RING_PART};
use crate::start::settings::{Settings, Xdp, ZeroCopy};

/// A part of a value is copied into the packet if the part has fewer bytes than this constant and
/// than `-o zero_copy_min`. The kernel needs one more descriptor for a part that is not copied.
const PART_BYTES_MIN: usize = 256;

/// The reason why no port was opened.
#[derive(Debug, thiserror::Error)]
pub enum BypassError {
    /// The interface, the system or the process's privileges do not allow AF_XDP.
    #[error("--xdp {0}: {1}")]
    Refused(String, OpenError),
    /// `-l` and `-U` request several ports or several protocols.
    #[error("with --xdp, all addresses of -l must have the same UDP port and the same protocol")]
    Ports,
    /// No address of `-l` belongs to the interface.
    #[error(
        "--xdp {interface}: the interface has none of the addresses of -l ({listened}); its \
         addresses are {own}"
    )]
    Addresses {
        /// The interface's name.
        interface: String,
        /// The addresses of `-l`.
        listened: String,
        /// The interface's addresses.
        own: String,
    },
    /// Packets would take too much of `-m`.
    #[error(
        "--xdp {interface}: the buffers for packets need at least {ring_mb} MiB of -m, but they \
         may take at most a quarter of -m and must leave room for two items of the maximum size \
         (-I); give a larger -m, or fewer queues"
    )]
    Memory {
        /// The interface's name.
        interface: String,
        /// The smallest amount of memory that packets can use, in MiB.
        ring_mb: usize,
    },
}

/// The open ports, before `run` gives each port to a column.
#[derive(Debug)]
pub struct OpenPorts {
    /// The open ports: the first port is for column 0, the second port for column 1, and so on.
    pub ports: Vec<Port>,
    /// The protocols that clients of the ports may speak.
    pub speak: ProtocolMode,
    /// The state of the interface and the ports, for columns, `stats` and the log.
    pub interface: Arc<Interface>,
    /// The memory of packets, if this memory also holds values. Otherwise `None`.
    pub arena: Option<Arc<Arena>>,
}

/// Opens the ports that the settings request. Returns `None` if the settings request no ports, or
/// if opening fails and `--xdp-fallback` is set.
///
/// # Errors
/// Opening failed, and `--xdp-fallback` is not set.
pub fn open(
    settings: &Settings,
    addresses: &[SocketAddr],
) -> Result<Option<OpenPorts>, BypassError> {
    let Some(wanted) = &settings.xdp else { return Ok(None) };
    match open_wanted(settings, wanted, addresses) {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if wanted.fallback => {
            log::warn!("{error}; UDP is served only through the kernel");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn open_wanted(
    settings: &Settings,
    wanted: &Xdp,
    addresses: &[SocketAddr],
) -> Result<OpenPorts, BypassError> {
    let name = &wanted.interface;
    let (port, speak) = one_port(settings, addresses).ok_or(BypassError::Ports)?;
    let all_bytes_max = ring_bytes_max(settings);
    let addresses = addresses_of(name, addresses)?;
    let open = |values: Option<Values>| {
        xdp::open(&OpenOptions {
            interface: name,
            queues: wanted.queues.clone(),
            ports_max: settings.columns.count,
            addresses: &addresses,
            ports: port..=port,
            allow: &wanted.allow,
            chunks: RING_CHUNKS_MAX,
            memory_bytes_max: all_bytes_max - values.map_or(0, |values| values.memory_bytes_max),
            mode: wanted.mode,
            values,
        })
    };
    let opened = match values(settings, all_bytes_max) {
        None => open(None),
        Some(values) => open(Some(values)).and_then(|opened| {
            if opened.watch.facts().sends_in_place {
                return Ok(opened);
            }
            // If values must be copied, an arena for values would only take memory from items.
            log::warn!(
                "interface {name} cannot send values without a copy, so -o zero_copy is off"
            );
            drop(opened);
            open(None)
        }),
    };
    let xdp::Opened { arena, ports, watch } = opened.map_err(|refused| match refused {
        OpenError::TooLittle(ring_bytes) => {
            BypassError::Memory { interface: name.clone(), ring_mb: ring_bytes.div_ceil(1 << 20) }
        }
        refused => BypassError::Refused(name.clone(), refused),
    })?;
    let has_values = watch.facts().value_bytes > 0;
    let interface = Arc::new(Interface::new(watch, &ports));
    tell_start(settings, &interface);
    Ok(OpenPorts { ports, speak, interface, arena: has_values.then_some(arena) })
}

/// Returns the UDP port and the protocols, or `None` if they are not the same for all addresses.
fn one_port(settings: &Settings, addresses: &[SocketAddr]) -> Option<(u16, ProtocolMode)> {
    let port = addresses.first()?.port();
    let speak = settings.datagrams.first()?.protocol;
    let is_one = addresses.iter().all(|it| it.port() == port)
        && settings.datagrams.iter().all(|it| it.protocol == speak);
    is_one.then_some((port, speak))
}

/// Returns the addresses in `listened` that belong to the interface or are wildcard addresses.
fn addresses_of(name: &str, listened: &[SocketAddr]) -> Result<Vec<IpAddr>, BypassError> {
    let own = net::own_addresses().unwrap_or_default();
    let own: Vec<IpAddr> = own.iter().filter(|it| it.interface == name).map(|it| it.ip).collect();
    let ips: Vec<IpAddr> = listened.iter().map(SocketAddr::ip).collect();
    let its: Vec<IpAddr> =
        ips.iter().copied().filter(|ip| ip.is_unspecified() || own.contains(ip)).collect();
    if its.is_empty() && !own.is_empty() {
        let [listened, own] =
            [ips, own].map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "));
        return Err(BypassError::Addresses { interface: name.to_owned(), listened, own });
    }
    // If the interface has no address, `xdp::open` refuses the interface and gives the reason.
    Ok(its)
}

/// Returns how many bytes of `-m` packets may take. The rest has room for two of the largest items.
fn ring_bytes_max(settings: &Settings) -> usize {
    let beside_items = settings.memory_bytes.saturating_sub(2 * settings.columns.item_bytes_max);
    (settings.memory_bytes / RING_PART).min(beside_items)
}

/// Returns the limits for values in the arena, or `None` if `-o zero_copy` is off. Values may take
/// the bytes that packets cannot use, but always at least half of `all_bytes_max`.
fn values(settings: &Settings, all_bytes_max: usize) -> Option<Values> {
    let ring_bytes_max = settings.columns.count * RING_CHUNKS_MAX as usize * CHUNK_BYTES[1];
    (settings.zero_copy != ZeroCopy::Off).then(|| Values {
        memory_bytes_max: all_bytes_max - ring_bytes_max.min(all_bytes_max / 2),
        in_place_min: settings.zero_copy_bytes_min.min(PART_BYTES_MIN),
        keeps: settings.zero_copy == ZeroCopy::Full,
    })
}

/// The effective `-o zero_copy`: `Off` if the interface cannot send values without a copy.
pub(crate) fn zero_copy(settings: &Settings, interface: &Interface) -> ZeroCopy {
    if interface.facts().value_bytes > 0 { settings.zero_copy } else { ZeroCopy::Off }
}

/// True if columns may steal packets from other columns' queues. If the kernel copies packets,
/// stealing is seldom worthwhile, because only one column at a time can send through a queue.
pub(crate) fn may_steal(settings: &Settings, interface: &Interface) -> bool {
    settings.steal && (settings.steal_rings || interface.facts().is_zero_copy)
}

fn tell_start(settings: &Settings, interface: &Interface) {
    let (facts, columns) = (interface.facts(), settings.columns.count);
    let (first, queues) = interface.queues();
    let ring_mb = facts.memory_bytes >> 20;
    log::warn!(
        "UDP on {} bypasses the kernel (xdp_mode: {}) in {queues} of {} queues, from queue \
         {first} on; the buffers for packets take {ring_mb} MiB of -m",
        facts.interface,
        interface.mode(),
        facts.queues
    );
    let value_mb = facts.value_bytes >> 20;
    match zero_copy(settings, interface) {
        ZeroCopy::Off => {}
        ZeroCopy::Send => {
            log::warn!("{value_mb} MiB of -m are for values that are sent without a copy");
        }
        ZeroCopy::Full => log::warn!(
            "{value_mb} MiB of -m are for values that are copied neither on arrival nor when \
             they are sent"
        ),
    }
    if queues < columns {
        log::warn!(
            "{} of {columns} threads have no queue of interface {}",
            columns - queues,
            facts.interface
        );
    }
    if (facts.queues as usize) > queues {
        log::warn!(
            "packets of the other {} queues of interface {} go through the kernel",
            facts.queues as usize - queues,
            facts.interface
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_a_part_of_memory_and_leave_room_for_two_of_the_largest_items() {
        let of = |memory_mb: usize, item_mb: usize| {
            let mut settings = Settings { memory_bytes: memory_mb << 20, ..Settings::default() };
            settings.columns.item_bytes_max = item_mb << 20;
            ring_bytes_max(&settings) >> 20
        };
        assert_eq!([of(64, 1), of(1024, 128)], [16, 256]);
        assert_eq!([of(64, 24), of(64, 25), of(64, 31), of(64, 32), of(64, 33)], [16, 14, 2, 0, 0]);
    }
}
