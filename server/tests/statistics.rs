//! Each statistic of plain `stats` changes on the events that it counts.
//!
//! Where: an in-process server, driven by a client's requests and by a clock that the test sets.
//! Invariant: every statistic recorded from memcached changes in a test, or `NEVER` says why not.
//! Source: `data/statistics.txt`, recorded from memcached 1.6.45.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::collections::HashSet;

use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::{Client, connect, settings, settings_where, start};
use store::policy::Eviction;
use testing::wait_until;

/// Statistics that never change in this server, with their values and the reasons.
const NEVER: [(&str, &str, &str); 24] = [
    ("libevent", "none", "there is none"),
    ("response_obj_oom", "0", "memory for replies never fails: the process would end"),
    ("read_buf_oom", "0", "nor does memory for input"),
    ("auth_cmds", "0", "there is no authentication"),
    ("auth_errors", "0", "there is no authentication"),
    ("slab_reassign_rescues", "0", "there are no slab classes"),
    ("slab_reassign_chunk_rescues", "0", "there are no slab classes"),
    ("slab_reassign_inline_reclaim", "0", "there are no slab classes"),
    ("slab_reassign_busy_items", "0", "there are no slab classes"),
    ("slab_reassign_busy_deletes", "0", "there are no slab classes"),
    ("slab_reassign_busy_nomem", "0", "there are no slab classes"),
    ("slab_reassign_last_busy_status", "none", "there are no slab classes"),
    ("slab_reassign_running", "0", "there are no slab classes"),
    ("slabs_moved", "0", "there are no slab classes"),
    ("lru_maintainer_juggles", "0", "there are no LRUs"),
    ("malloc_fails", "0", "the process would end"),
    ("unexpected_napi_ids", "0", "each thread has listeners of its own"),
    ("round_robin_fallback", "0", "each thread has listeners of its own"),
    ("lrutail_reflocked", "0", "there are no LRUs"),
    ("moves_to_cold", "0", "there are no LRUs"),
    ("moves_to_warm", "0", "there are no LRUs"),
    ("moves_within_lru", "0", "there are no LRUs"),
    ("lru_bumps_dropped", "0", "there are no LRUs"),
    ("pointer_size", "64", "it is the machine's"),
];

const BY_REQUEST: [(&str, &str); 25] = [
    ("cmd_get", "get nosuch"),
    ("get_misses", "get nosuch"),
    ("cmd_set", "set k 0 0 1\r\n1"),
    ("total_items", "set k 0 0 1\r\n1"),
    ("curr_items", "set fresh 0 0 1\r\n1"),
    ("bytes", "set longer 0 0 9\r\n123456789"),
    ("get_hits", "get k"),
    ("cmd_flush", "flush_all 1000"),
    ("cmd_touch", "touch k 0"),
    ("touch_hits", "touch k 0"),
    ("touch_misses", "touch nosuch 0"),
    ("cmd_meta", "me k"),
    ("incr_hits", "incr k 1"),
    ("decr_hits", "decr k 1"),
    ("incr_misses", "incr nosuch 1"),
    ("decr_misses", "decr nosuch 1"),
    ("delete_hits", "delete k"),
    ("delete_misses", "delete k"),
    ("cas_misses", "cas k 0 0 1 1\r\n1"),
    ("cas_hits", "ms k 1 E5\r\n1\r\nms k 1 C5\r\n1"),
    ("cas_badval", "cas k 0 0 1 1\r\n1"),
    ("store_too_large", "set k 0 0 1048577\r\n"),
    ("lru_crawler_starts", "lru_crawler mgdump all"),
    ("bytes_read", "verbosity 0"),
    ("bytes_written", "verbosity 0"),
];

