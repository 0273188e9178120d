//! Flags of AF_XDP, which memcached does not have.
//!
//! Where: `flags::flags` lists these rows.
//! Invariant: without `--xdp` the other flags here are refused, because they would have no effect.

use std::ops::Range;

use net::xdp::Mode;

use super::extended::network;
use super::flag::{BadFlag, Choices, Flag, Handler, ValueKind, XdpFlags};
use crate::start::settings::{Settings, Xdp, ZeroCopy};

/// Maximum number of bytes in an interface's name, including the zero at its end (`IFNAMSIZ`).
const INTERFACE_BYTES_MAX: usize = 16;
/// Maximum number of queues of an interface.
const QUEUES_MAX: u32 = 1024;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: None,
        long: "xdp",
        takes: ValueKind::Value("<if>[:<queues>]"),
        help: &[
            "serve UDP on an interface, bypassing the network stack of the",
            "kernel (AF_XDP); each queue has its own thread; needs -U and root;",
            "e.g. --xdp eth0 or, for queues 0 to 3 only, --xdp eth0:0-3",
        ],
        handler: Handler::Sets(|choices, value| {
            choices.settings.xdp = Some(interface(value)?);
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "xdp-allow",
        takes: ValueKind::Value("<networks>"),
        help: &[
            "client networks whose packets bypass the kernel, such as",
            "10.0.0.0/8,2001:db8::/32 (default: all); packets from other",
            "networks go through the kernel",
        ],
        handler: Handler::Sets(|choices, value| {
            for text in value.split(',') {
                let network = network(text).ok_or_else(|| {
                    let wrong = "--xdp-allow takes networks such as 10.0.0.0/8 or 2001:db8::1";
                    BadFlag::usage(format!("{wrong} (given: '{text}')"))
                })?;
                choices.xdp.allow.push(network);
            }
            choices.xdp.given = Some("--xdp-allow");
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "xdp-mode",
        takes: ValueKind::Value("<mode>"),
        help: &[
            "native: take packets in the driver; generic: take packets",
            "after the driver (works with every driver);",
            "any (default): native if the driver supports it, else generic",
        ],
        handler: Handler::Sets(|choices, value| {
            choices.xdp.mode = match value {
                "any" => Mode::Any,
                "native" => Mode::Native,
                "generic" => Mode::Generic,
                _ => {
                    let wrong = "--xdp-mode takes native, generic or any";
                    return Err(BadFlag::usage(format!("{wrong} (given: '{value}')")));
                }
            };
            choices.xdp.given = Some("--xdp-mode");
            Ok(())
        }),
    },
    Flag {
        short: None,
        long: "xdp-fallback",
        takes: ValueKind::Nothing,
        help: &["if --xdp is not possible, serve UDP through the kernel only"],
        handler: Handler::Sets(|choices, _| {
            choices.xdp.fallback = true;
            choices.xdp.given = Some("--xdp-fallback");
            Ok(())
        }),
    },
];

/// Parses `eth0`, `eth0:2` or `eth0:0-3`.
fn interface(text: &str) -> Result<Xdp, BadFlag> {
    let wrong = || {
        BadFlag::usage(format!(
            "--xdp takes an interface, with or without queue numbers, such as eth0 or eth0:0-3 \
             (given: '{text}')"
        ))
    };
    let (name, queues) = match text.rsplit_once(':') {
        Some((name, queues)) => (name, Some(range(queues).ok_or_else(wrong)?)),
        None => (text, None),
    };
    if name.is_empty() || name.len() >= INTERFACE_BYTES_MAX || name.contains(['/', ' ']) {
        return Err(wrong());
    }
    Ok(Xdp { queues, ..Xdp::of(name) })
}

/// Parses `2` or `0-3`.
fn range(text: &str) -> Option<Range<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
    (first <= last && last < QUEUES_MAX).then_some(first..last + 1)
}

/// Combines the flags. Refuses flags that contradict each other.
pub(super) fn finish(choices: &mut Choices) -> Result<(), BadFlag> {
    let Settings { xdp, datagrams, udp_port_per_column, columns, zero_copy, .. } =
        &mut choices.settings;
    let Some(xdp) = xdp else {
        if *zero_copy != ZeroCopy::Off {
            let why = "it needs --xdp, because only AF_XDP sends values without a copy";
            let name = zero_copy.name();
            return Err(BadFlag::usage(format!("-o zero_copy={name} is refused: {why}")));
        }
        return match choices.xdp.given {
            None => Ok(()),
            Some(flag) => Err(BadFlag::usage(format!("{flag} is refused: it needs --xdp"))),
        };
    };
    if datagrams.is_empty() {
        return Err(BadFlag::usage("--xdp is refused: it serves UDP, so it needs -U <num>"));
    }
    if *udp_port_per_column {
        // The interface chooses a datagram's queue, and does not know which column has the port.
        return Err(BadFlag::usage(
            "--xdp is refused: it serves one UDP port, but -o udp_port_per_column gives each \
             thread its own port",
        ));
    }
    let queues = xdp.queues.as_ref().map_or(0, ExactSizeIterator::len);
    if queues > columns.count {
        return Err(BadFlag::usage(format!(
            "--xdp is refused: {queues} queues need {queues} threads, but -t is {}",
            columns.count
        )));
    }
    let XdpFlags { allow, mode, fallback, .. } = std::mem::take(&mut choices.xdp);
    *xdp = Xdp { allow, mode, fallback, ..xdp.clone() };
    Ok(())
}
