//! `-m` and `cache_memlimit` bound resident memory, and `stats memory` accounts for each byte.
//!
//! Where: the built binary, filled several times, and measured from outside while it is idle.
//! Invariant: RSS is at most `-m` plus the larger of 3 % and 8 MiB, for items of any size.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use inprocess::{Client, resident_bytes_of};
use live::Server;
use procfs::process::Process;
use rustix::param::page_size;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testing::{PATIENCE, wait_until};

const MIB: usize = 1 << 20;
/// Number of the field "page faults without a disk access" of `/proc/PID/task/TID/stat`, by
/// proc(5). `POLICY_FIELD` is the scheduling policy, and `IDLE_POLICY` its value `SCHED_IDLE`.
const MINOR_FAULTS_FIELD: usize = 10;
const POLICY_FIELD: usize = 41;
const IDLE_POLICY: usize = 5;

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

fn resident_bytes_max(limit: usize) -> usize {
    limit + (limit * 3 / 100).max(8 * MIB)
}

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

/// `stats memory` of an idle server must account for all resident memory, up to `LEFT_OVER_BYTES`
/// for threads' stacks, the allocator's own data and partly used pages.
fn is_accounted_for(server: &Server, client: &mut Client, what: &str) {
    const LEFT_OVER_BYTES: usize = 2 * MIB;
    let until = Instant::now() + PATIENCE;
    loop {
        let accounted = memory_of(client, "accounted_bytes");
        let reported = memory_of(client, "resident_bytes");
        let resident = resident_bytes_of(&server.pid().to_string());
        if resident.abs_diff(reported) < MIB && resident.abs_diff(accounted) < LEFT_OVER_BYTES {
            return;
        }
        let differ = format!("{resident} resident, {reported} reported, {accounted} accounted for");
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
    wait_until("the end of all items", || memory_of(&mut client, "live_bytes") == 0);
    is_accounted_for(&server, &mut client, "flushed");
    // The value is short enough for the log, so the server receives its part into a read buffer.
    let part = "set part 0 0 4000\r\n".to_owned() + &"p".repeat(3_000);
    let held = |client: &mut Client| memory_of(client, "read_buf_bytes");
    let before = held(&mut client);
    let mut others: Vec<Client> = (0..400).map(|_| Client::to(server.address())).collect();
    others.iter_mut().for_each(|other| other.send(&part));
    wait_until("the report of held bytes", || held(&mut client) > before + 400 * 3_000);
    is_accounted_for(&server, &mut client, "with half requests");
    drop(others);
    wait_until("the release of held bytes", || held(&mut client) < before + 400 * 3_000);
}

/// The limit of 0 open files simulates a server whose connections use all file descriptors.
#[test]
fn resident_memory_is_told_also_where_no_file_can_be_opened() {
    let server = Server::under_test(&["-t", "1", "-m", "32"]);
    let mut client = Client::to(server.address());
    // After an answer, the server needs no further descriptor for the client.
    memory_of(&mut client, "resident_bytes");
    let pid = server.pid().cast_signed();
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Pid::from_raw(pid), Resource::Nofile, none).unwrap();
    let of_system = || {
        let pages = Process::new(pid).unwrap().statm().unwrap();
        [pages.shared, pages.resident].map(|pages| usize::try_from(pages).unwrap() * page_size())
    };
    let before = of_system();
    let told = ["program_bytes", "resident_bytes"].map(|name| memory_of(&mut client, name));
    // The memory may grow meanwhile, because a thread populates segments.
    for ((told, before), after) in told.into_iter().zip(before).zip(of_system()) {
        let (least, most) = (before.min(after), before.max(after));
        assert!((least..=most + MIB).contains(&(told + MIB / 2)), "{told}: {least} to {most}");
    }
}

