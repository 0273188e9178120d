//! `-m` bounds resident memory: of the real binary, filled several times over, at rest; so does
//! `cache_memlimit`, and `stats memory` tells where each byte is.
//!
//! Where: the real binary, looked at from outside.
//! Invariant: RSS stays within `-m` and the larger of 3 % and 8 MiB, whatever the items' sizes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::time::Instant;

use inprocess::{Client, DEADLINE, resident_bytes_of, wait_until};
use live::Server;
use rustix::param::page_size;

const MIB: usize = 1 << 20;

/// Stores `bytes` of values around `value_bytes` long, each under its own key, and waits until the
/// last of them is there.
fn fill(client: &mut Client, bytes: usize, value_bytes: usize) {
    let value = "v".repeat(2 * value_bytes);
    let mut batch = String::new();
    for item in 0..bytes / (value_bytes + 40) {
        let value = &value[..1 + item * 7919 % (2 * value_bytes)];
        batch += &format!("set key-{item:010} 0 0 {} noreply\r\n{value}\r\n", value.len());
        if batch.len() > 64 << 10 {
            client.send(&batch);
            batch.clear();
        }
    }
    client.ask(batch + "version\r\n", "VERSION 1.6.45\r\n");
}

/// What a process may take with such a limit.
fn resident_bytes_max(limit: usize) -> usize {
    limit + (limit * 3 / 100).max(8 * MIB)
}

/// A number of `stats memory`.
fn memory_of(client: &mut Client, name: &str) -> usize {
    client.send("stats memory\r\n");
    let mut found = None;
    loop {
        let line = client.line();
        if line == "END" {
            return found.unwrap();
        }
        if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
            found = Some(value.parse().unwrap());
        }
    }
}

/// At rest, `stats memory` accounts for all that the process takes, but for so much: threads'
/// stacks, what the allocator has about it, pages of which a part is used.
fn is_accounted_for(server: &Server, client: &mut Client, what: &str) {
    const LEFT_OVER_BYTES: usize = 2 * MIB;
    let until = Instant::now() + DEADLINE;
    loop {
        let accounted = memory_of(client, "accounted_bytes");
        let told = memory_of(client, "resident_bytes");
        let resident = resident_bytes_of(&server.pid().to_string());
        if resident.abs_diff(told) < MIB && resident.abs_diff(accounted) < LEFT_OVER_BYTES {
            return;
        }
        let differ = format!("{resident} resident, {told} told, {accounted} accounted for");
        assert!(Instant::now() < until, "{what}: {differ}");
        std::thread::yield_now();
    }
}

#[test]
fn every_byte_is_accounted_for() {
    let server = Server::under_test(&["-t", "2", "-m", "32"]);
    let mut client = Client::to(server.address());
    is_accounted_for(&server, &mut client, "at the start");
    fill(&mut client, 8 * MIB, 30);
    is_accounted_for(&server, &mut client, "a quarter filled with small items");
    fill(&mut client, 60 * MIB, 30);
    is_accounted_for(&server, &mut client, "filled with small items");
    fill(&mut client, 60 * MIB, 60_000);
    is_accounted_for(&server, &mut client, "filled with large values");
    client.ask("flush_all\r\n", "OK\r\n");
    wait_until("all is swept", || memory_of(&mut client, "live_bytes") == 0);
    is_accounted_for(&server, &mut client, "flushed");
    // Of values that are no longer than a frame, or they would be received into one.
    let part = "set part 0 0 4000\r\n".to_owned() + &"p".repeat(3_000);
    let held = |client: &mut Client| memory_of(client, "read_buf_bytes");
    let before = held(&mut client);
    let mut others: Vec<Client> = (0..400).map(|_| Client::to(server.address())).collect();
    others.iter_mut().for_each(|other| other.send(&part));
    wait_until("what connections hold is told", || held(&mut client) > before + 400 * 3_000);
    is_accounted_for(&server, &mut client, "with half requests");
    drop(others);
    wait_until("what they held is told free", || held(&mut client) < before + 400 * 3_000);
}

