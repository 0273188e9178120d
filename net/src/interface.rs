//! A network interface, as the kernel describes it.
//!
//! Where: when the server opens sockets, the MTU gives the length of the longest datagram. `xdp`
//! reads an interface's abilities at start, and its state later.
//! Invariant: the interface is only read, never changed. An interface is identified by its index,
//! because its name may change and another interface may get the name.
//! Source: rtnetlink(7); `linux/if_link.h`, `linux/if_addr.h`.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use crate::netlink::{Attributes, HowMany, Netlink, number, put};
use crate::wire::Mac;

/// Attributes of an interface.
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const KIND_OF: u16 = 18;
const XDP: u16 = 43;
/// Attributes nested in `KIND_OF` and in `XDP`.
const KIND: u16 = 1;
const XDP_PLACE: u16 = 2;
const XDP_PROGRAM: u16 = 4;
/// Attributes of an IP address. On a point-to-point link, `IP_ADDRESS` is the other end's address.
const IP_ADDRESS: u16 = 1;
const IP_LOCAL: u16 = 2;
const IP_BROADCAST: u16 = 4;

/// The kind of a virtual interface that tags its packets with a VLAN number.
pub(crate) const VLAN: &str = "vlan";

/// Sizes of `struct ifinfomsg` and of `struct ifaddrmsg`.
const LINK_BYTES: usize = 16;
const IP_BYTES: usize = 8;
const UP: u32 = 1;
const CARRIER: u32 = 1 << 16;

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address.
    pub ip: IpAddr,
    /// The name of the interface that has the address.
    pub interface: String,
    /// Maximum length of an IP packet on that interface, in bytes (its MTU).
    pub mtu: usize,
    /// The network's last address, and the configured broadcast address if it is another address.
    pub broadcasts: Vec<Ipv4Addr>,
}

/// Returns all addresses of this machine in the calling thread's network namespace.
pub fn own_addresses() -> io::Result<Vec<OwnAddress>> {
    let netlink = Netlink::open()?;
    let mut interfaces = Vec::new();
    netlink.ask(libc::RTM_GETLINK, HowMany::All, &[0; LINK_BYTES], |_, body| {
        interfaces.extend(Interface::read(body));
    })?;
    let all = addresses(&netlink)?.into_iter().filter_map(|(index, ip, broadcasts)| {
        let of: &Interface = interfaces.iter().find(|it| it.index == index)?;
        Some(OwnAddress { ip, interface: of.name.clone(), mtu: of.mtu as usize, broadcasts })
    });
    Ok(all.collect())
}

/// Returns all addresses, each with its interface's index and its broadcast addresses.
fn addresses(netlink: &Netlink) -> io::Result<Vec<(u32, IpAddr, Vec<Ipv4Addr>)>> {
    let mut all = Vec::new();
    netlink.ask(libc::RTM_GETADDR, HowMany::All, &[0; IP_BYTES], |_, body| {
        all.extend(address(body));
    })?;
    Ok(all)
}

/// Reads a `struct ifaddrmsg`: prefix length at byte 1, interface index at byte 4, then attributes.
fn address(body: &[u8]) -> Option<(u32, IpAddr, Vec<Ipv4Addr>)> {
    let (header, attributes) = body.split_first_chunk::<IP_BYTES>()?;
    let find = |wanted| {
        let mut attributes = Attributes(attributes);
        attributes.find(|(kind, _)| *kind == wanted).and_then(|(_, value)| ip(value))
    };
    let (ip, chosen) = (find(IP_LOCAL).or(find(IP_ADDRESS))?, find(IP_BROADCAST));
    // Networks of 31 and 32 bits have no broadcast address (RFC 3021).
    let derived = match find(IP_ADDRESS).unwrap_or(ip) {
        IpAddr::V4(ip) if header[1] <= 30 => Ipv4Net::new(ip, header[1]).ok(),
        _ => None,
    };
    let mut broadcasts: Vec<Ipv4Addr> = derived.iter().map(Ipv4Net::broadcast).collect();
    if let Some(IpAddr::V4(chosen)) = chosen
        && !broadcasts.contains(&chosen)
    {
        broadcasts.push(chosen);
    }
    Some((number(&header[4..]), ip, broadcasts))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The Ethernet address; `None` if the interface is not an Ethernet interface.
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    /// The kind of a virtual interface, such as `veth`; empty for a network card.
    pub(crate) kind: String,
    /// True if the interface is switched on and has a carrier.
    pub(crate) is_up: bool,
    /// The id of the attached XDP program; 0 if there is none.
    pub(crate) program: u32,
}

