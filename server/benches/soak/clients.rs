//! Clients that misbehave: some stall, and some connect only for a request or two.
//!
//! Where: beside the other actors. Invariant: these clients do not affect the other clients. The
//! server's answers to these clients are not checked, except that `version` must be answered.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::measure::Outcome;
use crate::measure::wire::{Answer, PROTOCOLS, Request, Verb, Wire};
use crate::site::{Progress, RunControl, Site};
use testing::random::{Random, hash};

const PAUSE_MS_MAX: u32 = 60;
/// The key of a long value. A stalled client requests it `GETS` times and reads no reply.
pub(crate) const WIDE: &str = "wide";
const WIDE_BYTES: usize = 300_000;
const GETS: usize = 100;

pub(crate) struct Stallers<'s> {
    site: &'s Site<'s>,
    random: Random,
    held: Vec<TcpStream>,
    connections_max: usize,
    value_bytes_max: u32,
}

impl<'s> Stallers<'s> {
    pub(crate) fn new(site: &'s Site<'s>, seed: u64) -> Stallers<'s> {
        // On a server that may lose no item, these connections may use only little of the memory.
        let (connections_max, value_bytes_max) =
            if site.loses { (200, 1_000_000) } else { (20, 100_000) };
        let random = Random::new(hash(seed, 2000));
        Stallers { site, random, held: Vec::new(), connections_max, value_bytes_max }
    }

    pub(crate) fn run(&mut self, control: &RunControl, progress: &Progress) -> Outcome<String> {
        while control.is_running() {
            self.stall()?;
            progress.add(1);
            if self.held.len() > self.connections_max {
                let most = u32::try_from(self.held.len())?;
                let gone = self.random.number(most) as usize;
                self.held.swap_remove(gone);
            }
            control.pause(Duration::from_millis(self.random.number(PAUSE_MS_MAX).into()));
        }
        self.held.clear();
        Ok(format!(
            "{} clients stalled, at most {} at a time",
            progress.count(),
            self.connections_max
        ))
    }

    fn stall(&mut self) -> Outcome<()> {
        let bytes = 1 + self.random.number(self.value_bytes_max) as usize;
        let part = vec![b'h'; self.random.number(self.value_bytes_max) as usize % bytes];
        let number = self.random.number(1000);
        let mut out = match self.random.number(6) {
            0 | 1 => format!("set half-{number} 0 0 {bytes}\r\n").into_bytes(),
            2 => format!("ms half-{number} {bytes}\r\n").into_bytes(),
            3 => {
                let body = u32::try_from(8 + 4 + bytes)?.to_be_bytes();
                let header = [b"\x80\x01\x00\x04\x08\x00\x00\x00", &body[..], &[0; 12]].concat();
                [&header[..], &[0; 8], b"half"].concat()
            }
            4 => {
                let value = vec![b'w'; WIDE_BYTES];
                let wide = Request { verb: Verb::Set(&value), key: WIDE, exptime: 0 };
                let mut wire = self.site.text()?;
                let (Answer::Done | Answer::Refused(_)) = wire.ask(&wide)? else {
                    return Err("a long value was neither stored nor refused".into());
                };
                format!("get {WIDE}\r\n").repeat(GETS).into_bytes()
            }
            _ => b"get half-a-line".to_vec(),
        };
        if !out.starts_with(b"get ") {
            out.extend_from_slice(&part);
        }
        let mut stream = TcpStream::connect(self.site.address())?;
        stream.set_nonblocking(true)?;
        let mut rest = &out[..];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                // The socket is full, or the server has closed it.
                Err(error) if error.kind() != ErrorKind::Interrupted => break,
                Err(_) => {}
            }
        }
        self.held.push(stream);
        Ok(())
    }
}

pub(crate) fn churn(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 3000));
    let mut rude = 0_u64;
    while control.is_running() {
        progress.add(1);
        match random.number(4) {
            // The client closes its connection without a request, or in the middle of one.
            0 => {
                let mut stream = TcpStream::connect(site.address())?;
                // The server may have closed the connection already.
                let _ = stream.write_all(&b"set k 0 0 100\r\nabc"[..random.number(18) as usize]);
                rude += 1;
            }
            1 => {
                let protocol = PROTOCOLS[random.number(3) as usize];
                let mut wire = Wire::connect(site.address(), protocol)?;
                wire.ask(&Request { verb: Verb::Get, key: "nothing", exptime: 0 })?;
            }
            _ => {
                let said = site.text()?.line("version")?;
                if !said.starts_with("VERSION ") {
                    return Err(format!("the answer to version is {said:?}").into());
                }
            }
        }
        control.pause(Duration::from_millis(random.number(PAUSE_MS_MAX / 4).into()));
    }
    Ok(format!(
        "{} connections opened and closed, {rude} of them without a whole request",
        progress.count()
    ))
}
