//! The flags of the command `reflect`, and the command itself.
//!
//! Where: `flags` and `main` call this module.
//! Invariant: the actual places where the server listens are printed before the first request.

use super::{Plan, SendMethod};
use crate::measure::schedule::time;
use crate::target::{Bypass, Place};
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

pub(super) const ABOUT: &str = "\
Runs a null server, which answers requests of every protocol and stores nothing.
No real server can be faster on this machine, so the rate measured against the
null server is the limit of the load generator. The null server can also inject
faults, to check that a generator measures them correctly. It runs until Ctrl-C.";

const FORMS: &str = "HOST:PORT, udp://HOST:PORT, xdp://INTERFACE/HOST:PORT or unix:/PATH";

pub(super) fn stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, length) = text.split_once(',').ok_or("must be two durations, as in 1s,100ms")?;
    Ok((time(every)?, time(length)?))
}

/// Parses a place to listen on. Unlike the port of a target, its port may be 0.
pub(super) fn place(text: &str) -> Result<Place, String> {
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

/// Runs the server until Ctrl-C or SIGTERM.
///
/// # Errors
/// The server cannot listen on a place, or a thread has failed.
pub fn run(plan: &Plan) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let running = super::serve(plan)?;
    let mut out = io::stdout().lock();
    for place in running.addresses() {
        writeln!(out, "answering on {}", super::named(place))?;
    }
    out.flush()?;
    // Relaxed: the flag publishes no other data.
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
    let places = running.addresses().iter().filter(is_udp);
    for (place, received) in places.zip(running.counts().received()) {
        let Place::Udp(address) = place else { continue };
        let received: Vec<String> = received.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "udp://{address}: datagrams received by each thread: {}",
            received.join(" ")
        )?;
    }
    if plan.send == SendMethod::Referred {
        // Relaxed: the counts are statistics and order nothing.
        let [referred, copied] = [&running.counts().referred, &running.counts().copied]
            .map(|count| count.load(Ordering::Relaxed));
        writeln!(out, "{referred} values sent by reference, of which the kernel copied {copied}")?;
    }
    // Relaxed: the count is a statistic and orders nothing.
    match running.counts().misrouted.load(Ordering::Relaxed) {
        0 => {}
        misrouted => {
            writeln!(
                out,
                "{misrouted} datagrams did not reach the thread that the last two bytes of \
                 memcached's UDP header name"
            )?;
        }
    }
    running.stop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};
    use crate::reflect::Faults;

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
