//! What operators ask: lists of all items, events, statistics; beside clients who work.
//!
//! Where: an in-process server; the built binary beside memcached for names.
//! Invariant: an operator who reads slowly, or not at all, is waited for by nobody, and what is
//! kept for them is bounded.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use hypostyle::limits::{DUMPS_MAX, WATCHERS_MAX};
use hypostyle::settings::Settings;
use inprocess::{Client, connect, settings, start, wait_until};

/// Keys that stay.
const STAYING: usize = 20_000;

fn fill(client: &mut Client, keys: std::ops::Range<usize>) {
    for key in keys {
        client.send(format!("set key-{key} 0 0 5 noreply\r\nvalue\r\n"));
    }
    client.ask("mn\r\n", "MN\r\n");
}

/// The keys that `mgdump` lists, each once.
fn listed(client: &mut Client) -> HashSet<String> {
    client.ask("lru_crawler mgdump hash\r\n", "OK\r\n");
    let mut keys = HashSet::new();
    loop {
        let line = client.line();
        if line == "EN" {
            return keys;
        }
        let key = line.strip_prefix("mg ").unwrap().to_owned();
        assert!(keys.insert(key), "{line} is there twice");
    }
}

#[test]
fn a_dump_lists_each_item_that_stays_once_while_others_come_and_go() {
    let server = start(settings(2));
    let mut client = connect(&server);
    fill(&mut client, 0..STAYING);
    let (done, mut rounds) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let mut other = connect(&server);
        let done = &done;
        scope.spawn(move || {
            // Relaxed: the flag orders nothing.
            while !done.load(Ordering::Relaxed) {
                fill(&mut other, STAYING..3 * STAYING);
                for key in STAYING..3 * STAYING {
                    other.send(format!("delete key-{key} noreply\r\n"));
                }
                other.ask("mn\r\n", "MN\r\n");
            }
        });
        while rounds < 3 {
            let keys = listed(&mut client);
            let missed = (0..STAYING).filter(|key| !keys.contains(&format!("key-{key}")));
            assert_eq!(missed.count(), 0);
            rounds += 1;
        }
        done.store(true, Ordering::Relaxed); // as above
    });
    assert_eq!(client.stat("lru_crawler_starts"), 3);
    server.stop();
}

#[test]
fn dumps_that_nobody_reads_hold_up_nobody_and_only_so_many_are_under_way() {
    let server = start(settings(1));
    let mut client = connect(&server);
    // More than sockets take.
    fill(&mut client, 0..400_000);
    let mut dumps: Vec<Client> = (0..DUMPS_MAX).map(|_| connect(&server)).collect();
    for dump in &mut dumps {
        dump.ask("lru_crawler metadump all\r\n", "OK\r\n");
    }
    let busy = "BUSY currently processing crawler request\r\n";
    client.ask("lru_crawler metadump all\r\n", busy);
    client.ask("stats cachedump 1 1\r\n", busy);
    assert_eq!(client.stat("lru_crawler_running"), 1);
    for _ in 0..1000 {
        client.ask("get key-1\r\n", "VALUE key-1 0 5\r\nvalue\r\nEND\r\n");
    }
    assert!(client.stat("response_obj_bytes") < 4 << 20, "what waits is bounded");
    assert!(client.stat("response_obj_count") > 1, "replies wait");
    // One who goes makes room for another.
    dumps.pop();
    wait_until("a place", || {
        client.send("lru_crawler mgdump 2\r\n");
        client.line() == "OK" && client.line() == "EN"
    });
    drop(dumps);
    wait_until("the end of all dumps", || client.stat("lru_crawler_running") == 0);
    server.stop();
}

#[test]
fn who_watches_and_does_not_read_holds_up_nobody_and_is_told_what_was_left_out() {
    let mut settings = settings(2);
    settings.watcher_log_bytes = 16 << 10;
    let server = start(settings);
    let mut client = connect(&server);
    let mut watchers: Vec<Client> = (0..WATCHERS_MAX).map(|_| connect(&server)).collect();
    for watcher in &mut watchers {
        watcher.ask("watch mutations\r\n", "OK\r\n");
    }
    client.ask("watch\r\n", "WATCHER_TOO_MANY log watcher limit reached\r\n");
    assert_eq!(client.stat("log_watchers"), WATCHERS_MAX as u64);
    wait_until("lines left out", || {
        fill(&mut client, 0..5000);
        client.stat("log_watcher_skipped") > 0
    });
    assert!(client.stat("log_watcher_sent") > 0 && client.stat("log_worker_written") > 0);
    assert!(client.stat("response_obj_bytes") < 64 << 20, "what waits is bounded");
    // All but one go; that one reads, and hears how much it has missed.
    let mut last = watchers.pop().unwrap();
    drop(watchers);
    wait_until("their end", || client.stat("log_watchers") == 1);
    let skipped = loop {
        fill(&mut client, 0..10);
        if let Some(lines) = last.line().strip_prefix("skipped=") {
            break lines.parse::<u64>().unwrap();
        }
    };
    assert!(skipped > 0);
    drop(last);
    wait_until("nobody watches", || client.stat("log_watchers") == 0);
    let written = client.stat("log_worker_written");
    fill(&mut client, 0..100);
    assert_eq!(client.stat("log_worker_written"), written, "nobody watches");
    server.stop();
}

