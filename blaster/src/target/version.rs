//! The information that a server gives about itself: version, process, items and memory.
//!
//! Where: queried before the traffic, and recorded in the manifest.
//! Invariant: a query takes at most a few seconds, whatever program listens at the address. A field
//! that is missing in the answer is unknown.
//! Source: memcached's `version` and `stats` (over UDP after an 8-byte header); Redis's `INFO`.

use crate::target::{Place, Target};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// An attempt to connect fails after this time.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read of an answer. `INFO` has about 7,000, and `stats` 4,000.
const ANSWER_BYTES_MAX: usize = 32 << 10;
const VERSION_CHARS_MAX: usize = 100;
const DATAGRAMS_MAX: usize = 64;
/// memcached's UDP header: request 1, datagram 0 of 1.
const HEADER: [u8; 8] = [0, 1, 0, 0, 0, 1, 0, 0];

/// A server's information about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerInfo {
    /// The server's version.
    pub version: Option<String>,
    /// Bytes that the server may use for items.
    pub limit_bytes: Option<u64>,
    /// The server's process id on its machine.
    pub pid: Option<u64>,
    /// Seconds since the server was started.
    pub uptime_s: Option<u64>,
    /// Number of items that the server holds.
    pub items: Option<u64>,
    /// Bytes of the items that the server holds.
    pub items_bytes: Option<u64>,
}

impl ServerInfo {
    /// Parses memcached's answers to `version` and `stats`, or Redis's answer to `INFO`.
    fn read(answer: &str) -> ServerInfo {
        let is_redis = answer.contains("redis_version:") || answer.contains("valkey_version:");
        ServerInfo {
            version: version(answer),
            limit_bytes: figure(answer, &["STAT limit_maxbytes ", "maxmemory:"])
                .filter(|bytes| *bytes > 0),
            pid: figure(answer, &["STAT pid ", "process_id:"]),
            uptime_s: figure(answer, &["STAT uptime ", "uptime_in_seconds:"]),
            items: match is_redis {
                true => Some(redis_keys(answer)),
                false => figure(answer, &["STAT curr_items "]),
            },
            items_bytes: figure(answer, &["STAT bytes ", "used_memory_dataset:"]),
        }
    }
}

/// Queries a server, in Redis's protocol if `is_resp` is true. Fails if the target does not accept
/// connections. Over UDP, this error may go unnoticed.
pub(crate) fn query(target: &Target, is_resp: bool) -> io::Result<ServerInfo> {
    let question = match (&target.place, is_resp) {
        (Place::Udp(_) | Place::Xdp(..), _) => "version\r\n",
        (_, true) => "*1\r\n$4\r\nINFO\r\n",
        (_, false) => "version\r\nstats\r\n",
    };
    let mut all = answer(target, question)?;
    // A datagram carries one request, so `stats` needs a second datagram.
    if target.place.datagrams().is_some() && version(&all).is_some() {
        all += &answer(target, "stats\r\n").unwrap_or_default();
    }
    Ok(ServerInfo::read(&all))
}

/// Queries a UDP server for its number of threads, over TCP on the same port.
pub(crate) fn threads(target: &Target) -> io::Result<Option<NonZeroU16>> {
    let place = match &target.place {
        Place::Udp(address) | Place::Xdp(_, address) => Place::Tcp(*address),
        other => other.clone(),
    };
    let answer = answer(&Target { place, ..target.clone() }, "stats settings\r\n")?;
    let mut lines = answer.split("\r\n");
    let threads = lines.find_map(|line| line.strip_prefix("STAT num_threads "));
    Ok(threads.and_then(|threads| threads.parse().ok()))
}

/// Asks Hypostyle, over one of its connections, how many connections its first column (server
/// thread) has accepted.
pub(crate) fn accepted_by_first(stream: &TcpStream) -> io::Result<u64> {
    let answer = query_stream(stream, b"stats columns\r\n")?;
    let answer = String::from_utf8_lossy(&answer);
    let accepted = figure(&answer, &["STAT columns:0:total_connections "]);
    accepted.filter(|_| is_whole(&answer)).ok_or_else(|| {
        io::Error::other(
            "the server does not report how many connections each of its threads has accepted \
             (stats columns)",
        )
    })
}

/// Sends a command, and returns the answer or the part of the answer that arrived in time.
pub(crate) fn answer(target: &Target, question: impl AsRef<[u8]>) -> io::Result<String> {
    let question = question.as_ref();
    let answer = match &target.place {
        Place::Tcp(address) => {
            query_stream(TcpStream::connect_timeout(address, CONNECT_MAX)?, question)
        }
        Place::Unix(path) => query_stream(connect_unix(path)?, question),
        Place::Udp(address) | Place::Xdp(_, address) => match query_udp(*address, question) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            answer => answer,
        },
    };
    Ok(String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned())
}

