//! Datagrams up to the MTU of the link. Answers come from the address to which the request went.
//!
//! Where: a link whose MTU the test sets.
//! Invariant: the server splits its answers; the kernel never fragments the answers.

use super::{Network, Veth, WAYS, Way, datagrams, hit};
use columns::limits::MESSAGE_BYTES_MAX;
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES};
use testing::namespace::{Namespace, WIRE};

const HEADERS_BYTES: usize = 40 + 8;

/// Returns the number of IP fragments that a machine has made from packets that were too long.
fn fragments(machine: &Namespace) -> u64 {
    machine.counter("Ip", "FragCreates")
}

#[test]
fn answers_are_as_long_as_the_link_carries_and_requests_of_any_length_come() {
    let all = [1280, 1400, 1500, 9000].into_iter().flat_map(|mtu| WAYS.map(|way| (mtu, way)));
    for (mtu, way) in all {
        let Some(network) = Network::new(Veth { queues: 1, mtu }, way) else { return };
        let datagram_bytes = ANSWER_BYTES_MAX.min(mtu as usize - HEADERS_BYTES);
        for is_v6 in [false, true] {
            let mut client = network.client(is_v6);
            let value = "v".repeat(50_000);
            let set = format!("set k 0 0 50000\r\n{value}\r\n");
            // The datagram exceeds the MTU, so the client's kernel splits the datagram, and the
            // server's kernel joins its parts.
            client.ask(set, "STORED\r\n");
            for part_bytes in [1000, 7000] {
                let key = format!("in-parts-of-{part_bytes}");
                let bytes = MESSAGE_BYTES_MAX - 100;
                let set = format!("set {key} 0 0 {bytes}\r\n{}\r\n", "p".repeat(bytes));
                client.send_parts(set.as_bytes(), part_bytes, |_| {});
                assert_eq!(client.receive().0, b"STORED\r\n");
                client.ask(format!("mg {key} s\r\n"), format!("HD s{bytes}\r\n"));
            }
            let before = fragments(&network.far);
            let reply = hit("k", &value);
            client.send("get k\r\n");
            let mut sizes = Vec::new();
            while sizes.iter().sum::<usize>() < reply.len() + sizes.len() * HEADER_BYTES {
                let received = datagrams::uninterrupted(|| client.socket.recv(&mut [0; 65_536]));
                sizes.push(received.unwrap());
            }
            let (last, full) = sizes.split_last().unwrap();
            assert!(full.iter().all(|bytes| *bytes == datagram_bytes), "MTU {mtu}: {sizes:?}");
            assert!(*last <= datagram_bytes, "MTU {mtu}: {sizes:?}");
            client.ask("get k\r\n", reply);
            assert_eq!(fragments(&network.far), before, "MTU {mtu}");
        }
        network.server.stop();
    }
}

#[test]
fn a_link_that_carries_less_than_it_did_brings_answers_still() {
    let Some(mut network) = Network::new(Veth::default(), Way::Sockets) else { return };
    let value = "v".repeat(50_000);
    let mut clients = [false, true].map(|is_v6| network.client(is_v6));
    clients[0].ask(format!("set k 0 0 50000\r\n{value}\r\n"), "STORED\r\n");
    for end in [&network.near, &network.far] {
        end.ip(&format!("link set {WIRE} mtu 1280"));
    }
    for client in &mut clients {
        client.ask("get k\r\n", hit("k", &value));
        client.ask("get k\r\nget k\r\n", hit("k", &value).repeat(2));
    }
    assert_eq!(network.count("udp_unsent"), 0);
    network.server.stop();
}

#[test]
fn a_wildcard_socket_answers_from_whichever_address_of_an_interface_was_asked() {
    let Some(network) = Network::new(Veth::default(), Way::Sockets) else { return };
    let (near, far) = (&network.near, &network.far);
    far.ip(&format!("address add 10.77.0.12/24 dev {WIRE}"));
    far.ip(&format!("address add 10.99.0.2/32 dev {WIRE}"));
    far.ip(&format!("address add fd77::12/64 dev {WIRE} nodad"));
    near.ip(&format!("route add 10.99.0.2/32 dev {WIRE}"));
    let value = "v".repeat(20_000);
    for host in ["10.77.0.2", "10.77.0.12", "10.99.0.2", "fd77::2", "fd77::12"] {
        let there = host.parse().unwrap();
        let (here, _) = network.hosts(host.contains(':'));
        let server = network.asks(there);
        let mut client = near.on(|| datagrams::Client::at(here, server));
        client.ask("get none\r\n", "END\r\n");
        client.ask(format!("set k 0 0 20000\r\n{value}\r\n"), "STORED\r\n");
        client.ask("get k\r\n", hit("k", &value));
    }
    network.server.stop();
}
