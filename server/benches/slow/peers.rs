//! Slow clients of one server: readers request many values and read a byte at a time, writers send
//! a byte at a time, and idle clients send nothing.
//!
//! Where: beside the client whose response times are measured.
//! Invariant: each client keeps one connection for the whole run. Between windows a reader stops
//! within a reply, a writer within a request. It is an error if the server closes a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::Options;
use crate::measure::wire::{Protocol, Wire, accepted};
use crate::measure::{Outcome, fail};

const SILENCE: Duration = Duration::from_secs(60);
/// Size of a reader's receive buffer in the kernel.
const READER_BUFFER_BYTES: usize = 4096;

pub(crate) struct Peers {
    /// Readers and writers alternate.
    slow: Vec<Slow>,
    idle: Vec<TcpStream>,
    /// The request that each writer sends again and again.
    set: Vec<u8>,
    /// Number of steps so far. The next step is for the slow client `next % slow.len()`.
    next: usize,
}

struct Slow {
    stream: TcpStream,
    /// A writer's offset in its request; `None` for a reader.
    sent: Option<usize>,
}

impl Peers {
    /// Connects all clients, waits until each is accepted, and sends the readers' requests.
    pub(crate) fn connect(address: &str, options: &Options) -> Outcome<Peers> {
        let value = "v".repeat(options.slow_value_bytes);
        let set = format!("set slow 0 0 {}\r\n{value}\r\n", value.len());
        let stored = Wire::connect(address, Protocol::Text)?.line(set.trim_end())?;
        if stored != "STORED" {
            return fail(format!("{stored} answers the SET of a long value"));
        }
        let quiet = || -> Outcome<TcpStream> {
            let stream = accepted(address, SILENCE)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let mut slow = Vec::new();
        for nth in 0..options.readers.max(options.writers) {
            if nth < options.readers {
                let mut stream = quiet()?;
                set_socket_recv_buffer_size(&stream, READER_BUFFER_BYTES)?;
                stream.write_all("get slow\r\n".repeat(options.slow_values).as_bytes())?;
                slow.push(Slow { stream, sent: None });
            }
            if nth < options.writers {
                slow.push(Slow { stream: quiet()?, sent: Some(0) });
            }
        }
        let idle = (0..options.idle).map(|_| quiet()).collect::<Outcome<_>>()?;
        Ok(Peers { slow, idle, set: set.into_bytes(), next: 0 })
    }

    /// Reads or writes a byte for each slow client in turn, until `over` is set.
    pub(crate) fn creep(&mut self, bytes_per_s: f64, over: &AtomicBool) -> Outcome<()> {
        let count = u32::try_from(self.slow.len().max(1))?;
        let gap = Duration::from_secs_f64(1.0 / bytes_per_s) / count;
        let mut due = Instant::now();
        // Relaxed: the flag orders no other memory.
        while !over.load(Ordering::Relaxed) && !self.slow.is_empty() {
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let next = self.next % self.slow.len();
            self.slow[next].step(&self.set)?;
            self.next = next + 1;
        }
        Ok(())
    }

    /// Fails if the server has closed an idle connection. (`step` fails for a slow client.)
    pub(crate) fn are_all_there(&mut self) -> Outcome<()> {
        for stream in &mut self.idle {
            match stream.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return fail(format!("{other:?} from an idle connection")),
            }
        }
        Ok(())
    }
}

impl Slow {
    fn step(&mut self, set: &[u8]) -> Outcome<()> {
        let (moved, name) = match &mut self.sent {
            None => (self.stream.read(&mut [0]), "reader"),
            Some(sent) => {
                let written = self.stream.write(&set[*sent..=*sent]);
                *sent = (*sent + *written.as_ref().unwrap_or(&0)) % set.len();
                (written, "writer")
            }
        };
        match moved {
            Ok(1) => Ok(()),
            // No byte has arrived yet, or the socket has no room for one.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => fail(format!("{other:?} from a slow {name}")),
        }
    }
}