/// The test closes every second connection. The allocator keeps the memory of these connections,
/// because their memory lies between the memory of open connections.
#[test]
fn what_the_allocator_keeps_is_accounted_for() {
    const CONNECTIONS: usize = 400;
    const HELD_BYTES: usize = 15_000;
    let server = Server::under_test(&["-t", "1", "-m", "256"]);
    let mut client = Client::to(server.address());
    let part = "set part 0 0 16000\r\n".to_owned() + &"p".repeat(HELD_BYTES);
    let held = |client: &mut Client| memory_of(client, "read_buf_bytes");
    let before = held(&mut client);
    let all = CONNECTIONS * HELD_BYTES;
    let mut others: Vec<Option<Client>> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut other = Client::to(server.address());
        other.send(&part);
        others.push(Some(other));
    }
    wait_until("receipt of all parts", || held(&mut client) >= before + all);
    is_accounted_for(&server, &mut client, "while all hold a part");
    others.iter_mut().step_by(2).for_each(|other| drop(other.take()));
    wait_until("the end of every second connection", || held(&mut client) < before + all * 3 / 4);
    assert!(memory_of(&mut client, "heap_free_bytes") > all / 4);
    is_accounted_for(&server, &mut client, "between those that hold one");
}

/// The index of these items takes a little more than 4 MiB. The end of the index must not get a
/// huge page, and the ghost, the part of the index for evicted keys, must take no memory.
#[test]
fn what_grows_takes_no_more_than_it_uses() {
    const ITEMS: usize = 560_000;
    const PAGES_USED_IN_PART: usize = 64;
    let server = Server::under_test(&["-t", "1", "-m", "512"]);
    if !runs_ahead(&server) {
        return testing::skip("no privilege to give a thread more of the processors");
    }
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    let before = resident().saturating_sub(memory_of(&mut client, "accounted_bytes"));
    fill(&mut client, ITEMS * 60, 20);
    assert_eq!(client.stat("curr_items"), ITEMS as u64);
    let mut sizes = String::new();
    let mut is_all = || {
        let [accounted, live, segment, free] =
            ["accounted_bytes", "live_bytes", "segment_bytes", "free_bytes"]
                .map(|name| memory_of(&mut client, name));
        // The open segment's huge pages are resident, although items use only a part of them.
        let open = live.next_multiple_of(segment) - live;
        let most = accounted + before + open + PAGES_USED_IN_PART * page_size();
        let now = resident();
        sizes = format!("{now} resident, {most} at most, {accounted} accounted, {free} ahead");
        // When requests cease, the server returns the memory that it took ahead of need.
        now <= most && free == 0
    };
    let start = Instant::now();
    while !is_all() && start.elapsed() < PATIENCE {}
    assert!(is_all(), "{sizes}");
    assert_eq!(memory_of(&mut client, "ghost_bytes"), 0);
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

fn status_bytes(server: &Server, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// With `-k`, `-m` bytes are resident and locked from the start, but not all of the reserved
/// address space. Memory that the server returns under a lower limit is unlocked.
#[test]
fn locked_memory_is_the_limit_and_follows_it() {
    let server = Server::under_test(&["-k", "-t", "2", "-m", "48"]);
    let locked = || status_bytes(&server, "VmLck");
    if locked() == 0 {
        return testing::skip("no privilege to lock memory");
    }
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    assert!(resident() > 45 * MIB, "{} bytes resident at the start", resident());
    for (megabytes, value_bytes) in [(48, 200), (8, 200), (32, 60_000), (12, 3000), (64, 30)] {
        client.ask(format!("cache_memlimit {megabytes}\r\n"), "OK\r\n");
        let limit = megabytes * MIB;
        wait_until(&format!("at most {megabytes} MiB"), || resident() <= resident_bytes_max(limit));
        fill(&mut client, 2 * limit, value_bytes);
        wait_until(&format!("all of {megabytes} MiB"), || resident() > limit * 9 / 10);
        let now = resident();
        assert!(now <= resident_bytes_max(limit), "{now} resident at {megabytes} MiB");
        // The program, its heap and stacks are locked too.
        let (least, most) = (limit * 9 / 10, limit + 20 * MIB);
        let what = format!("{} bytes locked at {megabytes} MiB", locked());
        assert!((least..most).contains(&locked()), "{what}");
    }
}

/// Returns the `/proc` directory of the server's thread with this name. Waits for the thread,
/// because a thread sets its name when it begins.
fn task(server: &Server, name: &str) -> PathBuf {
    let is_named = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let find = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        tasks.map(|task| task.unwrap().path()).find(is_named)
    };
    wait_until(name, || find().is_some());
    find().unwrap()
}

fn stat_of(task: &Path, field: usize) -> usize {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    fields.split(' ').nth(field - 2).unwrap().parse().unwrap()
}

/// Gives the ordinary scheduling policy to the thread that takes memory ahead of need. With
/// `SCHED_IDLE` this thread would wait for all other threads of this machine. Returns false if the
/// change is not permitted.
fn runs_ahead(server: &Server) -> bool {
    let ahead = task(server, "ahead");
    wait_until("its idle policy", || stat_of(&ahead, POLICY_FIELD) == IDLE_POLICY);
    let given =
        Command::new("chrt").args(["-o", "-p", "0"]).arg(ahead.file_name().unwrap()).status();
    given.is_ok_and(|status| status.success())
}

/// If new keys arrive no faster than the thread `ahead` takes memory, the column has only a few
/// page faults, and the thread takes only little memory ahead of need.
#[test]
fn a_column_does_not_wait_for_new_memory() {
    let server = Server::under_test(&["-t", "1", "-m", "256"]);
    let mut client = Client::to(server.address());
    let resident = || resident_bytes_of(&server.pid().to_string());
    assert!(resident() < 12 * MIB, "{} bytes resident, and nothing stored", resident());
    if !runs_ahead(&server) {
        return testing::skip("no privilege to give a thread more of the processors");
    }
    let column = task(&server, "column-");
    let faults = || stat_of(&column, MINOR_FAULTS_FIELD);
    let value = "v".repeat(1000);
    let mut key = 0;
    let mut store = |client: &mut Client, bytes: usize| {
        let mut batch = String::new();
        for _ in 0..bytes / 1000 {
            batch += &format!("set key-{key:010} 0 0 1000 noreply\r\n{value}\r\n");
            key += 1;
        }
        client.ask(batch + "version\r\n", "VERSION 1.6.45\r\n");
    };
    store(&mut client, 2 * MIB);
    let (mut looked, mut taken) = (0, 0);
    wait_until("128 steps with memory ahead", || {
        // If the thread `ahead` has not run for a long time, the next store wakes the thread.
        let is_there = memory_of(&mut client, "free_bytes") >= MIB;
        let before = faults();
        store(&mut client, MIB / 4);
        if is_there {
            (looked, taken) = (looked + 1, taken + faults() - before);
        }
        let free = memory_of(&mut client, "free_bytes");
        assert!(free <= 5 * MIB, "{free} bytes ahead of need");
        looked == 128
    });
    // The 128 steps store 32 MiB, which are 8,192 pages of 4 KiB.
    assert!(taken < 1000, "{taken} page faults of the column");
}

/// The values have about 16 KiB. An earlier version of the server filled all of `-m` with them.
#[test]
fn what_is_overwritten_takes_no_more_than_twice_its_bytes() {
    const KEYS: usize = 2500;
    // One thread: a second column that does not run would delay the reuse of dead segments.
    let server = Server::under_test(&["-t", "1", "-m", "256"]);
    let mut client = Client::to(server.address());
    let value = "v".repeat(18_000);
    let mut random = 1_u32;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % below
    };
    for round in 0..8 {
        for _ in 0..KEYS / 20 {
            let mut batch = String::new();
            for _ in 0..20 {
                let (key, bytes) = (draw(KEYS), 15_000 + draw(3000));
                batch += &format!("set key-{key} 0 0 {bytes} noreply\r\n{}\r\n", &value[..bytes]);
            }
            client.ask(batch + "version\r\n", "VERSION 1.6.45\r\n");
        }
        let live = usize::try_from(client.stat("bytes")).unwrap();
        let now = resident_bytes_of(&server.pid().to_string());
        assert!(now < 2 * live + 8 * MIB, "round {round}: {now} resident, {live} bytes of items");
    }
    assert_eq!(client.stat("evictions"), 0);
}

#[test]
fn resident_memory_stays_within_the_limit() {
    // An empty server would pass any upper bound, so `used_bytes` must be resident at the end.
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
