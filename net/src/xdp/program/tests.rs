//! Runs the program on packets, as the kernel does.
//!
//! Where: in the kernel, by BPF_PROG_TEST_RUN, which needs privilege.
//! Invariant: each packet gets the expected verdict.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::*;
use crate::wire::{self, Ends, Ips, Mac, Macs, Ports};
use crate::xdp::bpf;
use crate::xdp::tests::await_that;

const XDP_REDIRECT: u32 = 4;

fn filter() -> Filter {
    Filter {
        addresses: ["192.0.2.2", "198.51.100.7", "2001:db8::2", "2001:db8::7"]
            .map(|ip| ip.parse().unwrap())
            .to_vec(),
        ports: 11_211..=11_213,
        allow: Vec::new(),
    }
}

/// Loads the program, with a socket for queue 0; `None` without privilege.
fn load(filter: &Filter) -> Option<(OwnedFd, Vec<OwnedFd>)> {
    let is_denied = |error: &io::Error| error.raw_os_error() == Some(libc::EPERM);
    let map = match bpf::create_map(4) {
        Err(error) if is_denied(&error) => {
            testing::skip("no privilege to load a BPF program");
            return None;
        }
        map => map.unwrap(),
    };
    let socket =
        socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    bpf::enter(map.as_fd(), 0, socket.as_fd()).unwrap();
    let program = program(filter, map.as_raw_fd().unsigned_abs());
    let loaded = bpf::load(&program, false, bpf::NAME).unwrap();
    Some((loaded, vec![map, socket]))
}

fn packet(from: &str, to: &str) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let ips = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ips::V4 { from, to },
        (IpAddr::V6(from), IpAddr::V6(to)) => Ips::V6 { from, to },
        _ => unreachable!(),
    };
    let macs = Macs { from: Mac([2, 0, 0, 0, 0, 1]), to: Mac([2, 0, 0, 0, 0, 2]) };
    let ends = Ends { macs, ips, ports: Ports { from: from.port(), to: to.port() } };
    let mut frame = vec![7; ends.header_bytes()];
    assert!(wire::write(&mut frame, &ends));
    frame
}

fn v4() -> Vec<u8> {
    packet("192.0.2.1:40000", "192.0.2.2:11211")
}

fn v6() -> Vec<u8> {
    packet("[2001:db8::1]:40000", "[2001:db8::2]:11211")
}

fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

fn tagged(packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x81, 0, 0, 5], &packet[12..]].concat()
}

#[test]
fn udp_to_us_is_taken_and_everything_else_passes() {
    let Some((program, _sockets)) = load(&filter()) else { return };
    let to = |to: &str| match to.starts_with('[') {
        true => packet("[2001:db8::1]:40000", to),
        false => packet("192.0.2.1:40000", to),
    };
    let cases = [
        ("IPv4", v4(), true),
        ("IPv6", v6(), true),
        ("with a payload", [v4(), vec![1; 1000]].concat(), true),
        ("the last port", to("192.0.2.2:11213"), true),
        ("the second address", to("198.51.100.7:11212"), true),
        ("the second address", to("[2001:db8::7]:11213"), true),
        ("a port too low", to("192.0.2.2:11210"), false),
        ("a port too high", to("192.0.2.2:11214"), false),
        ("a port too high", to("[2001:db8::2]:11214"), false),
        ("port 0", to("[2001:db8::2]:0"), false),
        ("our port as source", packet("192.0.2.1:11211", "192.0.2.2:53"), false),
        ("a neighbour's address", to("192.0.2.3:11211"), false),
        ("a neighbour's address", to("[2001:db8::3]:11211"), false),
        ("half of our address", to("[2001:db9::2]:11211"), false),
        ("half of our address", to("[2001:db8::1:0:0:2]:11211"), false),
        ("everybody", to("255.255.255.255:11211"), false),
        ("a group's MAC", with(v4(), 0, &[0xff; 6]), false),
        ("a group's MAC", with(v6(), 0, &[0x33, 0x33]), false),
        ("ARP", with(v4(), 12, &[0x08, 0x06]), false),
        ("a tag", tagged(&v4()), false),
        ("a tag", tagged(&v6()), false),
        ("options", with(v4(), 14, &[0x46]), false),
        ("a header too short", with(v4(), 14, &[0x44]), false),
        ("the first part", with(v4(), 20, &[0x20, 0x00]), false),
        ("a later part", with(v4(), 20, &[0x00, 0x01]), false),
        ("the last part", with(v4(), 20, &[0x1f, 0xff]), false),
        ("a whole one that may be cut", with(v4(), 20, &[0x00, 0x00]), true),
        ("TCP", with(v4(), 23, &[6]), false),
        ("TCP", with(v6(), 20, &[6]), false),
        ("options for each hop", with(v6(), 20, &[0]), false),
        ("a fragment", with(v6(), 20, &[44]), false),
        ("one byte short", v4()[..41].to_vec(), false),
        ("one byte short", v6()[..61].to_vec(), false),
        ("an Ethernet header", v4()[..14].to_vec(), false),
        ("a wrong checksum, for `wire` to see", with(v4(), 40, &[1, 2]), true),
    ];
    for (what, packet, is_taken) in cases {
        let expected = if is_taken { XDP_REDIRECT } else { XDP_PASS };
        assert_eq!(bpf::run(program.as_fd(), &packet).unwrap(), expected, "{what}: {packet:x?}");
    }
}

