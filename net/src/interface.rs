//! Network interfaces: their addresses and how long their packets may be.
//!
//! Where: beside a packet's path, asked when sockets are opened.
//! Invariant: only reads.
//! Source: getifaddrs(3); /sys/class/net/NAME/mtu.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;

/// The addresses of all interfaces, each with its interface's name.
///
/// # Errors
/// The system does not tell.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let all = getifaddrs()?.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        let v6 = || address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip()));
        Some((one.interface_name, v4.or_else(v6)?))
    });
    Ok(all.collect())
}

/// Most bytes of an interface's packets, from their IP header on. `None`: no such interface.
#[must_use]
pub fn interface_mtu(name: &str) -> Option<usize> {
    let path = Path::new("/sys/class/net").join(name).join("mtu");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// How many queues an interface receives by. 0: no such interface.
#[must_use]
pub fn interface_queues(name: &str) -> usize {
    let path = Path::new("/sys/class/net").join(name).join("queues");
    let queues = fs::read_dir(path).into_iter().flatten().flatten();
    queues.filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_an_mtu() {
        let all = interface_addresses().unwrap();
        let loopback = all.iter().find(|(_, ip)| *ip == IpAddr::from([127, 0, 0, 1]));
        let (name, _) = loopback.unwrap();
        assert!(interface_mtu(name).unwrap() >= 576);
        assert_eq!(interface_mtu("nosuchnic"), None);
        assert_eq!((interface_queues(name), interface_queues("nosuchnic")), (1, 0));
    }
}
