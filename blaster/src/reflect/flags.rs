//! The flags of the command `reflect`.
//!
//! Where: parsed by `flags`, and read by the server.
//! Invariant: each flag has the default that `--help` shows.

use super::faults::Faults;
use super::replies::{SEND_METHODS, SendMethod};
use crate::measure::schedule::time;
use crate::target::{Bypass, Place};
use crate::words::values::{cpus, number, or};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::net::ToSocketAddrs;
use std::time::Duration;

/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of threads.
pub const THREADS_MAX: usize = 1024;

const ABOUT: &str = "\
Runs a null server, which answers requests of every protocol and stores nothing.
No real server can be faster on this machine, so the rate measured against the
null server is the limit of the load generator. The null server can also inject
faults, to check that a generator measures them correctly. It runs until Ctrl-C.";

const FORMS: &str = "HOST:PORT, udp://HOST:PORT, xdp://INTERFACE/HOST:PORT or unix:/PATH";

/// Flags of the server, and of its planned faults.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(before_help = ABOUT)]
pub struct Plan {
    /// Address to listen on: HOST:PORT, udp://HOST:PORT, xdp://INTERFACE/HOST:PORT or unix:/PATH.
    /// Port 0 means any free port. xdp:// uses AF_XDP on all queues of the interface; the interface
    /// must have a queue for each thread, and no faults can be injected
    #[arg(required = true, value_name = "PLACE", value_parser = place)]
    pub places: Vec<Place>,
    /// Number of threads that answer
    #[arg(long, short, value_name = "N")]
    #[arg(value_parser = number(1..=THREADS_MAX), default_value = "1")]
    pub threads: usize,
    /// CPUs to pin the threads to, in the order of the threads
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub cpus: std::vec::Vec<usize>,
    /// Length of every value in bytes
    #[arg(long, value_name = "N")]
    #[arg(value_parser = number(0..=VALUE_BYTES_MAX), default_value = "64")]
    pub value_bytes: usize,
    /// How values are sent on a connection. copied: copied into one buffer with the text of the
    /// reply; gathered: sent from their place in memory (writev); spliced: sent through a pipe
    /// (vmsplice); referred: sent by reference (MSG_ZEROCOPY), and the values that the kernel
    /// copied nevertheless are counted
    #[arg(long, value_name = "WAY", default_value = "copied", conflicts_with = "delay")]
    #[arg(value_parser = PossibleValuesParser::new(SEND_METHODS.map(|(_, name)| name))
        .try_map(|name| SendMethod::named(&name).ok_or("this way to send is unknown")))]
    pub send: SendMethod,
    /// Time by which every reply is delayed
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = or("none", Duration::ZERO, time), default_value = "none")]
    pub delay: Duration,
    /// Stop answering for the time FOR after each time EVERY of answering: 1s,100ms answers for 1
    /// second, stops for 100 ms, and so on
    #[arg(long, value_name = "EVERY,FOR", value_parser = stall)]
    pub stall: Option<(Duration, Duration)>,
    /// Faults of datagrams.
    #[command(flatten)]
    pub faults: Faults,
    /// UDP: send each value of a multiget in a reply of its own, as memcached does
    #[arg(long = "apart")]
    pub is_apart: bool,
    /// UDP: give each thread its own port, from PORT to PORT + threads - 1. Without this flag all
    /// threads share one port, and the last two bytes of memcached's UDP header choose the thread
    /// that answers a request
    #[arg(long = "port-per-thread")]
    pub has_ports: bool,
}

fn stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, length) = text.split_once(',').ok_or("must be two durations, as in 1s,100ms")?;
    Ok((time(every)?, time(length)?))
}

/// Parses a place to listen on. Unlike the port of a target, its port may be 0.
fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Place::Unix(path.into()));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
    let (bypass, host) = match scheme {
        "xdp" => {
            let parsed = Bypass::parse(rest).map_err(|why| format!("{text}: {why}"))?;
            (Some(parsed.0), parsed.1)
        }
        _ => (None, rest),
    };
    let found = host.to_socket_addrs();
    let mut found = found.map_err(|error| format!("{text}: {error}; the forms are {FORMS}"))?;
    let address = found.next().ok_or_else(|| format!("{text}: the host has no address"))?;
    match (scheme, bypass) {
        (_, Some(bypass)) => Ok(Place::Xdp(bypass, address)),
        ("tcp", None) => Ok(Place::Tcp(address)),
        ("udp", None) => Ok(Place::Udp(address)),
        _ => Err(format!("{text}: unknown scheme; the forms are {FORMS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};

    #[test]
    fn every_flag_does_what_it_says() {
        let words = "reflect 127.0.0.1:0 udp://127.0.0.1:0 unix:/tmp/x -t 2 --cpus 1,3 --delay 1ms \
                     --value-bytes 9 --stall 1s,100ms --drop 3 --duplicate 4 --reorder 5 --apart \
                     --port-per-thread";
        let Verb::Reflect(plan) = parse_words(words).unwrap() else { panic!("no plan") };
        assert_eq!((plan.places.len(), plan.threads, plan.value_bytes), (3, 2, 9));
        assert_eq!((plan.cpus, plan.delay), (vec![1, 3], Duration::from_millis(1)));
        let stall = (Duration::from_secs(1), Duration::from_millis(100));
        assert_eq!(plan.stall, Some(stall));
        let faults = Faults { drop_every: 3, duplicate_every: 4, reorder_every: 5 };
        assert!(plan.faults == faults && plan.is_apart && plan.has_ports);
        let Verb::Reflect(plan) = parse_words("reflect 127.0.0.1:0").unwrap() else {
            panic!("no plan")
        };
        assert_eq!((plan.threads, plan.value_bytes, plan.faults), (1, 64, Faults::default()));
        assert!(plan.delay.is_zero() && plan.stall.is_none() && plan.cpus.is_empty());
        assert_eq!(plan.send, SendMethod::Copied);
        let Verb::Reflect(plan) = parse_words("reflect 127.0.0.1:0 --send spliced").unwrap() else {
            panic!("no plan")
        };
        assert_eq!(plan.send, SendMethod::Spliced);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rows = [
            ("", "not provided: <PLACE>..."),
            ("a:b", "<PLACE>...: a:b: "),
            ("127.0.0.1:0 --stall 1s", "--stall: must be two durations"),
            ("127.0.0.1:0 --drop 0", "--drop: must be a number"),
            ("127.0.0.1:0 --send gathered --delay 1ms", "--delay"),
        ];
        refused("reflect", &rows);
    }
}
