//! Tests of `drive` against real servers: Hypostyle, memcached, Redis.
//!
//! Where: tests of the library. Invariant: dropping a `Server` kills and reaps its process. If a
//! server is not installed, its tests are skipped, and fail in CI. No assertion depends on the
//! machine's speed.
//!
//! If `MEMCACHED` has a path, tests start this memcached instead of the one on `PATH`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests do so")]

mod programs;

use blaster::drive::{self, Drive, EndCondition, Mode, Pace};
use blaster::measure::Tally;
use blaster::target::steer::{Steer, Steering};
use blaster::target::{self, Family, Target};
use blaster::wire::Protocol;
use blaster::workload::{Names, Verb, Workload};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use testing::skip;

use programs::{as_root, hypostyle_program, memcached_program};

/// A test fails if a server's start, or the answer to a request, takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 500;
const MEMCACHED_SPEECHES: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

struct Server {
    child: Child,
    folder: PathBuf,
    targets: Vec<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("servers-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn spawn(program: &OsStr, args: &[&str], folder: &Path) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(args).env("MEMCACHED_PORT_FILENAME", folder.join("ports"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Starts a server. `None` if it is not installed.
fn start(program: &OsStr, args: &[&str], folder: PathBuf) -> Option<Server> {
    match spawn(program, args, &folder) {
        Ok(child) => Some(Server { child, folder, targets: Vec::new() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(&format!("{} is not installed (make peers)", program.display()));
            None
        }
        Err(error) => panic!("{}: {error}", program.display()),
    }
}

impl Server {
    /// Polls until `done` returns a value. Fails if the server ends or after `PATIENCE`.
    fn wait<T>(&mut self, what: &str, mut done: impl FnMut(&Path) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = done(&self.folder) {
                return done;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the server ended: no {what}");
            assert!(Instant::now() < end, "no {what} in {PATIENCE:?}");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Returns the port of this kind (TCP or UDP), which the server writes to a file.
    fn port(&mut self, kind: &str) -> u16 {
        self.wait(kind, |folder| {
            let said = std::fs::read_to_string(folder.join("ports")).unwrap_or_default();
            let line =
                said.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(" INET: "));
            line.and_then(|port| port.trim().parse().ok())
        })
    }

    fn target(&self, name: &str) -> Arc<[Target]> {
        Arc::from(vec![target::parse(name, Family::Any).unwrap()])
    }
}

/// Starts a Hypostyle on TCP and another on a Unix socket, as for memcached, which cannot use both.
fn hypostyles() -> Vec<Server> {
    let program = hypostyle_program();
    stream_servers(program.as_os_str(), &[])
}

fn memcacheds() -> Vec<Server> {
    stream_servers(&memcached_program(), &["-U", "-1"])
}

fn stream_servers(program: &OsStr, udp: &[&str]) -> Vec<Server> {
    let mut servers = Vec::new();
    let args = [&["-p", "-1", "-l", "127.0.0.1", "-t", "1"], udp, as_root()].concat();
    if let Some(mut server) = start(program, &args, folder()) {
        let port = server.port("TCP");
        server.targets.push(format!("127.0.0.1:{port}"));
        if !udp.is_empty() {
            let port = server.port("UDP");
            server.targets.push(format!("udp://127.0.0.1:{port}"));
        }
        servers.push(server);
    }
    let folder = folder();
    let socket = folder.join("socket");
    let args = [&["-s", socket.to_str().unwrap(), "-t", "1"], as_root()].concat();
    if let Some(mut server) = start(program, &args, folder) {
        server.wait("socket", |folder| UnixStream::connect(folder.join("socket")).ok());
        server.targets.push(format!("unix:{}", socket.display()));
        servers.push(server);
    }
    servers
}

/// Starts Redis on a Unix socket and on a TCP port that was free just before.
fn redis() -> Option<Server> {
    for _ in 0..20 {
        let folder = folder();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (port, socket) = (free.port().to_string(), folder.join("socket"));
        let args = [
            ["--port", &port],
            ["--unixsocket", socket.to_str().unwrap()],
            ["--bind", "127.0.0.1"],
            ["--save", ""],
            ["--dir", folder.to_str().unwrap()],
        ];
        let mut server = start(OsStr::new("redis-server"), args.as_flattened(), folder.clone())?;
        let end = Instant::now() + PATIENCE;
        // If another process has taken the port, Redis ends, and the outer loop tries another port.
        while server.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(free).is_ok() && UnixStream::connect(&socket).is_ok() {
                server.targets.push(format!("redis://{free}"));
                server.targets.push(format!("unix:{}", socket.display()));
                return Some(server);
            }
            assert!(Instant::now() < end, "redis-server does not listen");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
    panic!("redis-server found no port");
}

fn workload(settings: &[(&str, &str)]) -> Arc<Workload> {
    let mut workload = Workload::preset("uniform").unwrap();
    let keys = KEYS.to_string();
    let plain = [("keys", keys.as_str()), ("mix", "get=1"), ("value-size", "1-3000")];
    for (name, value) in plain.iter().chain(settings) {
        workload.set(name, value).unwrap();
    }
    Arc::new(workload)
}

fn plan(workload: &Arc<Workload>, targets: Arc<[Target]>, protocol: Protocol) -> Drive {
    let end = EndCondition {
        stop: Arc::default(),
        deadline: Some(Instant::now() + 3 * PATIENCE),
        requests: Some(2000),
    };
    let pace = Pace::Closed { connections: 2, depth: 4 };
    let drive = Drive::new(Arc::clone(workload), targets, protocol, pace);
    Drive { timeout: PATIENCE, verify: true, end, ..drive }
}

fn run(drive: Drive) -> Tally {
    let (sink, tallies) = mpsc::channel();
    let what = format!("{:?} at {}", drive.protocol, drive.targets[0].name);
    drive::run(drive, Instant::now(), &AtomicU32::new(0), &sink).unwrap();
    drop(sink);
    let mut all = Tally::default();
    tallies.iter().for_each(|(_, _, tally)| all.merge(&tally));
    let wrong = (all.broken, all.udp.lost, all.udp.duplicate);
    assert_eq!(wrong, (0, 0, 0), "{what}");
    all
}

fn populate(drive: &Drive) {
    let end = EndCondition { requests: None, ..drive.end.clone() };
    let tally = run(Drive { mode: Mode::Populate, end, ..drive.clone() });
    let set = tally.verb(Verb::Set);
    assert_eq!((set.sent, set.answered, set.errors, set.not_done), (KEYS, KEYS, 0, 0));
}

fn check(server: &Server, speeches: &[Protocol]) {
    for name in &server.targets {
        for &protocol in speeches {
            let what = format!("{} at {name}", protocol.name());
            // Each check has its own key prefix, so that no check finds the keys of another check.
            let prefix = format!("{what}-").replace([' ', ':', '/', '.'], "-");
            let plain = workload(&[("key-prefix", &prefix)]);
            let drive = plan(&plain, server.target(name), protocol);
            populate(&drive);
            let get = run(drive.clone());
            let get = get.verb(Verb::Get);
            let counts = (get.answered, get.hits, get.corrupt, get.errors, get.timeouts);
            assert_eq!(counts, (2000, 2000, 0, 0, 0), "{what}");
            several(&drive, &prefix, &what);
            every_verb(&drive, &prefix, &what);
            listed(&drive, &prefix, &server.folder, &what);
            not_found(&drive, &prefix, &what);
            conditional(&drive, &prefix, &what);
        }
    }
}

/// Sends multigets that miss half of their keys, and stores the missing keys.
fn several(drive: &Drive, prefix: &str, what: &str) {
    let twice = (2 * KEYS).to_string();
    let workload = workload(&[("keys", &twice), ("batch", "7"), ("key-prefix", prefix)]);
    let end = EndCondition { requests: Some(300), ..drive.end.clone() };
    let names = Names::new(&workload);
    let drive = Drive { workload, names, end, ..drive.clone() };
    let seen = run(drive.clone());
    let get = seen.verb(Verb::Get);
    assert_eq!((get.answered, get.keys, get.corrupt, get.errors), (300, 2100, 0, 0), "{what}");
    assert_eq!(get.hits + get.misses, 2100, "{what}");
    assert!(get.hits > 700 && get.misses > 700, "{what}: {} {}", get.hits, get.misses);
    let filled = run(Drive { fill_on_miss: true, ..drive.clone() });
    let (get, set) = (filled.verb(Verb::Get), filled.verb(Verb::Set));
    assert_eq!((set.answered, set.errors), (get.misses, 0), "{what}");
    let end = EndCondition { requests: Some(2000), ..drive.end.clone() };
    run(Drive { fill_on_miss: true, end, ..drive.clone() });
    let after = run(drive);
    let get = after.verb(Verb::Get);
    assert_eq!((get.hits, get.misses, get.corrupt), (2100, 0, 0), "{what}");
}

fn every_verb(drive: &Drive, prefix: &str, what: &str) {
    let mix = "get=1,set=1,delete=1,append=1";
    let prefix = ("key-prefix", prefix);
    let workload = workload(&[("mix", mix), ("ttl", "100"), ("value-size", "10"), prefix]);
    let names = Names::new(&workload);
    let seen = run(Drive { workload, names, verify: false, ..drive.clone() });
    let total = seen.total();
    assert_eq!((total.sent, total.answered, total.errors), (2000, 2000, 0), "{what}");
    let (get, delete) = (seen.verb(Verb::Get), seen.verb(Verb::Delete));
    assert!(get.hits > 0 && get.misses > 0, "{what}: {} {}", get.hits, get.misses);
    assert!(delete.not_done > 0 && delete.not_done < delete.sent, "{what}");
    // Redis creates a missing item on append. memcached does not.
    let is_redis = drive.protocol == Protocol::Resp;
    assert_eq!(seen.verb(Verb::Append).not_done == 0, is_redis, "{what}");
}

/// Checks that ADD and REPLACE are answered, whether they store the item or not, and that the
/// answers count as neither errors nor misses.
fn conditional(drive: &Drive, prefix: &str, what: &str) {
    let prefix = format!("{prefix}-anew");
    let each = |mix: &str, verify| {
        // 2,000 requests use each of the 500 keys four times.
        let popularity = ("popularity", "sequential");
        let settings =
            [("mix", mix), popularity, ("key-prefix", &prefix), ("ttl", "1000"), ("batch", "1")];
        let workload = workload(&settings);
        let seen = run(Drive { names: Names::new(&workload), workload, verify, ..drive.clone() });
        let total = seen.total();
        assert_eq!((total.answered, total.errors, total.corrupt), (2000, 0, 0), "{what}: {mix}");
        (total.not_done, total.hits, total.misses)
    };
    assert_eq!(each("replace", false), (2000, 0, 0), "{what}: nothing there to replace");
    assert_eq!(each("add", false), (1500, 0, 0), "{what}: each key is added once");
    assert_eq!(each("get", true), (0, 2000, 0), "{what}: what was added is there");
    assert_eq!(each("replace", false), (0, 0, 0), "{what}: all are replaced");
    assert_eq!(each("get", true), (0, 2000, 0), "{what}: what was replaced is there");
}

/// Checks the KV-Cache paper's mix of gets, sets and deletes. The last write to a key is a set with
/// probability 25/30, or a delete with probability 5/30, so a sixth of the keys is not found. In
/// the paper, 16 to 17 % are not found.
fn not_found(drive: &Drive, prefix: &str, what: &str) {
    let mix = ("mix", "get=70,set=25,delete=5");
    let workload = workload(&[mix, ("value-size", "10"), ("key-prefix", prefix)]);
    let end = EndCondition { requests: Some(10_000), ..drive.end.clone() };
    let drive = Drive { names: Names::new(&workload), workload, end, ..drive.clone() };
    populate(&drive);
    run(drive.clone());
    let seen = run(Drive { seed: 2, ..drive });
    let (missing, keys) = seen.not_found();
    assert_eq!(keys, 10_000 - seen.verb(Verb::Set).answered, "{what}");
    let share = missing as f64 / keys as f64;
    assert!((share - 1.0 / 6.0).abs() < 0.035, "{what}: {share}");
}

fn listed(drive: &Drive, prefix: &str, folder: &Path, what: &str) {
    let file = folder.join("keys");
    // The keys differ in length, and are not all ASCII.
    let keys: String = (0..KEYS).map(|n| format!("{prefix}-\u{e9}-{}\n", n * n)).collect();
    std::fs::write(&file, keys).unwrap();
    let workload = workload(&[("key-file", file.to_str().unwrap()), ("popularity", "zipf:1")]);
    let drive = Drive { names: Names::new(&workload), workload, ..drive.clone() };
    populate(&drive);
    let seen = run(drive);
    let get = seen.verb(Verb::Get);
    assert_eq!((get.answered, get.hits, get.corrupt, get.errors), (2000, 2000, 0, 0), "{what}");
}

#[test]
fn hypostyle_over_tcp_and_unix_in_text_meta_and_binary() {
    hypostyles().iter().for_each(|server| check(server, &MEMCACHED_SPEECHES));
}

#[test]
fn connections_that_are_steered_to_the_first_column_are_there() {
    let args = [&["-p", "-1", "-l", "127.0.0.1", "-t", "3", "-o", "no_migrate"], as_root()];
    let program = hypostyle_program();
    let mut server = start(program.as_os_str(), &args.concat(), folder()).unwrap();
    let address = format!("127.0.0.1:{}", server.port("TCP"));
    let drive = plan(&workload(&[]), server.target(&address), Protocol::Meta);
    let pace = Pace::Closed { connections: 6, depth: 4 };
    let steering = Steering::new(Steer::First, &[]);
    let drive = Drive { pace, first_connection: (0, 6), steering, ..drive };
    populate(&drive);
    assert_eq!(run(drive).total().hits, 2000);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"stats columns\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let executed = lines.take_while(|line| line != "END").filter_map(|line| {
        let (name, count) = line.strip_prefix("STAT columns:")?.split_once(' ')?;
        name.ends_with(":executed").then(|| count.parse().unwrap())
    });
    assert_eq!(executed.collect::<Vec<u64>>(), [KEYS + 2000, 0, 0]);
}

#[test]
fn memcached_over_tcp_udp_and_unix_in_text_meta_and_binary() {
    memcacheds().iter().for_each(|server| check(server, &MEMCACHED_SPEECHES));
}

#[test]
fn redis_over_tcp_and_unix() {
    redis().iter().for_each(|server| check(server, &[Protocol::Resp]));
}
