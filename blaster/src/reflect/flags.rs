//! The flags of `reflect`, and the command itself.
//!
//! Where: called by `flags` and `main`. Invariant: what it listens on is printed before the first
//! request can come, with the port that was really taken.

use super::{Faults, Plan, THREADS_MAX, VALUE_BYTES_MAX};
use crate::flags::{Asked, Flag, Refusal, Rows, cpus, lines, number, time};
use crate::target::Place;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ctrl-C is looked for as often.
const TICK: Duration = Duration::from_millis(50);

const FLAGS: &[Flag<Plan>] = &[
    Flag {
        long: "threads",
        short: Some('t'),
        value: "N",
        help: &["threads that answer (default 1)"],
        apply: |plan, text| number(text, 1, THREADS_MAX).map(|threads| plan.threads = threads),
    },
    Flag {
        long: "cpus",
        short: None,
        value: "LIST",
        help: &["CPUs the threads are pinned to (default none)"],
        apply: |plan, text| cpus(text).map(|cpus| plan.cpus = cpus),
    },
    Flag {
        long: "value-bytes",
        short: None,
        value: "N",
        help: &["bytes of every value (default 64)"],
        apply: |plan, text| number(text, 0, VALUE_BYTES_MAX).map(|bytes| plan.value_bytes = bytes),
    },
    Flag {
        long: "delay",
        short: None,
        value: "TIME",
        help: &["send every reply so much later"],
        apply: |plan, text| time(text).map(|delay| plan.delay = delay),
    },
    Flag {
        long: "stall",
        short: None,
        value: "EVERY,FOR",
        help: &["do nothing for a while, every so often, as in 1s,100ms"],
        apply: |plan, text| {
            let (every, length) = text.split_once(',').ok_or("two times, as in 1s,100ms")?;
            plan.stall = Some((time(every)?, time(length)?));
            Ok(())
        },
    },
    Flag {
        long: "drop",
        short: None,
        value: "N",
        help: &["UDP: drop one reply in N"],
        apply: |plan, text| number(text, 1, u64::MAX).map(|n| plan.faults.drop_every = n),
    },
    Flag {
        long: "duplicate",
        short: None,
        value: "N",
        help: &["UDP: send one reply in N twice"],
        apply: |plan, text| number(text, 1, u64::MAX).map(|n| plan.faults.duplicate_every = n),
    },
    Flag {
        long: "reorder",
        short: None,
        value: "N",
        help: &["UDP: send one reply in N behind the next one"],
        apply: |plan, text| number(text, 1, u64::MAX).map(|n| plan.faults.reorder_every = n),
    },
    Flag {
        long: "apart",
        short: None,
        value: "",
        help: &["UDP: each value of a multiget in a reply of its own, as memcached"],
        apply: |plan, _| {
            plan.is_apart = true;
            Ok(())
        },
    },
];

const ABOUT: &str = "\
Usage: kvblaster reflect [OPTIONS] PLACE...

A null server: answers every request of every protocol without looking. No
server can be faster here, and no generator is that cannot fill it. With faults
by plan it shows whether they are measured right. Ends with Ctrl-C.

A place is HOST:PORT, udp://HOST:PORT or unix:/PATH; port 0 takes a free one.

";

/// Parses what follows `reflect`.
///
/// # Errors
/// A flag is unknown or has a wrong value, or there is no place.
pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Asked, Refusal> {
    let mut plan =
        Plan { threads: 1, value_bytes: 64, faults: Faults::default(), ..Plan::default() };
    let rows = Rows { flags: &[FLAGS], names: Vec::new, set: |_, _, _| Ok(()), free: add_place };
    if rows.apply(&mut parser, &mut plan)?.is_none() {
        return Ok(Asked::Print(format!("{ABOUT}{}", lines(FLAGS))));
    }
    if plan.places.is_empty() {
        return Err(Refusal("where? For instance localhost:0".to_owned()));
    }
    Ok(Asked::Reflect(Box::new(plan)))
}

fn add_place(plan: &mut Plan, word: OsString) -> Result<(), String> {
    let text = word.into_string().map_err(|word| format!("{}: not UTF-8", word.display()))?;
    plan.places.push(place(&text)?);
    Ok(())
}

/// Where to listen. Unlike a target's, a port may be 0.
fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Place::Unix(path.into()));
    }
    let (is_udp, host) = match text.strip_prefix("udp://") {
        Some(host) => (true, host),
        None => (false, text),
    };
    let mut found = host.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
    let address = found.next().ok_or_else(|| format!("{text}: no address"))?;
    Ok(if is_udp { Place::Udp(address) } else { Place::Tcp(address) })
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
        match place {
            Place::Tcp(address) => writeln!(out, "answering on {address}")?,
            Place::Udp(address) => writeln!(out, "answering on udp://{address}")?,
            Place::Unix(path) => writeln!(out, "answering on unix:{}", path.display())?,
        }
    }
    out.flush()?;
    // Relaxed: a flag by itself.
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    running.stop()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Asked, Refusal> {
        parse(lexopt::Parser::from_args(words.split_whitespace()))
    }

    #[test]
    fn every_flag_does_what_it_says() {
        let words = "127.0.0.1:0 udp://127.0.0.1:0 unix:/tmp/x -t 2 --cpus 1,3 --value-bytes 9 \
                     --delay 1ms --stall 1s,100ms --drop 3 --duplicate 4 --reorder 5 --apart";
        let Asked::Reflect(plan) = asked(words).unwrap() else { panic!("no plan") };
        assert_eq!((plan.places.len(), plan.threads, plan.value_bytes), (3, 2, 9));
        assert_eq!((plan.cpus, plan.delay), (vec![1, 3], Duration::from_millis(1)));
        let stall = (Duration::from_secs(1), Duration::from_millis(100));
        assert_eq!(plan.stall, Some(stall));
        let faults = Faults { drop_every: 3, duplicate_every: 4, reorder_every: 5 };
        assert!(plan.faults == faults && plan.is_apart);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, why) in
            [("", "where"), ("a:b", "a:b"), ("--stall 1s", "--stall"), ("--drop 0", "--drop")]
        {
            let error = asked(words).unwrap_err().to_string();
            assert!(error.contains(why), "{words}: {error}");
        }
    }
}
