//! Datagrams whose senders must not be answered.
//!
//! Where: packets with forged headers, and two servers that could answer each other.
//! Invariant: a datagram that must not be answered is not executed, and is counted by reason. Two
//! servers never answer each other endlessly.

use std::net::{IpAddr, SocketAddr};

use super::{Network, Veth, WAYS, Way, connect, datagrams, everywhere, start};
use crate::inprocess::{Client, frame};
use hypostyle::run::Server;
use hypostyle::start::settings::Port;
use protocol::udp::Header;
use testing::namespace::{Namespace, WIRE, pair};
use testing::wait_until;

fn message(id: u16, text: impl AsRef<[u8]>) -> Vec<u8> {
    [&Header::request(id, 0).bytes()[..], text.as_ref()].concat()
}

pub(super) fn sent_and_received(machine: &Namespace) -> (u64, u64) {
    (machine.counter("Udp", "OutDatagrams"), machine.counter("Udp", "InDatagrams"))
}

#[test]
fn no_forged_sender_and_nothing_sent_to_many_is_answered() {
    WAYS.into_iter().for_each(answers_no_forged_sender);
}

fn answers_no_forged_sender(way: Way) {
    let Some(mut network) = Network::new(Veth::default(), way) else { return };
    network.near.ip(&format!("route add default dev {WIRE}"));
    let mut refused = 0;
    for is_v6 in [false, true] {
        let (here, there) = network.hosts(is_v6);
        let server = network.asks(there);
        let mut client = network.client(is_v6);
        client.ask("get k\r\n", "END\r\n");
        let groups: &[&str] = match is_v6 {
            true => &["ff02::1"],
            false => &["10.77.0.255", "255.255.255.255", "224.0.0.1"],
        };
        let many = groups.iter().map(|group| group.parse::<IpAddr>().unwrap());
        // The sender has port 0 or the server's own port, or the datagram goes to a group address.
        let port = client.socket.local_addr().unwrap().port();
        let mut forged = vec![(0, there), (server.port(), there)];
        forged.extend(many.map(|group| (port, group)));
        for (port, to) in forged {
            let to = SocketAddr::new(to, server.port());
            let before = sent_and_received(&network.far);
            for text in [&b"set k 0 0 1\r\nv\r\n"[..], &frame(1, &[0; 8], "k", "v"), b"get k\r\n"] {
                network.near.forge((here, port).into(), to, &message(7, text));
                refused += 1;
            }
            let what = format!("a drop of what came from port {port} to {to}, {way:?}");
            wait_until(&what, || network.stream.stat("udp_dropped_sender") == refused);
            // Multicast and broadcast datagrams always reach the kernel's sockets.
            let by_the_kernel = if way == Way::Sockets || to.ip() != there { 3 } else { 0 };
            let after = sent_and_received(&network.far);
            assert_eq!(after, (before.0, before.1 + by_the_kernel), "{port} to {to}, {way:?}");
        }
        assert!(client.is_silent());
        client.ask("get k\r\n", "END\r\n");
    }
    // The kernel drops packets whose source is a multicast address or the limited broadcast
    // address. If they bypass the kernel, the server counts these packets as damaged. The kernel
    // accepts packets whose source is a network's broadcast address.
    let before = sent_and_received(&network.far);
    for group in ["224.0.0.1", "255.255.255.255", "10.77.0.255"] {
        let from = SocketAddr::new(group.parse().unwrap(), 4000);
        let to = network.asks(network.far.v4.into());
        network.near.forge(from, to, &message(7, b"get k\r\n"));
    }
    refused += 1;
    wait_until("the last drop", || network.stream.stat("udp_dropped_sender") == refused);
    let by_the_kernel = u64::from(way == Way::Sockets);
    assert_eq!(sent_and_received(&network.far), (before.0, before.1 + by_the_kernel));
    if way == Way::Xdp {
        assert_eq!(network.count("udp_dropped_damaged"), 2);
    }
    let counted = ["udp_sent", "udp_received", "udp_unsent"].map(|name| network.count(name));
    assert_eq!(counted, [4, 4 + refused, 0], "two requests of each family's client");
    network.server.stop();
}

struct Two {
    machines: [Namespace; 2],
    servers: [Server; 2],
    streams: [Client; 2],
}

