//! Clients that exhaust a resource: connections, keys, memory, descriptors, disk space.
//!
//! Where: an in-process server, or the built binary where the limit applies to a whole process.
//! Invariant: refusals are counted and logged, memory stays bounded, and other clients are served.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use columns::limits::{KEYS_TURN_MAX, kept_bytes_max};
use hypostyle::start::settings::Settings;
use inprocess::{Client, connect, settings, settings_where, start};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testing::{Folder, KillOnDrop, wait_until};

#[test]
fn a_flood_of_connections_past_the_limit_is_told_counted_and_leaves_nothing() {
    const LIMIT: u32 = 50;
    const FLOOD: u64 = 3000;
    let server = start(settings_where(2, |columns| columns.connections_max = LIMIT));
    let mut client = connect(&server);
    client.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    // Together with `client`, these connections are one fewer than the limit.
    let own: Vec<Client> = (0..LIMIT - 2).map(|_| connect(&server)).collect();
    wait_until("all to be accepted", || client.stat("curr_connections") == u64::from(LIMIT - 1));
    let last = connect(&server);
    wait_until("the last to be accepted", || client.stat("curr_connections") == u64::from(LIMIT));
    let address = server.addresses()[0];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..FLOOD / 4 {
                    let mut text = String::new();
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "ERROR Too many open connections\r\n");
                }
            });
        }
        for _ in 0..1000 {
            client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
    });
    assert_eq!(client.stat("rejected_connections"), FLOOD);
    assert_eq!(client.stat("curr_connections"), u64::from(LIMIT));
    assert_eq!(client.stat("connection_structures"), u64::from(LIMIT));
    drop((own, last));
    wait_until("the end of all other connections", || client.stat("curr_connections") == 1);
    connect(&server).ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    server.stop();
}

#[test]
fn a_multiget_of_a_million_keys_is_answered_in_turns_in_bounded_memory() {
    const KEYS: usize = 1_000_000;
    let server = start(settings(1));
    let (mut client, mut greedy) = (connect(&server), connect(&server));
    client.ask(format!("set k 0 0 100\r\n{}\r\n", "v".repeat(100)), "STORED\r\n");
    let value = format!("VALUE k 0 100\r\n{}\r\n", "v".repeat(100));
    let mut half = greedy.0.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            half.write_all(b"get").unwrap();
            let keys = b" k".repeat(KEYS_TURN_MAX as usize);
            let mut left = KEYS;
            while left > 0 {
                let some = left.min(KEYS_TURN_MAX as usize);
                half.write_all(&keys[..2 * some]).unwrap();
                left -= some;
            }
            half.write_all(b"\r\n").unwrap();
        });
        // No client reads the replies to `greedy` yet. The server still answers `client`.
        wait_until("unsent replies", || client.stat("response_obj_count") > 1);
        for _ in 0..1000 {
            client.ask("get nosuch\r\n", "END\r\n");
        }
        let kept = client.stat("response_obj_bytes") + client.stat("read_buf_bytes");
        assert!(kept < 4 << 20, "{kept}");
        for _ in 0..KEYS {
            greedy.expect(&value);
        }
        greedy.expect("END\r\n");
    });
    assert_eq!(client.stat("get_hits"), KEYS as u64);
    server.stop();
}

/// Each process hashes keys with its own secret, so that nobody can choose keys that collide. A
/// dump lists items in the order of the keys' hashes.
#[test]
fn no_two_processes_have_the_same_order_of_hashes() {
    const KEYS: usize = 500;
    let orders: HashSet<Vec<String>> = (0..3)
        .map(|_| {
            let server = live::Server::under_test(&["-t", "1"]);
            let mut wire = server.connect();
            let mut ask = |request: &str| {
                wire.send(request.as_bytes());
                String::from_utf8(wire.line().unwrap()).unwrap()
            };
            for key in 0..KEYS {
                assert_eq!(ask(&format!("set key-{key} 0 0 1\r\nv\r\n")), "STORED\r\n");
            }
            assert_eq!(ask("lru_crawler mgdump all\r\n"), "OK\r\n");
            let (mut line, mut order) = (ask(""), Vec::new());
            while line != "EN\r\n" {
                order.push(line);
                line = ask("");
            }
            assert_eq!(order.len(), KEYS);
            order
        })
        .collect();
    assert_eq!(orders.len(), 3);
}

/// Sets the flag that ends the writer threads, even if the test panics.
struct StopWriters<'d>(&'d AtomicBool);

impl Drop for StopWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // The flag orders nothing.
    }
}

