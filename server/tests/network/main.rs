//! A server whose packets are delayed, duplicated, forged or lost on the link to its clients.
//!
//! Where: an in-process server in one network namespace, with UDP through the kernel or over
//! AF_XDP; the clients are in another namespace.
//! Invariant: each datagram is answered as if it were the only datagram, or is dropped and counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(debug_assertions)]

mod bypass;
mod frames;
#[path = "../inprocess/mod.rs"]
mod inprocess;
#[path = "../parts/model.rs"]
mod model;
mod process;
mod relay;
#[path = "../running/mod.rs"]
mod running;
mod senders;
mod sizes;
mod thieves;
mod zero_copy;

use std::net::{IpAddr, SocketAddr};

use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port, Settings, Xdp};
use inprocess::{Client, connect, datagrams, settings, start};
use protocol::ProtocolMode;
use testing::namespace::{Namespace, Veth, WIRE, pair};

/// A server in the namespace `far`, for clients in the namespace `near`.
struct Network {
    near: Namespace,
    far: Namespace,
    server: Server,
    /// A TCP connection from within the server's namespace.
    stream: Client,
}

impl Network {
    /// The server has one column, and UDP at all addresses of both families. Returns `None` if this
    /// process may not make namespaces.
    fn new(veth: Veth, way: Way) -> Option<Network> {
        Network::of(veth, everywhere(Port::Number(11211), way))
    }

    /// Returns `None` if this process may not make namespaces.
    fn of(veth: Veth, settings: Settings) -> Option<Network> {
        Some(Network::between(pair(veth)?, settings))
    }

    fn between([near, far]: [Namespace; 2], settings: Settings) -> Network {
        let server = far.on(|| start(settings));
        let stream = far.on(|| connect(&server));
        Network { near, far, server, stream }
    }

    fn client(&self, is_v6: bool) -> datagrams::Client {
        let (here, there) = self.hosts(is_v6);
        let server = self.asks(there);
        self.near.on(|| datagrams::Client::at(here, server))
    }

    fn hosts(&self, is_v6: bool) -> (IpAddr, IpAddr) {
        match is_v6 {
            true => (self.near.v6.into(), self.far.v6.into()),
            false => (self.near.v4.into(), self.far.v4.into()),
        }
    }

    fn asks(&self, host: IpAddr) -> SocketAddr {
        let addresses = self.server.datagram_addresses();
        let of_family = |address: &&SocketAddr| address.is_ipv6() == host.is_ipv6();
        SocketAddr::new(host, addresses.iter().find(of_family).unwrap().port())
    }

    fn count(&mut self, name: &str) -> u64 {
        self.stream.stat(name)
    }
}

/// The way of datagrams to the server: through the kernel's sockets, or by AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sockets,
    Xdp,
}

const WAYS: [Way; 2] = [Way::Sockets, Way::Xdp];

fn everywhere(port: Port, way: Way) -> Settings {
    let listen =
        |host: &str| Listen { host: Some(host.into()), port, protocol: ProtocolMode::Auto };
    let xdp = Xdp::of(WIRE);
    let udp_allow = datagrams::everybody();
    let datagrams = ["0.0.0.0", "::"].map(listen).to_vec();
    Settings { datagrams, udp_allow, xdp: (way == Way::Xdp).then_some(xdp), ..settings(1) }
}

fn hit(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}
