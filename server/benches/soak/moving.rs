//! Load that moves: every second all of it may go to another column.
//!
//! ```text
//! second          1          2          3          4
//! all load on     column 2   column 0   column 0   column 1
//! ```
//!
//! Where: on a server of its own, whose columns help each other when they choose to: idle ones
//! steal datagrams, and connections move. Moves are decided twice a second, so that connections
//! move only if the load stays for a second or two, and mostly too late.
//! Invariant: each request is answered once and correctly, whichever column answers. In the end the
//! server has counted every request, and as much taken between columns as given.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::udp::Header;

use crate::measure::wire::{Wire, accepted};
use crate::measure::{Outcome, fail};
use crate::site::{Bell, Deeds, Site};
use testing::random::{Random, hash};

/// Clients of each kind.
pub(crate) const CLIENTS: u64 = 4;
/// Shortest time for which all load is on one column.
const STAY: Duration = Duration::from_secs(1);
/// Silence after which an answer is lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Connections opened until the wanted column accepts one.
const TRIES: usize = 1000;
/// Gets per round over TCP, and datagrams that a client has in flight.
const GETS: usize = 8;
const WINDOW: u64 = 16;
/// Absent keys in each get, so that the server has more to do than its clients.
const MISSES: usize = 400;
/// Longest wait until the server has counted what it answered.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// State that the clients of one server share.
pub(crate) struct Stage<'s> {
    site: &'s Site<'s>,
    columns: usize,
    /// The column that has all load.
    aim: AtomicUsize,
    door: Mutex<Door>,
    /// Number of keys requested, values set, and datagrams sent.
    gets: AtomicU64,
    sets: AtomicU64,
    datagrams: AtomicU64,
}

/// Opens connections, one after the other, and knows which column accepted each.
struct Door {
    wire: Wire,
    /// Number of connections that each column has accepted.
    accepted: Vec<u64>,
}

