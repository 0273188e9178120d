//! Steering: the choice of the server's column (a server thread) for each request or connection.
//!
//! ```text
//! round-robin   each request to the next column           two bytes of its header name the column
//! key           each request to the column of its key     the same two bytes name the column
//! ports         each connection to the next column        its port is the target's plus the column
//! first         each connection, over TCP, to column 0    opened again until column 0 accepts it
//! ```
//!
//! Where: used between generating and writing a request or, with `ports` and `first`, when a
//! connection is opened.
//! Invariant: a request names only a column that exists. Without steering, a request names no
//! column. A multiget goes to the column of its first key, because every column can answer for all
//! keys, and a multiget that is split by column would be several requests.
//! Source: the KV-Cache paper, sections 4.1.2 (flows by two bytes, or by port) and 4.2.1 (clients
//! hash keys), and 5.2.2 (round robin over flows).

use crate::target::Place;
use crate::target::version;
use crate::workload::Names;
use protocol::flow;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// If this number of connections was opened and none was for the first column, the search fails.
const TRIES_MAX: usize = 1000;
/// An attempt to connect to the server fails after this time.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A rule for choosing the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steer {
    /// Each request goes to the next column in turn.
    RoundRobin,
    /// Each request goes to the column of its first key.
    Key,
    /// Each connection goes to the next column in turn.
    Ports,
    /// Each connection over TCP goes to the first column.
    First,
}

/// All rules with their names.
pub const STEERS: [(Steer, &str); 4] = [
    (Steer::RoundRobin, "round-robin"),
    (Steer::Key, "key"),
    (Steer::Ports, "ports"),
    (Steer::First, "first"),
];

impl Steer {
    /// Returns the rule's name.
    pub(crate) fn name(self) -> &'static str {
        STEERS.iter().find(|(steer, _)| *steer == self).map_or("", |(_, name)| name)
    }

    /// Returns the rule with this name.
    pub(crate) fn named(name: &str) -> Option<Steer> {
        STEERS.iter().find(|(_, own)| *own == name).map(|(steer, _)| *steer)
    }
}

/// The steering of the requests to each target. By default, requests are not steered.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    how: Option<Steer>,
    columns: Arc<[NonZeroU16]>,
}

impl Steering {
    /// Returns the steering for these numbers of columns, one number per target.
    pub fn new(how: Steer, columns: &[NonZeroU16]) -> Steering {
        Steering { how: Some(how), columns: columns.into() }
    }

    /// True if requests on one connection go to several columns, so that answers may be unordered.
    pub(crate) fn splits_connections(&self) -> bool {
        matches!(self.how, Some(Steer::RoundRobin | Steer::Key))
            && self.columns.iter().any(|columns| columns.get() > 1)
    }

    pub(crate) fn is_to_first(&self) -> bool {
        self.how == Some(Steer::First)
    }

    /// With `Steer::Ports`, returns the largest number of columns of a target; otherwise, 0.
    pub(crate) fn ports(&self) -> usize {
        let most = self.columns.iter().map(|columns| usize::from(columns.get())).max();
        most.filter(|_| self.how == Some(Steer::Ports)).unwrap_or(0)
    }

    /// Returns the address for connection `number` to a target. With `Steer::Ports`, the address
    /// has the port of the connection's column.
    pub(crate) fn place(&self, target: usize, place: &Place, number: u32) -> Place {
        let (Some(Steer::Ports), Place::Udp(address), Some(columns)) =
            (self.how, place, self.columns.get(target))
        else {
            return place.clone();
        };
        let column = number % u32::from(columns.get());
        let mut address = *address;
        address.set_port(address.port().saturating_add(u16::try_from(column).unwrap_or(0)));
        Place::Udp(address)
    }
}

/// Chooses the flow numbers of one thread's requests. A flow number names a column in a UDP header.
#[derive(Debug)]
pub(crate) struct Flows {
    steering: Steering,
    /// For each target, the column of the next request with `Steer::RoundRobin`.
    turns: Vec<u16>,
}

impl Flows {
    /// The first column depends on the thread, so that threads begin with different columns.
    pub(crate) fn new(steering: &Steering, thread: u32) -> Flows {
        let first =
            |columns: &NonZeroU16| u16::try_from(thread % u32::from(columns.get())).unwrap_or(0);
        Flows { turns: steering.columns.iter().map(first).collect(), steering: steering.clone() }
    }

