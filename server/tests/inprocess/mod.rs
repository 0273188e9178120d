//! A server in the test's own process, and a client that sends and receives bytes.
//!
//! Where: shared by the tests of the column's loop.
//! Invariant: the server uses only loopback addresses. Every wait has a deadline.
#![allow(dead_code, reason = "each test uses a part of this module")]

pub(crate) mod datagrams;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port, Settings};
use protocol::ProtocolMode;
use protocol::binary::{Header, MAGIC_REPLY, MAGIC_REQUEST};
use testing::PATIENCE;

pub(crate) fn settings(columns: usize) -> Settings {
    Settings {
        listen: vec![Listen {
            host: Some("127.0.0.1".to_owned()),
            port: Port::Any,
            protocol: ProtocolMode::Auto,
        }],
        port: Port::Any,
        ..Settings::with_columns(columns)
    }
}

/// Like `settings`, but with one change of the settings of the columns.
pub(crate) fn settings_where(
    columns: usize,
    change: impl FnOnce(&mut columns::settings::Settings),
) -> Settings {
    let mut settings = settings(columns);
    change(&mut settings.columns);
    settings
}

pub(crate) fn start(settings: Settings) -> Server {
    Server::start(settings).unwrap()
}

pub(crate) fn connect(server: &Server) -> Client {
    Client::to(server.addresses()[0])
}

pub(crate) fn resident_bytes() -> usize {
    resident_bytes_of("self")
}

pub(crate) fn resident_bytes_of(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// A binary request without CAS unique and opaque.
pub(crate) fn frame(opcode: u8, extras: &[u8], key: &str, value: &str) -> Vec<u8> {
    let body = [extras, key.as_bytes(), value.as_bytes()].concat();
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode,
        key_bytes: u16::try_from(key.len()).unwrap(),
        extras_bytes: u8::try_from(extras.len()).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        ..Header::default()
    };
    [&header.to_bytes()[..], &body].concat()
}

/// The reply of a server without CAS uniques to a request of `frame`.
pub(crate) fn answer(opcode: u8, extras: &[u8], value: &str) -> Vec<u8> {
    let mut answer = frame(opcode, extras, "", value);
    answer[0] = MAGIC_REPLY;
    answer
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Returns false if the server has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut got = vec![0; bytes.len()];
        let mut at = 0;
        while at < got.len() {
            match self.0.read(&mut got[at..]) {
                Ok(0) => break,
                Ok(read) => at += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {:?}", got[..at].escape_ascii().to_string()),
            }
        }
        if got[..at] != *bytes {
            let mut more = [0; 200];
            let more_bytes = self.0.read(&mut more).unwrap_or(0);
            got.truncate(at);
            got.extend_from_slice(&more[..more_bytes]);
            at = got.len();
        }
        assert!(got[..at] == *bytes, "expected {:?}, got {:?}", shown(bytes), shown(&got[..at]));
    }

    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(reply);
    }

    /// Returns a line without its end, which is `\n` for an event and `\r\n` otherwise.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") {
            let read = self.0.read_exact(&mut byte);
            assert!(read.is_ok(), "{read:?} after {:?}", shown(&line));
            line.push(byte[0]);
        }
        line.truncate(line.trim_ascii_end().len());
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Reads until the server closes or resets the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} instead of the end"),
        }
        rest
    }

    pub(crate) fn expect_end(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?} instead of the end", shown(&rest));
    }

    /// Returns a statistic of `stats`, or of `stats udp` if the name begins with `udp_` or `xdp_`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let of_udp = name.starts_with("udp_") || name.starts_with("xdp_");
        let stats = self.stats(if of_udp { "udp" } else { "" });
        stats.get(name).unwrap_or_else(|| panic!("no {name} in stats")).parse().unwrap()
    }

    pub(crate) fn stats(&mut self, arguments: &str) -> HashMap<String, String> {
        self.send(format!("stats {arguments}\r\n"));
        let mut stats = HashMap::new();
        loop {
            let line = self.line();
            if line == "END" {
                return stats;
            }
            let (name, value) = line.strip_prefix("STAT ").unwrap().split_once(' ').unwrap();
            stats.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(300)];
    cut.escape_ascii().to_string()
}

/// Raises the limit of open files to `files`. Returns false if the hard limit is lower.
pub(crate) fn allow_files(files: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return true;
    }
    let wanted = Rlimit { current: Some(files), maximum: limit.maximum };
    limit.maximum.is_none_or(|maximum| maximum >= files)
        && setrlimit(Resource::Nofile, wanted).is_ok()
}