/// Items that lie in 4 MiB of lines and a little more, so that a huge page under the rest would
/// show, and so would words that remember evictions, of which there were none.
#[test]
fn what_grows_takes_no_more_than_it_uses() {
    const ITEMS: usize = 560_000;
    const PAGES_USED_IN_PART: usize = 64;
    let server = Server::under_test(&["-t", "1", "-m", "512"]);
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    let before = resident().saturating_sub(memory_of(&mut client, "accounted_bytes"));
    fill(&mut client, ITEMS * 60, 20);
    assert_eq!(client.stat("curr_items"), ITEMS as u64);
    let [accounted, live, segment, ghost] =
        ["accounted_bytes", "live_bytes", "segment_bytes", "ghost_bytes"]
            .map(|name| memory_of(&mut client, name));
    // The segment that is appended to has a huge page.
    let open = live.next_multiple_of(segment) - live;
    let most = accounted + before + open + PAGES_USED_IN_PART * page_size();
    let now = resident();
    assert!(now <= most, "{now} resident, {most} at most, {accounted} accounted for");
    assert_eq!(ghost, 0);
}

#[test]
fn resident_memory_follows_the_limit_down_and_up() {
    let server = Server::under_test(&["-t", "2", "-m", "48"]);
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    fill(&mut client, 80 * MIB, 200);
    assert!(resident() > 40 * MIB, "{} bytes resident", resident());
    for (megabytes, value_bytes) in [(8, 200), (64, 5000), (12, 30), (96, 60_000), (48, 200)] {
        client.ask(format!("cache_memlimit {megabytes}\r\n"), "OK\r\n");
        let limit = megabytes * MIB;
        wait_until(&format!("at most {megabytes} MiB"), || resident() <= resident_bytes_max(limit));
        is_accounted_for(&server, &mut client, &format!("at {megabytes} MiB"));
        fill(&mut client, 2 * limit, value_bytes);
        let now = resident();
        assert!(now <= resident_bytes_max(limit), "{now} resident at {megabytes} MiB");
        assert!(now > limit * 3 / 4, "{now} resident at {megabytes} MiB");
        is_accounted_for(&server, &mut client, &format!("filled at {megabytes} MiB"));
    }
    assert_eq!(client.stat("limit_maxbytes"), 48 << 20);
}

/// What is locked is given back by another call to the system.
#[test]
fn locked_memory_follows_the_limit_too() {
    let server = Server::under_test(&["-k", "-t", "2", "-m", "48"]);
    let locked_bytes = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() << 10
    };
    if locked_bytes() == 0 {
        return live::skip("no privilege to lock memory");
    }
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    for (megabytes, value_bytes) in [(48, 200), (8, 200), (32, 60_000), (12, 3000)] {
        client.ask(format!("cache_memlimit {megabytes}\r\n"), "OK\r\n");
        let limit = megabytes * MIB;
        wait_until(&format!("at most {megabytes} MiB"), || resident() <= resident_bytes_max(limit));
        fill(&mut client, 2 * limit, value_bytes);
        let now = resident();
        assert!(now <= resident_bytes_max(limit), "{now} resident at {megabytes} MiB");
        assert!(now > limit * 3 / 4, "{now} resident at {megabytes} MiB");
        assert!(locked_bytes() > limit, "{} bytes locked, all there may be", locked_bytes());
    }
}

#[test]
fn resident_memory_stays_within_the_limit() {
    // The last column: bytes that must be in use in the end, so that the bound means something.
    for (megabytes, value_bytes, used_bytes) in
        [(8, 3, 6 * MIB), (8, 5000, 7 * MIB), (64, 100, 56 * MIB), (64, 60_000, 56 * MIB)]
    {
        let server = Server::under_test(&["-t", "2", "-m", &megabytes.to_string()]);
        let mut client = Client::to(server.address());
        fill(&mut client, 3 * megabytes * MIB, value_bytes);
        drop(client);
        let limit = megabytes * MIB;
        let resident = resident_bytes_of(&server.pid().to_string());
        let what = format!("-m {megabytes}, values of {value_bytes}: {resident} bytes resident");
        assert!(resident <= resident_bytes_max(limit), "{what}");
        assert!(resident >= used_bytes, "{what}");
    }
}
