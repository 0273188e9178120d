//! Two network namespaces for a test, like two hosts that are joined by a link.
//!
//! ```text
//! | near: wire, 10.77.0.1, fd77::1 | ------ veth ------ | wire, 10.77.0.2, fd77::2: far |
//! ```
//!
//! If the environment has `HYPOSTYLE_WIRE=DRIVER`, the link consists of two network cards of this
//! driver, which are connected outside of this machine. See `tests/vm`.
//!
//! Where: in tests that send packets. A test makes a pair of namespaces, and uses `on` to start its
//! server in one namespace and its clients in the other namespace:
//!
//! ```no_run
//! # use testing::namespace::{Veth, pair};
//! # use std::net::UdpSocket;
//! let Some([near, far]) = pair(Veth { queues: 4, mtu: 9000 }) else { return };
//! let server = far.on(|| UdpSocket::bind((far.v4, 0)));
//! let client = near.on(|| UdpSocket::bind((near.v4, 0)));
//! near.ip("link set wire mtu 1500");
//! ```
//!
//! Invariant: nothing outside the namespaces changes. The kernel removes a namespace and its link
//! when the last thread or process in the namespace has ended and the last descriptor for the
//! namespace is closed, even if the test crashes.
//! Source: namespaces(7), network_namespaces(7); `ip netns exec` also mounts `/sys`.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Name of the interface at each end of the link.
pub const WIRE: &str = "wire";

const DEADLINE: Duration = Duration::from_secs(60);
/// Time after which a link or a network card that is not ready is tried again.
const LINK_WAIT: Duration = Duration::from_millis(20);

/// The properties of a link between two namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Veth {
    /// Number of send queues at each end, and also the number of receive queues.
    pub queues: u32,
    /// Maximum length in bytes of a packet with its IP header. IPv6 needs at least 1,280.
    pub mtu: u32,
}

impl Default for Veth {
    fn default() -> Veth {
        Veth { queues: 1, mtu: 1500 }
    }
}

/// A network namespace with a loopback interface, and with one end of a link, `WIRE`.
#[derive(Debug)]
pub struct Namespace {
    network: File,
    /// The mount namespace, whose `/sys` shows the interfaces of this network namespace.
    mounts: File,
    /// The IPv4 address of `WIRE`, whose network has a prefix of 24 bits.
    pub v4: Ipv4Addr,
    /// The IPv6 address of `WIRE`, whose network has a prefix of 64 bits.
    pub v6: Ipv6Addr,
    /// The Ethernet address of `WIRE`.
    pub mac: [u8; 6],
}

/// Makes two namespaces joined by a link. If this process or this machine cannot make such
/// namespaces, reports the test as skipped and returns `None`.
///
/// # Panics
/// The system cannot make the link.
#[must_use]
pub fn pair(veth: Veth) -> Option<[Namespace; 2]> {
    if Command::new("ip").arg("-V").output().is_err() {
        crate::skip("no program ip (make peers)");
        return None;
    }
    let made = Namespace::new(1).and_then(|near| Ok([near, Namespace::new(2)?]));
    let ends = match made {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            crate::skip("no privilege to make network namespaces");
            return None;
        }
        made => made.unwrap_or_else(|error| panic!("no network namespace: {error}")),
    };
    let [near, far] = &ends;
    let Veth { queues, mtu } = veth;
    if let Some(driver) = std::env::var_os("HYPOSTYLE_WIRE") {
        if queues > 1 {
            crate::skip("the network card has one queue");
            return None;
        }
        for (card, end) in cards(&driver.to_string_lossy()).iter().zip(&ends) {
            run("ip", &format!("link set {card} down"));
            run("ip", &format!("link set {card} netns {} name {WIRE}", end.path()));
        }
    } else {
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let there = far.path();
        near.ip(&format!(
            "link add {WIRE} {queues} type veth peer name {WIRE} {queues} netns {there}"
        ));
    }
    for (end, other) in [(near, far), (far, near)] {
        end.join(other, mtu);
    }
    await_link([near, far]);
    Some(ends)
}