impl Interface {
    pub(crate) fn named(netlink: &Netlink, name: &str) -> io::Result<Interface> {
        let mut question = vec![0; LINK_BYTES];
        put(&mut question, NAME, &[name.as_bytes(), &[0]].concat());
        Interface::ask(netlink, &question)
    }

    pub(crate) fn numbered(netlink: &Netlink, index: u32) -> io::Result<Interface> {
        let mut question = [0; LINK_BYTES];
        question[4..8].copy_from_slice(&index.to_ne_bytes());
        Interface::ask(netlink, &question)
    }

    fn ask(netlink: &Netlink, question: &[u8]) -> io::Result<Interface> {
        let mut found = None;
        netlink.ask(libc::RTM_GETLINK, HowMany::One, question, |_, body| {
            found = found.take().or(Interface::read(body));
        })?;
        found.ok_or(io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// Reads a `struct ifinfomsg` (hardware type at byte 2, index at 4, flags at 8) and the
    /// attributes after it.
    fn read(body: &[u8]) -> Option<Interface> {
        const ETHERNET: [u8; 2] = 1_u16.to_ne_bytes();
        let (header, attributes) = body.split_first_chunk::<LINK_BYTES>()?;
        let flags = number(&header[8..]);
        let mut interface = Interface {
            index: number(&header[4..]),
            is_up: flags & UP != 0 && flags & CARRIER != 0,
            ..Interface::default()
        };
        for (kind, value) in Attributes(attributes) {
            match kind {
                ADDRESS if header[2..4] == ETHERNET => {
                    interface.mac = value.first_chunk().map(|mac| Mac(*mac));
                }
                NAME => interface.name = text(value),
                MTU => interface.mtu = number(value),
                KIND_OF => {
                    let kind = Attributes(value).find(|(kind, _)| *kind == KIND);
                    interface.kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
                }
                XDP => interface.program = program(value),
                _ => {}
            }
        }
        Some(interface)
    }

    /// Returns the names of the interfaces of `kind`, such as `VLAN`, that lie on top of `self`.
    pub(crate) fn above(&self, kind: &str, netlink: &Netlink) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        netlink.ask(libc::RTM_GETLINK, HowMany::All, &[0; LINK_BYTES], |_, body| {
            names.extend(name_on(self.index, kind, body));
        })?;
        Ok(names)
    }

    pub(crate) fn addresses(&self, netlink: &Netlink) -> io::Result<Vec<IpAddr>> {
        let all = addresses(netlink)?.into_iter();
        Ok(all.filter(|(index, ..)| *index == self.index).map(|(_, ip, _)| ip).collect())
    }
}

/// Returns the name of the interface in `body` if it is of `kind` and on top of interface `index`.
fn name_on(index: u32, kind: &str, body: &[u8]) -> Option<String> {
    let below = Attributes(body.get(LINK_BYTES..)?).find(|(kind, _)| *kind == LINK);
    let is_on_it = below.is_some_and(|(_, value)| number(value) == index);
    Interface::read(body).filter(|it| is_on_it && it.kind == kind).map(|it| it.name)
}

fn program(value: &[u8]) -> u32 {
    let find = |wanted| Attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let is_there = find(XDP_PLACE).and_then(<[u8]>::first).is_some_and(|place| *place != 0);
    // If programs are attached in several places, the kernel gives no id; the result is `u32::MAX`.
    let id = find(XDP_PROGRAM).map(number);
    if is_there { id.unwrap_or(u32::MAX) } else { 0 }
}

pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::namespace::{Veth, pair};

    /// The messages are like the kernel's after `ip link add link wire name wire.5 type vlan id 5`.
    #[test]
    fn a_vlan_is_known_by_what_it_is_on() {
        let link_message = |kind: &[u8]| {
            let (mut message, mut info) = (vec![0; LINK_BYTES], Vec::new());
            put(&mut info, KIND, kind);
            put(&mut message, NAME, b"wire.5\0");
            put(&mut message, LINK, &7_u32.to_ne_bytes());
            put(&mut message, KIND_OF, &info);
            message
        };
        assert_eq!(name_on(7, VLAN, &link_message(b"vlan\0")), Some("wire.5".to_owned()));
        assert_eq!(name_on(8, VLAN, &link_message(b"vlan\0")), None);
        assert_eq!(name_on(7, VLAN, &link_message(b"veth\0")), None);
        assert_eq!(name_on(7, VLAN, &[0; LINK_BYTES]), None);
        assert_eq!(name_on(7, VLAN, &[]), None);
    }

