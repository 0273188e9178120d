//! Load that moves: every second the whole load may go to another column.
//!
//! ```text
//! second          1          2          3          4
//! all load on     column 2   column 0   column 0   column 1
//! ```
//!
//! Where: on a separate server, whose columns help each other: idle columns steal datagrams, and
//! connections move to idle columns. The server decides on moves twice a second, so connections
//! move only if the load stays on a column for a second or two, and mostly too late to help.
//! Invariant: each request is answered once and correctly, whichever column answers. In the end the
//! server has counted every request. For each connection or batch of datagrams that one column has
//! counted as given, another column has counted one as taken.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::udp::Header;

use crate::measure::wire::{Wire, accepted};
use crate::measure::{Outcome, fail};
use crate::site::{Progress, RunControl, Site};
use testing::random::{Random, hash};

pub(crate) const CLIENTS: u64 = 4;
/// Shortest time for which the whole load is on one column.
const STAY: Duration = Duration::from_secs(1);
/// If a client gets no answer for this time, the soak fails.
const SILENCE: Duration = Duration::from_secs(60);
/// If the target column accepts none of this number of connections, the soak fails.
const TRIES: usize = 1000;
/// Number of gets in each round of a TCP client. A UDP client has `WINDOW` requests in flight.
const GETS: usize = 8;
const WINDOW: u64 = 16;
/// Number of absent keys in each get, so that the server has more work than its clients.
const MISSES: usize = 400;
/// If the server has not counted all answered requests after this time, the soak fails.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct MovingLoad<'s> {
    site: &'s Site<'s>,
    columns: usize,
    target: AtomicUsize,
    connector: Mutex<Connector>,
    gets: AtomicU64,
    sets: AtomicU64,
    datagrams: AtomicU64,
}

/// Opens one connection at a time, and learns from the statistics which column has accepted it.
struct Connector {
    wire: Wire,
    accepted: Vec<u64>,
}

