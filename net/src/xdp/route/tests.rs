//! Tests of clients: which peers they reach, and which answers they receive.
//!
//! Where: in separate network namespaces, which need root.
//! Invariant: a datagram to a neighbour that the kernel knows reaches the kernel's own sockets.

use std::net::UdpSocket;

use testing::namespace::{Namespace, Veth, WIRE, pair};

use super::*;
use crate::Calls;
use crate::wire::Rejected;
use crate::xdp::tests::{LIMIT, assert_all_chunks, await_that, echo, wanted};
use crate::xdp::{Mode, OpenOptions, Opened, Peer, open};

const SERVER: u16 = 11_211;
const OWN: u16 = 30_000;

fn reach_from(end: &Namespace, to: impl Into<IpAddr>) -> Result<Ends, Unreachable> {
    let to = SocketAddr::new(to.into(), SERVER);
    end.on(|| reach(WIRE, to, OWN))
}

#[test]
fn a_client_finds_its_way_and_the_kernels_sockets_answer_it() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let ways: [(IpAddr, IpAddr); 2] =
            [(near.v4.into(), far.v4.into()), (near.v6.into(), far.v6.into())];
        for (own, to) in ways {
            let ends = reach_from(&near, to).unwrap();
            assert_eq!((ends.from(), ends.to()), ((own, OWN).into(), (to, SERVER).into()));
            assert_eq!(ends.macs, Macs { from: Mac(near.mac), to: Mac(far.mac) });
            let server = far.on(|| UdpSocket::bind((to, SERVER))).unwrap();
            server.set_nonblocking(true).unwrap();
            let wanted = OpenOptions { addresses: &[own], ports: OWN..=OWN, ..wanted(mode) };
            let Opened { mut ports, watch, .. } = near.on(|| open(&wanted)).unwrap();
            let (port, peer, calls) = (&mut ports[0], Peer::at(ends), Calls::default());
            assert_eq!(peer.address(), Some((to, SERVER).into()));
            let text: Vec<u8> = (0..=255).cycle().take(1400).collect();
            let mut buffer = [0; 1500];
            let mut from = None;
            await_that(|| {
                assert!(port.outbox.add(&peer, b"", [&text[..]]));
                assert_eq!(port.outbox.post_or_drop(&calls).sent, 1);
                from = server.recv_from(&mut buffer).ok();
                from.is_some()
            });
            assert_eq!(from, Some((1400, (own, OWN).into())));
            assert!(buffer[..1400] == text[..]);
            server.send_to(b"seen", (own, OWN)).unwrap();
            await_that(|| port.inbox.receive(&calls).datagrams > 0);
            let datagram = port.inbox.datagrams().next().unwrap();
            assert_eq!((datagram.bytes, *datagram.peer), (&b"seen"[..], peer));
            port.inbox.release();
            assert_all_chunks(port);
            drop((ports, watch));
        }
    }
}

/// All datagrams arrive, so no checksum is wrong, whatever the payload is.
#[test]
fn ports_at_both_ends_understand_each_other() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth { queues: 1, mtu: 1280 }) else { return };
        for (own, to) in [
            (IpAddr::from(near.v4), IpAddr::from(far.v4)),
            (IpAddr::from(near.v6), IpAddr::from(far.v6)),
        ] {
            let wanted = wanted(mode);
            let client = OpenOptions { addresses: &[own], ports: OWN..=OWN, ..wanted.clone() };
            let Opened { ports: mut servers, .. } = far.on(|| open(&wanted)).unwrap();
            let peer = Peer::at(reach_from(&near, to).unwrap());
            let Opened { ports: mut clients, .. } = near.on(|| open(&client)).unwrap();
            let (server, client, calls) = (&mut servers[0], &mut clients[0], Calls::default());
            let (mut sent, mut seen, mut answered) = (0_u32, 0, 0);
            let most = client.outbox.payload_bytes_max(&peer);
            let text = |number: u32| -> Vec<u8> {
                let bytes = number as usize * 7 % (most - 4);
                let rest = (number.to_le_bytes()[0]..=255).cycle().take(bytes);
                number.to_be_bytes().into_iter().chain(rest).collect()
            };
            let mut texts: Vec<Vec<u8>> = Vec::new();
            await_that(|| {
                while sent < 1000 && sent - answered < 32 {
                    texts.push(text(sent));
                    let payload = texts.last().unwrap();
                    assert!(client.outbox.add(&peer, b"", [&payload[..]]));
                    sent += 1;
                }
                assert_eq!(client.outbox.post_or_drop(&calls).refused, 0);
                seen += echo(server, &calls);
                let _ = client.inbox.receive(&calls);
                for datagram in client.inbox.datagrams() {
                    assert!(datagram.bytes == texts[answered as usize], "number {answered}");
                    answered += 1;
                }
                answered == 1000
            });
            assert_eq!(seen, 1000);
            for port in [client, server] {
                port.inbox.release();
                assert!(Rejected::ALL.iter().all(|reason| port.inbox.refused(*reason) == 0));
                assert_eq!(port.meter().read(), Some(crate::xdp::Statistics::default()));
                await_that(|| {
                    port.outbox.reap();
                    port.outbox.in_transmission() == 0
                });
                assert_all_chunks(port);
            }
        }
    }
}

#[test]
fn who_is_behind_a_router_is_reached_by_it() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    near.ip(&format!("route add 10.99.0.0/24 via {}", far.v4));
    near.ip(&format!("route add fd99::/64 via {} dev wire", far.v6));
    for (to, own) in [("10.99.0.5", IpAddr::from(near.v4)), ("fd99::5", near.v6.into())] {
        let to: IpAddr = to.parse().unwrap();
        let ends = reach_from(&near, to).unwrap();
        assert_eq!((ends.from().ip(), ends.to().ip(), ends.macs.to), (own, to, Mac(far.mac)));
    }
}

#[test]
fn who_cannot_be_reached_is_told() {
    let Some([near, _far]) = pair(Veth::default()) else { return };
    let error_of = |ip: &str| {
        let started = Instant::now();
        let refused = reach_from(&near, ip.parse::<IpAddr>().unwrap()).unwrap_err();
        assert!(started.elapsed() < LIMIT);
        refused.to_string()
    };
    assert_eq!(error_of("192.0.2.7"), "no route to 192.0.2.7 uses this interface");
    assert_eq!(error_of("2001:db8::7"), "no route to 2001:db8::7 uses this interface");
    near.set("ipv4/neigh/wire/mcast_solicit", 1);
    near.set("ipv4/neigh/wire/retrans_time_ms", 10);
    let silent = "10.77.0.99 does not answer requests for its MAC address on this interface";
    assert_eq!(error_of("10.77.0.99"), silent);
    // If a neighbour did not answer, the kernel requests the MAC again.
    assert_eq!(error_of("10.77.0.99"), silent);
    let to = SocketAddr::new(near.v4.into(), SERVER);
    for interface in ["lo", "nowire"] {
        let refused = near.on(|| reach(interface, to, OWN)).unwrap_err();
        assert_eq!(refused.to_string(), format!("there is no Ethernet interface {interface}"));
    }
}