impl Stage<'_> {
    pub(crate) fn of<'s>(site: &'s Site<'s>) -> Outcome<Stage<'s>> {
        let mut wire = site.text()?;
        let accepted = wire.of_columns("total_connections")?;
        Ok(Stage {
            site,
            columns: accepted.len(),
            aim: AtomicUsize::new(0),
            door: Mutex::new(Door { wire, accepted }),
            gets: AtomicU64::new(0),
            sets: AtomicU64::new(0),
            datagrams: AtomicU64::new(0),
        })
    }

    /// Picks a random column again and again, which may be the same one.
    pub(crate) fn shift(&self, seed: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
        let mut random = Random::new(hash(seed, 8000));
        while bell.goes_on() {
            let aim = random.index(self.columns);
            // Relaxed: a number by itself, here and where it is read.
            deeds.add(u64::from(self.aim.swap(aim, Ordering::Relaxed) != aim));
            bell.pause(STAY);
        }
        Ok(format!("the load moved {} times", deeds.count()))
    }

    /// Runs a TCP client, whose connection the aimed-at column has accepted.
    pub(crate) fn stream(&self, number: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
        let (mut connection, mut connections) = (None, 0_u64);
        while bell.goes_on() {
            let aim = self.aim.load(Ordering::Relaxed); // see `shift`
            let mut stream = match connection.take() {
                Some((column, stream)) if column == aim => stream,
                _ => {
                    connections += 1;
                    self.connect(aim)?
                }
            };
            let key = CLIENTS * WINDOW + number;
            let (key, value) = (key_of(key), value(key, deeds.count()));
            let ((set, stored), (get, hit)) = (set(&key, &value), get(&key, &value));
            stream.write_all((set + &get.repeat(GETS)).as_bytes())?;
            let due = stored + &hit.repeat(GETS);
            let mut got = vec![0; due.len()];
            stream.read_exact(&mut got)?;
            same(&due, &got)?;
            self.count(1, GETS as u64);
            deeds.add(1);
            connection = Some((aim, stream));
        }
        Ok(format!("{} rounds right, over {connections} connections", deeds.count()))
    }

    /// Opens connections until this column accepts one.
    fn connect(&self, column: usize) -> Outcome<TcpStream> {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let stream = accepted(self.site.address(), SILENCE)?;
            let now = door.wire.of_columns("total_connections")?;
            let before = std::mem::replace(&mut door.accepted, now);
            if door.accepted[column] > before[column] {
                return Ok(stream);
            }
        }
        fail(format!("of {TRIES} connections none came to column {column}"))
    }

    /// Runs a UDP client, which sends to the port of the aimed-at column.
    pub(crate) fn datagrams(&self, number: u64, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
        let server: SocketAddr = self.site.address().parse()?;
        let socket = UdpSocket::bind((server.ip(), 0))?;
        socket.set_read_timeout(Some(SILENCE))?;
        let mut asker = Asker { socket, id: 0 };
        while bell.goes_on() {
            let aim = self.aim.load(Ordering::Relaxed); // see `shift`
            let to = (server.ip(), server.port() + u16::try_from(aim)?).into();
            let keys = number * WINDOW..(number + 1) * WINDOW;
            let values = keys.map(|key| (key_of(key), value(key, deeds.count())));
            let (sets, gets): (Vec<_>, Vec<_>) =
                values.map(|(key, value)| (set(&key, &value), get(&key, &value))).unzip();
            for asks in [sets, gets] {
                asker.window(to, asks)?;
                self.datagrams.fetch_add(WINDOW, Ordering::Relaxed); // a count by itself
            }
            self.count(WINDOW, WINDOW);
            deeds.add(1);
        }
        Ok(format!("{} windows of {WINDOW} right", deeds.count()))
    }

    fn count(&self, sets: u64, gets: u64) {
        self.sets.fetch_add(sets, Ordering::Relaxed); // counts by themselves
        self.gets.fetch_add(gets * (MISSES as u64 + 1), Ordering::Relaxed);
    }

    /// Waits until the columns' counts add up; each must have helped another.
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
            let asked = [&self.datagrams, &self.datagrams, &self.gets, &self.sets];
            let asked = asked.map(|count| count.load(Ordering::Relaxed)); // counts by themselves
            if counted == asked && taken == given && taken.iter().all(|count| *count > 0) {
                let [moves, steals] = taken;
                return Ok(format!(
                    "{} datagrams, {} keys, {} sets counted as asked; {moves} connections and \
                     {steals} receives given and taken",
                    asked[0], asked[2], asked[3]
                ));
            }
            if start.elapsed() > PATIENCE {
                return fail(format!(
                    "taken {taken:?}, given {given:?}; counted {counted:?}, asked {asked:?}"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A socket, and the number of its next request.
struct Asker {
    socket: UdpSocket,
    id: u16,
}

impl Asker {
    /// Sends requests and receives one answer to each, in any order; any other answer is an error.
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
                return fail("an answer without a frame".to_owned());
            };
            match missing.remove(&header.id) {
                Some(due) => same(&due, got)?,
                None => return fail(format!("answer {} is one too many", header.id)),
            }
        }
        Ok(())
    }
}

/// The name of a key. The numbers of TCP clients' keys follow those of UDP clients.
pub(crate) fn key_of(key: u64) -> String {
    format!("moving-{key}")
}

/// The key's value in this round.
fn value(key: u64, round: u64) -> String {
    format!("{key}:{round};").repeat(4)
}

/// Returns a request that sets a key, and its reply.
fn set(key: &str, value: &str) -> (String, String) {
    (format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n".to_owned())
}

/// Returns a request that gets a key after many absent ones, and its reply.
fn get(key: &str, value: &str) -> (String, String) {
    let request = format!("get{} {key}\r\n", " n".repeat(MISSES));
    (request, format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len()))
}

fn same(due: &str, got: &[u8]) -> Outcome<()> {
    if due.as_bytes() == got {
        return Ok(());
    }
    fail(format!("wrong: {:?} instead of {due:?}", got.escape_ascii().to_string()))
}