#[test]
fn the_limit_of_memory_goes_up_and_down_under_load() {
    const LIMITS: [u32; 8] = [64, 16, 128, 24, 256, 16, 32, 64];
    let server = start(Settings { memory_bytes: 64 << 20, ..settings(2) });
    let mut client = connect(&server);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (mut other, done) = (connect(&server), &done);
            scope.spawn(move || {
                let mut round = 0_usize;
                // Relaxed: the flag orders no other memory access.
                while !done.load(Ordering::Relaxed) {
                    for key in 0..200 {
                        let value = format!("{writer}-{}", round + key).repeat(1 + key * 7 % 150);
                        let bytes = value.len();
                        let key = format!("{writer}-{}", (round + key) % 50_000);
                        other.send(format!("set {key} 0 0 {bytes} noreply\r\n{value}\r\n"));
                        if key.ends_with('7') {
                            other.send(format!("mg {key} s\r\n"));
                            let answer = other.line();
                            let due = format!("HD s{bytes}");
                            assert!(answer == due || answer == "EN", "{answer}, not {due}");
                        }
                    }
                    round += 200;
                    other.ask("mn\r\n", "MN\r\n");
                }
            });
        }
        let _done = StopWriters(&done);
        for round in 0..3 * LIMITS.len() {
            let megabytes = LIMITS[round % LIMITS.len()];
            client.ask(format!("cache_memlimit {megabytes}\r\n"), "OK\r\n");
            let limit_bytes = u64::from(megabytes) << 20;
            assert_eq!(client.stat("limit_maxbytes"), limit_bytes);
            wait_until("memory within the new limit", || client.stat("bytes") <= limit_bytes);
            let before = client.stat("cmd_set");
            wait_until("more to be stored", || client.stat("cmd_set") > before + 1000);
        }
    });
    assert_eq!(client.stat("store_no_memory"), 0);
    let kept = client.stat("read_buf_bytes") + client.stat("response_obj_bytes");
    assert!(kept < kept_bytes_max(64 << 20, 1) as u64, "{kept}");
    server.stop();
}

#[test]
fn without_descriptors_those_who_have_one_are_served_and_others_wait() {
    let server = live::Server::under_test(&["-t", "2"]);
    let mut wire = server.connect();
    let mut stat = |name: &str| -> u64 {
        wire.send(b"stats\r\n");
        let mut value = 0;
        loop {
            let line = String::from_utf8(wire.line().unwrap()).unwrap();
            if line.trim() == "END" {
                return value;
            }
            if let Some(rest) = line.strip_prefix(&format!("STAT {name} ")) {
                value = rest.trim().parse().unwrap();
            }
        }
    };
    assert_eq!(stat("listen_disabled_num"), 0);
    let path = format!("/proc/{}/fd", server.pid());
    let open = || std::fs::read_dir(&path).unwrap().count() as u64;
    let most = Some(open() + 10);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let others: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    wait_until("a disabled listener", || stat("listen_disabled_num") > 0);
    // More than ten connections are possible, because a closed connection frees a descriptor.
    assert!(stat("curr_connections") < 50);
    let rested = stat("time_in_listen_disabled_us");
    wait_until("time to be counted", || stat("time_in_listen_disabled_us") > rested);
    drop(others);
    let mut late = server.connect();
    late.send(b"mn\r\n");
    assert_eq!(late.line().unwrap().trim_ascii(), b"MN");
    wait_until("the end of the others", || stat("curr_connections") == 2);
}

/// A shell script. It mounts a tiny file system at its first argument, fills the file system, and
/// runs the command in its other arguments with a log in the full file system.
const FULL: &str = r#"mount -t tmpfs -o size=16k full "$0" || exit 99
head -c 1000000 /dev/zero > "$0/filler" 2> /dev/null
exec "$@" 2> "$0/log""#;

#[test]
fn a_full_disk_under_the_log_and_the_pid_file_stops_nobody() {
    let (folder, beside) = (Folder::new(), Folder::new());
    let socket = beside.path("socket");
    let by = ["unshare", "-rm", "sh", "-c", FULL, folder.0.to_str().unwrap()];
    let mut command = live::running::launch(&by, live::running::HYPOSTYLE);
    command.args(["-vvv", "-t", "1", "-o", "no_pin", "-s"]).arg(&socket);
    command.arg("-P").arg(folder.path("pid"));
    let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return testing::skip("no program unshare");
    };
    let mut child = KillOnDrop(child);
    let mut stream = None;
    let mut ended = None;
    wait_until("an answer", || {
        stream = UnixStream::connect(&socket).ok();
        ended = child.try_wait().unwrap();
        stream.is_some() || ended.is_some()
    });
    let Some(mut stream) = stream else {
        assert!(matches!(ended.and_then(|it| it.code()), Some(1 | 99)), "{ended:?}");
        return testing::skip("no privilege for a file system of one's own");
    };
    for _ in 0..100 {
        stream.write_all(b"verbosity 2\r\nset k 0 0 1\r\nv\r\ncache_memlimit 64\r\n").unwrap();
        let mut replies = [0; 16];
        stream.read_exact(&mut replies).unwrap();
        assert_eq!(&replies, b"OK\r\nSTORED\r\nOK\r\n");
    }
    assert!(child.try_wait().unwrap().is_none(), "the server has ended");
    let within = format!("/proc/{}/root{}", child.id(), folder.0.display());
    let log = std::fs::metadata(format!("{within}/log")).unwrap();
    assert_eq!(log.len(), 0, "the disk was not full");
    assert!(std::fs::metadata(format!("{within}/pid")).is_err(), "an incomplete pid file");
}
