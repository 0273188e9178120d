//! Operators' requests during client load: lists of all items, events, statistics.
//!
//! Where: an in-process server. Only the test of names runs the built binary and memcached.
//! Invariant: an operator who reads slowly, or not at all, blocks nobody and takes bounded memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use hypostyle::limits::{
    DUMP_STALLED_SECONDS, DUMPS_MAX, PREFIXES_MAX, PREFIXES_TOLD_MAX, WATCHERS_MAX,
};
use hypostyle::start::settings::Settings;
use inprocess::{Client, connect, settings, start};
use testing::wait_until;

const STAYING: usize = 20_000;

fn fill(client: &mut Client, keys: std::ops::Range<usize>) {
    for key in keys {
        client.send(format!("set key-{key} 0 0 5 noreply\r\nvalue\r\n"));
    }
    client.ask("mn\r\n", "MN\r\n");
}

/// Returns the keys that `mgdump` lists. Fails if a key is listed twice.
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
            // Relaxed: the flag orders no other memory access.
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
        done.store(true, Ordering::Relaxed); // The flag orders nothing.
    });
    assert_eq!(client.stat("lru_crawler_starts"), 3);
    server.stop();
}

#[test]
fn dumps_that_nobody_reads_hold_up_nobody_and_only_so_many_are_under_way() {
    let server = start(settings(1));
    let mut client = connect(&server);
    // The list of these keys does not fit in the sockets' buffers.
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
    assert!(client.stat("response_obj_count") > 1, "some replies are unsent");
    dumps.pop();
    wait_until("the start of another dump", || {
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
    // All watchers except the last leave. The last watcher reads only after it has missed lines,
    // and then gets the number of missed lines, even if no further event happens.
    let mut last = watchers.pop().unwrap();
    drop(watchers);
    wait_until("the end of the other watchers", || client.stat("log_watchers") == 1);
    let before = client.stat("log_watcher_skipped");
    wait_until("lines left out of the last one's", || {
        fill(&mut client, 0..5000);
        client.stat("log_watcher_skipped") > before
    });
    let skipped = loop {
        if let Some(lines) = last.line().strip_prefix("skipped=") {
            break lines.parse::<u64>().unwrap();
        }
    };
    assert!(skipped > 0);
    drop(last);
    wait_until("the end of all watchers", || client.stat("log_watchers") == 0);
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
    let row: HashMap<&str, &str> =
        line.split(' ').map(|field| field.split_once('=').unwrap()).collect();
    assert_eq!((row["type"], row["fetch"], row["ttl"]), ("eviction", "no", "-1"), "{line}");
    assert_eq!((row["clsid"], row["size"]), ("1", "5"), "{line}");
    client.ask(format!("get {}\r\n", row["key"]), "END\r\n");
    server.stop();
}

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
        // The class numbers in memcached's names depend on item sizes, so `1` replaces each number.
        let name = stat.split(' ').next().unwrap();
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = name.split(':').map(|part| if digits(part) { "1" } else { part });
        names.push(parts.collect::<Vec<_>>().join(":"));
    }
}

#[test]
fn statistics_have_memcacheds_names_and_no_others() {
    let flags = ["-o", "idle_timeout=100,no_maxconns_fast"];
    // Each row has the flags and the `stats` arguments that give a section of
    // `data/statistics.txt`.
    let without = ["-o", "no_lru_crawler,no_lru_maintainer"];
    let sections: [(&[&str], &str); 6] = [
        (&[], ""),
        (&[], "items"),
        (&[], "slabs"),
        (&flags, ""),
        (&without, ""),
        (&[], "settings"),
    ];
    let recorded: Vec<_> = include_str!("data/statistics.txt").split("\n==").skip(1).collect();
    assert_eq!(recorded.len(), sections.len());
    for ((flags, arguments), section) in sections.into_iter().zip(recorded) {
        let expected: Vec<_> = section.lines().skip(1).collect();
        let ours = live::Server::under_test(flags);
        let mut own = names(&ours, arguments);
        // This server lists its own settings after those of memcached.
        own.truncate(if arguments == "settings" { expected.len() } else { usize::MAX });
        assert_eq!(own, expected, "stats {arguments}");
        // Other versions of memcached have other statistics.
        if let Some(memcached) = live::Server::memcached(flags)
            && memcached.version() == "1.6.45"
        {
            assert_eq!(names(&memcached, arguments), expected, "stats {arguments} of memcached");
        }
    }
}

