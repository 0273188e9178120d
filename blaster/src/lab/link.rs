//! A link between two network namespaces: one is for kvblaster, the other is for the servers.
//!
//! ```text
//! | near: wire,  10.77.0.1 | ------ veth ------ | wire,  10.77.0.2: far |
//! |       wire1, 10.77.1.1 | ------ veth ------ | wire1, 10.77.1.2      |
//!   kvblaster's threads                           servers
//! ```
//!
//! With `--interface`, the wires are network cards of this machine, which keep their names.
//!
//! Where: made for each measurement in which kvblaster reaches the server over a link.
//! Invariant: nothing outside the namespaces changes, except that the cards are absent while the
//! link exists. The kernel removes a veth with its namespace; `Namespace` moves cards back.
//! Source: veth(4), ip-link(8), ip-neighbour(8), ethtool(8).

use super::card::{self, Pair};
use super::namespace::{Namespace, run};
use super::tuning::{self, Tuning};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The name of both interfaces of the first veth pair.
const WIRE: &str = "wire";
/// The maximum number of wires. Each wire has its own IP network.
pub(crate) const WIRES_MAX: usize = card::PAIRS_MAX;
/// If a cable carries no packets within this time, making the link fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval between two probes of a cable.
const LOOK: Duration = Duration::from_millis(20);
/// A port at which no server listens: "discard".
const PROBE_PORT: u16 = 9;
/// A probe fails if no answer arrives within this time.
const PROBE_WAIT: Duration = Duration::from_millis(500);

/// The reason why there is no link.
#[derive(Debug, thiserror::Error)]
#[error("the link between two network namespaces failed: {0}")]
pub(crate) struct LinkError(pub(super) String);

/// The properties of a link that `Link::new` makes.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The names of each wire's interfaces, as [`names`] returns them.
    pub wires: Vec<Pair>,
    /// True if the interfaces are cards of this machine. False if `Link::new` makes veth pairs.
    pub has_cards: bool,
    /// Number of queues per interface. `None`: a card keeps its queues, a veth gets one queue.
    pub queues: Option<usize>,
    /// The MTU of each interface, in bytes.
    pub mtu: usize,
}

/// Two network namespaces, and the wires between the namespaces.
#[derive(Debug)]
pub(crate) struct Link {
    near: Namespace,
    far: Namespace,
    /// The names of each wire's interfaces, kvblaster's interface first.
    pub wires: Vec<Pair>,
    /// Commands that repeat the changes that the lab made to settings.
    pub settings: Vec<String>,
}

/// Returns the IP address of the servers' interface of a wire.
pub(crate) fn far_address(wire: usize) -> Ipv4Addr {
    address(wire, 2)
}

fn address(wire: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(wire).unwrap_or(u8::MAX), host)
}

/// Returns the names of the interfaces of `wires` wires: the first pairs of cards or, if there are
/// no cards, names for new veth pairs.
pub(crate) fn names(cards: &[Pair], wires: usize) -> Vec<Pair> {
    let made = |nth: usize| if nth == 0 { WIRE.to_owned() } else { format!("{WIRE}{nth}") };
    match cards.is_empty() {
        true => (0..wires).map(|nth| [made(nth), made(nth)]).collect(),
        false => cards.iter().take(wires).cloned().collect(),
    }
}

impl Link {
    /// Makes a link of this shape. Fails if this process has no privilege, or a program (`unshare`,
    /// `ip`, `ethtool`) is missing, or no cable joins the cards.
    pub(crate) fn new(shape: Shape) -> Result<Link, LinkError> {
        let Shape { wires, has_cards, queues, mtu } = shape;
        let [near, far] = [Namespace::new()?, Namespace::new()?];
        let link = Link { near, far, wires, settings: Vec::new() };
        let mut settings = Vec::new();
        for end in [&link.near, &link.far] {
            end.run("ip link set lo up")?;
        }
        for (nth, names) in link.wires.iter().enumerate() {
            if !has_cards {
                link.add_veth(&names[0], nth, queues.unwrap_or(1))?;
            } else {
                for (end, card) in [&link.near, &link.far].into_iter().zip(names) {
                    end.undo(&card::returning(card)?)?;
                    run(&format!("ip link set {card} netns {}", end.pid()))?;
                    settings.extend(tuning::queues(end, card, queues)?);
                }
            }
            link.join(names, nth, mtu)?;
        }
        if has_cards {
            link.await_cables()?;
        }
        Ok(Link { settings, ..link })
    }