/// Returns the two network cards of `driver`. Waits until the previous test has returned the cards.
fn cards(driver: &str) -> [String; 2] {
    let of_driver = |name: &String| {
        let path = std::fs::read_link(format!("/sys/class/net/{name}/device/driver"));
        path.is_ok_and(|path| path.ends_with(driver))
    };
    let until = Instant::now() + DEADLINE;
    loop {
        let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let found: Vec<String> = names.filter(of_driver).collect();
        if let Ok(found) = found.try_into() {
            return found;
        }
        assert!(Instant::now() < until, "there are no two cards of {driver}");
        thread::sleep(LINK_WAIT);
    }
}

/// Waits until the link carries packets in both directions. A new link drops packets at first.
fn await_link(ends: [&Namespace; 2]) {
    await_packets(ends, ends.map(|end| end.v4.into()));
    await_packets(ends, ends.map(|end| end.v6.into()));
}

fn await_packets(ends: [&Namespace; 2], addresses: [IpAddr; 2]) {
    let carries = || -> io::Result<()> {
        let bind = |at: usize| ends[at].on(|| UdpSocket::bind((addresses[at], 0)));
        let sockets = [bind(0)?, bind(1)?];
        for (from, to) in [(0, 1), (1, 0)] {
            sockets[to].set_read_timeout(Some(LINK_WAIT))?;
            sockets[from].send_to(b"?", sockets[to].local_addr()?)?;
            sockets[to].recv(&mut [0])?;
        }
        Ok(())
    };
    let until = Instant::now() + DEADLINE;
    while let Err(error) = carries() {
        assert!(Instant::now() < until, "no link between {addresses:?}: {error}");
    }
}