fn sockets(client: &mut Client) -> HashMap<String, HashMap<String, String>> {
    let mut by_descriptor: HashMap<String, HashMap<String, String>> = HashMap::new();
    client.send("stats conns\r\n");
    loop {
        let line = client.line();
        if line == "END" {
            break;
        }
        let (name, value) = line.strip_prefix("STAT ").unwrap().split_once(' ').unwrap();
        let (descriptor, field) = name.split_once(':').unwrap();
        let rows = by_descriptor.entry(descriptor.to_owned()).or_default();
        let before = rows.insert(field.to_owned(), value.to_owned());
        assert_eq!(before, None, "{line} is there twice");
    }
    by_descriptor.into_values().map(|rows| (rows["addr"].clone(), rows)).collect()
}

#[test]
fn each_connection_is_told_once_with_its_state() {
    // Number of connections, which is larger than a column can list in one turn.
    const CONNECTIONS: usize = 700;
    assert!(inprocess::allow_files(2 * CONNECTIONS as u64 + 200));
    let server = start(settings(2));
    let mut client = connect(&server);
    client.ask(format!("set large 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000)), "STORED\r\n");
    let mut idle: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    idle.iter_mut().for_each(|idle| idle.ask("mn\r\n", "MN\r\n"));
    let (mut watcher, mut deaf, mut slow) = (connect(&server), connect(&server), connect(&server));
    watcher.ask("watch\r\n", "OK\r\n");
    deaf.send("get large\r\n".repeat(50));
    slow.send("set half 0 0 1000000\r\nbegun");
    let mut short = connect(&server);
    short.send("set half 0 0 10\r\nbegun");
    let address = |client: &Client| format!("tcp:{}", client.0.local_addr().unwrap());
    let mut all = HashMap::new();
    wait_until("all states", || {
        all = sockets(&mut client);
        let state = |client: &Client| all.get(&address(client)).map(|rows| &*rows["state"]);
        let read = [&slow, &short].map(state);
        state(&deaf) == Some("conn_mwrite") && read == [Some("conn_nread"); 2]
    });
    for one in &idle {
        let rows = &all[&address(one)];
        assert_eq!(rows["state"], "conn_read");
        assert_eq!(rows["listen_addr"], format!("tcp:{}", server.addresses()[0]));
        assert!(rows["secs_since_last_cmd"].parse::<u64>().unwrap() < 600);
    }
    assert_eq!(all[&address(&watcher)]["state"], "conn_watch");
    assert_eq!(all[&address(&client)]["state"], "conn_parse_cmd");
    let listener = &all[&format!("tcp:{}", server.addresses()[0])];
    assert_eq!(listener["state"], "conn_listening");
    // The listeners of both columns have the same address, so they share a row.
    assert_eq!(all.len(), CONNECTIONS + 5 + 1);
    // A listener has no commands, so its time counts from the server's start.
    server.shared().columns.plant_clock(3_600_000);
    wait_until("an hour since the start", || {
        let all = sockets(&mut client);
        all[&format!("tcp:{}", server.addresses()[0])]["secs_since_last_cmd"] == "3600"
    });
    server.stop();
}

#[test]
fn many_who_ask_for_connections_at_once_are_all_answered() {
    let server = start(settings(2));
    let mut clients: Vec<Client> = (0..50).map(|_| connect(&server)).collect();
    for _ in 0..5 {
        clients.iter_mut().for_each(|client| client.send("stats conns\r\n"));
        for client in &mut clients {
            let mut lines = 0;
            while client.line() != "END" {
                lines += 1;
            }
            assert!(lines >= 50 * 4, "{lines}");
        }
    }
    server.stop();
}

#[test]
fn a_dump_whose_client_takes_nothing_loses_its_place_to_another() {
    let server = start(settings(2));
    let now_ms = 3_600_000;
    server.shared().columns.plant_clock(now_ms);
    let mut client = connect(&server);
    fill(&mut client, 0..400_000);
    let mut dumps: Vec<Client> = (0..DUMPS_MAX).map(|_| connect(&server)).collect();
    for dump in &mut dumps {
        dump.ask("lru_crawler metadump all\r\n", "OK\r\n");
    }
    let busy = "BUSY currently processing crawler request\r\n";
    wait_until("the sockets to be full", || client.stat("response_obj_count") > DUMPS_MAX as u64);
    server.shared().columns.plant_clock(now_ms + u64::from(DUMP_STALLED_SECONDS) * 1000);
    client.ask("lru_crawler mgdump 2\r\n", busy);
    server.shared().columns.plant_clock(now_ms + u64::from(DUMP_STALLED_SECONDS + 2) * 1000);
    wait_until("the end of the stalled dump", || {
        client.send("lru_crawler mgdump all\r\n");
        client.line() == "OK"
    });
    while client.line() != "EN" {}
    assert_eq!(client.stats("store")["dumps_stalled"], "1");
    // The server ended only the stalled dump.
    let ends: Vec<Vec<u8>> = dumps.iter_mut().map(read_dump).collect();
    let whole = ends.iter().filter(|end| end.ends_with(b"END\r\n")).count();
    assert_eq!((whole, ends.len()), (DUMPS_MAX - 1, DUMPS_MAX));
    server.stop();
}

/// Reads the dump to its end. Returns the last bytes of the dump.
fn read_dump(client: &mut Client) -> Vec<u8> {
    let (mut end, mut bytes) = (Vec::new(), [0; 1 << 16]);
    while !end.ends_with(b"END\r\n") {
        match client.0.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => end.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} instead of an end"),
        }
        end.drain(..end.len().saturating_sub(16));
    }
    end
}