/// Connects with a time limit, because `connect` blocks while the server's backlog is full.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&fd, Timeout::Send, Some(CONNECT_MAX))?;
    match connect(&fd, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        connected => Ok(connected.map(|()| UnixStream::from(fd))?),
    }
}

fn query_stream(mut stream: impl Read + Write + AsFd, question: &[u8]) -> io::Result<Vec<u8>> {
    for side in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&stream, side, Some(WAIT))?;
    }
    stream.write_all(question)?;
    Ok(until_whole(&mut stream))
}

fn query_udp(address: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.connect(address)?;
    socket.send(&[&HEADER, question].concat())?;
    let mut parts = BTreeMap::new();
    let (end, mut datagram) = (Instant::now() + WAIT, [0; ANSWER_BYTES_MAX]);
    loop {
        let bytes = socket.recv(&mut datagram)?;
        // The header: request, datagram, number of datagrams, and zero, of two bytes each.
        let [_, _, a, b, c, d, _, _, part @ ..] = &datagram[..bytes] else { continue };
        let (number, all) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        parts.insert(number, part.to_vec());
        let is_over = Instant::now() >= end || parts.len() >= DATAGRAMS_MAX;
        if parts.len() >= usize::from(all) || is_over {
            return Ok(parts.into_values().flatten().collect());
        }
    }
}

fn until_whole(stream: &mut impl Read) -> Vec<u8> {
    let end = Instant::now() + WAIT;
    let mut answer = Vec::new();
    let mut part = [0; 512];
    while answer.len() < ANSWER_BYTES_MAX && Instant::now() < end {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
        }
        if is_whole(&String::from_utf8_lossy(&answer)) {
            break;
        }
    }
    answer
}

/// True if the answer ends with a line like `END` or an error, or is as long as Redis announced.
fn is_whole(answer: &str) -> bool {
    let errors = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR", "-"];
    let last = answer.strip_suffix("\r\n").map(|lines| lines.rsplit('\n').next());
    let is_end = |last: &str| ["END", "MN", "OK", "+OK"].contains(&last) || last.starts_with(':');
    let is_last = |last: &str| is_end(last) || errors.iter().any(|error| last.starts_with(error));
    let announced = answer.strip_prefix('$').and_then(|rest| rest.split_once("\r\n"));
    let is_all = |(bytes, rest): (&str, &str)| {
        bytes.parse().is_ok_and(|bytes: usize| rest.len() >= bytes + "\r\n".len())
    };
    announced.is_some_and(is_all) || last.flatten().is_some_and(is_last)
}

/// The number in the first complete line that begins with one of the texts `begins`.
fn figure(answer: &str, begins: &[&str]) -> Option<u64> {
    let mut lines = answer.split_inclusive('\n').filter_map(|line| line.strip_suffix("\r\n"));
    let figure = lines.find_map(|line| begins.iter().find_map(|begin| line.strip_prefix(begin)));
    figure?.trim().parse().ok()
}

