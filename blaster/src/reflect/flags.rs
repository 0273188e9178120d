//! The flags of `reflect`, and the command itself.
//!
//! Where: called by `flags` and `main`.
//! Invariant: the places where it listens are printed before the first request can come, with their
//! real ports.

use super::{Plan, Way};
use crate::flags::time;
use crate::target::{Bypass, Place};
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

pub(super) const ABOUT: &str = "\
A null server: answers every request of every protocol without looking. No
server can be faster here, and no generator is that cannot fill it. With faults
by plan it shows whether they are measured right. Ends with Ctrl-C.";

/// Reads the period and the length of stalls.
pub(super) fn stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, length) = text.split_once(',').ok_or("two times, as in 1s,100ms")?;
    Ok((time(every)?, time(length)?))
}

/// Reads a place to listen on. Unlike a target's, its port may be 0.
pub(super) fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Place::Unix(path.into()));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
    let (bypass, host) = match scheme {
        "xdp" => Bypass::parse(rest).map(|(bypass, host)| (Some(bypass), host))?,
        _ => (None, rest),
    };
    let mut found = host.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
    let address = found.next().ok_or_else(|| format!("{text}: no address"))?;
    match (scheme, bypass) {
        (_, Some(bypass)) => Ok(Place::Xdp(bypass, address)),
        ("tcp", None) => Ok(Place::Tcp(address)),
        ("udp", None) => Ok(Place::Udp(address)),
        _ => Err(format!("{text}: unknown scheme")),
    }
}

/// Answers until Ctrl-C or SIGTERM.
///
/// # Errors
/// A place cannot be listened on, or a thread has failed.
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
    // Relaxed: a flag by itself.
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
    let places = running.addresses().iter().filter(is_udp);
    for (place, reached) in places.zip(running.counts().reached()) {
        let Place::Udp(address) = place else { continue };
        let reached: Vec<String> = reached.iter().map(u64::to_string).collect();
        writeln!(out, "udp://{address}: datagrams by thread: {}", reached.join(" "))?;
    }
    if plan.send == Way::Referred {
        // Relaxed: statistics, like in `Counts::add`.
        let [referred, copied] = [&running.counts().referred, &running.counts().copied]
            .map(|count| count.load(Ordering::Relaxed));
        writeln!(out, "{referred} sends of values by reference, {copied} copied nevertheless")?;
    }
    // Relaxed: a statistic, like in `Counts::add`.
    match running.counts().misrouted.load(Ordering::Relaxed) {
        0 => {}
        misrouted => writeln!(out, "{misrouted} came to another thread than their flow names")?,
    }
    running.stop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{asked, refused};
    use crate::reflect::Faults;

    #[test]
    fn every_flag_does_what_it_says() {
        let words = "reflect 127.0.0.1:0 udp://127.0.0.1:0 unix:/tmp/x -t 2 --cpus 1,3 --delay 1ms \
                     --value-bytes 9 --stall 1s,100ms --drop 3 --duplicate 4 --reorder 5 --apart \
                     --port-per-thread";
        let Verb::Reflect(plan) = asked(words).unwrap() else { panic!("no plan") };
        assert_eq!((plan.places.len(), plan.threads, plan.value_bytes), (3, 2, 9));
        assert_eq!((plan.cpus, plan.delay), (vec![1, 3], Duration::from_millis(1)));
        let stall = (Duration::from_secs(1), Duration::from_millis(100));
        assert_eq!(plan.stall, Some(stall));
        let faults = Faults { drop_every: 3, duplicate_every: 4, reorder_every: 5 };
        assert!(plan.faults == faults && plan.is_apart && plan.has_ports);
        let Verb::Reflect(plan) = asked("reflect 127.0.0.1:0").unwrap() else { panic!("no plan") };
        assert_eq!((plan.threads, plan.value_bytes, plan.faults), (1, 64, Faults::default()));
        assert!(plan.delay.is_zero() && plan.stall.is_none() && plan.cpus.is_empty());
        assert_eq!(plan.send, Way::Copied);
        let Verb::Reflect(plan) = asked("reflect 127.0.0.1:0 --send spliced").unwrap() else {
            panic!("no plan")
        };
        assert_eq!(plan.send, Way::Spliced);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rows = [
            ("", "not provided: <PLACE>..."),
            ("a:b", "<PLACE>...: a:b: "),
            ("127.0.0.1:0 --stall 1s", "--stall: two times"),
            ("127.0.0.1:0 --drop 0", "--drop: a number"),
            ("127.0.0.1:0 --send gathered --delay 1ms", "--delay"),
        ];
        refused("reflect", &rows);
    }
}
