//! A connection that sends one request at a time, in any of three protocols, and reads the answer.
//!
//! Where: between a program and a server.
//! Invariant: an answer is read whole before the next request is sent; an answer that is not valid
//! in the protocol is an error.
//! Source: memcached's `protocol.txt` and `protocol_binary.h`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use protocol::binary::{EXPTIME_NO_CREATE, HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST};

use super::{Outcome, fail};

/// If an answer takes longer, the request fails. The soak test stops the server for some seconds.
const SILENCE: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Text,
    Meta,
    Binary,
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Text => "text",
            Protocol::Meta => "meta",
            Protocol::Binary => "binary",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    Get,
    Set(&'a [u8]),
    Add(&'a [u8]),
    Replace(&'a [u8]),
    Append(&'a [u8]),
    Delete,
    Increment(u64),
    Touch,
}

/// A request. `exptime` is in seconds from now, or 0 for no expiry; some verbs ignore `exptime`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb<'a>,
    pub(crate) key: &'a str,
    pub(crate) exptime: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Value(Vec<u8>),
    Number(u64),
    Done,
    /// The key is absent, or the verb's condition did not hold and the value was not stored.
    NotDone,
    Refused(String),
}

/// Opens a connection, and waits until a column answers. Later reads fail after the time `silence`.
pub(crate) fn accepted(address: &str, silence: Duration) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(silence))?;
    stream.write_all(b"mn\r\n")?;
    stream.read_exact(&mut [0; 4])?;
    Ok(stream)
}

pub(crate) struct Wire {
    pub(crate) protocol: Protocol,
    stream: TcpStream,
    out: Vec<u8>,
    pub(crate) input: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: &str, protocol: Protocol) -> Outcome<Wire> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Wire { protocol, stream, out: Vec::new(), input: Vec::new() })
    }

    pub(crate) fn ask(&mut self, ask: &Request<'_>) -> Outcome<Answer> {
        self.out.clear();
        match self.protocol {
            Protocol::Text => text(ask, &mut self.out)?,
            Protocol::Meta => meta(ask, &mut self.out)?,
            Protocol::Binary => binary(ask, &mut self.out),
        }
        self.stream.write_all(&self.out)?;
        match self.protocol {
            Protocol::Binary => self.frame(ask.verb),
            _ => self.lines(ask),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    pub(crate) fn line(&mut self, command: &str) -> Outcome<String> {
        self.stream.write_all(format!("{command}\r\n").as_bytes())?;
        self.read_line()
    }

    /// Returns no rows if the server does not know the command.
    pub(crate) fn stats(&mut self, command: &str) -> Outcome<Vec<(String, String)>> {
        let mut line = self.line(command)?;
        let mut rows = Vec::new();
        while let Some(row) = line.strip_prefix("STAT ") {
            let (name, value) = row.split_once(' ').unwrap_or((row, ""));
            rows.push((name.to_owned(), value.to_owned()));
            line = self.read_line()?;
        }
        Ok(rows)
    }

    /// Returns the value of the statistic `name` of `stats columns` for each column.
    pub(crate) fn of_columns(&mut self, name: &str) -> Outcome<Vec<u64>> {
        let rows = self.stats("stats columns")?;
        let of_name = rows.iter().filter(|(row, _)| row.rsplit(':').next() == Some(name));
        Ok(of_name.map(|(_, number)| number.parse()).collect::<Result<_, _>>()?)
    }

    fn lines(&mut self, ask: &Request<'_>) -> Outcome<Answer> {
        let line = self.read_line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["VALUE", key, _, bytes] if key == ask.key => {
                let value = self.value(bytes.parse()?)?;
                match self.read_line()?.as_str() {
                    "END" => Answer::Value(value),
                    more => return fail(format!("{more:?} follows the value of {key}, not END")),
                }
            }
            ["VA", bytes, ..] => Answer::Value(self.value(bytes.parse()?)?),
            ["STORED" | "DELETED" | "TOUCHED" | "HD", ..] => Answer::Done,
            ["END" | "NOT_STORED" | "NOT_FOUND" | "EN" | "NS" | "NF", ..] => Answer::NotDone,
            [number] if number.parse::<u64>().is_ok() => Answer::Number(number.parse()?),
            ["ERROR" | "CLIENT_ERROR" | "SERVER_ERROR", ..] => Answer::Refused(line),
            _ => return fail(format!("{line:?} is no answer to {ask:.200?}")),
        };
        Ok(match (answer, ask.verb) {
            (Answer::Value(value), Verb::Increment(_)) => {
                Answer::Number(str::from_utf8(&value)?.parse()?)
            }
            (answer, _) => answer,
        })
    }

    fn frame(&mut self, verb: Verb<'_>) -> Outcome<Answer> {
        let header = self.take(HEADER_BYTES)?;
        let Some(header) = header.first_chunk().map(Header::from_bytes) else {
            return fail("an answer has no header".to_owned());
        };
        if header.magic != MAGIC_REPLY || header.opcode != opcode(verb) {
            return fail(format!("the header of an answer is wrong: {header:?}"));
        }
        let body = self.take(usize::try_from(header.body_bytes)?)?;
        Ok(match header.status {
            0 => match (verb, body.first_chunk()) {
                (Verb::Get, _) => {
                    let before = usize::from(header.extras_bytes) + usize::from(header.key_bytes);
                    Answer::Value(body.get(before..).unwrap_or_default().to_vec())
                }
                (Verb::Increment(_), Some(number)) => Answer::Number(u64::from_be_bytes(*number)),
                (Verb::Increment(_), None) => return fail(format!("{header:?} has no number")),
                _ => Answer::Done,
            },
            // The statuses "not found", "exists" and "not stored".
            1 | 2 | 5 => Answer::NotDone,
            _ => Answer::Refused(String::from_utf8_lossy(&body).into_owned()),
        })
    }

    fn value(&mut self, bytes: usize) -> Outcome<Vec<u8>> {
        let mut value = self.take(bytes + 2)?;
        if !value.ends_with(b"\r\n") {
            return fail(format!("a value of {bytes} bytes does not end in \\r\\n"));
        }
        value.truncate(bytes);
        Ok(value)
    }

    fn read_line(&mut self) -> Outcome<String> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.input[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.take(searched + at + 1)?;
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            searched = self.input.len();
            self.receive()?;
        }
    }

    fn take(&mut self, bytes: usize) -> Outcome<Vec<u8>> {
        while self.input.len() < bytes {
            self.receive()?;
        }
        Ok(self.input.drain(..bytes).collect())
    }

    pub(crate) fn receive(&mut self) -> Outcome<()> {
        let start = self.input.len();
        self.input.resize(start + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => fail("the server closed the connection".to_owned()),
            _ => Ok(()),
        }
    }
}

