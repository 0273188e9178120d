//! UDP that bypasses the kernel's network stack: clients, and changes of the network interface.
//!
//! Where: a server with `--xdp` on one end of a link, clients with kernel sockets on the other.
//! Invariant: each request is answered once, either over AF_XDP or by the kernel's sockets.

use super::{Network, Veth, datagrams, hit, settings};
use hypostyle::run::{Server, StartError};
use hypostyle::start::settings::{Listen, Port, Settings, Xdp};
use ipnet::IpNet;
use net::xdp::Mode;
use protocol::ProtocolMode;
use testing::namespace::WIRE;
use testing::wait_until;

/// Settings of a server with `--xdp` for the networks `allow`; an empty `allow` means all.
pub(super) fn bypassing(columns: usize, allow: &[&str]) -> Settings {
    at_port(11211, columns, allow)
}

/// The system must not choose the port: it might choose a client's port in the other namespace, and
/// a server does not answer a sender with the server's own port.
fn at_port(port: u16, columns: usize, allow: &[&str]) -> Settings {
    let (host, port) = (Some("0.0.0.0".to_owned()), Port::Number(port));
    Settings {
        datagrams: vec![Listen { host, port, protocol: ProtocolMode::Auto }],
        udp_allow: datagrams::everybody(),
        xdp: Some(Xdp {
            allow: allow.iter().map(|it| it.parse::<IpNet>().unwrap()).collect(),
            ..Xdp::of(WIRE)
        }),
        ..settings(columns)
    }
}

impl Network {
    fn by_the_kernel(&self) -> u64 {
        self.far.counter("Udp", "InDatagrams")
    }
}

#[test]
fn datagrams_pass_the_kernel_and_are_answered_as_others_are() {
    for (mode, reported) in [
        (Mode::Any, "native, copied"),
        (Mode::Native, "native, copied"),
        (Mode::Generic, "generic, copied"),
    ] {
        let mut settings = bypassing(2, &[]);
        settings.xdp = settings.xdp.map(|xdp| Xdp { mode, ..xdp });
        let Some(network) = Network::of(Veth::default(), settings) else { return };
        passes_and_is_answered(network, reported);
    }
}

fn passes_and_is_answered(mut network: Network, mode: &str) {
    let before = network.by_the_kernel();
    let mut client = network.client(false);
    let value = "v".repeat(50_000);
    client.send_parts(format!("set k 0 0 50000\r\n{value}\r\n").as_bytes(), 1000, |_| {});
    assert_eq!(client.receive().0, b"STORED\r\n");
    client.ask("get k\r\n", hit("k", &value));
    client.ask("get none\r\n", "END\r\n");
    network.stream.ask("mg k s\r\n", "HD s50000\r\n");
    for number in 0..1000 {
        client.ask(format!("set n{number} 0 0 1\r\n1\r\nget n{number}\r\n"), {
            format!("STORED\r\n{}", hit(&format!("n{number}"), "1"))
        });
    }
    assert_eq!(network.by_the_kernel(), before);
    let columns = network.stream.stats("columns");
    assert_eq!(columns["columns:0:udp_received"], (51 + 2 + 1000).to_string());
    let settings = network.stream.stats("settings");
    assert_eq!((&*settings["xdp_interface"], &*settings["xdp_queues"]), (WIRE, "1"));
    assert_eq!(settings["xdp_mode"], mode);
    for counter in ["udp_unsent", "udp_dropped_damaged", "xdp_dropped", "xdp_invalid"] {
        assert_eq!(network.count(counter), 0, "{counter}");
    }
    network.server.stop();
}

#[test]
fn whom_the_program_leaves_to_the_kernel_is_served_by_it() {
    let allow = ["10.77.0.9/32"];
    let settings = bypassing(1, &allow);
    let Some(network) = Network::of(Veth::default(), settings) else { return };
    network.near.ip(&format!("address add 10.77.0.9/24 dev {WIRE}"));
    let before = network.by_the_kernel();
    network.client(false).ask("get none\r\n", "END\r\n");
    assert_eq!(network.by_the_kernel(), before + 1);
    let server = network.asks(network.far.v4.into());
    let mut allowed =
        network.near.on(|| datagrams::Client::at("10.77.0.9".parse().unwrap(), server));
    allowed.ask("get none\r\n", "END\r\n");
    assert_eq!(network.by_the_kernel(), before + 1);
    // The datagram exceeds the link's MTU, so the kernel receives fragments and reassembles them.
    let set = format!("set k 0 0 20000\r\n{}\r\n", "v".repeat(20_000));
    allowed.ask(set, "STORED\r\n");
    assert_eq!(network.by_the_kernel(), before + 2);
    network.server.stop();
}