impl MovingLoad<'_> {
    pub(crate) fn of<'s>(site: &'s Site<'s>) -> Outcome<MovingLoad<'s>> {
        let mut wire = site.text()?;
        let accepted = wire.of_columns("total_connections")?;
        Ok(MovingLoad {
            site,
            columns: accepted.len(),
            target: AtomicUsize::new(0),
            connector: Mutex::new(Connector { wire, accepted }),
            gets: AtomicU64::new(0),
            sets: AtomicU64::new(0),
            datagrams: AtomicU64::new(0),
        })
    }

    /// Each second, directs the load to a random column, perhaps to the same column again.
    pub(crate) fn shift(
        &self,
        seed: u64,
        control: &RunControl,
        progress: &Progress,
    ) -> Outcome<String> {
        let mut random = Random::new(hash(seed, 8000));
        while control.is_running() {
            let target = random.index(self.columns);
            // Relaxed, here and where clients load it: `target` orders no other memory.
            progress.add(u64::from(self.target.swap(target, Ordering::Relaxed) != target));
            control.pause(STAY);
        }
        Ok(format!("the load moved {} times", progress.count()))
    }

    /// Runs a TCP client on a connection that the target column has accepted.
    pub(crate) fn stream(
        &self,
        number: u64,
        control: &RunControl,
        progress: &Progress,
    ) -> Outcome<String> {
        let (mut connection, mut connections) = (None, 0_u64);
        while control.is_running() {
            let target = self.target.load(Ordering::Relaxed); // orders no other memory
            let mut stream = match connection.take() {
                Some((column, stream)) if column == target => stream,
                _ => {
                    connections += 1;
                    self.connect(target)?
                }
            };
            let key = CLIENTS * WINDOW + number;
            let (key, value) = (key_of(key), value(key, progress.count()));
            let ((set, stored), (get, hit)) = (set(&key, &value), get(&key, &value));
            stream.write_all((set + &get.repeat(GETS)).as_bytes())?;
            let due = stored + &hit.repeat(GETS);
            let mut got = vec![0; due.len()];
            stream.read_exact(&mut got)?;
            same(&due, &got)?;
            self.count(1, GETS as u64);
            progress.add(1);
            connection = Some((target, stream));
        }
        Ok(format!("{} rounds of right answers over {connections} connections", progress.count()))
    }

    fn connect(&self, column: usize) -> Outcome<TcpStream> {
        let mut connector = self.connector.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let stream = accepted(self.site.address(), SILENCE)?;
            let now = connector.wire.of_columns("total_connections")?;
            let before = std::mem::replace(&mut connector.accepted, now);
            if connector.accepted[column] > before[column] {
                return Ok(stream);
            }
        }
        fail(format!("column {column} accepted none of {TRIES} connections"))
    }

    /// Runs a UDP client, which sends to the port of the target column.
    pub(crate) fn datagrams(
        &self,
        number: u64,
        control: &RunControl,
        progress: &Progress,
    ) -> Outcome<String> {
        let server: SocketAddr = self.site.address().parse()?;
        let socket = UdpSocket::bind((server.ip(), 0))?;
        socket.set_read_timeout(Some(SILENCE))?;
        let mut asker = Asker { socket, id: 0 };
        while control.is_running() {
            let target = self.target.load(Ordering::Relaxed); // orders no other memory
            let to = (server.ip(), server.port() + u16::try_from(target)?).into();
            let keys = number * WINDOW..(number + 1) * WINDOW;
            let values = keys.map(|key| (key_of(key), value(key, progress.count())));
            let (sets, gets): (Vec<_>, Vec<_>) =
                values.map(|(key, value)| (set(&key, &value), get(&key, &value))).unzip();
            for asks in [sets, gets] {
                asker.window(to, asks)?;
                self.datagrams.fetch_add(WINDOW, Ordering::Relaxed); // orders no other memory
            }
            self.count(WINDOW, WINDOW);
            progress.add(1);
        }
        Ok(format!("{} windows of {WINDOW} right answers", progress.count()))
    }

    fn count(&self, sets: u64, gets: u64) {
        self.sets.fetch_add(sets, Ordering::Relaxed); // Relaxed: counts order no other memory
        self.gets.fetch_add(gets * (MISSES as u64 + 1), Ordering::Relaxed);
    }

    /// Waits until the server has counted all requests of the clients, and until columns have taken
    /// as many connections and datagram batches as they have given. Neither number may be 0.
    pub(crate) fn audit(&self) -> Outcome<String> {
        let (start, mut wire) = (Instant::now(), self.site.text()?);
        loop {
            let mut sum = |names: &[&str]| -> Outcome<u64> {
                let of = |name: &&str| Ok(wire.of_columns(name)?.iter().sum::<u64>());
                names.iter().map(of).sum()
            };
            let taken =
                [sum(&["migrations_taken"])?, sum(&["steals_taken_near", "steals_taken_far"])?];
            let given =
                [sum(&["migrations_given"])?, sum(&["steals_given_near", "steals_given_far"])?];
            let counted = [
                sum(&["udp_received"])?,
                sum(&["udp_sent"])?,
                self.site.stat(&mut wire, "stats", "cmd_get")?,
                self.site.stat(&mut wire, "stats", "cmd_set")?,
            ];
            let sent = [&self.datagrams, &self.datagrams, &self.gets, &self.sets];
            let sent = sent.map(|count| count.load(Ordering::Relaxed)); // orders no other memory
            if counted == sent && taken == given && taken.iter().all(|count| *count > 0) {
                let [moves, steals] = taken;
                return Ok(format!(
                    "the server counted all {} datagrams, {} keys and {} sets; columns gave and \
                     took {moves} connections and {steals} batches of datagrams",
                    sent[0], sent[2], sent[3]
                ));
            }
            if start.elapsed() > PATIENCE {
                return fail(format!(
                    "columns took [connections, batches] {taken:?}, but gave {given:?}; the server \
                     counted [datagrams, answers, keys, sets] {counted:?}, but clients sent \
                     {sent:?}"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

struct Asker {
    socket: UdpSocket,
    id: u16,
}

impl Asker {
    /// Sends `asks`, and waits for their answers, in any order. A wrong answer is an error.
    fn window(&mut self, to: SocketAddr, asks: Vec<(String, String)>) -> Outcome<()> {
        let mut missing = HashMap::new();
        for (request, due) in asks {
            let head = Header::request(self.id, 0).bytes();
            self.socket.send_to(&[&head[..], request.as_bytes()].concat(), to)?;
            missing.insert(self.id, due);
            self.id = self.id.wrapping_add(1);
        }
        let mut answer = [0; 2000];
        while !missing.is_empty() {
            let (bytes, _) = self.socket.recv_from(&mut answer)?;
            let Some((header, got)) = Header::read(&answer[..bytes]) else {
                return fail("an answer has no frame header".to_owned());
            };
            match missing.remove(&header.id) {
                Some(due) => same(&due, got)?,
                None => return fail(format!("no request waits for answer {}", header.id)),
            }
        }
        Ok(())
    }
}

/// The TCP clients' keys are numbered after the keys of the UDP clients.
pub(crate) fn key_of(key: u64) -> String {
    format!("moving-{key}")
}

fn value(key: u64, round: u64) -> String {
    format!("{key}:{round};").repeat(4)
}

fn set(key: &str, value: &str) -> (String, String) {
    (format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n".to_owned())
}

fn get(key: &str, value: &str) -> (String, String) {
    let request = format!("get{} {key}\r\n", " n".repeat(MISSES));
    (request, format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len()))
}

fn same(due: &str, got: &[u8]) -> Outcome<()> {
    if due.as_bytes() == got {
        return Ok(());
    }
    fail(format!("wrong answer: {:?} instead of {due:?}", got.escape_ascii().to_string()))
}
