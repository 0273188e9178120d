//! Decides which datagrams are answered.
//!
//! Where: `check` is called before a datagram is executed, `lets_out` before it is answered.
//! Invariant: the request of a refused datagram is not executed. A datagram is refused if its
//! sender's port is 0, which no real sender has, or one of our UDP ports, because two servers would
//! answer each other forever (CVE-2024-2169); if its sender's address is not that of a single host;
//! if it was sent to a multicast or broadcast address; or if its sender is in no network of
//! `-o udp_allow`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use super::charges::Charges;
use crate::limits::AMPLIFIED_TIMES_FREE;

/// The rules that decide which senders are answered.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    ports: Vec<u16>,
    /// The broadcast addresses that the networks had when the server started, sorted.
    broadcasts: Vec<Ipv4Addr>,
    allow: Vec<IpNet>,
    /// The table to which long answers are charged, if all networks are answered. Otherwise `None`.
    charges: Option<Arc<Charges>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// An answer could start a loop of answers, or would go to several hosts.
    Sender,
    /// The sender is in no network of `-o udp_allow`.
    Network,
}

impl Guard {
    /// Makes a guard. `ports` are the server's own UDP ports; `broadcasts` are broadcast addresses;
    /// `allow` are the networks whose requests are answered (if empty, all). If `charges` is true,
    /// long answers are charged to the networks of their receivers.
    #[must_use]
    pub fn new(
        ports: Vec<u16>,
        mut broadcasts: Vec<Ipv4Addr>,
        allow: Vec<IpNet>,
        charges: bool,
    ) -> Guard {
        broadcasts.sort_unstable();
        let charges = charges.then(|| Arc::new(Charges::new()));
        Guard { ports, broadcasts, allow, charges }
    }

    /// Returns true if a message of `request_bytes` bytes may get an answer of `bytes` bytes.
    /// Charges a long answer to the network of `to`.
    #[inline]
    pub(super) fn lets_out(
        &self,
        (bytes, request_bytes): (usize, usize),
        to: impl FnOnce() -> Option<SocketAddr>,
        now_ms: u64,
    ) -> bool {
        let free_bytes = AMPLIFIED_TIMES_FREE * request_bytes;
        if bytes <= free_bytes {
            return true;
        }
        let Some(charges) = &self.charges else { return true };
        let Some(to) = to() else { return true };
        let second = u32::try_from(now_ms / 1000).unwrap_or(u32::MAX);
        charges.admit(to.ip(), bytes - free_bytes, second)
    }

    #[inline]
    pub(crate) fn check(&self, sender: SocketAddr, is_for_many: bool) -> Result<(), RefusalReason> {
        let (ip, port) = (sender.ip().to_canonical(), sender.port());
        let is_many = match ip {
            IpAddr::V4(ip) => {
                ip.is_broadcast()
                    || ip.is_multicast()
                    || ip.is_unspecified()
                    || self.broadcasts.binary_search(&ip).is_ok()
            }
            IpAddr::V6(ip) => ip.is_multicast() || ip.is_unspecified(),
        };
        if port == 0 || is_many || is_for_many || self.ports.contains(&port) {
            return Err(RefusalReason::Sender);
        }
        if self.allow.is_empty() || self.allow.iter().any(|network| network.contains(&ip)) {
            return Ok(());
        }
        Err(RefusalReason::Network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, sender: &str) -> Result<(), RefusalReason> {
        guard.check(sender.parse().unwrap(), false)
    }

    #[test]
    fn neither_loops_nor_many_are_answered() {
        let broadcasts = [[10, 255, 255, 255], [10, 0, 0, 255]].map(Ipv4Addr::from).to_vec();
        let guard = Guard::new(vec![11211, 11212], broadcasts, Vec::new(), true);
        assert_eq!(check(&guard, "10.0.0.1:11213"), Ok(()));
        assert_eq!(check(&guard, "[2001:db8::1]:40000"), Ok(()));
        for sender in [
            "10.0.0.1:0",
            "10.0.0.1:11211",
            "[2001:db8::1]:11212",
            "224.0.0.1:4000",
            "255.255.255.255:4000",
            "0.0.0.0:4000",
            "[ff02::1]:4000",
            "[::]:4000",
            "[::ffff:224.0.0.1]:4000",
            "10.0.0.255:4000",
            "10.255.255.255:4000",
            "[::ffff:10.0.0.255]:4000",
        ] {
            assert_eq!(check(&guard, sender), Err(RefusalReason::Sender), "{sender}");
        }
        let sender = "10.0.0.1:4000".parse().unwrap();
        assert_eq!(guard.check(sender, true), Err(RefusalReason::Sender));
    }

    #[test]
    fn only_networks_that_are_allowed_are_answered() {
        let allow = ["10.1.0.0/16", "2001:db8::/32"].map(|network| network.parse().unwrap());
        let guard = Guard::new(vec![11211], Vec::new(), allow.to_vec(), false);
        assert_eq!(check(&guard, "10.1.255.255:4000"), Ok(()));
        assert_eq!(check(&guard, "[::ffff:10.1.0.1]:4000"), Ok(()));
        assert_eq!(check(&guard, "[2001:db8:1::1]:4000"), Ok(()));
        assert_eq!(check(&guard, "10.2.0.0:4000"), Err(RefusalReason::Network));
        assert_eq!(check(&guard, "[2001:db9::1]:4000"), Err(RefusalReason::Network));
        assert_eq!(check(&guard, "10.1.0.1:11211"), Err(RefusalReason::Sender), "loops come first");
    }
}