    /// Returns the flow number of the next request to a target. `key` is the request's first key,
    /// and `text` is scratch space for the key's name.
    #[inline]
    pub(crate) fn next(
        &mut self,
        target: usize,
        key: u64,
        names: &Names,
        text: &mut Vec<u8>,
    ) -> u16 {
        let (Some(how), Some(columns)) = (self.steering.how, self.steering.columns.get(target))
        else {
            return flow::ANY;
        };
        match how {
            Steer::Ports | Steer::First => flow::ANY,
            Steer::RoundRobin => {
                let turn = &mut self.turns[target];
                let flow = flow::to_column(*turn);
                *turn = if *turn + 1 < columns.get() { *turn + 1 } else { 0 };
                flow
            }
            Steer::Key => {
                text.clear();
                names.key(key, text);
                flow::to_column(flow::column(text, *columns))
            }
        }
    }
}

/// Opens connections to a server until its first column accepts one, and returns this connection.
/// Each connection asks the server how many connections the first column has accepted. No other
/// client may connect meanwhile, because its connections would be counted too. Fails if the server
/// or its first column accepts no connection, or the server does not report the number.
pub(crate) fn connect_to_first(address: SocketAddr) -> io::Result<TcpStream> {
    // Two threads that open connections at the same time would count each other's connections.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut before = None;
    for _ in 0..TRIES_MAX {
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        let accepted = version::accepted_by_first(&stream)?;
        if before.is_some_and(|before| accepted > before) {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            return Ok(stream);
        }
        before = Some(accepted);
    }
    let why =
        format!("the server's first column (thread) accepted none of {TRIES_MAX} connections");
    Err(io::Error::other(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn each_way_names_the_columns_that_there_are() {
        let names = Names::new(&Arc::new(Workload::preset("uniform").unwrap()));
        let columns = [3, 1].map(|columns| NonZeroU16::new(columns).unwrap());
        let flows = |how: Option<Steer>, target| {
            let steering = how.map_or(Steering::default(), |how| Steering::new(how, &columns));
            let (mut flows, mut text) = (Flows::new(&steering, 4), Vec::new());
            let flows: Vec<u16> =
                (0..7).map(|key| flows.next(target, key, &names, &mut text)).collect();
            (flows, steering)
        };
        for how in [None, Some(Steer::Ports), Some(Steer::First)] {
            let (flows, steering) = flows(how, 0);
            assert_eq!(flows, [0; 7]);
            assert!(!steering.splits_connections());
        }
        let (flows_of_all, steering) = flows(Some(Steer::RoundRobin), 0);
        assert_eq!(flows_of_all, [2, 3, 1, 2, 3, 1, 2]);
        assert!(steering.splits_connections() && steering.ports() == 0);
        assert_eq!(flows(Some(Steer::RoundRobin), 1).0, [1; 7]);
        let by_key: Vec<u16> = (0..7)
            .map(|key| {
                let mut text = Vec::new();
                names.key(key, &mut text);
                flow::column(&text, columns[0]) + 1
            })
            .collect();
        assert_eq!(flows(Some(Steer::Key), 0).0, by_key);
        assert!((1..=3).all(|flow| by_key.contains(&flow)), "{by_key:?}");
    }

    #[test]
    fn a_connection_goes_to_the_port_of_its_column() {
        let columns = [3, 2].map(|columns| NonZeroU16::new(columns).unwrap());
        let udp = |port| Place::Udp(([127, 0, 0, 1], port).into());
        let steering = Steering::new(Steer::Ports, &columns);
        let ports: Vec<Place> = (0..4).map(|nth| steering.place(0, &udp(700), nth)).collect();
        assert_eq!(ports, [700, 701, 702, 700].map(udp));
        assert_eq!((steering.place(1, &udp(9), 3), steering.ports()), (udp(10), 3));
        let tcp = Place::Tcp(([127, 0, 0, 1], 700).into());
        assert_eq!(steering.place(0, &tcp, 1), tcp);
        let by_flow = Steering::new(Steer::RoundRobin, &columns);
        assert_eq!(by_flow.place(0, &udp(700), 1), udp(700));
        assert!(STEERS.iter().all(|(steer, name)| Steer::named(name) == Some(*steer)));
        assert!(STEERS.iter().all(|(steer, name)| steer.name() == *name));
    }
}