struct Moved(HashSet<&'static str>);

impl Moved {
    fn note(&mut self, name: &'static str) {
        self.0.insert(name);
    }

    fn raised(&mut self, client: &mut Client, name: &'static str, act: impl FnOnce(&mut Client)) {
        let before = client.stat(name);
        act(client);
        wait_until(name, || client.stat(name) > before);
        self.note(name);
    }

    fn becomes(&mut self, client: &mut Client, name: &'static str, value: u64) {
        wait_until(name, || client.stat(name) == value);
        self.note(name);
    }

    /// Repeats `act` until each statistic in `names` exceeds the number beside its name.
    fn exceed(
        &mut self,
        client: &mut Client,
        names: &[(&'static str, u64)],
        mut act: impl FnMut(&mut Client),
    ) {
        for &(name, more_than) in names {
            wait_until(name, || {
                act(client);
                client.stat(name) > more_than
            });
            self.note(name);
        }
    }
}

#[test]
fn every_statistic_moves_or_cannot() {
    let mut moved = Moved(HashSet::new());
    let scenarios: [fn(&mut Moved); 8] =
        [requests, process, connections, limits, memory, eviction, dead_items, watchers];
    scenarios.iter().for_each(|scenario| scenario(&mut moved));
    let sections: Vec<_> = include_str!("data/statistics.txt").split("\n==").collect();
    // The names of plain `stats`, and `idle_kicks`, which `-o idle_timeout` adds.
    let recorded = sections[1].lines().skip(1).chain(["idle_kicks"]);
    let never = NEVER.map(|(name, _, _)| name);
    let still: Vec<_> =
        recorded.filter(|name| !moved.0.contains(name) && !never.contains(name)).collect();
    assert!(still.is_empty(), "no test changes {still:?}");
    let both: Vec<_> = never.iter().filter(|name| moved.0.contains(**name)).collect();
    assert!(both.is_empty(), "{both:?} change, and are in `NEVER`");
}

fn open(settings: Settings) -> (Server, Client) {
    let server = start(settings);
    let client = connect(&server);
    (server, client)
}

/// Stops a used server. Fails if a statistic of `NEVER` has changed.
fn close(server: Server, client: &mut Client) {
    let all = client.stats("");
    for (name, value, why) in NEVER {
        assert_eq!(all.get(name).map(|it| &**it), Some(value), "{name}: {why}");
    }
    server.stop();
}

fn obey(client: &mut Client, requests: &str) {
    client.send(format!("{requests}\r\nmn\r\n"));
    while client.line() != "MN" {}
}

fn fill(client: &mut Client, keys: std::ops::Range<u32>, exptime: u32) {
    let set = |key| format!("set key-{key} 0 {exptime} 100 noreply\r\n{}\r\n", "x".repeat(100));
    client.send(keys.map(set).collect::<String>());
    obey(client, "");
}

fn requests(moved: &mut Moved) {
    let (server, mut client) = open(settings(1));
    for (name, request) in BY_REQUEST {
        let long = if name == "store_too_large" { "x".repeat(1_048_577) } else { String::new() };
        moved.raised(&mut client, name, |client| obey(client, &format!("{request}{long}")));
    }
    // Send more requests than one turn executes, so that the connection yields.
    moved.raised(&mut client, "conn_yields", |client| obey(client, &"get k\r\n".repeat(1000)));
    close(server, &mut client);
}

fn process(moved: &mut Moved) {
    let (server, mut client) = open(settings(1));
    moved.becomes(&mut client, "pid", std::process::id().into());
    assert_eq!(client.stats("")["version"], hypostyle::start::settings::MEMCACHED_VERSION);
    moved.note("version");
    let (uptime, time) = (client.stat("uptime"), client.stat("time"));
    server.shared().columns.plant_clock(3_600_000);
    moved.becomes(&mut client, "uptime", uptime + 3600);
    moved.becomes(&mut client, "time", time + 3600);
    for name in ["rusage_user", "rusage_system"] {
        let seconds = |client: &mut Client| client.stats("")[name].parse::<f64>().unwrap();
        let before = seconds(&mut client);
        wait_until(name, || seconds(&mut client) > before);
        moved.note(name);
    }
    close(server, &mut client);
}

fn connections(moved: &mut Moved) {
    let (server, mut client) = open(settings_where(1, |columns| columns.connections_max = 200));
    let mut others = Vec::new();
    for name in ["curr_connections", "total_connections", "connection_structures"] {
        // Sixty more connections need more connection structures.
        moved.raised(&mut client, name, |_| others.extend((0..60).map(|_| connect(&server))));
    }
    let mut refused = Vec::new();
    moved.raised(&mut client, "rejected_connections", |_| {
        refused.extend((0..100).map(|_| connect(&server)));
    });
    drop(refused);
    client.ask(format!("set large 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000)), "STORED\r\n");
    moved.raised(&mut client, "response_obj_count", |_| {
        others[0].send("get large\r\n".repeat(50));
    });
    let whole = format!("set half 0 0 6000\r\n{}\r\n", "x".repeat(6000));
    let half = &whole[..whole.len() / 2];
    moved.raised(&mut client, "read_buf_bytes", |_| others[1].send(half));
    moved.raised(&mut client, "read_buf_count", |_| others[2].send(half));
    moved.raised(&mut client, "read_buf_bytes_free", |_| others[1].send(&whole[half.len()..]));
    // When the socket's buffer is full, the server copies replies out of the log.
    obey(&mut client, &whole);
    moved
        .raised(&mut client, "response_obj_bytes", |_| others[3].send("get half\r\n".repeat(5000)));
    close(server, &mut client);

    let few = settings_where(1, |columns| {
        (columns.connections_max, columns.connections_max_fast) = (1, false);
    });
    let (server, mut first) = open(few);
    first.ask("mn\r\n", "MN\r\n");
    let mut second = connect(&server);
    moved.becomes(&mut first, "accepting_conns", 0);
    drop(first);
    moved.exceed(
        &mut second,
        &[("listen_disabled_num", 0), ("time_in_listen_disabled_us", 0)],
        |_| (),
    );
    server.stop();

    let (server, mut client) = open(settings_where(1, |columns| columns.idle_seconds_max = 5));
    client.ask("mn\r\n", "MN\r\n");
    assert_eq!(client.stat("idle_kicks"), 0);
    server.shared().columns.plant_clock(3_600_000);
    client.expect_end();
    moved.becomes(&mut connect(&server), "idle_kicks", 1);
    server.stop();
}

fn limits(moved: &mut Moved) {
    let names = ["max_connections", "reserved_fds", "threads", "limit_maxbytes"];
    let of = |columns, connections_max, memory_bytes| {
        let mut settings = Settings { memory_bytes, ..settings(columns) };
        settings.columns.connections_max = connections_max;
        let (server, mut client) = open(settings);
        let counts = names.map(|name| client.stat(name));
        close(server, &mut client);
        counts
    };
    let few = of(1, 10, 8 << 20);
    let many = of(2, 20, 9 << 20);
    for (name, (few, many)) in names.into_iter().zip(few.into_iter().zip(many)) {
        assert!(few < many, "{name}");
        moved.note(name);
    }
}

fn memory(moved: &mut Moved) {
    let (server, mut client) = open(settings(1));
    let free = client.stat("slab_global_page_pool");
    let before = ["hash_power_level", "hash_bytes"].map(|name| (name, client.stat(name)));
    let mut keys = 0;
    moved.exceed(&mut client, &[&[("hash_is_expanding", 0)], &before[..]].concat(), |client| {
        fill(client, keys..keys + 1000, 0);
        keys += 1000;
    });
    assert!(client.stat("slab_global_page_pool") < free);
    moved.note("slab_global_page_pool");
    let mut dump = connect(&server);
    let mut keys = 0;
    moved.exceed(&mut client, &[("lru_crawler_running", 0)], |client| {
        fill(client, keys..keys + 10_000, 0);
        keys += 10_000;
        dump.send("lru_crawler metadump all\r\n");
    });
    drop(dump);
    close(server, &mut client);

    let keeps = settings_where(1, |columns| columns.evict = false);
    let full = Settings { memory_bytes: 8 << 20, ..keeps };
    let (server, mut client) = open(full);
    let mut keys = 0;
    moved.exceed(&mut client, &[("store_no_memory", 0)], |client| {
        fill(client, keys..keys + 5000, 0);
        keys += 5000;
    });
    close(server, &mut client);
}

fn eviction(moved: &mut Moved) {
    let few = Settings { memory_bytes: 8 << 20, eviction: Eviction::Fifo, ..settings(1) };
    let (server, mut client) = open(few);
    let mut keys = 0;
    let names = ["evictions", "evicted_unfetched", "direct_reclaims", "evicted_active"];
    moved.exceed(&mut client, &names.map(|name| (name, 0)), |client| {
        fill(client, keys..keys + 5000, 0);
        // A request for an item counts as a use only some seconds after the item was stored.
        server.shared().columns.plant_clock(3_600_000 + u64::from(keys) * 2);
        obey(
            client,
            &(keys..keys + 500).map(|key| format!("get key-{key}\r\n")).collect::<String>(),
        );
        keys += 5000;
    });
    close(server, &mut client);
}

fn dead_items(moved: &mut Moved) {
    let (server, mut client) = open(settings(1));
    fill(&mut client, 0..50_000, 10);
    server.shared().columns.plant_clock(3_600_000);
    let names = ["expired_unfetched", "crawler_reclaimed", "crawler_items_checked"];
    moved.exceed(&mut client, &names.map(|name| (name, 0)), |_| ());
    close(server, &mut client);

    // Without the crawler, only a request removes an expired item.
    let (server, mut client) = open(Settings { crawler: false, ..settings(1) });
    obey(&mut client, "set past 0 -1 1\r\n1");
    moved.raised(&mut client, "get_expired", |client| obey(client, "get past"));
    server.stop();

    let (server, mut client) = open(settings(1));
    for (name, then, now_ms) in
        [("get_flushed", "get a", 3_600_000), ("reclaimed", "set a 0 0 1\r\n1", 3_700_000)]
    {
        obey(&mut client, "set a 0 0 1\r\n1");
        server.shared().columns.plant_clock(now_ms);
        // The flush and the request share one turn, because the crawler soon removes flushed items.
        moved.raised(&mut client, name, |client| obey(client, &format!("flush_all\r\n{then}")));
    }
    close(server, &mut client);
}

fn watchers(moved: &mut Moved) {
    let little = Settings { worker_log_bytes: 4096, watcher_log_bytes: 4096, ..settings(1) };
    let (server, mut client) = open(little);
    let mut watcher = connect(&server);
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    moved.becomes(&mut client, "log_watchers", 1);
    let names =
        ["log_worker_written", "log_watcher_sent", "log_worker_dropped", "log_watcher_skipped"];
    moved.exceed(&mut client, &names.map(|name| (name, 0)), |client| {
        obey(client, &format!("get {}\r\n", "k".repeat(250)).repeat(1000));
    });
    close(server, &mut client);
}
