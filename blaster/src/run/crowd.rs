//! The crowd: connections that send nothing (`--idle`), and slow clients (`--slow`).
//!
//! ```text
//! readers   request many long values at once, and read a byte at a time
//! writers   send a SET of a long value, a byte at a time
//! idle      connected, and silent
//! ```
//!
//! Where: `run` connects the crowd after the server is filled; one thread moves the crowd's bytes
//! until the traffic ends.
//! Invariant: each client has one connection, and does not reconnect. The result says how many
//! connections the server closed. The crowd's requests are in no tally.
//! Source: none; slow clients are the usual cause of memory that a server cannot give back.

use super::error::RunError;
use crate::measure::verdict::{Remark, Severity};
use crate::target::{Place, Target};
use crate::words::values::number;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum of `--idle`, and of `--slow`.
pub(crate) const CROWD_MAX: u32 = 100_000;
const KEY: &str = "kvblaster:slow";
const VALUE_BYTES: usize = 100_000;
/// Number of values that a reader requests at once.
const VALUES: usize = 40;
/// Time between two bytes of one client.
const BYTE_EVERY: Duration = Duration::from_secs(1);
/// Size of a reader's receive buffer in the kernel, in bytes.
const READER_BUFFER_BYTES: usize = 4096;
/// Longest wait for the server to accept a connection, and for an answer; then the run fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of an answer.
const LINE_BYTES_MAX: u64 = 200;
/// Longest sleep of the crowd's thread before it checks whether the traffic is over.
const TICK: Duration = Duration::from_millis(50);

/// The sizes of a crowd.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct CrowdFlags {
    /// In addition to the load, keep this many idle connections open
    #[arg(long, help_heading = "Sending requests", value_name = "N", default_value_t = 0)]
    #[arg(value_parser = number(0..=CROWD_MAX), conflicts_with = "agents")]
    pub idle: u32,
    /// In addition to the load, connect this many slow clients: half of them request long values
    /// and read one byte a second, the others send a long value, one byte a second
    #[arg(long, help_heading = "Sending requests", value_name = "N", default_value_t = 0)]
    #[arg(value_parser = number(0..=CROWD_MAX), conflicts_with = "agents")]
    pub slow: u32,
}

#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The slow clients: readers and writers alternate.
    slow: Vec<Slow>,
    idle: Vec<TcpStream>,
    /// The request that each writer sends again and again.
    set: Vec<u8>,
    address: Option<SocketAddr>,
}

#[derive(Debug)]
struct Slow {
    stream: TcpStream,
    /// A writer's offset in its request; `None` for a reader.
    sent: Option<usize>,
    is_closed: bool,
}

impl Crowd {
    /// Connects a crowd to the first target. Fails if the target is not reached over TCP, does not
    /// speak memcached's text protocol, or does not accept all connections; or if `stop` is set.
    pub(super) fn connect(
        flags: CrowdFlags,
        targets: &[Target],
        stop: &AtomicBool,
    ) -> Result<Crowd, RunError> {
        if flags.idle == 0 && flags.slow == 0 {
            return Ok(Crowd::default());
        }
        let wrong = |why: &str| RunError::Failed(format!("--idle and --slow: {why}"));
        let Some(&Target { place: Place::Tcp(address), is_redis: false, .. }) = targets.first()
        else {
            return Err(wrong("these flags need a memcached server that is reached over TCP"));
        };
        let mut crowd = Crowd { address: Some(address), ..Crowd::default() };
        let gathered = crowd.gather(flags, address, stop);
        // Relaxed: the flag orders no other memory.
        let is_stopped = stop.load(Ordering::Relaxed);
        if gathered.is_ok() && !is_stopped {
            return Ok(crowd);
        }
        let (nth, all) = (crowd.slow.len() + crowd.idle.len() + 1, flags.slow + flags.idle);
        crowd.leave();
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => format!("no answer within {} s", PATIENCE.as_secs()),
            _ => error.to_string(),
        };
        Err(match gathered {
            Err(error) if !is_stopped => {
                wrong(&format!("connection {nth} of {all}: {}", failed(error)))
            }
            _ => RunError::Stopped,
        })
    }

    /// Connects until the crowd is complete or `stop` is set.
    fn gather(
        &mut self,
        flags: CrowdFlags,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        if flags.slow > 0 {
            self.set = format!("set {KEY} 0 0 {VALUE_BYTES}\r\n").into_bytes();
            self.set.resize(self.set.len() + VALUE_BYTES, b'v');
            self.set.extend_from_slice(b"\r\n");
            exchange(&mut accepted(address)?, &self.set, "STORED")?;
        }
        // Relaxed, here and below: the flag orders no other memory.
        for nth in (0..flags.slow).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let mut stream = accepted(address)?;
            let is_reader = nth % 2 == 0;
            if is_reader {
                set_socket_recv_buffer_size(&stream, READER_BUFFER_BYTES)?;
                stream.write_all(format!("get {KEY}\r\n").repeat(VALUES).as_bytes())?;
            }
            stream.set_nonblocking(true)?;
            self.slow.push(Slow { stream, sent: (!is_reader).then_some(0), is_closed: false });
        }
        for _ in (0..flags.idle).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let stream = accepted(address)?;
            stream.set_nonblocking(true)?;
            self.idle.push(stream);
        }
        Ok(())
    }

    /// Reads or writes a byte for each slow client in turn, until `over` is set.
    pub(super) fn creep(&mut self, over: &AtomicBool) {
        let Ok(count @ 1..) = u32::try_from(self.slow.len()) else { return };
        let (gap, mut due, mut next) = (BYTE_EVERY / count, Instant::now(), 0);
        // Relaxed: the flag orders no other memory.
        while !over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < due {
                thread::sleep((due - now).min(TICK));
                continue;
            }
            due += gap;
            if let Some(one) = self.slow.get_mut(next) {
                one.step(&self.set);
            }
            next = (next + 1) % self.slow.len();
        }
    }

    /// Closes all connections and removes the crowd's item. Returns a remark if the server has
    /// closed connections.
    pub(super) fn leave(mut self) -> Option<Remark> {
        let is_closed = |stream: &mut TcpStream| {
            !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let idle = self.idle.iter_mut().filter_map(|one| is_closed(one).then_some(())).count();
        let closed = idle + self.slow.iter().filter(|one| one.is_closed).count();
        let all = self.idle.len() + self.slow.len();
        // The server may have no room for another connection until these connections are closed.
        drop((self.idle, self.slow));
        if let Some(address) = self.address.filter(|_| !self.set.is_empty()) {
            let delete = format!("delete {KEY}\r\n");
            // If the delete fails, the server is gone, which the run reports.
            let _ = accepted(address)
                .and_then(|mut stream| exchange(&mut stream, delete.as_bytes(), "DELETED"));
        }
        let sentence =
            format!("the server closed {closed} of the {all} connections of --idle and --slow");
        let remark = Remark { rule: "crowd".to_owned(), severity: Severity::Warning, sentence };
        (closed > 0).then_some(remark)
    }
}

