//! A UDP client that gets and sets values, a few at a time, and checks each byte of the replies.
//!
//! Where: at the other end of the link, on a CPU of its own.
//! Invariant: each request is one datagram. A reply counts once all its parts have arrived and its
//! value is the key's, which never changes. A lost request is not repeated.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use protocol::udp::{HEADER_BYTES, Header};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::measure::{Outcome, fail};

/// Bytes of values requested at a time, whose replies fit the receive buffer.
const IN_FLIGHT_BYTES: usize = 128 << 10;
const IN_FLIGHT_MAX: usize = 16;
const RECEIVE_BYTES: usize = 16 << 20;
/// Longest wait for a datagram; after it the missing replies count as lost.
const SILENCE: Duration = Duration::from_millis(200);
/// Maximum number of consecutive groups of requests in which a reply may be lost.
const LOST_MAX: u32 = 100;

pub(crate) struct Client {
    socket: UdpSocket,
    id: u16,
}

/// Requests for all keys in turn, repeated in rounds.
pub(crate) struct Work {
    keys: Vec<Texts>,
    in_flight: usize,
    /// One request in this number is a set; 0 means no sets. A number that divides the number of
    /// keys makes every round set the same keys.
    stores_one_in: u64,
}

/// For one key: a get and a set, each after room for a UDP header, and the reply to the get.
struct Texts {
    get: Vec<u8>,
    set: Vec<u8>,
    hit: Vec<u8>,
}

pub(crate) fn value(key: u32, bytes: usize) -> Vec<u8> {
    key.to_string().bytes().cycle().take(bytes).collect()
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Outcome<Client> {
        let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(SILENCE))?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES)?;
        Ok(Client { socket, id: 0 })
    }

    pub(crate) fn ask(&mut self, time: Duration, work: &mut Work) -> Outcome<u64> {
        let Work { keys, in_flight, stores_one_in } = work;
        let (until, mut number, mut answered, mut lost) = (Instant::now() + time, 0_u64, 0, 0);
        let mut next = 0;
        while Instant::now() < until {
            let (first, from) = (self.id, next);
            let mut sent = Vec::with_capacity(*in_flight);
            for _ in 0..*in_flight {
                self.id = self.id.wrapping_add(1);
                let stores = *stores_one_in > 0 && number.is_multiple_of(*stores_one_in);
                let texts = &mut keys[next];
                let request = if stores { &mut texts.set } else { &mut texts.get };
                request[..HEADER_BYTES].copy_from_slice(&Header::request(self.id, 0).bytes());
                self.socket.send(request)?;
                sent.push(stores);
                (next, number) = ((next + 1) % keys.len(), number + 1);
            }
            let texts = keys.iter().cycle().skip(from);
            let answers = sent.iter().zip(texts).map(|(stores, texts)| Answer {
                expected: if *stores { b"STORED\r\n" } else { &texts.hit },
                came_bytes: 0,
            });
            let mut answers: Vec<Answer<'_>> = answers.collect();
            let complete = self.collect(first, &mut answers)?;
            answered += complete as u64;
            lost = if complete == *in_flight { 0 } else { lost + 1 };
            if lost > LOST_MAX {
                return fail("answers do not arrive".to_owned());
            }
        }
        Ok(answered)
    }

    fn collect(&self, first: u16, sent: &mut [Answer<'_>]) -> Outcome<usize> {
        let (mut buffer, mut whole) = (vec![0; 1 << 16], 0);
        while whole < sent.len() {
            let bytes = match self.socket.recv(&mut buffer) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let Some((header, part)) = Header::read(&buffer[..bytes]) else { continue };
            let number = usize::from(header.id.wrapping_sub(first).wrapping_sub(1));
            let Some(answer) = sent.get_mut(number) else { continue };
            whole += usize::from(answer.take(header, part)?);
        }
        Ok(whole)
    }
}

impl Work {
    pub(crate) fn gets(keys: u32, bytes: usize) -> Work {
        let texts = |key| {
            let value = value(key, bytes);
            let text = |parts: &[&[u8]]| [&[&[0; HEADER_BYTES][..]], parts].concat().concat();
            Texts {
                get: text(&[format!("get {key}\r\n").as_bytes()]),
                set: text(&[format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &value, b"\r\n"]),
                hit: [format!("VALUE {key} 0 {bytes}\r\n").as_bytes(), &value, b"\r\nEND\r\n"]
                    .concat(),
            }
        };
        let in_flight = (IN_FLIGHT_BYTES / bytes.max(1)).clamp(1, IN_FLIGHT_MAX);
        Work { keys: (0..keys).map(texts).collect(), in_flight, stores_one_in: 0 }
    }

    pub(crate) fn storing_one_in(self, requests: u64) -> Work {
        Work { stores_one_in: requests, ..self }
    }
}

struct Answer<'e> {
    expected: &'e [u8],
    /// Bytes received so far. All parts but the last, which may be shorter, have the same length.
    came_bytes: usize,
}

impl Answer<'_> {
    /// Returns true if the part completes the reply.
    fn take(&mut self, header: Header, part: &[u8]) -> Outcome<bool> {
        let at = match usize::from(header.number) + 1 == usize::from(header.total) {
            true => self.expected.len() - part.len().min(self.expected.len()),
            false => usize::from(header.number) * part.len(),
        };
        if self.expected.get(at..at + part.len()) != Some(part) {
            let number = header.number;
            return fail(format!("part {number} is {:?}", String::from_utf8_lossy(part)));
        }
        self.came_bytes += part.len();
        Ok(self.came_bytes == self.expected.len())
    }
}
