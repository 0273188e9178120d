//! Flags for listening addresses and their protocols: -p -U -s -a -l -b -B.
//!
//! Where: `flags::flags` lists these rows. After parsing, `set_listeners` combines -p, -U, -l, -B.
//! Invariant: a server without an address to listen on starts, like memcached, but with a warning.
//! Source: memcached 1.6.45 `server_sockets` (the syntax of -l), `main`.

use std::net::{Ipv4Addr, SocketAddr};

use super::flag::{BadFlag, Choices, Flag, Handler, ValueKind, number};
use crate::start::settings::{Listen, Port};
use protocol::{ModeNames, ProtocolMode};

/// Maximum number of bytes in the path of a Unix socket (from `sockaddr_un`).
const UNIX_PATH_BYTES_MAX: usize = 107;
/// Maximum number of bytes in the tag of a listener.
const TAG_BYTES_MAX: usize = 8;
/// Maximum number of addresses of `-l`.
const LISTEN_MAX: usize = 64;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: Some('p'),
        long: "port",
        takes: ValueKind::Value("<num>"),
        help: &[
            "TCP port to listen on (default: 11211; 0: none; -1: any free port,",
            "which is written to the file $MEMCACHED_PORT_FILENAME)",
        ],
        handler: Handler::Sets(set_port),
    },
    Flag {
        short: Some('U'),
        long: "udp-port",
        takes: ValueKind::Value("<num>"),
        help: &[
            "UDP port to listen on (default: 0, none; -1: any free port);",
            "without -p, TCP listens on the same port",
        ],
        handler: Handler::Sets(set_udp_port),
    },
    Flag {
        short: Some('s'),
        long: "unix-socket",
        takes: ValueKind::Value("<file>"),
        help: &["UNIX socket to listen on (disables network support)"],
        handler: Handler::Sets(set_unix_path),
    },
    Flag {
        short: Some('a'),
        long: "unix-mask",
        takes: ValueKind::Value("<mask>"),
        help: &["access mask for UNIX socket, in octal (default: 700)"],
        handler: Handler::Sets(|choices, value| {
            choices.settings.unix_mask = u32::from_str_radix(value, 8)
                .ok()
                .filter(|mask| *mask <= 0o777)
                .ok_or_else(|| {
                    BadFlag::value(format!("-a takes an octal mask, 0 to 777 (given: '{value}')"))
                })?;
            Ok(())
        }),
    },
    Flag {
        short: Some('l'),
        long: "listen",
        takes: ValueKind::Value("<addr>"),
        help: &[
            "address to listen on (default: all); separate several addresses",
            "by commas, or repeat -l; an address is ADDR or ADDR:PORT,",
            "e.g. -l 127.0.0.1,[::1]:11212; to allow only one protocol, write",
            "proto[ascii]: or proto[binary]: before the address",
        ],
        handler: Handler::Sets(add_address),
    },
    Flag {
        short: Some('b'),
        long: "listen-backlog",
        takes: ValueKind::Value("<num>"),
        help: &["set the backlog queue limit (default: 1024)"],
        handler: Handler::Sets(|choices, value| {
            let wrong = "Backlog must be a number, 0 or greater";
            choices.settings.backlog = number(value, 0..=i64::from(i32::MAX), wrong)?;
            Ok(())
        }),
    },
    Flag {
        short: Some('B'),
        long: "protocol",
        takes: ValueKind::Value("<name>"),
        help: &["protocol - one of ascii, binary, or auto (default: auto-negotiate)"],
        handler: Handler::Sets(set_protocol),
    },
    Flag {
        short: None,
        long: "admin",
        takes: ValueKind::Value("<addr>"),
        help: &[
            "serve metrics (/metrics, /stats.json, /healthz, /readyz) over HTTP",
            "at PORT on 127.0.0.1, or at ADDR:PORT (default: off)",
        ],
        handler: Handler::Sets(set_admin),
    },
];