#[test]
fn evictions_are_told() {
    let server = start(Settings { memory_bytes: 8 << 20, ..settings(1) });
    let (mut client, mut watcher) = (connect(&server), connect(&server));
    watcher.ask("watch evictions\r\n", "OK\r\n");
    let mut keys = 0;
    wait_until("evictions", || {
        fill(&mut client, keys..keys + 5000);
        keys += 5000;
        client.stat("evictions") > 0
    });
    let line = watcher.line();
    let told: HashMap<&str, &str> =
        line.split(' ').map(|field| field.split_once('=').unwrap()).collect();
    assert_eq!((told["type"], told["fetch"], told["ttl"]), ("eviction", "no", "-1"), "{line}");
    assert_eq!((told["clsid"], told["size"]), ("1", "5"), "{line}");
    client.ask(format!("get {}\r\n", told["key"]), "END\r\n");
    server.stop();
}

/// The names of what `stats` answers with these arguments.
fn names(server: &live::Server, arguments: &str) -> Vec<String> {
    let mut wire = server.connect();
    wire.send(b"set key 0 0 5\r\nvalue\r\nget key\r\n");
    for _ in 0..4 {
        wire.line().unwrap();
    }
    wire.send(format!("stats {arguments}\r\n").as_bytes());
    let mut names = Vec::new();
    loop {
        let line = String::from_utf8(wire.line().unwrap()).unwrap();
        let Some(stat) = line.strip_prefix("STAT ") else { return names };
        // memcached chooses the class by the item's size.
        let name = stat.split(' ').next().unwrap();
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = name.split(':').map(|part| if digits(part) { "1" } else { part });
        names.push(parts.collect::<Vec<_>>().join(":"));
    }
}

#[test]
fn statistics_have_memcacheds_names_and_no_others() {
    let flags = ["-o", "idle_timeout=100,no_maxconns_fast"];
    // Of each section of the file: what the server is started with, and what is asked.
    let sections: [(&[&str], &str); 4] = [(&[], ""), (&[], "items"), (&[], "slabs"), (&flags, "")];
    let recorded: Vec<_> = include_str!("data/statistics.txt").split("\n==").skip(1).collect();
    assert_eq!(recorded.len(), sections.len());
    for ((flags, arguments), section) in sections.into_iter().zip(recorded) {
        let expected: Vec<_> = section.lines().skip(1).collect();
        let ours = live::Server::under_test(flags);
        assert_eq!(names(&ours, arguments), expected, "stats {arguments}");
        // Another version has other statistics.
        if let Some(memcached) = live::Server::memcached(flags)
            && memcached.version() == "1.6.45"
        {
            assert_eq!(names(&memcached, arguments), expected, "stats {arguments} of memcached");
        }
    }
}

#[test]
fn what_is_counted_is_told() {
    let server = start(Settings { dump_enabled: true, ..settings(1) });
    let mut client = connect(&server);
    for (request, name) in [
        ("get nosuch\r\n", "cmd_get"),
        ("get nosuch\r\n", "get_misses"),
        ("set k 0 0 1\r\n1\r\n", "cmd_set"),
        ("set k 0 0 1\r\n1\r\n", "total_items"),
        ("get k\r\n", "get_hits"),
        ("flush_all 1000\r\n", "cmd_flush"),
        ("touch k 0\r\n", "cmd_touch"),
        ("touch k 0\r\n", "touch_hits"),
        ("touch nosuch 0\r\n", "touch_misses"),
        ("me k\r\n", "cmd_meta"),
        ("incr k 1\r\n", "incr_hits"),
        ("decr k 1\r\n", "decr_hits"),
        ("incr nosuch 1\r\n", "incr_misses"),
        ("decr nosuch 1\r\n", "decr_misses"),
        ("delete nosuch\r\n", "delete_misses"),
        ("cas k 0 0 1 1\r\n1\r\n", "cas_badval"),
        ("cas nosuch 0 0 1 1\r\n1\r\n", "cas_misses"),
        ("ms k 1 C0\r\n1\r\n", "cmd_set"),
        ("set k 0 0 2000000\r\n", "store_too_large"),
        ("lru_crawler mgdump all\r\n", "lru_crawler_starts"),
        ("mn\r\n", "bytes_read"),
        ("mn\r\n", "bytes_written"),
    ] {
        let before = client.stat(name);
        client.send(request);
        if name == "store_too_large" {
            client.send(vec![b'x'; 2_000_000]);
            client.send("\r\n");
        }
        client.send("mn\r\n");
        while client.line() != "MN" {}
        if request == "mn\r\n" {
            client.line();
        }
        assert!(client.stat(name) > before, "{name} after {request}");
    }
    let before = client.stat("curr_items");
    client.ask("set another 0 0 1\r\n1\r\n", "STORED\r\n");
    assert_eq!(client.stat("curr_items"), before + 1);
    let other = connect(&server);
    wait_until("a connection", || client.stat("curr_connections") == 2);
    drop(other);
    wait_until("its end", || client.stat("curr_connections") == 1);
    assert_eq!(client.stat("total_connections"), 2);
    server.stop();
}