impl Slow {
    fn step(&mut self, set: &[u8]) {
        let moved = match &mut self.sent {
            None => self.stream.read(&mut [0]),
            Some(sent) => {
                let byte = set.get(*sent..=*sent).unwrap_or_default();
                let written = self.stream.write(byte);
                *sent = (*sent + *written.as_ref().unwrap_or(&0)) % set.len().max(1);
                written
            }
        };
        self.is_closed |= match moved {
            Ok(bytes) => bytes == 0,
            // `WouldBlock`: no byte has arrived yet, or the socket has no room for a byte.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
    }
}

/// Connects, and waits for an answer, which shows that the server has accepted the connection.
fn accepted(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(&mut stream, b"mn\r\n", "MN")?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream, request: &[u8], expected: &str) -> io::Result<()> {
    stream.write_all(request)?;
    let mut line = Vec::new();
    BufReader::new(stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match String::from_utf8_lossy(&line).trim_end() {
        line if line == expected => Ok(()),
        "" => Err(io::Error::other("the server closed the connection")),
        line => Err(io::Error::other(format!("the server answers {line}, not {expected}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{self, Family};
    use std::net::TcpListener;

    /// Accepts connections, answers `mn` on all, a SET on the first and a DELETE on the last.
    /// Closes connection `closed` after its `mn`, and connection `refused` before its `mn`.
    fn serve(listener: &TcpListener, connections: usize, closed: usize, refused: usize) {
        let mut open = Vec::new();
        for nth in 0..connections {
            let (stream, _) = listener.accept().unwrap();
            if nth == refused {
                continue;
            }
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            (&stream).write_all(b"MN\r\n").unwrap();
            if nth == 0 {
                let mut set = vec![0; 32 + VALUE_BYTES];
                reader.read_exact(&mut set[..VALUE_BYTES]).unwrap();
                (&stream).write_all(b"STORED\r\n").unwrap();
            }
            if nth == connections - 1 {
                line.clear();
                reader.read_line(&mut line).unwrap();
                assert_eq!(line, "delete kvblaster:slow\r\n");
                (&stream).write_all(b"DELETED\r\n").unwrap();
            }
            if nth != closed {
                open.push(stream);
            }
        }
    }

    fn target(address: SocketAddr) -> Target {
        target::parse(&address.to_string(), Family::Any).unwrap()
    }

    #[test]
    fn a_crowd_connects_and_counts_whom_the_server_turns_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let targets = [target(listener.local_addr().unwrap())];
        let flags = CrowdFlags { idle: 3, slow: 2 };
        let remark = thread::scope(|scope| {
            // Seven connections: five of the crowd, one for the SET, and one for the delete.
            let server = scope.spawn(|| serve(&listener, 7, 4, usize::MAX));
            let over = AtomicBool::new(false);
            let mut crowd = Crowd::connect(flags, &targets, &over).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| crowd.creep(&over));
                over.store(true, Ordering::Relaxed);
            });
            let remark = crowd.leave();
            server.join().unwrap();
            remark
        });
        let sentence = remark.unwrap().sentence;
        assert_eq!(sentence, "the server closed 1 of the 5 connections of --idle and --slow");
    }

    #[test]
    fn a_crowd_that_is_refused_or_stopped_leaves_no_item() {
        for (is_stopped, told) in [(false, "connection 3 of 5: "), (true, "stopped by Ctrl-C")] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let targets = [target(listener.local_addr().unwrap())];
            let (stop, flags) = (AtomicBool::new(is_stopped), CrowdFlags { idle: 3, slow: 2 });
            // If `is_stopped` is false, five connections arrive: for the SET, for two slow clients,
            // for an idle client that is refused, and for the delete.
            let (connections, refused) = if is_stopped { (2, 2) } else { (5, 3) };
            let error = thread::scope(|scope| {
                let server = scope.spawn(|| serve(&listener, connections, usize::MAX, refused));
                let error = Crowd::connect(flags, &targets, &stop).unwrap_err().to_string();
                server.join().unwrap();
                error
            });
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_crowd_needs_memcached_over_tcp() {
        let connect = |flags| Crowd::connect(flags, &[], &AtomicBool::new(false));
        let told = connect(CrowdFlags { idle: 1, slow: 0 }).unwrap_err().to_string();
        assert_eq!(
            told,
            "--idle and --slow: these flags need a memcached server that is reached over TCP"
        );
        assert!(connect(CrowdFlags::default()).unwrap().leave().is_none());
    }
}