    /// Instead of VLANs, the test uses a veth pair: each of its interfaces is on top of the other.
    #[test]
    fn the_interfaces_of_a_kind_on_another_are_told_by_name() {
        let Some([near, _far]) = pair(Veth::default()) else { return };
        near.ip("link add left type veth peer name right");
        let above = |name, kind| {
            let netlink = Netlink::open().unwrap();
            Interface::named(&netlink, name).unwrap().above(kind, &netlink).unwrap()
        };
        near.on(|| {
            assert_eq!([above("left", "veth"), above("right", "veth")], [["right"], ["left"]]);
            assert!(above("left", VLAN).is_empty() && above("lo", "veth").is_empty());
        });
    }

    /// The messages are like the kernel's after `ip address add 10.1.2.3/20 dev wire`.
    #[test]
    fn an_address_is_told_with_what_stands_for_all_of_its_network() {
        let broadcasts_of =
            |bits: u8, local: [u8; 4], of_link: [u8; 4], broadcast: Option<[u8; 4]>| {
                let mut message = vec![0; IP_BYTES];
                (message[1], message[4]) = (bits, 7);
                put(&mut message, IP_ADDRESS, &of_link);
                put(&mut message, IP_LOCAL, &local);
                broadcast.iter().for_each(|it| put(&mut message, IP_BROADCAST, it));
                let (index, ip, broadcasts) = address(&message).unwrap();
                assert_eq!((index, ip), (7, IpAddr::from(local)));
                broadcasts.iter().map(Ipv4Addr::octets).collect::<Vec<_>>()
            };
        let (ip, all, chosen) = ([10, 1, 2, 3], [10, 1, 15, 255], [10, 1, 2, 255]);
        assert_eq!(broadcasts_of(20, ip, ip, None), [all]);
        assert_eq!(broadcasts_of(20, ip, ip, Some(all)), [all]);
        assert_eq!(broadcasts_of(20, ip, ip, Some(chosen)), [all, chosen]);
        assert_eq!(broadcasts_of(31, ip, ip, None), [[0; 4]; 0]);
        assert_eq!(
            broadcasts_of(32, ip, [10, 9, 9, 9], None),
            [[0; 4]; 0],
            "a point-to-point link"
        );
        assert_eq!(broadcasts_of(255, ip, ip, None), [[0; 4]; 0]);
        let mut v6 = vec![0; IP_BYTES];
        put(&mut v6, IP_ADDRESS, &[0xfd; 16]);
        assert_eq!(address(&v6), Some((0, IpAddr::from([0xfd; 16]), Vec::new())));
        assert_eq!(address(&[0; IP_BYTES]), None);
        assert_eq!(address(&[]), None);
    }

    #[test]
    fn loopback_has_its_address_and_an_mtu() {
        let all = own_addresses().unwrap();
        let loopback = all.iter().find(|it| it.ip == IpAddr::from([127, 0, 0, 1])).unwrap();
        assert!(loopback.mtu >= 576 && loopback.interface == "lo", "{loopback:?}");
        assert_eq!(loopback.broadcasts, [Ipv4Addr::new(127, 255, 255, 255)]);
    }

    #[test]
    fn loopback_is_told_by_its_name_and_by_its_index() {
        let netlink = Netlink::open().unwrap();
        let named = Interface::named(&netlink, "lo").unwrap();
        assert_eq!((named.index, named.mac, named.program), (1, None, 0));
        assert!(named.mtu >= 1280, "{named:?}");
        assert_eq!(Interface::numbered(&netlink, 1).unwrap(), named);
        assert!(named.above(VLAN, &netlink).unwrap().is_empty());
        for name in ["nosuchnic", "", "a name that is longer than an interface's"] {
            assert!(Interface::named(&netlink, name).is_err(), "{name}");
        }
        let gone = Interface::numbered(&netlink, u32::MAX >> 1).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
        // A test cannot assume that loopback is up.
        let ips = named.addresses(&netlink).unwrap();
        assert!(!named.is_up || ips.contains(&IpAddr::from([127, 0, 0, 1])), "{ips:?}");
    }
}