fn set_admin(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    let address = match value.parse::<u16>() {
        Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Err(_) => value.parse().map_err(|_| {
            BadFlag::value(format!(
                "--admin takes a port, or an address and a port such as 127.0.0.1:9150 or \
                 [::1]:9150 (given: '{value}')"
            ))
        })?,
    };
    if !address.ip().to_canonical().is_loopback() {
        choices.notes.push(format!(
            "WARNING: --admin {address}: whoever can connect to this address can read the \
             statistics, and with them requested keys (unless -X is given)"
        ));
    }
    choices.settings.admin = Some(address);
    Ok(())
}

fn set_port(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    choices.settings.port = port(value, "-p")?;
    choices.has_port = true;
    Ok(())
}

fn set_udp_port(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    choices.settings.udp_port = port(value, "-U")?;
    Ok(())
}

fn port(value: &str, flag: &str) -> Result<Port, BadFlag> {
    let invalid = || {
        BadFlag::usage(format!(
            "ERROR: Invalid port number {value}. {flag} takes 1 to 65535, 0 for no port, or -1 for \
             any free port."
        ))
    };
    match value.parse::<i64>() {
        Ok(-1) => Ok(Port::Any),
        Ok(0) => Ok(Port::Off),
        Ok(port) => u16::try_from(port).map(Port::Number).map_err(|_| invalid()),
        Err(_) => Err(invalid()),
    }
}

fn set_unix_path(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    if value.is_empty() || value.len() > UNIX_PATH_BYTES_MAX {
        return Err(BadFlag::usage(format!(
            "-s takes a path of 1 to {UNIX_PATH_BYTES_MAX} bytes (given: {} bytes)",
            value.len()
        )));
    }
    choices.settings.unix_path = Some(value.into());
    Ok(())
}

fn add_address(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    for address in value.split([',', ';']).filter(|address| !address.is_empty()) {
        if !choices.inter.iter().any(|earlier| earlier == address) {
            choices.inter.push(address.to_owned());
        }
    }
    if choices.inter.is_empty() {
        return Err(BadFlag::usage("-l takes an address, such as 127.0.0.1 or [::1]:11211"));
    }
    if choices.inter.len() > LISTEN_MAX {
        return Err(BadFlag::usage(format!("-l takes at most {LISTEN_MAX} addresses")));
    }
    Ok(())
}

fn set_protocol(choices: &mut Choices, value: &str) -> Result<(), BadFlag> {
    let Some(names) = ProtocolMode::NAMES.iter().find(|names| names.name == value) else {
        return Err(BadFlag::usage(format!(
            "Invalid value for binding protocol: {value}\n \
             -- should be one of auto, binary, or ascii"
        )));
    };
    choices.settings.protocol = names.mode;
    Ok(())
}

/// Sets the listeners that result from -p, -U, -l, -s and -B together.
pub(super) fn set_listeners(choices: &mut Choices) -> Result<(), BadFlag> {
    if !choices.inter.is_empty() {
        choices.settings.inter = Some(choices.inter.join(","));
    }
    let mut addresses = Vec::new();
    for address in std::mem::take(&mut choices.inter) {
        addresses.push(address_of(choices, &address)?);
    }
    if addresses.is_empty() {
        addresses.push(Address { host: None, port: None, protocol: choices.settings.protocol });
    }
    let settings = &mut choices.settings;
    if settings.unix_path.is_some() {
        settings.listen = Vec::new();
        return match settings.udp_port {
            Port::Off => Ok(()),
            _ => Err(BadFlag::usage("-U is refused: -s disables network support")),
        };
    }
    if settings.udp_port != Port::Off {
        settings.datagrams = listeners(&addresses, settings.udp_port);
        if !choices.has_port {
            settings.port = settings.udp_port;
        }
    }
    settings.listen = match settings.port {
        Port::Off => Vec::new(),
        port => listeners(&addresses, port),
    };
    if settings.listen.is_empty() && settings.datagrams.is_empty() {
        let nothing = "WARNING: -p 0 leaves nothing to listen on; add -s <file> or -U <num>";
        choices.notes.push(nothing.to_owned());
    }
    Ok(())
}

/// An address of `-l`, or the address of all interfaces.
struct Address {
    host: Option<String>,
    /// The port. `None` means the port of -p or -U.
    port: Option<Port>,
    protocol: ProtocolMode,
}

