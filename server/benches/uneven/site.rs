//! A server whose load comes to its first column, and connections to that column.
//!
//! Where: started by `main`, used by `clients`.
//! Invariant: with and without help, all load begins on the same column.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use blaster::launch::{self, PORT, Server};
use testing::namespace::{Namespace, Veth, WIRE, pair};

use crate::Options;
use crate::measure::launched::{EVERYBODY, Launch};
use crate::measure::wire::{Protocol, Wire, accepted};
use crate::measure::{Outcome, fail};

/// Most connections opened for each one used: the first of N columns accepts only one in N.
const TRIES: usize = 100;
const SILENCE: Duration = Duration::from_secs(30);
const MEMORY_MB: u32 = 256;

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// TCP connections
    Tcp,
    /// UDP sockets
    Udp,
    /// UDP over AF_XDP; needs root
    Xdp,
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Xdp => "xdp",
        }
    }

    fn words(self, is_helped: bool) -> Vec<String> {
        let words: &[&str] = match (self, is_helped) {
            (Transport::Tcp, true) => &[],
            (Transport::Tcp, false) => &["-o", "no_migrate"],
            (Transport::Udp, true) => &["-U", PORT, "-o", "udp_port_per_column"],
            (Transport::Udp, false) => &["-U", PORT, "-o", "udp_port_per_column,no_steal"],
            (Transport::Xdp, true) => {
                &["-U", PORT, "--xdp", WIRE, "-o", "steal_rings", "-o", EVERYBODY]
            }
            (Transport::Xdp, false) => {
                &["-U", PORT, "--xdp", WIRE, "-o", "no_steal", "-o", EVERYBODY]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

pub(crate) struct Site {
    pub(crate) way: Transport,
    pub(crate) server: Server,
    /// The namespaces of the clients and of the server; `None` unless over AF_XDP.
    ends: Option<[Namespace; 2]>,
}

impl Site {
    /// `None` if this machine does not support the transport.
    pub(crate) fn start(
        way: Transport,
        program: &Path,
        options: &Options,
        is_helped: bool,
    ) -> Outcome<Option<Site>> {
        let ends = if way == Transport::Xdp { pair(Veth::default()) } else { None };
        if way == Transport::Xdp && ends.is_none() {
            return Ok(None);
        }
        let launch = Launch {
            program,
            threads: options.threads,
            memory_mb: MEMORY_MB,
            connections: u32::try_from(options.connections * TRIES)?,
            extra: &way.words(is_helped),
        };
        let start = |words: &[String]| {
            launch::start(words, &options.server_cpus).map_err(|error| error.to_string())
        };
        let words = launch.words()?;
        let server = match &ends {
            None => start(&words)?,
            Some([_, far]) => {
                let everywhere = |word: String| word.replace("127.0.0.1", "0.0.0.0");
                let words: Vec<String> = words.into_iter().map(everywhere).collect();
                far.on(|| start(&words))?
            }
        };
        let site = Site { way, server, ends };
        Ok(Some(site))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.way.name()
    }

    /// Runs `work` in the server's namespace, so that its traffic does not use the measured link.
    fn beside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.ends {
            None => work(),
            Some([_, far]) => far.on(work),
        }
    }

    pub(crate) fn control(&self) -> Outcome<Wire> {
        let connect = || Wire::connect(&self.server.target, Protocol::Text);
        self.beside(|| connect().map_err(|error| error.to_string())).map_err(Into::into)
    }

    pub(crate) fn helps(&self) -> Outcome<String> {
        let mut wire = self.control()?;
        let names = ["migrations_taken", "datagrams_stolen"];
        let sums = names.map(|name| Ok(wire.of_columns(name)?.iter().sum::<u64>()));
        let [moved, stolen]: [Outcome<u64>; 2] = sums;
        Ok(format!("{}: {} connections moved, {} datagrams stolen", self.name(), moved?, stolen?))
    }

    pub(crate) fn socket(&self) -> Outcome<UdpSocket> {
        let server: SocketAddr = self.server.target.parse()?;
        let make = |from: std::net::IpAddr, to: SocketAddr| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((from, 0))?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(SILENCE))?;
            Ok(socket)
        };
        Ok(match &self.ends {
            None => make(server.ip(), server)?,
            Some([near, far]) => {
                let to = (far.v4, server.port()).into();
                near.on(|| make(near.v4.into(), to))?
            }
        })
    }

    pub(crate) fn streams(&self, control: &mut Wire, count: usize) -> Outcome<Vec<TcpStream>> {
        let mut streams = Vec::new();
        let mut before = control.of_columns("total_connections")?;
        for _ in 0..count * TRIES {
            if streams.len() == count {
                return Ok(streams);
            }
            let stream = accepted(&self.server.target, SILENCE)?;
            let now = control.of_columns("total_connections")?;
            if now.first() > before.first() {
                streams.push(stream);
            }
            before = now;
        }
        fail(format!("the first column has {} of {} connections", streams.len(), count * TRIES))
    }
}