#[test]
fn a_queue_without_a_socket_passes_everything() {
    let Some((program, sockets)) = load(&filter()) else { return };
    assert_eq!(bpf::run(program.as_fd(), &v4()).unwrap(), XDP_REDIRECT);
    drop(sockets);
    // A child process of another test may hold a copy of the socket until it calls `execve`.
    await_that(|| bpf::run(program.as_fd(), &v4()).unwrap() == XDP_PASS);
}

#[test]
fn only_allowed_networks_are_taken() {
    let networks = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
    let verdicts = |allow: &[&str], from: &[&str]| {
        let filter = Filter { allow: networks(allow), ..filter() };
        let (program, _sockets) = load(&filter)?;
        let is_taken = |from: &&str| {
            let to = if from.starts_with('[') { "[2001:db8::2]:11211" } else { "192.0.2.2:11211" };
            bpf::run(program.as_fd(), &packet(from, to)).unwrap() == XDP_REDIRECT
        };
        Some(from.iter().map(is_taken).collect::<Vec<bool>>())
    };
    let from = [
        "10.1.2.3:1",
        "10.1.3.3:1",
        "192.0.2.1:1",
        "[2001:db8:0:5::1]:1",
        "[2001:db8:0:6::1]:1",
        "[fd00::1234:5678]:1",
        "[fd00::1235:5678]:1",
    ];
    // The program ignores the host bits of a network's address.
    let allow = ["10.1.2.9/24", "2001:db8:0:5:ffff::/64", "fd00::1234:5678/112"];
    let Some(some) = verdicts(&allow, &from) else { return };
    assert_eq!(some, [true, false, false, true, false, true, false]);
    let one = verdicts(&["192.0.2.1/32"], &from).unwrap();
    assert_eq!(one, [false, false, true, false, false, false, false]);
    let v6 = verdicts(&["::/0"], &from).unwrap();
    assert_eq!(v6, [false, false, false, true, true, true, true]);
    let all = verdicts(&["::/0", "0.0.0.0/0"], &from).unwrap();
    assert_eq!(all, [true; 7]);
}

#[test]
fn programs_of_every_size_are_accepted() {
    let ip = |number: usize, is_v6: bool| -> IpAddr {
        let number = u8::try_from(number).unwrap();
        if is_v6 { Ipv6Addr::from([number; 16]).into() } else { Ipv4Addr::from([number; 4]).into() }
    };
    let addresses = |count, is_v6| (1..=count).map(move |number| ip(number, is_v6));
    for (v4, v6) in [(1, 0), (0, 1), (ADDRESSES_MAX, 0), (0, ADDRESSES_MAX), (32, 32)] {
        let all: Vec<IpAddr> = addresses(v4, false).chain(addresses(v6, true)).collect();
        let networks: Vec<IpNet> =
            addresses(NETWORKS_MAX, v6 > 0).map(|ip| IpNet::new(ip, 17).unwrap()).collect();
        for allow in [Vec::new(), networks] {
            let filter = Filter { addresses: all.clone(), allow, ..filter() };
            assert!(super::program(&filter, 0).len() < 2048);
            if load(&filter).is_none() {
                return;
            }
        }
    }
}
