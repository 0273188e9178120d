//! A server on a machine with several NUMA nodes takes memory from each node and returns it.
//!
//! Where: the built program, seen from outside. `tests/vm` boots such a machine and runs this test;
//! no other command runs it (`test = false` in Cargo.toml), as few machines have several nodes.
//! Invariant: the items of a thread lie on the node of the thread's CPU. `stats memory` reports the
//! memory that the system has given the server on each node.
//! Source: numa(7), `/proc/PID/numa_maps`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::time::Instant;

use inprocess::Client;
use live::Server;
use testing::{PATIENCE, wait_until};

const MIB: u64 = 1 << 20;
/// Maximum memory that the server takes on a node ahead of need: a few segments.
const AHEAD: u64 = 32 * MIB;

/// Returns resident bytes. The first index is the node that the memory's policy prefers; the second
/// index is the node on which the memory lies.
fn given(server: &Server) -> [[u64; 2]; 2] {
    let maps = std::fs::read_to_string(format!("/proc/{}/numa_maps", server.pid())).unwrap();
    let mut bytes = [[0; 2]; 2];
    for words in maps.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
        // The words of a line are an address, a policy, and the number of pages on each node.
        let wanted = match words.get(1) {
            Some(&"prefer:0") => 0,
            Some(&"prefer:1") => 1,
            _ => continue,
        };
        for (node, name) in ["N0=", "N1="].iter().enumerate() {
            let pages = words.iter().find_map(|word| word.strip_prefix(name));
            let pages: u64 = pages.map_or(0, |pages| pages.parse().unwrap());
            bytes[wanted][node] += pages * 4096;
        }
    }
    bytes
}

fn reported(client: &mut Client) -> [u64; 2] {
    let rows = client.stats("memory");
    ["node_0_bytes", "node_1_bytes"].map(|name| rows[name].parse().unwrap())
}

/// Returns a client for each node. A thread of the node serves this client.
fn clients(server: &Server) -> [Client; 2] {
    let mut found = [None, None];
    let total = |rows: &std::collections::HashMap<String, String>, column: usize| -> u64 {
        rows[&format!("columns:{column}:total_connections")].parse().unwrap()
    };
    let mut asks = Client::to(server.address());
    wait_until("a client on each node", || {
        let before = asks.stats("columns");
        let mut client = Client::to(server.address());
        client.ask("mn\r\n", "MN\r\n");
        let after = asks.stats("columns");
        let its = (0..4).find(|column| total(&after, *column) > total(&before, *column)).unwrap();
        let node: usize = after[&format!("columns:{its}:numa_node")].parse().unwrap();
        found[node] = Some(client);
        found.iter().all(Option::is_some)
    });
    found.map(Option::unwrap)
}

fn store(client: &mut Client, name: &str, bytes: u64) {
    let value = "v".repeat(8000);
    for first in (0..bytes / 8000).step_by(64) {
        let set = |key| format!("set {name}{key} 0 0 8000 noreply\r\n{value}\r\n");
        client.send((first..first + 64).map(set).collect::<String>());
        client.ask("mn\r\n", "MN\r\n");
    }
}

#[test]
fn each_node_gives_memory_to_its_threads_and_gets_it_back() {
    if !std::path::Path::new("/sys/devices/system/node/node1").exists() {
        return testing::skip("a machine of one NUMA node (make vm)");
    }
    let server = Server::under_test(&["-m", "256", "-t", "4", "-o", "no_migrate"]);
    let [mut of_0, mut of_1] = clients(&server);
    let settled = |client: &mut Client, what: &str, holds: &dyn Fn([u64; 2]) -> bool| {
        let until = Instant::now() + PATIENCE;
        loop {
            let (reported, given) = (reported(client), given(&server));
            let is_as_reported = |at: usize| given[at][at].abs_diff(reported[at]) < MIB;
            let is_at_home = given[0][1] == 0 && given[1][0] == 0;
            let both = format!("{what}: reported {reported:?}, given {given:?}");
            assert!(is_at_home, "{both}: memory of the other node");
            if holds(reported) && is_as_reported(0) && is_as_reported(1) {
                return;
            }
            assert!(Instant::now() < until, "{both}");
            std::thread::yield_now();
        }
    };
    settled(&mut of_0, "nothing is stored", &|[a, b]| a < AHEAD && b < AHEAD);
    store(&mut of_0, "a", 64 * MIB);
    settled(&mut of_0, "node 0 gives", &|[a, b]| a >= 64 * MIB && b < AHEAD);
    store(&mut of_1, "b", 80 * MIB);
    settled(&mut of_0, "node 1 gives", &|[a, b]| a < 64 * MIB + AHEAD && b >= 80 * MIB);
    of_0.ask("cache_memlimit 64\r\n", "OK\r\n");
    settled(&mut of_0, "both get back", &|[a, b]| a + b <= 64 * MIB && a < 64 * MIB);
    of_0.ask("cache_memlimit 256\r\n", "OK\r\n");
    let before = reported(&mut of_0);
    store(&mut of_1, "c", 80 * MIB);
    settled(&mut of_0, "node 1 gives again", &|[a, b]| a < before[0] + AHEAD && b >= 80 * MIB);
    of_0.ask("flush_all\r\n", "OK\r\n");
    of_0.ask("cache_memlimit 16\r\n", "OK\r\n");
    settled(&mut of_1, "both get all back", &|[a, b]| a + b <= 16 * MIB);
}