impl Two {
    fn new(ports: [u16; 2], way: Way) -> Option<Two> {
        let machines = pair(Veth::default())?;
        let [first, second] = &machines;
        let on =
            |machine: &Namespace, port| machine.on(|| start(everywhere(Port::Number(port), way)));
        let servers = [on(first, ports[0]), on(second, ports[1])];
        let streams = [first.on(|| connect(&servers[0])), second.on(|| connect(&servers[1]))];
        Some(Two { machines, servers, streams })
    }

    fn addresses(&self, is_v6: bool) -> [SocketAddr; 2] {
        [0, 1].map(|at| {
            let machine = &self.machines[at];
            let host = if is_v6 { machine.v6.into() } else { IpAddr::from(machine.v4) };
            let addresses = self.servers[at].datagram_addresses();
            let address = addresses.iter().find(|one| one.is_ipv6() == is_v6).unwrap();
            SocketAddr::new(host, address.port())
        })
    }

    fn counts(&mut self, name: &str) -> [u64; 2] {
        [0, 1].map(|at| self.streams[at].stat(name))
    }
}

#[test]
fn two_servers_that_are_set_on_each_other_are_quiet_at_once() {
    WAYS.into_iter().for_each(are_quiet_at_once);
}

fn are_quiet_at_once(way: Way) {
    let Some(mut two) = Two::new([11211, 11212], way) else { return };
    let large = "l".repeat(100_000);
    for stream in &mut two.streams {
        stream.ask(format!("set large 0 0 100000\r\n{large}\r\n"), "STORED\r\n");
        stream.ask("set get 0 0 9\r\nget get\r\n\r\n", "STORED\r\n");
    }
    let texts: [&[u8]; 9] = [
        b"get none\r\n",
        b"nonsense\r\n",
        b"mn\r\n",
        b"mg get v k\r\n",
        b"get get\r\n",
        b"incr none 1\r\n",
        b"stats\r\n",
        b"version\r\n",
        &frame(0x0a, &[], "", ""),
    ];
    let mut forged = 0;
    for is_v6 in [false, true] {
        let [first, second] = two.addresses(is_v6);
        for text in texts {
            two.machines[1].forge(second, first, &message(1, text));
            forged += 1;
            wait_until("one answer", || two.streams[0].stat("udp_sent") >= forged);
        }
    }
    wait_until("the answers", || two.counts("udp_dropped_answer")[1] == forged);
    // The second server reads the first server's reply as a request that is too long, and answers
    // with an error. The first server does not answer this error.
    let [first, second] = two.addresses(false);
    two.machines[1].forge(second, first, &message(2, b"get large\r\n"));
    wait_until("the drop of the error", || two.counts("udp_dropped_answer") == [1, forged]);
    let counts = ["udp_sent", "udp_received"].map(|name| two.counts(name));
    // The answer to a later datagram shows that the server has handled all earlier datagrams.
    for at in [0, 1] {
        let (server, machine) = (two.addresses(false)[at], &two.machines[at]);
        let here = if at == 0 { machine.v4 } else { two.machines[1].v4 };
        let mut client = machine.on(|| datagrams::Client::at(here.into(), server));
        client.ask("mn\r\n", "MN\r\n");
    }
    let after = ["udp_sent", "udp_received"].map(|name| two.counts(name));
    assert_eq!(after, counts.map(|both| both.map(|count| count + 1)), "no further datagram");
    let [sent, received] = counts;
    assert_eq!(received[0], forged + 1 + sent[1], "forged requests, and the other's answers");
    assert_eq!((sent[0], sent[1]), (received[1], 1));
    two.servers.into_iter().for_each(Server::stop);
}

#[test]
fn two_servers_at_the_same_port_do_not_answer_each_other_at_all() {
    WAYS.into_iter().for_each(do_not_answer_each_other);
}

fn do_not_answer_each_other(way: Way) {
    let Some(mut two) = Two::new([11211; 2], way) else { return };
    for is_v6 in [false, true] {
        let [first, second] = two.addresses(is_v6);
        two.machines[1].forge(second, first, &message(1, b"get none\r\n"));
        two.machines[0].forge(first, second, &message(1, b"get none\r\n"));
    }
    wait_until("the drops", || two.counts("udp_dropped_sender") == [2, 2]);
    assert_eq!(two.counts("udp_sent"), [0, 0]);
    two.servers.into_iter().for_each(Server::stop);
}
