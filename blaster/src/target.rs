//! Targets: the names that the user gives to servers, resolved to addresses.
//!
//! Where: targets are parsed once, before the first connection. `ring` then assigns keys to
//! targets.
//! Invariant: a parsed target has an address. The host name is kept as the user wrote it, because
//! ketama (see `ring`) hashes the name and not the address.

pub(crate) mod ring;
pub mod steer;
pub(crate) mod version;

pub use ring::{Ketama, Ring};

use net::xdp::Mode;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// memcached's default port.
pub const MEMCACHED_PORT: u16 = 11211;
/// Redis's default port.
pub const REDIS_PORT: u16 = 6379;
/// The largest number of targets in one run.
pub const TARGETS_MAX: usize = 1024;
/// The largest weight of a target.
pub const WEIGHT_MAX: u32 = 1 << 20;
const WRONG_WEIGHT: &str = "a weight must be a whole number from 1 to 1048576";
const UNIX_PATH_BYTES_MAX: usize = 107;
const ADDRESSES_MAX: usize = 16;
/// Longest wait for a connection to one of a host's addresses; then the next address is tried.
const TRY_MAX: Duration = Duration::from_millis(500);

/// A server's address, and the transport through which the server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The address of a TCP server.
    Tcp(SocketAddr),
    /// The address of a memcached UDP server.
    Udp(SocketAddr),
    /// A memcached UDP server, and the interface through which packets bypass the kernel's stack.
    Xdp(Bypass, SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl Place {
    /// Returns the address if the transport is UDP.
    pub(crate) fn datagrams(&self) -> Option<SocketAddr> {
        match self {
            Place::Udp(address) | Place::Xdp(_, address) => Some(*address),
            Place::Tcp(_) | Place::Unix(_) => None,
        }
    }
}

/// A local interface whose packets bypass the kernel's network stack, and the mode of the bypass.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bypass {
    /// The interface's name.
    pub interface: String,
    /// The point at which received packets leave the kernel's path.
    pub attach: Attach,
}

/// The point on a received packet's way at which the packet is taken from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Attach {
    /// In the network driver, or, if the driver does not support this, at the entry to the stack.
    #[default]
    Any,
    /// In the network driver.
    Native,
    /// At the entry to the kernel's network stack.
    Generic,
}

impl Attach {
    /// Returns the corresponding mode of the crate `net`.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Attach::Any => Mode::Any,
            Attach::Native => Mode::Native,
            Attach::Generic => Mode::Generic,
        }
    }
}

impl Bypass {
    /// Parses the text after `xdp://`: INTERFACE/REST, with an optional `?mode=...` at the end.
    /// Returns the interface with its mode, and REST. Fails if the text names no interface, or an
    /// unknown mode.
    pub fn parse(text: &str) -> Result<(Bypass, &str), &'static str> {
        let (text, attach) = match text.split_once('?') {
            None => (text, Attach::Any),
            Some((text, "mode=native")) => (text, Attach::Native),
            Some((text, "mode=generic")) => (text, Attach::Generic),
            Some(_) => return Err("the only options are ?mode=native and ?mode=generic"),
        };
        let (interface, rest) = text.split_once('/').ok_or("write xdp://INTERFACE/HOST:PORT")?;
        Ok((Bypass { interface: interface.to_owned(), attach }, rest))
    }

    /// Returns the text of a target with address `place` that is reached through this interface.
    pub fn target_text(&self, place: impl fmt::Display) -> String {
        let mode = match self.attach {
            Attach::Any => "",
            Attach::Native => "?mode=native",
            Attach::Generic => "?mode=generic",
        };
        format!("xdp://{}/{place}{mode}", self.interface)
    }
}

/// A server to which requests are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The target as the user wrote it, for reports.
    pub name: String,
    /// The address and transport.
    pub place: Place,
    /// The target's share of the keys, relative to the weights of the other targets.
    pub weight: u32,
    /// The host as the user wrote it, without brackets and port, or the path of the socket.
    pub host: String,
    /// True if the user wrote the target with `redis://`.
    pub is_redis: bool,
}