#[test]
fn each_queue_has_a_column_and_what_comes_by_others_is_served() {
    let (veth, settings) = (Veth { queues: 3, ..Veth::default() }, bypassing(2, &[]));
    let Some(mut network) = Network::of(veth, settings) else { return };
    // A socket's addresses and ports select its queue. 64 sockets reach both queues.
    for _ in 0..64 {
        network.client(false).ask("get none\r\n", "END\r\n");
    }
    let columns = network.stream.stats("columns");
    let received = |number| columns[&format!("columns:{number}:udp_received")].parse::<u64>();
    let (first, second) = (received(0).unwrap(), received(1).unwrap());
    assert!(first > 0 && second > 0 && first + second == 64, "{first} and {second}");
    assert_eq!(network.stream.stats("settings")["xdp_queues"], "2");
    network.server.stop();
}

#[test]
fn packets_lie_in_a_part_of_the_memory() {
    let settings = Settings { memory_bytes: 64 << 20, ..bypassing(1, &[]) };
    let Some(mut network) = Network::of(Veth::default(), settings) else { return };
    let memory = network.stream.stats("memory");
    assert_eq!(memory["ring_bytes"], (8_u64 << 20).to_string());
    assert_eq!(memory["limit_maxbytes"], (64_u64 << 20).to_string());
    network.stream.ask("cache_memlimit 32\r\n", "OK\r\n");
    assert_eq!(network.count("limit_maxbytes"), 32 << 20);
    // The limit must leave room for packets, and for 16 segments or two items of the largest size.
    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    network.stream.ask("cache_memlimit 9\r\n", refused);
    network.server.stop();
    let small = Settings { memory_bytes: 2 << 20, ..bypassing(1, &[]) };
    let error = network.far.on(|| Server::start(small)).unwrap_err();
    assert!(matches!(error, StartError::Bypass(_)), "{error}");
    assert!(error.to_string().contains("give a larger -m"), "{error}");
}

#[test]
fn a_second_server_is_refused_or_falls_back() {
    let Some(network) = Network::of(Veth::default(), bypassing(1, &[])) else {
        return;
    };
    let error = network.far.on(|| Server::start(at_port(11212, 1, &[]))).unwrap_err();
    assert!(error.to_string().contains("the XDP program of another server"), "{error}");
    let mut settings = at_port(11212, 1, &[]);
    settings.xdp.as_mut().unwrap().fallback = true;
    let second = network.far.on(|| Server::start(settings)).unwrap();
    let port = second.datagram_addresses()[0].port();
    let server = (network.far.v4, port).into();
    let here = network.near.v4.into();
    let mut client = network.near.on(|| datagrams::Client::at(here, server));
    client.ask("get none\r\n", "END\r\n");
    network.client(false).ask("get none\r\n", "END\r\n");
    second.stop();
    network.server.stop();
}

#[test]
fn a_shorter_mtu_makes_shorter_datagrams() {
    let Some(network) = Network::of(Veth::default(), bypassing(1, &[])) else {
        return;
    };
    let mut client = network.client(false);
    let value = "v".repeat(20_000);
    client.send_parts(format!("set k 0 0 20000\r\n{value}\r\n").as_bytes(), 1000, |_| {});
    assert_eq!(client.receive().0, b"STORED\r\n");
    network.far.ip(&format!("link set {WIRE} mtu 1280"));
    let due = hit("k", &value);
    let datagrams_due = due.len().div_ceil(1280 - 48 - 8);
    wait_until("shorter datagrams", || {
        client.send("get k\r\n");
        let (reply, datagrams) = client.receive();
        assert!(reply == due.as_bytes());
        datagrams == datagrams_due
    });
    network.server.stop();
}

#[test]
fn an_interface_that_goes_takes_nothing_with_it() {
    let Some(mut network) = Network::of(Veth::default(), bypassing(2, &[])) else {
        return;
    };
    network.client(false).ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    network.far.ip(&format!("link set {WIRE} down"));
    network.stream.ask("get k\r\n", hit("k", "1"));
    network.far.ip(&format!("link set {WIRE} up"));
    wait_until("the link is up", || {
        network.near.ip("-br link").contains("LOWER_UP")
            && network.far.ip("-br link").contains("LOWER_UP")
    });
    network.client(false).ask("get k\r\n", hit("k", "1"));
    network.far.ip(&format!("link delete {WIRE}"));
    let stream = &mut network.stream;
    wait_until("the release of packet memory", || stream.stats("memory")["ring_bytes"] == "0");
    let (host, server) = ("127.0.0.1".parse().unwrap(), network.asks([127, 0, 0, 1].into()));
    let mut client = network.far.on(|| datagrams::Client::at(host, server));
    client.ask("get k\r\n", hit("k", "1"));
    network.server.stop();
}
