//! A client that asks for values by UDP, some at a time, and looks at each byte of the answers.
//!
//! Where: at the other end of the link, on a processor of its own.
//! Invariant: an answer counts when all of its parts have come, and its value is the key's. What is
//! lost by the way is asked for again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use protocol::udp::Header;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::measure::{Outcome, fail};

/// Bytes of values that are asked for at a time: the answers fit the receive buffer.
const IN_FLIGHT_BYTES: usize = 128 << 10;
const IN_FLIGHT_MAX: usize = 16;
const RECEIVE_BYTES: usize = 16 << 20;
/// How long an answer is waited for, before it is taken for lost.
const SILENCE: Duration = Duration::from_millis(200);
/// So many answers in a row may be lost.
const LOST_MAX: u32 = 100;

pub(crate) struct Client {
    socket: UdpSocket,
    id: u16,
}

/// The value of a key.
pub(crate) fn value(key: u32, bytes: usize) -> Vec<u8> {
    key.to_string().bytes().cycle().take(bytes).collect()
}

impl Client {
    /// Of the server there.
    pub(crate) fn new(server: SocketAddr) -> Outcome<Client> {
        let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(SILENCE))?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES)?;
        Ok(Client { socket, id: 0 })
    }

    /// Asks for values of this length, one key behind the other, for a while. How many came.
    pub(crate) fn ask_for(&mut self, time: Duration, keys: u32, bytes: usize) -> Outcome<u64> {
        let in_flight = (IN_FLIGHT_BYTES / bytes.max(1)).clamp(1, IN_FLIGHT_MAX);
        let values: Vec<Vec<u8>> = (0..keys).map(|key| value(key, bytes)).collect();
        let (until, mut key, mut answered, mut lost) = (Instant::now() + time, 0, 0, 0);
        while Instant::now() < until {
            let first = self.id;
            let mut asked = Vec::new();
            for _ in 0..in_flight {
                self.id = self.id.wrapping_add(1);
                let header = Header::request(self.id, 0).bytes();
                let request = [&header[..], format!("get {key}\r\n").as_bytes()].concat();
                self.socket.send(&request)?;
                asked.push(Answer::of(key, &values[key as usize]));
                key = (key + 1) % keys;
            }
            let came = self.collect(first, &mut asked)?;
            answered += came as u64;
            lost = if came == in_flight { 0 } else { lost + 1 };
            if lost > LOST_MAX {
                return fail(format!("answers of {bytes} bytes do not come"));
            }
        }
        Ok(answered)
    }

    /// Receives the answers to the requests behind `first`; how many are whole.
    fn collect(&self, first: u16, asked: &mut [Answer]) -> Outcome<usize> {
        let (mut buffer, mut whole) = (vec![0; 1 << 16], 0);
        while whole < asked.len() {
            let bytes = match self.socket.recv(&mut buffer) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let Some((header, part)) = Header::read(&buffer[..bytes]) else { continue };
            let number = usize::from(header.id.wrapping_sub(first).wrapping_sub(1));
            let Some(answer) = asked.get_mut(number) else { continue };
            whole += usize::from(answer.take(header, part)?);
        }
        Ok(whole)
    }
}

/// What comes of one request.
struct Answer {
    expected: Vec<u8>,
    /// Bytes that have come: of all parts but the last, which is shorter, as many.
    came_bytes: usize,
}

impl Answer {
    fn of(key: u32, value: &[u8]) -> Answer {
        let head = format!("VALUE {key} 0 {}\r\n", value.len());
        let expected = [head.as_bytes(), value, b"\r\nEND\r\n"].concat();
        Answer { expected, came_bytes: 0 }
    }

    /// Takes a part; true if it was the last that was missing.
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