#[test]
fn items_are_counted_by_sizes_and_by_prefixes_while_others_come_and_go() {
    let server = start(Settings { sizes: true, ..settings(2) });
    let mut client = connect(&server);
    let counted = STAYING as u64;
    for key in 0..STAYING {
        client.send(format!("set user:{key} 0 0 5 noreply\r\nvalue\r\n"));
        if key < 100 {
            client.send(format!("set page%:{key} 0 0 500 noreply\r\n{}\r\n", "x".repeat(500)));
        }
    }
    client.ask("set plain 0 0 1\r\n1\r\n", "STORED\r\n");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut other = connect(&server);
        let done = &done;
        scope.spawn(move || {
            // Relaxed: the flag orders no other memory access.
            while !done.load(Ordering::Relaxed) {
                for key in 0..1000 {
                    other.send(format!("set other:{key} 0 0 5 noreply\r\nvalue\r\n"));
                    other.send(format!("delete other:{key} noreply\r\n"));
                }
                other.ask("mn\r\n", "MN\r\n");
            }
        });
        for _ in 0..3 {
            let rows = client.stats("prefixes");
            let number = |name: &str| rows[name].parse::<u64>().unwrap();
            assert_eq!(number("prefixes:user:items"), counted);
            assert!(number("prefixes:user:bytes") > 20 * counted);
            assert_eq!(number("prefixes:page%25:items"), 100);
            assert!(number("prefixes:page%25:bytes") > 50_000);
            assert_eq!((number("without:items"), number("others:items")), (1, 0));
        }
        done.store(true, Ordering::Relaxed); // The flag orders nothing.
    });
    let sizes = client.stats("sizes");
    let rows: HashMap<u64, u64> =
        sizes.iter().map(|(row, items)| (row.parse().unwrap(), items.parse().unwrap())).collect();
    assert!(rows.keys().all(|row| row % 32 == 0), "{rows:?}");
    assert_eq!(rows.values().sum::<u64>(), client.stat("curr_items"));
    let large: u64 = rows.iter().filter(|(row, _)| **row > 500).map(|(_, items)| items).sum();
    assert_eq!(large, 100);
    server.stop();
}

#[test]
fn evictions_are_counted_by_prefix_where_requests_are() {
    let server = start(Settings { memory_bytes: 8 << 20, detail: true, ..settings(1) });
    let mut client = connect(&server);
    let mut keys = 0;
    wait_until("evictions", || {
        for key in keys..keys + 5000 {
            client.send(format!("set p:{key} 0 0 5 noreply\r\nvalue\r\n"));
        }
        keys += 5000;
        client.stat("evictions") > 0
    });
    let evicted = client.stats("prefixes")["prefixes:p:evictions"].parse::<u64>().unwrap();
    assert!(evicted > 0 && evicted <= client.stat("evictions"), "{evicted}");
    client
        .ask("stats detail dump\r\n", format!("PREFIX p get 0 hit 0 set {keys} del 0\r\nEND\r\n"));
    server.stop();
}

