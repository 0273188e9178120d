//! Limits the bytes of long answers to each network, if the server answers every network.
//!
//! ```text
//! entry   | second (32 bits) | bytes charged in this second (32 bits) |
//! ```
//!
//! Where: between the execution of a message and the sending of its answer. The answer to a forged
//! sender address goes to a host that requested nothing, at no cost for the forger.
//! Invariant: an entry admits `AMPLIFIED_BYTES_SECOND_MAX` charged bytes per second; only the last
//! answer may exceed them. The table never grows. No client can know which networks share an entry.
//! Source: C. Rossow, *Amplification Hell: Revisiting Network Protocols for DDoS Abuse* (2014);
//! CVE-2018-1000115 (memcached).

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{AMPLIFIED_BYTES_SECOND_MAX, CHARGES};

/// The table, which all columns share.
#[derive(Debug)]
pub(super) struct Charges {
    hasher: RandomState,
    entries: Box<[AtomicU64]>,
}

impl Charges {
    pub(super) fn new() -> Charges {
        Charges {
            hasher: RandomState::new(),
            entries: (0..CHARGES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Charges `bytes` to the network of `ip`. Returns false if the network's limit is reached.
    pub(super) fn admit(&self, ip: IpAddr, bytes: usize, second: u32) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let hash = self.hasher.hash_one(network(ip)) % CHARGES as u64;
        let Some(entry) = usize::try_from(hash).ok().and_then(|at| self.entries.get(at)) else {
            return true;
        };
        let charge = |word: u64| {
            let charged = match u32::try_from(word >> 32) == Ok(second) {
                true => u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX),
                false => 0,
            };
            let admits = charged < AMPLIFIED_BYTES_SECOND_MAX;
            admits.then(|| u64::from(second) << 32 | u64::from(charged.saturating_add(bytes)))
        };
        // Relaxed: an entry orders no other memory. The update pairs with itself.
        entry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).is_ok()
    }
}

/// Returns the network of an address: the first 24 bits for IPv4, the first 48 (a site) for IPv6.
fn network(ip: IpAddr) -> (bool, u64) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => (false, u64::from(u32::from(ip) >> 8)),
        IpAddr::V6(ip) => (true, u64::try_from(u128::from(ip) >> 80).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(charges: &Charges, ip: &str, bytes: usize, second: u32) -> usize {
        let ip = ip.parse().unwrap();
        (0..100_000).take_while(|_| charges.admit(ip, bytes, second)).count()
    }

    #[test]
    fn a_network_has_its_share_of_each_second_and_no_more() {
        let charges = Charges::new();
        let share = AMPLIFIED_BYTES_SECOND_MAX as usize;
        assert_eq!(admitted(&charges, "192.0.2.1", share / 8, 7), 8);
        assert_eq!(admitted(&charges, "192.0.2.200", 1, 7), 0, "of the same network");
        assert_eq!(admitted(&charges, "::ffff:192.0.2.9", 1, 7), 0, "the same by another name");
        assert_eq!(admitted(&charges, "192.0.2.1", 10 * share, 8), 1, "one long one");
        assert_eq!(admitted(&charges, "192.0.2.1", usize::MAX, 9), 1);
        assert_eq!(admitted(&charges, "2001:db8:1:2::1", share, 9), 1);
        assert_eq!(admitted(&charges, "2001:db8:1:ffff::1", share, 9), 0, "of the same site");
    }

    #[test]
    fn most_networks_share_their_entry_with_none() {
        let charges = Charges::new();
        let share = AMPLIFIED_BYTES_SECOND_MAX as usize;
        let alone =
            (0..=255).filter(|net| admitted(&charges, &format!("10.0.{net}.1"), share, 1) > 0);
        assert!(alone.count() > 220);
    }

    #[test]
    fn columns_that_charge_at_once_admit_no_more_than_one() {
        let charges = Charges::new();
        let one = AMPLIFIED_BYTES_SECOND_MAX as usize / 1000;
        let all: usize = std::thread::scope(|scope| {
            let thread = |_| scope.spawn(|| admitted(&charges, "203.0.113.5", one, 3));
            let threads: Vec<_> = (0..4).map(thread).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(all, 1001, "each but the last is within the share");
    }
}
