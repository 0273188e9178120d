//! Clocks that jump or start at extreme values. Exptimes and idle timeouts still hold.
//!
//! Where: an in-process server under the test's own clock; the built binary in a time namespace
//! whose clocks have run for a hundred years.
//! Invariant: no test waits for time to pass.
//! Source: memcached 1.6.45 `realtime`, `clock_handler`: time is the wall clock's value at the
//! start plus the monotonic clock's progress since then, so a step of the wall clock changes
//! nothing, and time in suspension does not count.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inprocess::{Client, connect, settings, settings_where, start};
use testing::wait_until;

const NOON_MS: u64 = 12 * 3_600_000;
const HOUR_S: u64 = 3600;

/// Returns the item's remaining seconds: -1 if it never expires, `None` if there is no item.
fn seconds_left(client: &mut Client, key: &str) -> Option<i64> {
    client.send(format!("mg {key} t\r\n"));
    let answer = client.line();
    answer.strip_prefix("HD t").map(|seconds| seconds.parse().unwrap())
}

#[test]
fn a_leap_ends_what_was_to_end_by_then_and_nothing_else() {
    let server = start(settings(2));
    server.shared().columns.plant_clock(NOON_MS);
    let mut client = connect(&server);
    let (time, uptime) = (client.stat("time"), client.stat("uptime"));
    let stored = [
        ("minute", 60, None),
        ("hour", HOUR_S, None),
        ("day", 24 * HOUR_S, Some(23 * 3600)),
        ("month", 720 * HOUR_S, Some(719 * 3600)),
        ("unix-soon", time + HOUR_S / 2, None),
        ("unix-late", time + 2 * HOUR_S, Some(3600)),
        ("for-ever", 0, Some(-1)),
    ];
    for (key, exptime, _) in stored {
        client.ask(format!("set {key} 0 {exptime} 1\r\nv\r\n"), "STORED\r\n");
    }
    client.ask("set touched 0 60 1\r\nv\r\ntouch touched 7200\r\n", "STORED\r\nTOUCHED\r\n");
    // Two clients have each sent half of a value: a short value, and a value that is long enough
    // to be received directly into the store.
    let [mut short, mut long] = [(); 2].map(|()| connect(&server));
    short.send("set short 0 0 10\r\n01234");
    let half = "v".repeat(100_000);
    long.send(format!("set long 0 0 {}\r\n{half}", 2 * half.len()));
    wait_until("receipt of both halves", || client.stat("bytes_read") > half.len() as u64);

    server.shared().columns.plant_clock(NOON_MS + HOUR_S * 1000);
    for (key, exptime, left) in stored {
        assert_eq!(seconds_left(&mut client, key), left, "{key}, stored for {exptime}");
    }
    assert_eq!(seconds_left(&mut client, "touched"), Some(3600));
    assert_eq!(client.stat("time"), time + HOUR_S);
    assert_eq!(client.stat("uptime"), uptime + HOUR_S);
    short.ask("56789\r\n", "STORED\r\n");
    long.ask(format!("{half}\r\n"), "STORED\r\n");
    client.ask("mg short s v\r\nmg long s\r\n", "VA 10 s10\r\n0123456789\r\nHD s200000\r\n");
    wait_until("the end of all expired items", || client.stat("curr_items") == 7);
    assert_eq!(client.stat("evictions"), 0);
    server.stop();
}

#[test]
fn a_flush_that_was_planned_happens_in_a_leap() {
    let server = start(settings(2));
    server.shared().columns.plant_clock(NOON_MS);
    let mut client = connect(&server);
    client.ask("set k 0 0 1\r\nv\r\nflush_all 1800\r\n", "STORED\r\nOK\r\n");
    server.shared().columns.plant_clock(NOON_MS + 1_700_000);
    client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    server.shared().columns.plant_clock(NOON_MS + HOUR_S * 1000);
    client.ask("get k\r\nset k 0 0 1\r\nw\r\n", "END\r\nSTORED\r\n");
    client.ask("get k\r\n", "VALUE k 0 1\r\nw\r\nEND\r\n");
    server.stop();
}

#[test]
fn those_idle_for_longer_than_is_allowed_are_closed_after_a_leap_and_counted() {
    let server = start(settings_where(2, |columns| columns.idle_seconds_max = 600));
    server.shared().columns.plant_clock(NOON_MS);
    let mut idle: Vec<Client> = (0..20).map(|_| connect(&server)).collect();
    idle.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    server.shared().columns.plant_clock(NOON_MS + 600_000);
    idle.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    server.shared().columns.plant_clock(NOON_MS + HOUR_S * 1000);
    idle.iter_mut().for_each(Client::expect_end);
    let mut client = connect(&server);
    assert_eq!((client.stat("idle_kicks"), client.stat("curr_connections")), (20, 1));
    server.stop();
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

#[test]
fn exptimes_are_the_same_on_a_machine_that_has_run_for_a_hundred_years() {
    // The monotonic clock is about to overflow 32 bits. The machine was suspended for years.
    let words = ["--time", "--monotonic", "4294967290", "--boottime", "4400000000"];
    let words = [&["unshare", "-r", "--fork", "--kill-child"], &words[..]].concat();
    let Some(server) = live::Server::under_test_by(&words, &["-t", "2"]) else { return };
    let started = Instant::now();
    let mut wire = server.connect();
    let mut ask = |request: String| {
        wire.send(request.as_bytes());
        String::from_utf8(wire.line().unwrap()).unwrap().trim_end().to_owned()
    };
    // The server's clock may be a fraction of a second late, and the check comes after the request.
    let is_about = |seconds: i64, due: i64, since: Instant| {
        let passed = i64::try_from((since.elapsed() + Duration::from_secs(2)).as_secs()).unwrap();
        (due - passed..=due + 2).contains(&seconds)
    };
    for (key, exptime, left) in
        [("relative", 1000, 1000), ("unix", unix_seconds() + 5000, 5000), ("past", -1, 0)]
    {
        let stored_at = Instant::now();
        assert_eq!(ask(format!("set {key} 0 {exptime} 1\r\nv\r\n")), "STORED");
        let answer = ask(format!("mg {key} t\r\n"));
        match answer.strip_prefix("HD t") {
            Some(seconds) => {
                assert!(is_about(seconds.parse().unwrap(), left, stored_at), "{answer}");
            }
            None => assert_eq!((key, answer.as_str()), ("past", "EN")),
        }
    }
    let mut stat = |name: &str| -> i64 {
        let mut line = ask("stats\r\n".to_owned());
        let mut value = None;
        while line != "END" {
            let found = line.strip_prefix(&format!("STAT {name} "));
            value = found.map(|value| value.parse().unwrap()).or(value);
            line = ask(String::new());
        }
        value.unwrap()
    };
    let uptime = stat("uptime");
    assert!((2..=i64::try_from(started.elapsed().as_secs()).unwrap() + 4).contains(&uptime));
    let before = unix_seconds();
    let time = stat("time");
    assert!((before - 2..=unix_seconds()).contains(&time), "{time}, not {before}");
}