#[test]
fn prefixes_without_end_take_bounded_memory_and_are_all_told() {
    let server = start(Settings { detail: true, ..settings(2) });
    let mut client = connect(&server);
    for key in 0..2 * PREFIXES_MAX {
        client.send(format!("get prefix-{key}:k\r\n"));
        if key % 1000 == 999 {
            (0..1000).for_each(|_| assert_eq!(client.line(), "END"));
        }
    }
    (0..2 * PREFIXES_MAX % 1000).for_each(|_| assert_eq!(client.line(), "END"));
    client.send("stats detail dump\r\n");
    let mut listed = HashSet::new();
    loop {
        let line = client.line();
        if line == "END" {
            break;
        }
        assert!(line.ends_with(" get 1 hit 0 set 0 del 0"), "{line}");
        assert!(listed.insert(line.split(' ').nth(1).unwrap().to_owned()), "{line} comes twice");
    }
    assert!(listed.len() <= PREFIXES_MAX && listed.len() > PREFIXES_MAX / 2, "{}", listed.len());
    // `stats prefixes` has rows for a limited number of prefixes, and one sum for all others.
    for key in 0..PREFIXES_TOLD_MAX + 100 {
        client.send(format!("set item-{key}:k 0 0 1 noreply\r\n1\r\n"));
    }
    client.ask("mn\r\n", "MN\r\n");
    let prefixes = client.stats("prefixes");
    assert_eq!(prefixes.len(), 3 * PREFIXES_TOLD_MAX + 4);
    assert_eq!(prefixes["others:items"], "100");
    server.stop();
}

#[test]
fn times_and_hot_keys_are_sampled_whatever_the_protocol() {
    const ROUNDS: u64 = 20_000;
    let server = start(settings(2));
    let mut client = connect(&server);
    let long = "x".repeat(500_000);
    client.ask(format!("set long 0 0 500000\r\n{long}\r\n"), "STORED\r\n");
    client.ask("set hot 0 0 1\r\nv\r\n", "STORED\r\n");
    for round in 0..ROUNDS {
        client.ask("get hot\r\n", "VALUE hot 0 1\r\nv\r\nEND\r\n");
        client.ask(format!("ms key-{round} 1\r\nv\r\n"), "HD\r\n");
        if round % 2 == 0 {
            client.ask("mg hot v\r\n", "VA 1\r\nv\r\n");
        }
    }
    let times = client.stats("latency");
    let number = |name: &str| times[&format!("latency:{name}")].parse::<u64>().unwrap();
    for (kind, requests) in [("get", ROUNDS), ("ms", ROUNDS), ("mg", ROUNDS / 2)] {
        // The number is an estimate: a busy server samples about 80 of 10,000 requests.
        let sampled = number(&format!("{kind}:requests"));
        assert!(sampled > requests / 2 && sampled < requests * 2, "{kind}: {sampled}");
        let (p50, p99) = (number(&format!("{kind}:p50_ns")), number(&format!("{kind}:p99_ns")));
        assert!(p50 > 20 && p50 <= p99 && p99 <= number(&format!("{kind}:max_ns")), "{kind}");
        let steps = times.iter().filter(|(name, _)| name.contains(&format!(":{kind}:up_to_")));
        let in_steps: u64 = steps.map(|(_, requests)| requests.parse::<u64>().unwrap()).sum();
        assert_eq!(in_steps, sampled);
    }
    let hot = client.stats("hot");
    let number = |name: &str| hot[name].parse::<u64>().unwrap();
    assert!(number("hot:hot:requests") > ROUNDS / 2, "{hot:?}");
    assert!(number("hot:hot:requests") * 2 > number("requests"), "{hot:?}");
    assert!(number("hot:hot:at_least") <= number("hot:hot:requests"));
    assert_eq!(number("big:long:bytes"), 500_000, "{hot:?}");
    client.ask("delete long\r\n", "DELETED\r\n");
    assert_eq!(client.stats("hot").get("big:long:bytes"), None);
    client.ask("stats reset\r\n", "RESET\r\n");
    let hot = client.stats("hot");
    assert!(hot["requests"].parse::<u64>().unwrap() < 1000 && hot.len() < 10, "{hot:?}");
    server.stop();
    let server = start(Settings { dump_enabled: false, ..settings(1) });
    let mut client = connect(&server);
    for page in ["hot", "prefixes"] {
        let refusal = "CLIENT_ERROR stats detail not allowed\r\n";
        client.ask(format!("stats {page}\r\n"), refusal);
    }
    server.stop();
}