/// Number of keys in all of Redis's databases, from lines like `db0:keys=3,expires=0`.
fn redis_keys(answer: &str) -> u64 {
    let keys = |line: &str| {
        let (name, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        name.parse::<u32>().ok()?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    answer.lines().filter_map(keys).sum()
}

/// The version in an answer; `None` if the version's line is missing or incomplete.
fn version(answer: &str) -> Option<String> {
    let mut lines = answer.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.find_map(|line| {
        let (name, version) = ["VERSION ", "redis_version:", "valkey_version:"]
            .iter()
            .find_map(|name| Some((*name, line.strip_prefix(name)?)))?;
        let version: String = version
            .trim()
            .chars()
            .filter(|one| !one.is_control())
            .take(VERSION_CHARS_MAX)
            .collect();
        let of = name.strip_suffix("_version:").map_or(String::new(), |of| format!("{of} "));
        (!version.is_empty()).then(|| of + &version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Family, parse};
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn versions_are_found_in_answers() {
        assert_eq!(version("VERSION 1.6.45\r\n").as_deref(), Some("1.6.45"));
        let redis = "$700\r\n# Server\r\nredis_version:8.0.2\r\nredis_mode:standalone\r\n";
        assert_eq!(version(redis).as_deref(), Some("redis 8.0.2"));
        for nothing in ["", "VERSION 1.6", "VERSION \r\n", "ERROR\r\n", "-NOAUTH\r\n", "\u{fffd}\n"]
        {
            assert_eq!(version(nothing), None, "{nothing:?}");
        }
        let long = format!("VERSION {}\u{1b}[31m\r\n", "1".repeat(500));
        assert_eq!(version(&long).unwrap().len(), VERSION_CHARS_MAX);
    }

    #[test]
    fn an_answer_is_whole_when_nothing_more_will_come() {
        for whole in [
            "VERSION 1\r\nSTAT pid 1\r\nEND\r\n",
            "VERSION 1\r\nERROR\r\n",
            "CLIENT_ERROR unauthenticated\r\n",
            "-NOAUTH x\r\n",
            "$5\r\na\r\nb\r\n\r\n",
            "HD\r\nEN\r\nMN\r\n",
            "+OK\r\n",
            ":12\r\n",
        ] {
            assert!(is_whole(whole), "{whole:?}");
            assert!((1..whole.len() - 1).all(|part| !is_whole(&whole[..part])), "{whole:?}");
        }
        let redis = "$9\r\nredis_version:8\r\nmaxmemory:1048576\r\nmaxmemory_human:1M\r\n";
        assert_eq!(ServerInfo::read(redis).limit_bytes, Some(1 << 20));
        for none in ["maxmemory:0\r\n", "STAT limit_maxbytes 67", "STAT limit_maxbytes x\r\n"] {
            assert_eq!(ServerInfo::read(none).limit_bytes, None, "{none:?}");
        }
        let keyspace = format!("{redis}process_id:7\r\ndb0:keys=3,expires=0\r\ndb2:keys=2\r\n");
        let info = ServerInfo::read(&keyspace);
        assert_eq!(
            (info.items, info.pid, ServerInfo::read(redis).items),
            (Some(5), Some(7), Some(0))
        );
    }

    #[test]
    fn a_server_is_asked_and_one_that_is_gone_has_no_version() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 16];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(b"VERS").unwrap();
            stream.write_all(b"ION 1.2.3\r\nSTAT pid 1\r\nSTAT limit_maxbytes 6710").unwrap();
            stream.write_all(b"8864\r\nEND\r\n").unwrap();
            question
        });
        let target = parse(&address, Family::Any).unwrap();
        let info = ServerInfo {
            version: Some("1.2.3".to_owned()),
            limit_bytes: Some(67_108_864),
            pid: Some(1),
            ..ServerInfo::default()
        };
        assert_eq!(query(&target, false).unwrap(), info);
        assert_eq!(&server.join().unwrap(), b"version\r\nstats\r\n");
    }

    #[test]
    fn a_unix_socket_whose_server_takes_nobody_is_given_up() {
        let path = std::env::temp_dir().join(format!("kvblaster-full-{}", std::process::id()));
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // With a backlog of 0, only one connection can wait to be accepted: `_waiting`.
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = connect_unix(&path).unwrap();
        let target = parse(&format!("unix:{}", path.display()), Family::Any).unwrap();
        assert_eq!(query(&target, false).unwrap_err().kind(), io::ErrorKind::TimedOut);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_server_at_a_udp_port_says_over_tcp_how_many_threads_it_has() {
        let rows = [
            (&b"STAT maxbytes 1\r\nSTAT num_threads 4\r\nSTAT x y\r\nEND\r\n"[..], Some(4)),
            (b"STAT num_threads_per_udp 4\r\nSTAT num_threads 0\r\nEND\r\n", None),
            (b"ERROR\r\n", None),
        ];
        for (answer, threads) in rows {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let name = format!("udp://{}", listener.local_addr().unwrap());
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 16];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(answer).unwrap();
                question
            });
            let target = parse(&name, Family::Any).unwrap();
            assert_eq!(super::threads(&target).unwrap().map(NonZeroU16::get), threads);
            assert_eq!(&server.join().unwrap(), b"stats settings\r\n");
            assert!(super::threads(&target).is_err());
        }
    }

    #[test]
    fn a_server_is_asked_over_udp() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("udp://{}", socket.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut questions = Vec::new();
            // The second answer's two datagrams are sent in reverse order.
            let answers: [&[(u8, u8, &[u8])]; 2] = [
                &[(0, 1, b"VERSION 1.6.45\r\n")],
                &[(1, 2, b"rr_items 7\r\nEND\r\n"), (0, 2, b"STAT pid 5\r\nSTAT cu")],
            ];
            for parts in answers {
                let mut question = [0; 64];
                let (bytes, from) = socket.recv_from(&mut question).unwrap();
                for (number, all, part) in parts {
                    let head = [question[0], question[1], 0, *number, 0, *all, 0, 0];
                    socket.send_to(&[&head[..], part].concat(), from).unwrap();
                }
                questions.extend_from_slice(&question[8..bytes]);
            }
            questions
        });
        let target = parse(&name, Family::Any).unwrap();
        let info = query(&target, false).unwrap();
        assert_eq!(
            (info.version.as_deref(), info.pid, info.items),
            (Some("1.6.45"), Some(5), Some(7))
        );
        assert_eq!(server.join().unwrap(), b"version\r\nstats\r\n");
    }
}
