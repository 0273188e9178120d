//! The interface whose queues bypass the kernel.
//!
//! Where: columns check the interface once a second, and `stats` reads its counts.
//! Invariant: a change of the interface's health is logged once. After the interface is gone, no
//! column uses its queue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use net::xdp::{self, Health, Meter, Port};

use crate::datapath::datagram_bytes_for;

/// Milliseconds between two checks of the interface's health.
const LOOK_MS: u64 = 1000;

/// The state of the interface and its ports, for columns, `stats` and the log.
#[derive(Debug)]
pub struct Interface {
    watch: xdp::Watch,
    meters: Vec<Meter>,
    first_queue: u32,
    ring_bytes: AtomicUsize,
    datagram_bytes_max: AtomicUsize,
    /// The interface's health at the last check, and the time of the next check in milliseconds.
    seen: Mutex<(Health, u64)>,
}

impl Interface {
    /// Makes the state of an interface whose `ports` are open.
    #[must_use]
    pub fn new(watch: xdp::Watch, ports: &[Port]) -> Interface {
        let (mtu, ring_bytes) = (watch.facts().mtu, watch.facts().memory_bytes);
        Interface {
            meters: ports.iter().map(Port::meter).collect(),
            first_queue: ports.first().map_or(0, Port::queue),
            ring_bytes: AtomicUsize::new(ring_bytes),
            datagram_bytes_max: AtomicUsize::new(datagram_bytes_for(mtu as usize)),
            seen: Mutex::new((Health::Up { mtu }, 0)),
            watch,
        }
    }

    /// Bytes of `-m` that packets take.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes.load(Ordering::Relaxed) // no other data depend on the number
    }

    /// After a port is closed, subtracts the `memory_bytes` bytes of its packets from `ring_bytes`.
    /// Subtracts nothing if values may still be in this memory.
    pub(crate) fn closed(&self, memory_bytes: usize) {
        if self.facts().value_bytes == 0 {
            self.ring_bytes.fetch_sub(memory_bytes, Ordering::Relaxed);
        }
    }

    /// Maximum bytes of a datagram. The number changes with the interface's MTU.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> usize {
        // Relaxed: the number orders nothing. The load pairs with the store in `tell`.
        self.datagram_bytes_max.load(Ordering::Relaxed)
    }

    /// The interface's properties at the time when the ports were opened.
    #[must_use]
    pub fn facts(&self) -> &xdp::Facts {
        self.watch.facts()
    }

    /// The first queue in use, and the number of queues in use.
    #[must_use]
    pub fn queues(&self) -> (u32, usize) {
        (self.first_queue, self.meters.len())
    }

    /// Counts of the packets that the kernel dropped before a port received them.
    #[must_use]
    pub fn dropped(&self) -> xdp::Statistics {
        let mut sum = xdp::Statistics::default();
        for of in self.meters.iter().filter_map(Meter::read) {
            sum.dropped += of.dropped;
            sum.ring_full += of.ring_full;
            sum.no_chunk += of.no_chunk;
            sum.invalid += of.invalid;
        }
        sum
    }

    /// The driver's mode, such as `native, copied`.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match self.facts() {
            facts if facts.is_zero_copy => "native, not copied",
            facts if facts.is_native => "native, copied",
            _ => "generic, copied",
        }
    }

    /// Checks the interface and logs a change, but at most once a second, even if several columns
    /// call this function. Returns true if the interface is gone, and from then on in every call.
    pub(crate) fn look(&self, now_ms: u64) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms >= seen.1 && seen.0 != Health::Gone {
            let (before, now) = (seen.0, self.watch.health());
            *seen = (now.unwrap_or(before), now_ms + LOOK_MS);
            if before != seen.0 {
                self.tell(seen.0);
            }
        }
        seen.0 == Health::Gone
    }

    /// True if the interface can send packets now or its state is unknown. Costs two system calls.
    pub(crate) fn is_up(&self) -> bool {
        self.watch.health().is_none_or(|now| matches!(now, Health::Up { .. }))
    }

    fn tell(&self, now: Health) {
        let facts = self.facts();
        let name = &facts.interface;
        match now {
            Health::Up { mtu } => {
                let shorter = mtu.min(facts.mtu) as usize;
                // Relaxed: columns load this number, and no other data depend on it.
                self.datagram_bytes_max.store(datagram_bytes_for(shorter), Ordering::Relaxed);
                log::warn!("interface {name} is up, with an MTU of {mtu} bytes");
                if mtu > facts.mtu {
                    log::warn!(
                        "this server drops packets longer than {} bytes until it is restarted",
                        facts.mtu
                    );
                }
            }
            Health::Down => log::warn!("interface {name} is down"),
            Health::Detached => log::warn!(
                "this server's XDP program was removed from interface {name}: UDP is served \
                 through the kernel until the server is restarted"
            ),
            Health::Gone => log::warn!(
                "interface {name} is gone: UDP is served through the kernel; to use another \
                 interface, restart the server"
            ),
        }
    }
}