impl Namespace {
    /// Makes a namespace whose interface will have addresses that end in `number`.
    fn new(number: u8) -> io::Result<Namespace> {
        let namespace = on_a_thread(|| -> io::Result<Namespace> {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            // Later mounts are visible only in the new mount namespace.
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
            Ok(Namespace {
                network: File::open("/proc/thread-self/ns/net")?,
                mounts: File::open("/proc/thread-self/ns/mnt")?,
                v4: Ipv4Addr::new(10, 77, 0, number),
                v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()),
                mac: [2, 0, 0, 0, 0, number],
            })
        })?;
        namespace.ip("link set lo up");
        Ok(namespace)
    }

    fn join(&self, other: &Namespace, mtu: u32) {
        let [mac, there] =
            [self.mac, other.mac].map(|mac| mac.map(|it| format!("{it:02x}")).join(":"));
        // Without `addrgenmode none`, the kernel would test a generated address for a second.
        self.ip(&format!("link set {WIRE} address {mac} mtu {mtu} addrgenmode none"));
        self.ip(&format!("address add {}/24 broadcast + dev {WIRE}", self.v4));
        self.ip(&format!("address add {}/64 dev {WIRE} nodad", self.v6));
        self.ip(&format!("link set {WIRE} up"));
        // The kernel itself adds this route only if it generates an address.
        self.ip(&format!("-6 route add multicast ff00::/8 dev {WIRE} table local"));
        // With static entries, the kernel needs no neighbour discovery.
        for ip in [IpAddr::from(other.v4), other.v6.into()] {
            self.ip(&format!("neighbour add {ip} lladdr {there} dev {WIRE} nud permanent"));
        }
    }

    /// Runs `work` on a new thread in this namespace. The threads, processes and sockets that
    /// `work` makes are in this namespace too.
    ///
    /// # Panics
    /// `work` panics.
    pub fn on<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            // `setns` to a mount namespace fails in a thread that shares its working directory.
            let entered = unshare(CloneFlags::CLONE_FS)
                .and_then(|()| setns(&self.network, CloneFlags::CLONE_NEWNET))
                .and_then(|()| setns(&self.mounts, CloneFlags::CLONE_NEWNS));
            entered.unwrap_or_else(|error| panic!("a namespace cannot be entered: {error}"));
            work()
        })
    }

    /// Runs the program `ip` in this namespace and returns its output. Spaces separate `arguments`.
    ///
    /// # Panics
    /// The program fails.
    pub fn ip(&self, arguments: &str) -> String {
        self.command("ip", arguments)
    }

    fn command(&self, program: &str, arguments: &str) -> String {
        self.on(|| run(program, arguments))
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.network.as_raw_fd())
    }

    /// Puts a bridge between this namespace and the link. The bridge gets the name and the
    /// addresses of the interface `WIRE`, and an MTU of 1,500. The old interface is renamed to
    /// `port` and becomes a port of the bridge. `hold_egress` can then hold packets at `port`.
    ///
    /// ```text
    /// | wire (a bridge), 10.77.0.2, fd77::2 | -- | port, with a queue | -- veth -- other
    /// ```
    ///
    /// # Panics
    /// The system cannot make a bridge.
    pub fn add_egress_queue(&self, other: &Namespace) {
        self.ip(&format!("address flush dev {WIRE}"));
        self.ip(&format!("link set {WIRE} down"));
        self.ip(&format!("link set {WIRE} name port address 02:00:00:00:00:fe"));
        self.ip(&format!("link add {WIRE} type bridge"));
        self.ip(&format!("link set port master {WIRE}"));
        self.ip("link set port up");
        self.join(other, 1500);
        await_link([self, other]);
    }

    /// Holds the egress queue: the kernel sends one or two more packets, then queues all packets
    /// until `release_egress` is called.
    ///
    /// # Panics
    /// The system has no queues of the kind `tbf`.
    pub fn hold_egress(&self) {
        self.command("tc", "qdisc add dev port root tbf rate 8bit burst 2000 limit 100mb");
    }

    /// Number of packets in the egress queue.
    ///
    /// # Panics
    /// The queue was never held.
    #[must_use]
    pub fn egress_backlog(&self) -> u64 {
        let shown = self.command("tc", "-s qdisc show dev port");
        let mut words = shown.split_whitespace().skip_while(|word| *word != "backlog").skip(2);
        let packets = words.next().and_then(|word| word.strip_suffix('p')?.parse().ok());
        packets.unwrap_or_else(|| panic!("no backlog: {shown}"))
    }

    /// Releases the egress queue: the waiting packets leave together with the next packet.
    ///
    /// # Panics
    /// The queue is not held.
    pub fn release_egress(&self) {
        self.command("tc", "qdisc change dev port root tbf rate 10gbit burst 10mb limit 100mb");
    }

    /// Returns the kernel's counter `name` of `layer` for this network, such as `InDatagrams` of
    /// `Udp`. The result is the sum for IPv4 and IPv6.
    ///
    /// # Panics
    /// The kernel has no such counter.
    #[must_use]
    pub fn counter(&self, layer: &str, name: &str) -> u64 {
        let read = |table: &str| {
            let path = format!("/proc/thread-self/net/{table}");
            self.on(|| std::fs::read_to_string(&path))
                .unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let (of_v4, of_v6) = (read("snmp"), read("snmp6"));
        // The row after the names of a layer's counters has the values of these counters.
        let mut rows =
            of_v4.lines().filter_map(|line| line.strip_prefix(layer)?.strip_prefix(": "));
        let (names, values) = (rows.next().unwrap_or(""), rows.next().unwrap_or(""));
        let v4 = names.split(' ').zip(values.split(' ')).find(|(one, _)| *one == name);
        let mut lines = of_v6.lines().filter_map(|line| line.split_once([' ', '\t']));
        let v6 = lines.find(|(one, _)| *one == format!("{layer}6{name}"));
        let all =
            [v4, v6].map(|found| found.and_then(|(_, count)| count.trim().parse::<u64>().ok()));
        match all {
            [Some(v4), Some(v6)] => v4 + v6,
            _ => panic!("{layer} {name} is not counted"),
        }
    }

    /// Sets a kernel variable of this network, such as `ipv4/conf/all/rp_filter`.
    ///
    /// # Panics
    /// There is no such variable, or the kernel refuses the value.
    pub fn set(&self, variable: &str, value: u32) {
        let written =
            self.on(|| std::fs::write(format!("/proc/sys/net/{variable}"), value.to_string()));
        written.unwrap_or_else(|error| panic!("{variable}: {error}"));
    }
}

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("{program} {arguments}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `work` on a new thread, which has the same name as the calling thread.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        let spawned = thread::Builder::new().name(name).spawn_scoped(scope, work);
        let worker = spawned.unwrap_or_else(|error| panic!("no thread: {error}"));
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> (Vec<String>, Vec<String>) {
        let folder = std::fs::read_dir("/sys/class/net").unwrap();
        let mut named: Vec<String> =
            folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        named.sort();
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let lines = table.lines().filter_map(|line| line.split_once(':'));
        let mut seen: Vec<String> = lines.map(|(name, _)| name.trim().to_owned()).collect();
        seen.sort();
        (named, seen)
    }

    #[test]
    fn each_end_of_a_pair_is_a_machine_that_reaches_the_other_alone() {
        let before = interfaces();
        let Some([near, far]) = pair(Veth { queues: 3, mtu: 1400 }) else { return };
        let here = [(near.v4.into(), far.v4.into()), (near.v6.into(), far.v6.into())];
        for (near_ip, far_ip) in here {
            let (near_ip, far_ip): (IpAddr, IpAddr) = (near_ip, far_ip);
            let asked = far.on(|| UdpSocket::bind((far_ip, 4000)).unwrap());
            let asks = near.on(|| UdpSocket::bind((near_ip, 4000)).unwrap());
            asked.set_read_timeout(Some(DEADLINE)).unwrap();
            asks.send_to(b"hello", (far_ip, 4000)).unwrap();
            let mut buffer = [0; 10];
            let (bytes, from) = asked.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..bytes], from), (&b"hello"[..], (near_ip, 4000).into()));
            assert!(UdpSocket::bind((far_ip, 0)).is_err(), "no address of this process");
        }
        let own = vec!["lo".to_owned(), WIRE.to_owned()];
        for end in [&near, &far] {
            assert_eq!(end.on(interfaces), (own.clone(), own.clone()));
            let wire = format!("/sys/class/net/{WIRE}");
            let read =
                |name: &str| end.on(|| std::fs::read_to_string(format!("{wire}/{name}"))).unwrap();
            assert_eq!(read("mtu"), "1400\n");
            let mac = end.mac.map(|byte| format!("{byte:02x}")).join(":");
            assert_eq!(read("address"), mac + "\n");
            let queues = end.on(|| std::fs::read_dir(format!("{wire}/queues")).unwrap().count());
            assert_eq!(queues, 2 * 3);
        }
        assert_eq!(interfaces(), before, "nothing is seen outside");
    }

    #[test]
    fn what_is_started_in_a_namespace_stays_there_and_what_is_set_there_as_well() {
        let variable = "/proc/sys/net/ipv4/ip_default_ttl";
        let before = std::fs::read_to_string(variable).unwrap();
        let Some([near, far]) = pair(Veth::default()) else { return };
        let started = near.on(|| {
            let child = Command::new("cat").arg("/proc/self/net/dev").output().unwrap();
            let thread = thread::spawn(interfaces).join().unwrap();
            (String::from_utf8(child.stdout).unwrap(), thread)
        });
        assert!(started.0.contains(WIRE), "{}", started.0);
        assert_eq!(started.1, near.on(interfaces));
        near.set("ipv4/ip_default_ttl", 7);
        assert_eq!(near.on(|| std::fs::read_to_string(variable).unwrap()), "7\n");
        assert_ne!(far.on(|| std::fs::read_to_string(variable).unwrap()), "7\n");
        assert_eq!(std::fs::read_to_string(variable).unwrap(), before);
        // When the last descriptor of `far` is closed, the kernel removes the link from both ends.
        drop(far);
        while near.on(interfaces).1.contains(&WIRE.to_owned()) {
            thread::yield_now();
        }
    }
}
