//! A server process, seen from outside: started on its own port, used over TCP or UDP, and killed
//! when the test ends.
//!
//! Where: client side. The module uses no internals of the server, so that it works with memcached.
//! Invariant: dropping a `Server` kills and reaps its process; no read waits longer than
//! `PATIENCE`.
//!
//! - `SERVER=path`: runs the tests against the program at `path` instead of this build's program.
//! - `MEMCACHED=path`: the memcached to compare with. The default is the memcached on `PATH`.

#![allow(dead_code, reason = "each test crate uses its own part of this module")]

pub(crate) mod frame;
pub(crate) mod messages;
#[path = "../running/mod.rs"]
pub(crate) mod running;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use messages::Messages;
use running::Running;
use testing::PATIENCE;
use testing::namespace::{Namespace, Veth, WIRE, pair};

/// After this time without a reply, a test concludes that the server waits for more input.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// If a reply is longer, the test fails, because the reply seems endless.
const REPLY_BYTES_MAX: usize = 512 << 20;

pub(crate) struct Server {
    /// `None` if the server is in this process, and ends when `within` is dropped.
    running: Option<Running>,
    within: Option<Box<dyn std::any::Any + Send + Sync>>,
    address: SocketAddr,
    udp_port: Option<u16>,
    name: String,
    /// For a server in its own network namespace: the client's and the server's namespace, and the
    /// value of `datagrams_of_the_kernel` at the start.
    machines: Option<([Namespace; 2], u64)>,
}

impl Server {
    /// Starts the program that `SERVER` names, or by default this build's `hypostyle`.
    pub(crate) fn under_test(flags: &[&str]) -> Server {
        Server::under_test_with(flags, &[])
    }

    /// Starts a server that moves a connection to another thread each time it has served the
    /// connection.
    pub(crate) fn migrating_each_turn(flags: &[&str]) -> Server {
        Server::under_test_with(flags, &[("HYPOSTYLE_MIGRATE_AT_EACH_TURN", "1")])
    }

    fn under_test_with(flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let program = program();
        Server::start(&[], &program, flags, environment)
            .unwrap_or_else(|error| panic!("{program:?}: {error}"))
    }

    /// Starts the server by another program, whose command line `words` precedes the server's.
    /// Returns `None` if that program is missing or not permitted.
    pub(crate) fn under_test_by(words: &[&str], flags: &[&str]) -> Option<Server> {
        let tried = running::launch(words, "true").stderr(Stdio::null()).status();
        if !tried.is_ok_and(|status| status.success()) {
            testing::skip(&format!("cannot run {words:?}"));
            return None;
        }
        let program = program();
        Some(Server::start(words, &program, flags, &[]).unwrap())
    }