fn text(ask: &Request<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let (key, exptime) = (ask.key, ask.exptime);
    let (name, value) = match ask.verb {
        Verb::Get => return Ok(write!(out, "get {key}\r\n")?),
        Verb::Delete => return Ok(write!(out, "delete {key}\r\n")?),
        Verb::Increment(by) => return Ok(write!(out, "incr {key} {by}\r\n")?),
        Verb::Touch => return Ok(write!(out, "touch {key} {exptime}\r\n")?),
        Verb::Set(value) => ("set", value),
        Verb::Add(value) => ("add", value),
        Verb::Replace(value) => ("replace", value),
        Verb::Append(value) => ("append", value),
    };
    write!(out, "{name} {key} 0 {exptime} {}\r\n", value.len())?;
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn meta(ask: &Request<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let (key, exptime) = (ask.key, ask.exptime);
    let (mode, value) = match ask.verb {
        Verb::Get => return Ok(write!(out, "mg {key} v\r\n")?),
        Verb::Delete => return Ok(write!(out, "md {key}\r\n")?),
        Verb::Increment(by) => return Ok(write!(out, "ma {key} D{by} v\r\n")?),
        Verb::Touch => return Ok(write!(out, "mg {key} T{exptime}\r\n")?),
        Verb::Set(value) => ("S", value),
        Verb::Add(value) => ("E", value),
        Verb::Replace(value) => ("R", value),
        Verb::Append(value) => ("A", value),
    };
    write!(out, "ms {key} {} M{mode}", value.len())?;
    // An append keeps the item's exptime.
    if mode != "A" {
        write!(out, " T{exptime}")?;
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn binary(ask: &Request<'_>, out: &mut Vec<u8>) {
    let exptime = ask.exptime.to_be_bytes();
    // The extras of verbs that store a value: client flags, which are 0, and exptime.
    let stores = [[0; 4], exptime].concat();
    let (extras, value): (Vec<u8>, &[u8]) = match ask.verb {
        Verb::Get | Verb::Delete => (Vec::new(), b""),
        Verb::Set(value) | Verb::Add(value) | Verb::Replace(value) => (stores, value),
        Verb::Append(value) => (Vec::new(), value),
        Verb::Increment(by) => {
            let (by, initial) = (by.to_be_bytes(), [0; 8]);
            ([&by[..], &initial, &EXPTIME_NO_CREATE.to_be_bytes()].concat(), b"")
        }
        Verb::Touch => (exptime.to_vec(), b""),
    };
    let body_bytes = extras.len() + ask.key.len() + value.len();
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: opcode(ask.verb),
        key_bytes: u16::try_from(ask.key.len()).unwrap_or(u16::MAX),
        extras_bytes: u8::try_from(extras.len()).unwrap_or(u8::MAX),
        body_bytes: u32::try_from(body_bytes).unwrap_or(u32::MAX),
        ..Header::default()
    };
    for part in [&header.to_bytes()[..], &extras, ask.key.as_bytes(), value] {
        out.extend_from_slice(part);
    }
}

fn opcode(verb: Verb<'_>) -> u8 {
    match verb {
        Verb::Get => 0x00,
        Verb::Set(_) => 0x01,
        Verb::Add(_) => 0x02,
        Verb::Replace(_) => 0x03,
        Verb::Delete => 0x04,
        Verb::Increment(_) => 0x05,
        Verb::Append(_) => 0x0e,
        Verb::Touch => 0x1c,
    }
}
