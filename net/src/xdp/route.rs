//! Finds the way to a peer over an interface: our address to send from, and the next hop's MAC.
//!
//! ```text
//! route       to IP, over the interface      ->  our IP, and the router's if there is one
//! neighbour   the router's IP, or to IP      ->  MAC
//! ```
//!
//! Where: a client calls `reach` before it sends. A server answers to the addresses of a request.
//! Invariant: the result comes from the kernel's routes and its neighbour table. If the kernel does
//! not know a neighbour's MAC, it sends a request to the neighbour; nothing else is sent.
//! Source: rtnetlink(7); `net/core/neighbour.c` of Linux on `NTF_USE`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::interface::{Interface, ip};
use crate::netlink::{Attributes, HowMany, Netlink, number, put};
use crate::wire::{Ends, Ips, Mac, Macs, Ports};

/// Longest wait for a neighbour's MAC. In this time the kernel sends three requests.
const ANSWER_WAIT: Duration = Duration::from_secs(4);
const ANSWER_PAUSE: Duration = Duration::from_millis(5);

const ROUTE_TO: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_OWN: u16 = 7;
const NEIGHBOUR_IP: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;

/// Size of `struct rtmsg` and of `struct ndmsg`.
const MESSAGE_BYTES: usize = 12;
/// A flag of a neighbour that makes the kernel request the neighbour's MAC (`NTF_USE`).
const USE: u8 = 1;
/// A state of a neighbour: the kernel did not find the neighbour's MAC (`NUD_FAILED`).
const FAILED: u16 = 0x20;

/// The reason why a peer cannot be reached.
#[derive(Debug)]
pub enum Unreachable {
    /// There is no such interface, or it is not an Ethernet interface.
    Interface(String),
    /// No route to this address leads over the interface.
    NoRoute(IpAddr),
    /// This neighbour does not answer the kernel's requests for its MAC.
    Silent(IpAddr),
    /// The kernel did not return its routes or neighbours.
    System(io::Error),
}

impl std::error::Error for Unreachable {}

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreachable::Interface(name) => write!(out, "there is no Ethernet interface {name}"),
            Unreachable::NoRoute(ip) => write!(out, "no route to {ip} uses this interface"),
            Unreachable::Silent(ip) => {
                write!(out, "{ip} does not answer requests for its MAC address on this interface")
            }
            Unreachable::System(error) => write!(out, "cannot read the kernel's routes: {error}"),
        }
    }
}

/// Returns the ends of a datagram from our port `own_port` to `to`. Needs privilege, like `open`.
pub fn reach(interface: &str, to: SocketAddr, own_port: u16) -> Result<Ends, Unreachable> {
    let netlink = Netlink::open().map_err(Unreachable::System)?;
    let none = || Unreachable::Interface(interface.to_owned());
    let interface = Interface::named(&netlink, interface).map_err(|_| none())?;
    let own_mac = interface.mac.ok_or_else(none)?;
    let route = Route::find(&netlink, interface.index, to.ip())?;
    let mac = neighbour(&netlink, interface.index, route.next)?;
    let ips = match (route.own, to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ips::V4 { from, to },
        (IpAddr::V6(from), IpAddr::V6(to)) => Ips::V6 { from, to },
        (_, to) => return Err(Unreachable::NoRoute(to)),
    };
    let macs = Macs { from: own_mac, to: mac };
    Ok(Ends { macs, ips, ports: Ports { from: own_port, to: to.port() } })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    own: IpAddr,
    /// The IP address of the next hop, which is the peer itself if there is no router.
    next: IpAddr,
}

impl Route {
    fn find(netlink: &Netlink, interface: u32, to: IpAddr) -> Result<Route, Unreachable> {
        // In `struct rtmsg`, byte 0 is the family, and byte 1 is the length of the prefix.
        let mut question = vec![0; MESSAGE_BYTES];
        let value = octets(to);
        question[0] = family(to);
        question[1] = if to.is_ipv4() { 32 } else { 128 };
        put(&mut question, ROUTE_TO, &value);
        let (mut own, mut gateway, mut over) = (None, None, 0);
        let answer = netlink.ask(libc::RTM_GETROUTE, HowMany::One, &question, |_, body| {
            for (kind, value) in Attributes(body.get(MESSAGE_BYTES..).unwrap_or_default()) {
                match kind {
                    ROUTE_OWN => own = ip(value),
                    ROUTE_GATEWAY => gateway = ip(value),
                    ROUTE_INTERFACE => over = number(value),
                    _ => {}
                }
            }
        });
        match (answer, own) {
            (Ok(()), Some(own)) if over == interface => {
                Ok(Route { own, next: gateway.unwrap_or(to) })
            }
            _ => Err(Unreachable::NoRoute(to)),
        }
    }
}

/// Returns a neighbour's MAC. If the kernel does not know the MAC, makes the kernel request it.
fn neighbour(netlink: &Netlink, interface: u32, of: IpAddr) -> Result<Mac, Unreachable> {
    // In `struct ndmsg`, the family is at byte 0, the interface at byte 4, and flags at byte 10.
    let mut question = vec![0; MESSAGE_BYTES];
    question[0] = family(of);
    question[4..8].copy_from_slice(&interface.to_ne_bytes());
    put(&mut question, NEIGHBOUR_IP, &octets(of));
    let deadline = Instant::now() + ANSWER_WAIT;
    let mut is_asked = false;
    while Instant::now() < deadline {
        let known = Neighbour::find(netlink, &question).map_err(Unreachable::System)?;
        match known {
            Neighbour { mac: Some(mac), .. } => return Ok(mac),
            Neighbour { is_failed: true, .. } if is_asked => return Err(Unreachable::Silent(of)),
            _ => {}
        }
        if !is_asked {
            question[10] = USE;
            netlink.enter(libc::RTM_NEWNEIGH, &question).map_err(Unreachable::System)?;
            question[10] = 0;
            is_asked = true;
        }
        std::thread::sleep(ANSWER_PAUSE);
    }
    Err(Unreachable::Silent(of))
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbour {
    mac: Option<Mac>,
    /// True if the neighbour did not answer the kernel's requests.
    is_failed: bool,
}

impl Neighbour {
    fn find(netlink: &Netlink, question: &[u8]) -> io::Result<Neighbour> {
        let mut known = Neighbour::default();
        let answer = netlink.ask(libc::RTM_GETNEIGH, HowMany::One, question, |_, body| {
            // In `struct ndmsg`, the state is at byte 8.
            let Some((header, attributes)) = body.split_first_chunk::<MESSAGE_BYTES>() else {
                return;
            };
            known.is_failed = u16::from_ne_bytes([header[8], header[9]]) & FAILED != 0;
            let found = Attributes(attributes).find(|(kind, _)| *kind == NEIGHBOUR_MAC);
            let mac = found.and_then(|(_, value)| value.first_chunk()).map(|mac| Mac(*mac));
            known.mac = mac.filter(|mac| mac.is_one() && !known.is_failed);
        });
        match answer {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(known),
            answer => answer.map(|()| known),
        }
    }
}

fn family(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    u8::try_from(family).unwrap_or(0)
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