/// Returns a listener for each of `addresses`. `port` is for addresses without a port.
fn listeners(addresses: &[Address], port: Port) -> Vec<Listen> {
    let listener = |address: &Address| Listen {
        host: address.host.clone(),
        port: address.port.unwrap_or(port),
        protocol: address.protocol,
    };
    addresses.iter().map(listener).collect()
}

/// Parses one address of `-l`: `[proto[NAME]:][tag[NAME]:|tag_NAME_:]HOST[:PORT]`.
fn address_of(choices: &mut Choices, whole: &str) -> Result<Address, BadFlag> {
    for prefix in ["notls", "btls", "mtls"] {
        if whole.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(':')) {
            return Err(BadFlag::usage(format!(
                "-l {whole} is refused: '{prefix}' option is valid only when SSL is enabled, and \
                 this version has no TLS"
            )));
        }
    }
    let (protocol, rest) = protocol_of(choices.settings.protocol, whole)?;
    let rest = without_tag(choices, rest)?;
    let invalid_port =
        |text: &str| BadFlag::usage(format!("Invalid port number: \"{text}\" (in -l {whole})"));
    let (host, port) = if let Some(rest) = rest.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| BadFlag::usage(format!("Invalid IPV6 address: \"{whole}\"")))?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or_else(|| invalid_port(after))?),
        };
        (host, port)
    } else {
        // A text with more than one colon is an IPv6 address without brackets, which has no port.
        match rest.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (rest, None),
        }
    };
    if host.is_empty() {
        return Err(BadFlag::usage(format!("no address in -l {whole} (* means all addresses)")));
    }
    let port = match port.map(|text| (text, text.parse::<i64>())) {
        None => None,
        Some((_, Ok(0 | -1))) => Some(Port::Any),
        Some((text, Ok(port))) => {
            Some(Port::Number(u16::try_from(port).map_err(|_| invalid_port(text))?))
        }
        Some((text, Err(_))) => return Err(invalid_port(text)),
    };
    let host = (host != "*").then(|| host.to_owned());
    Ok(Address { host, port, protocol })
}

/// Removes `proto[NAME]:` from an address. Returns the protocol and the rest of the address.
fn protocol_of(default: ProtocolMode, address: &str) -> Result<(ProtocolMode, &str), BadFlag> {
    let Some(rest) = address.strip_prefix("proto[") else { return Ok((default, address)) };
    let (name, rest) = rest
        .split_once(']')
        .ok_or_else(|| BadFlag::usage(format!("Invalid protocol spec: \"{address}\"")))?;
    let is_named = |names: &&ModeNames| [names.name, names.listen_name].contains(&name);
    let Some(names) = ProtocolMode::NAMES.iter().find(is_named) else {
        return Err(BadFlag::usage(format!(
            "-l {address} is refused: the prefix must be proto[ascii], proto[binary] or \
             proto[negotiating]"
        )));
    };
    Ok((names.mode, rest.strip_prefix(':').unwrap_or(rest)))
}

/// Removes `tag[NAME]:` or `tag_NAME_:` from an address. Only memcached's proxy uses tags.
fn without_tag<'a>(choices: &mut Choices, address: &'a str) -> Result<&'a str, BadFlag> {
    let (rest, end) = if let Some(rest) = address.strip_prefix("tag[") {
        (rest, ']')
    } else if let Some(rest) = address.strip_prefix("tag_") {
        (rest, '_')
    } else {
        return Ok(address);
    };
    let (tag, rest) = rest
        .split_once(end)
        .ok_or_else(|| BadFlag::usage(format!("Invalid tag in socket config: \"{address}\"")))?;
    if tag.is_empty() || tag.len() > TAG_BYTES_MAX {
        return Err(BadFlag::usage(format!(
            "Listener tags must be between 1 and {TAG_BYTES_MAX} characters: \"{tag}\""
        )));
    }
    choices.notes.push(format!("the tag '{tag}' of -l has no effect: only a proxy uses tags"));
    Ok(rest.strip_prefix(':').unwrap_or(rest))
}