/// The address family that a host's addresses must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// IPv4 or IPv6.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The reason why a text is not a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The text does not have the form of a target.
    #[error(
        "{0}: not a target ({1}); targets are HOST:PORT, [IPV6]:PORT, udp://HOST:PORT, \
             xdp://INTERFACE/HOST:PORT[?mode=native|generic], redis://HOST:PORT, unix:/PATH or \
             redis://unix:/PATH; to divide the keys unequally, append /WEIGHT to each target, or \
             ,WEIGHT to a unix:/PATH"
    )]
    Form(String, &'static str),
    /// The text is a port number without a host.
    #[error("{0}: a port without a host; for a port of this machine write :{1}")]
    Port(String, String),
    /// The host name has no address.
    #[error("{0}: no such host: {1}")]
    Unknown(String, std::io::Error),
    /// The host has only addresses of the other family.
    #[error("{0}: the host has no {1} address")]
    Family(String, &'static str),
}

impl Target {
    /// Returns the port. A Unix socket has port 0, as in libmemcached.
    pub(crate) fn port(&self) -> u16 {
        match &self.place {
            Place::Tcp(address) | Place::Udp(address) | Place::Xdp(_, address) => address.port(),
            Place::Unix(_) => 0,
        }
    }
}

/// Parses and resolves a target. If the host has several TCP addresses, chooses the first address
/// that accepts a connection (`localhost` is ::1 and 127.0.0.1, but few servers listen on both). If
/// no address accepts a connection, or if the transport is UDP, chooses the first IPv4 address.
/// Fails if the text does not have the form of a target, or its host cannot be found.
pub fn parse(text: &str, family: Family) -> Result<Target, TargetError> {
    let form = |why| TargetError::Form(text.to_owned(), why);
    let socket = text.strip_prefix("redis://").unwrap_or(text).strip_prefix("unix:");
    if let Some(path) = socket {
        let path = path.strip_prefix("//").unwrap_or(path);
        let (path, weight) = weighted(path, ',').ok_or_else(|| form(WRONG_WEIGHT))?;
        if path.is_empty() || path.len() > UNIX_PATH_BYTES_MAX {
            return Err(form("a socket's path has 1 to 107 bytes"));
        }
        let (host, place) = (path.to_owned(), Place::Unix(PathBuf::from(path)));
        let is_redis = text.starts_with("redis:");
        return Ok(Target { name: text.to_owned(), place, weight, host, is_redis });
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
    let is_redis = scheme == "redis";
    if !matches!(scheme, "tcp" | "udp" | "xdp" | "redis" | "memcached") {
        return Err(form("unknown scheme"));
    }
    let (bypass, rest) = match scheme {
        "xdp" => Bypass::parse(rest).map(|(bypass, rest)| (Some(bypass), rest)).map_err(form)?,
        _ => (None, rest),
    };
    let (rest, weight) = weighted(rest, '/').ok_or_else(|| form(WRONG_WEIGHT))?;
    if number(rest).is_some() {
        return Err(TargetError::Port(text.to_owned(), rest.to_owned()));
    }
    let (host, port) = host_and_port(rest).ok_or_else(|| form("wrong host or port"))?;
    let port = port.unwrap_or(if is_redis { REDIS_PORT } else { MEMCACHED_PORT });
    let addresses = resolved(text, host, port, family)?;
    let place = match (scheme, bypass) {
        (_, Some(bypass)) => Place::Xdp(bypass, first(&addresses)),
        ("udp", None) => Place::Udp(first(&addresses)),
        (_, None) => Place::Tcp(reachable(&addresses)),
    };
    Ok(Target { name: text.to_owned(), place, weight, host: host.to_owned(), is_redis })
}

/// Splits `text` at `mark` into a target and its weight, which is 1 if `text` has no weight.
fn weighted(text: &str, mark: char) -> Option<(&str, u32)> {
    let Some((rest, weight)) = text.split_once(mark) else { return Some((text, 1)) };
    if weight.is_empty() {
        return Some((rest, 1));
    }
    let weight = weight.parse().ok()?;
    (1..=WEIGHT_MAX).contains(&weight).then_some((rest, weight))
}

const HERE: &str = "localhost";

/// Splits `host`, `host:port`, `:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, Some(number(port)?))),
            None => port.is_empty().then_some((host, None)),
        };
    }
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some((text, None));
    }
    let (host, port) = match text.split_once(':') {
        Some(("", port)) => (HERE, Some(number(port)?)),
        Some((host, port)) => (host, Some(number(port)?)),
        None => (text, None),
    };
    let is_name = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"[]:/@?#".contains(&byte));
    is_name.then_some((host, port))
}

fn number(port: &str) -> Option<u16> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port != 0)
}

fn resolved(
    text: &str,
    host: &str,
    port: u16,
    family: Family,
) -> Result<Vec<SocketAddr>, TargetError> {
    let unknown = |error| TargetError::Unknown(text.to_owned(), error);
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => (host, port).to_socket_addrs().map_err(unknown)?.take(ADDRESSES_MAX).collect(),
    };
    let (keep, wanted): (fn(&SocketAddr) -> bool, _) = match family {
        Family::Any => (|_| true, "usable"),
        Family::V4 => (SocketAddr::is_ipv4, "IPv4"),
        Family::V6 => (SocketAddr::is_ipv6, "IPv6"),
    };
    let mut kept: Vec<SocketAddr> = Vec::new();
    for address in found {
        if keep(&address) && !kept.contains(&address) {
            kept.push(address);
        }
    }
    if kept.is_empty() {
        return Err(TargetError::Family(text.to_owned(), wanted));
    }
    Ok(kept)
}

/// Returns the first address that accepts a connection, or else the address that `first` chooses.
fn reachable(addresses: &[SocketAddr]) -> SocketAddr {
    let takes = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_MAX).is_ok();
    if addresses.len() == 1 {
        return first(addresses);
    }
    addresses.iter().find(takes).copied().unwrap_or_else(|| first(addresses))
}

/// Returns the first IPv4 address, or, if there is none, the first address.
fn first(addresses: &[SocketAddr]) -> SocketAddr {
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let none = SocketAddr::from(([127, 0, 0, 1], MEMCACHED_PORT));
    v4.or(addresses.first()).copied().unwrap_or(none)
}

#[cfg(test)]
mod tests;