    /// Starts memcached. Returns `None` if no memcached is installed.
    pub(crate) fn memcached(flags: &[&str]) -> Option<Server> {
        let program = std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into());
        match Server::start(&[], &program, flags, &[]) {
            Ok(server) => Some(server),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                testing::skip(&format!("no memcached to compare with: {program:?}"));
                None
            }
            Err(error) => panic!("{program:?}: {error}"),
        }
    }

    /// Starts the server in a network namespace of its own, with UDP over AF_XDP. Returns `None` if
    /// this process may not make a namespace.
    pub(crate) fn past_the_kernel(flags: &[&str]) -> Option<Server> {
        Server::past_a_kernel(flags, &[])
    }

    /// Like `past_the_kernel`, but as if the kernel or the driver lacked the feature `lack`.
    pub(crate) fn past_a_kernel_without(lack: &str, flags: &[&str]) -> Option<Server> {
        Server::past_a_kernel(flags, &[("HYPOSTYLE_XDP_LACKS", lack)])
    }

    fn past_a_kernel(flags: &[&str], environment: &[(&str, &str)]) -> Option<Server> {
        let machines = pair(Veth::default())?;
        let host = machines[1].v4.to_string();
        let own = [
            "-l",
            &host,
            "-p",
            "11211",
            "-U",
            "11211",
            "--xdp",
            WIRE,
            "-o",
            "udp_allow=0.0.0.0/0,udp_allow=::/0",
        ];
        let all = [&own, flags].concat();
        let before = datagrams_of_the_kernel(&machines[1]);
        let mut server = machines[1].on(|| Server::under_test_with(&all, environment));
        server.machines = Some((machines, before));
        Some(server)
    }

    /// Counts the datagrams that the kernel of the server's namespace has received since the
    /// server's start. Returns 0 if the server has no namespace of its own.
    pub(crate) fn datagrams_by_the_kernel(&self) -> u64 {
        let Some((machines, before)) = &self.machines else { return 0 };
        datagrams_of_the_kernel(&machines[1]) - before
    }

    /// A server in this process, which ends when `within` is dropped.
    pub(crate) fn within_this_process(
        address: SocketAddr,
        within: impl std::any::Any + Send + Sync,
    ) -> Server {
        Server {
            running: None,
            within: Some(Box::new(within)),
            address,
            udp_port: None,
            name: "hypostyle in memory".to_owned(),
            machines: None,
        }
    }

    fn start(
        by: &[&str],
        program: &OsString,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> io::Result<Server> {
        let mut command = running::launch(by, program);
        command.args(["-p", "-1", "-U", "0", "-l", "127.0.0.1"]).args(flags);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        // Nobody reads the pipes of a server that runs for long.
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running::spawned(&mut command)?;
        Ok(Server {
            within: None,
            address: (Ipv4Addr::LOCALHOST, running.port()).into(),
            udp_port: running.port_of("UDP INET: "),
            name: program.to_string_lossy().into_owned(),
            machines: None,
            running: Some(running),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().map_or_else(std::process::id, Running::pid)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn connect(&self) -> Wire {
        let connect = |address| TcpStream::connect(address).unwrap();
        Wire::new(match &self.machines {
            Some(([client, host], _)) => {
                client.on(|| connect((host.v4, self.address.port()).into()))
            }
            None => connect(self.address),
        })
    }

    pub(crate) fn send_datagrams(&self) -> Wire {
        let port = self.udp_port.unwrap();
        Wire::over(Link::Datagrams(match &self.machines {
            Some((machines, _)) => {
                let tcp = (machines[1].v4, self.address.port()).into();
                Messages::over_link(machines, port, tcp)
            }
            None => Messages::here(port, self.address),
        }))
    }

    pub(crate) fn version(&self) -> String {
        let mut wire = self.connect();
        wire.send(b"version\r\n");
        let line = wire.line().unwrap();
        String::from_utf8_lossy(&line).trim().trim_start_matches("VERSION ").to_owned()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        let running = self.running.as_mut();
        running.is_none_or(|running| running.child.try_wait().unwrap().is_none())
    }
}

pub(crate) struct Wire {
    pub(crate) patience: Duration,
    link: Link,
    /// The first `taken` of these received bytes have been returned to a caller.
    arrived: Vec<u8>,
    taken: usize,
}

enum Link {
    Stream(TcpStream),
    Datagrams(Messages),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Closed,
    Silent,
}

impl Wire {
    fn new(stream: TcpStream) -> Wire {
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Wire::over(Link::Stream(stream))
    }

    fn over(link: Link) -> Wire {
        Wire { patience: PATIENCE, link, arrived: Vec::new(), taken: 0 }
    }

    /// Sends `bytes`. If the peer has closed the connection, the next read returns `Stop::Closed`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let sent = match &mut self.link {
            Link::Stream(stream) => stream.write_all(bytes),
            Link::Datagrams(messages) => {
                messages.unsent.extend_from_slice(bytes);
                Ok(())
            }
        };
        if let Err(error) = sent {
            let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            assert!(closed.contains(&error.kind()), "send: {error}");
        }
    }

    /// Returns a second `Wire` of the same connection, to send while another thread reads.
    pub(crate) fn sender(&self) -> Wire {
        match &self.link {
            Link::Stream(stream) => Wire::new(stream.try_clone().unwrap()),
            Link::Datagrams(_) => panic!("datagrams have one direction at a time"),
        }
    }

    /// Shuts down the sending side. Replies can still be read.
    pub(crate) fn shut_sending(&mut self) {
        match &self.link {
            Link::Stream(stream) => drop(stream.shutdown(Shutdown::Write)),
            Link::Datagrams(_) => panic!("datagrams have no end"),
        }
    }

    pub(crate) fn line(&mut self) -> Result<Vec<u8>, Stop> {
        let deadline = Instant::now() + self.patience;
        let mut searched = 0;
        loop {
            let waiting = &self.arrived[self.taken..];
            if let Some(at) = waiting[searched..].iter().position(|&byte| byte == b'\n') {
                return Ok(self.take(searched + at + 1));
            }
            searched = waiting.len();
            self.receive(deadline)?;
        }
    }

    pub(crate) fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, Stop> {
        let deadline = Instant::now() + self.patience;
        while self.arrived.len() - self.taken < bytes {
            self.receive(deadline)?;
        }
        Ok(self.take(bytes))
    }

    /// Reads until the received bytes end with `fence`, and returns the bytes before `fence`. After
    /// an error, `rest` returns the bytes that have arrived.
    pub(crate) fn until(&mut self, fence: &[u8]) -> Result<Vec<u8>, Stop> {
        let deadline = Instant::now() + self.patience;
        loop {
            if self.arrived[self.taken..].ends_with(fence) {
                let mut reply = self.rest();
                reply.truncate(reply.len() - fence.len());
                return Ok(reply);
            }
            self.receive(deadline)?;
        }
    }

    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.take(self.arrived.len() - self.taken)
    }

    /// Waits until the server closes the connection or `patience` is over. Keeps bytes that arrive.
    pub(crate) fn ends(&mut self, patience: Duration) -> Stop {
        let deadline = Instant::now() + patience;
        loop {
            if let Err(stop) = self.receive(deadline) {
                return stop;
            }
        }
    }

    /// Sends `question`, waits for its answer, and keeps the answers to earlier requests. Only for
    /// datagrams, which the server answers in order: no earlier answer can come later.
    pub(crate) fn await_later_answer(&mut self, question: &[u8]) -> Result<(), Stop> {
        match &mut self.link {
            Link::Stream(_) => panic!("a stream has an end"),
            Link::Datagrams(messages) => {
                messages.await_later_answer(question, self.patience, &mut self.arrived)
            }
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<(), Stop> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Stop::Silent);
        }
        let mut chunk = [0; 16 << 10];
        let read = match &mut self.link {
            Link::Stream(stream) => {
                stream.set_read_timeout(Some(left)).unwrap();
                stream.read(&mut chunk)
            }
            Link::Datagrams(messages) => return messages.receive(left, &mut self.arrived),
        };
        match read {
            Ok(0) => Err(Stop::Closed),
            Ok(bytes) => {
                self.arrived.extend_from_slice(&chunk[..bytes]);
                assert!(self.arrived.len() - self.taken <= REPLY_BYTES_MAX, "an endless reply");
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Stop::Silent),
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(Stop::Closed),
            },
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.arrived[self.taken..self.taken + bytes].to_vec();
        self.taken += bytes;
        if self.taken == self.arrived.len() {
            self.arrived.clear();
            self.taken = 0;
        }
        taken
    }
}

fn program() -> OsString {
    std::env::var_os("SERVER").unwrap_or_else(|| running::HYPOSTYLE.into())
}

/// Counts the datagrams that a namespace's kernel has given to sockets, or dropped because no
/// socket was bound to their port.
fn datagrams_of_the_kernel(machine: &Namespace) -> u64 {
    machine.counter("Udp", "InDatagrams") + machine.counter("Udp", "NoPorts")
}

pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 400;
    if bytes.len() <= SHOWN_BYTES_MAX {
        return bytes.escape_ascii().to_string();
    }
    let (head, tail) = (&bytes[..SHOWN_BYTES_MAX / 2], &bytes[bytes.len() - 100..]);
    format!("{} … {} ({} bytes)", head.escape_ascii(), tail.escape_ascii(), bytes.len())
}
