//! A link between two network namespaces: kvblaster at one end, the servers at the other.
//!
//! ```text
//! | near: wire, 10.77.0.1 | ------ veth ------ | wire, 10.77.0.2: far |
//!   kvblaster's threads                          servers
//! ```
//!
//! Where: made for the experiments whose servers are reached over a link (UDP, AF_XDP).
//! Invariant: nothing outside the namespaces changes. They have no names: each lives as long as its
//! holder, a shell that ends when kvblaster ends in any way, and the kernel then removes the link.
//! Source: namespaces(7), network_namespaces(7), veth(4).

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;

/// The interface's name at each end.
pub const WIRE: &str = "wire";
/// The servers' address.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The script of a holder: reports that its namespace is there, and waits for the end of its input.
const HOLDER: &str = "echo; read _";

/// The reason why there is no link.
#[derive(Debug, thiserror::Error)]
#[error("no link between two network namespaces: {0}")]
pub struct LinkError(String);

/// A link.
#[derive(Debug)]
pub struct Link {
    near: Namespace,
    far: Namespace,
}

#[derive(Debug)]
struct Namespace {
    network: File,
    /// Ends when its standard input is closed.
    holder: Child,
}

impl Link {
    /// Makes a link whose ends have this number of queues and this MTU.
    ///
    /// # Errors
    /// This process has no privilege, or a program (`unshare`, `ip`) is missing.
    pub fn new(queues: usize, mtu: usize) -> Result<Link, LinkError> {
        let link = Link { near: Namespace::new()?, far: Namespace::new()? };
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let there = link.far.holder.id();
        link.near.ip(&format!(
            "link add {WIRE} {queues} type veth peer name {WIRE} {queues} netns {there}"
        ))?;
        let macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
        let ends = [(&link.near, NEAR, FAR), (&link.far, FAR, NEAR)];
        for (nth, (end, own, other)) in ends.into_iter().enumerate() {
            let (mac, there) = (macs[nth], macs[1 - nth]);
            end.ip("link set lo up")?;
            end.ip(&format!("link set {WIRE} address {mac} mtu {mtu} addrgenmode none"))?;
            end.ip(&format!("address add {own}/24 dev {WIRE}"))?;
            end.ip(&format!("link set {WIRE} up"))?;
            // A static entry makes neighbour discovery unnecessary.
            end.ip(&format!("neighbour add {other} lladdr {there} dev {WIRE} nud permanent"))?;
        }
        Ok(link)
    }

    /// Runs `act` on a thread of kvblaster's end, with the threads and sockets that it makes.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot enter the namespace.
    pub fn near<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.near.on(act)
    }

    /// Runs `act` on a thread of the servers' end, with the processes that it starts.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot enter the namespace.
    pub fn far<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.far.on(act)
    }
}

impl Namespace {
    fn new() -> Result<Namespace, LinkError> {
        let failed = |error: io::Error| LinkError(format!("unshare: {error}"));
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", HOLDER]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(failed)?;
        let mut ready = [0];
        let is_ready =
            holder.stdout.as_mut().is_some_and(|out| matches!(out.read(&mut ready), Ok(1)));
        if !is_ready {
            drop(holder.stdin.take());
            let output = holder.wait_with_output().map_err(failed)?;
            return Err(LinkError(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let path = format!("/proc/{}/ns/net", holder.id());
        match File::open(path) {
            Ok(network) => Ok(Namespace { network, holder }),
            Err(error) => {
                drop(holder.stdin.take());
                let _ = holder.wait();
                Err(failed(error))
            }
        }
    }

    fn on<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let entered = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.network.as_fd(), kind)?;
            Ok(act())
        };
        thread::scope(|scope| {
            let name = thread::current().name().unwrap_or("lab").to_owned();
            let thread = thread::Builder::new().name(name).spawn_scoped(scope, entered)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs iproute2's `ip` in this namespace. Spaces separate `arguments`.
    fn ip(&self, arguments: &str) -> Result<(), LinkError> {
        let mut command = Command::new("ip");
        command.args(arguments.split(' ')).stdin(Stdio::null());
        let output = self.on(|| command.output()).and_then(|output| output);
        let output = output.map_err(|error| LinkError(format!("ip: {error}")))?;
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let failed = || LinkError(format!("ip {arguments}: {complaint}"));
        output.status.success().then_some(()).ok_or_else(failed)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The holder ends at the end of its input.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