    fn add_veth(&self, name: &str, nth: usize, queues: usize) -> Result<(), LinkError> {
        let (queues, there) =
            (format!("numtxqueues {queues} numrxqueues {queues}"), self.far.pid());
        self.near.run(&format!(
            "ip link add {name} {queues} type veth peer name {name} {queues} netns {there}"
        ))?;
        for (end, last) in [(&self.near, 1), (&self.far, 2)] {
            let mac = format!("02:00:00:00:{nth:02x}:{last:02x}");
            end.run(&format!("ip link set {name} address {mac}"))?;
        }
        Ok(())
    }

    /// Gives each end of a wire an address, and a neighbour entry for the opposite end.
    fn join(&self, names: &Pair, nth: usize, mtu: usize) -> Result<(), LinkError> {
        let addresses = [1, 2].map(|host| address(nth, host));
        let ends = [&self.near, &self.far];
        let mut macs = Vec::new();
        for (end, name) in ends.into_iter().zip(names) {
            let shown = end.run(&format!("ip -o link show dev {name}"))?;
            let lacking = || LinkError(format!("{name} has no Ethernet address"));
            macs.push(card::mac(&shown).ok_or_else(lacking)?.to_owned());
        }
        for (side, (end, name)) in ends.into_iter().zip(names).enumerate() {
            let (own, other, there) = (addresses[side], addresses[1 - side], &macs[1 - side]);
            end.run(&format!("ip link set {name} mtu {mtu} addrgenmode none"))?;
            end.run(&format!("ip address add {own}/24 dev {name}"))?;
            end.run(&format!("ip link set {name} up"))?;
            // A static entry makes neighbour discovery unnecessary.
            let entry = format!("{other} lladdr {there} dev {name} nud permanent");
            end.run(&format!("ip neighbour add {entry}"))?;
        }
        Ok(())
    }

    /// Waits until the cables carry packets.
    fn await_cables(&self) -> Result<(), LinkError> {
        let begin = Instant::now();
        for (nth, names) in self.wires.iter().enumerate() {
            let place = SocketAddr::new(far_address(nth).into(), PROBE_PORT);
            let probe = || TcpStream::connect_timeout(&place, PROBE_WAIT).map(drop);
            // A refusal by the far end shows that packets cross the cable in both directions.
            let crosses = |answer: io::Result<io::Result<()>>| match answer {
                Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
                Ok(Ok(())) => true,
                Err(_) => false,
            };
            while !crosses(self.near(probe)) {
                if begin.elapsed() > PATIENCE {
                    let [near, far] = names;
                    let s = PATIENCE.as_secs();
                    return Err(LinkError(format!(
                        "no packet from {near} reaches {far} within {s} s; join the cards by a \
                         cable"
                    )));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Changes settings of the servers' interfaces. When the link ends, the settings are restored.
    /// Fails if an interface lacks one of the settings.
    pub(crate) fn tune(&mut self, tuning: &Tuning) -> Result<(), LinkError> {
        for [_, card] in &self.wires {
            self.settings.extend(tuning.apply(&self.far, card)?);
        }
        Ok(())
    }

    /// Runs `act` on a new thread in the namespace of kvblaster's end. Threads and sockets that
    /// `act` makes are in this namespace too. Fails if the thread cannot be started, or cannot
    /// enter the namespace.
    pub(crate) fn near<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.near.on(act)
    }

    /// Runs `act` on a new thread in the namespace of the servers' end. Processes that `act` starts
    /// are in this namespace too. Fails if the thread cannot be started, or cannot enter the
    /// namespace.
    pub(crate) fn far<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.far.on(act)
    }
}
