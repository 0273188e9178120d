//! The built binary as a user sees it: what it prints, refuses, writes and leaves behind.
//!
//! Where: outside of the server; the tests know only its command line, signals and sockets.
//! Invariant: no process started here outlives its test, and no wait is longer than `PATIENCE`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of this test's own, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hyp-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hypostyle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypostyle"));
    command.args(arguments).env_remove("MEMCACHED_PORT_FILENAME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Polls until `done` gives something.
#[track_caller]
fn await_some<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Runs a command that ends by itself.
#[track_caller]
fn ended(mut command: Command) -> Output {
    let mut child = Killed(command.spawn().unwrap());
    let status = await_some("the end", || child.0.try_wait().unwrap());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status, stdout, stderr }
}

/// A child that is killed, at the latest when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is not this test's child. It is killed if the test ends early.
struct Detached(Pid);

impl Drop for Detached {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// A server in the foreground, on a port of its own.
struct Running {
    child: Killed,
    place: Place,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let place = Place::new();
        let mut command = hypostyle(arguments);
        command.args(["-p", "-1"]).env("MEMCACHED_PORT_FILENAME", place.path("ports"));
        let child = Killed(command.spawn().unwrap());
        let mut running = Running { child, place };
        await_some("the port file", || {
            if let Some(status) = running.child.0.try_wait().unwrap() {
                panic!("ended at its start: {status}: {}", running.stderr());
            }
            running.place.path("ports").exists().then_some(())
        });
        running
    }

    fn on_loopback(arguments: &[&str]) -> Running {
        let mut all = vec!["-l", "127.0.0.1"];
        all.extend_from_slice(arguments);
        Running::start(&all)
    }

    fn ports(&self) -> String {
        fs::read_to_string(self.place.path("ports")).unwrap()
    }

    fn port(&self) -> u16 {
        self.ports().trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap()
    }

    fn ask(&self, request: &str) -> String {
        talk(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).unwrap(), request)
    }

    fn pid(&self) -> u32 {
        self.child.0.id()
    }

    fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(raw(self.pid()), signal).unwrap();
    }

    /// Everything that the process wrote to stderr. It must have ended.
    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Stops the process by `signal`. Returns its exit status and what it wrote to stderr.
    #[track_caller]
    fn stop(&mut self, signal: Signal) -> (i32, String) {
        self.signal(signal);
        self.end()
    }

    /// Waits until the process has ended; as `stop`.
    #[track_caller]
    fn end(&mut self) -> (i32, String) {
        let status = await_some("the end", || self.child.0.try_wait().unwrap());
        (status.code().unwrap_or(-1), self.stderr())
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// One request, and the reply up to its last line.
fn talk<S: Read + Write>(mut stream: S, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    loop {
        let start = reply.len();
        let bytes = reader.read_line(&mut reply).unwrap();
        if bytes == 0 || !reply[start..].starts_with("STAT ") {
            return reply;
        }
    }
}

const VERSION_REPLY: &str = "VERSION 1.6.45\r\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

// What it prints.

#[test]
fn version_and_help_begin_with_both_versions() {
    let first = concat!("memcached 1.6.45 (hypostyle ", env!("CARGO_PKG_VERSION"), ")");
    for (argument, lines) in [("-V", 1), ("--version", 1), ("-h", 40), ("--help", 40), ("-i", 3)] {
        let output = ended(hypostyle(&[argument]));
        let stdout = text(&output.stdout);
        assert_eq!(stdout.lines().next(), Some(first), "{argument}");
        assert!(stdout.lines().count() >= lines, "{argument}");
        assert_eq!(text(&output.stderr), "", "{argument}");
        assert_eq!(output.status.code(), Some(0), "{argument}");
    }
}

// What it refuses.

#[test]
fn what_it_does_not_have_is_refused_with_a_word() {
    for (line, word) in [
        ("-S", "no SASL"),
        ("-Y users", "no authentication"),
        ("-Z", "no TLS"),
        ("-e /dev/shm/x", "cannot restart"),
        ("-U 11211 -s /tmp/x", "disables network support"),
        ("-l notls:127.0.0.1", "SSL"),
        ("-l proto[proxy]:127.0.0.1", "proto[ascii]"),
        ("-o ssl_chain_cert=x", "no TLS"),
        ("-o proxy_config=x", "no proxy"),
        ("-o ext_path=/tmp/x:1G", "no external storage"),
        ("-o drop_privileges", "no system call filter"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = ended(hypostyle(&arguments));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{line}: {stderr}");
        assert!(stderr.contains(word) && stderr.contains("refused"), "{line}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{line}");
    }
}

/// Exit status and first words are the same as those of the memcached that this machine has.
#[test]
fn wrong_values_are_refused_as_memcached_refuses_them() {
    let memcached = std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into());
    if Command::new(&memcached).arg("-V").stdout(Stdio::null()).status().is_err() {
        return testing::skip("no memcached to compare with");
    }
    let lines = "-t 0; -t x; -c 0; -c x; -R 0; -R x; -I 512; -I 40m; -I 1; -m 1; -p 70000; -B foo; \
                 -f 1; -n 0; -q; --nonsense; -l 127.0.0.1:x";
    for line in lines.split("; ") {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ours = ended(hypostyle(&arguments));
        let mut command = Command::new(&memcached);
        command.args(&arguments).args(["-u", "root"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let theirs = ended(command);
        // memcached reports a bad port of -l as a failure of the system; here it is found before
        // anything starts.
        let status = if line.starts_with("-l") { Some(64) } else { theirs.status.code() };
        assert_eq!(ours.status.code(), status, "{line}");
        let (ours, theirs) = (text(&ours.stderr), text(&theirs.stderr));
        let words = if line == "-q" || line == "--nonsense" { 2 } else { 4 };
        let expected: Vec<&str> = theirs
            .lines()
            .find(|line| !line.starts_with(&*memcached.to_string_lossy()))
            .unwrap()
            .split(' ')
            .take(words)
            .map(|word| word.trim_end_matches(['.', ':']))
            .collect();
        let start = ours.split(' ').take(words).map(|word| word.trim_end_matches(['.', ':', '\n']));
        assert_eq!(start.collect::<Vec<&str>>(), expected, "{line}: {ours} / {theirs}");
    }
}

#[test]
fn options_without_effect_are_reported_once_each() {
    let mut running =
        Running::on_loopback(&["-o", "modern,hashpower=16", "-o", "modern", "-f", "1.5"]);
    let (status, stderr) = running.stop(Signal::TERM);
    assert_eq!(status, 0, "{stderr}");
    for name in ["-o modern", "-o hashpower", "-f"] {
        let line = format!("has no effect here: {name} (");
        assert_eq!(stderr.matches(&line).count(), 1, "{name}: {stderr}");
    }
}

// Where it listens.

#[test]
fn any_port_is_told_in_the_port_file() {
    let running = Running::on_loopback(&[]);
    assert_ne!(running.port(), 0);
    assert_eq!(running.ports(), format!("TCP INET: {}\n", running.port()));
    assert!(!running.place.path("ports.lck").exists());
    assert_eq!(running.ask("version\r\n"), VERSION_REPLY);
}

#[test]
fn several_addresses_listen_each_on_its_own() {
    let running = Running::start(&["-l", "127.0.0.1,127.0.0.2", "-l", "127.0.0.3"]);
    let ports = running.ports();
    let ports: Vec<u16> = ports
        .lines()
        .map(|line| line.strip_prefix("TCP INET: ").unwrap().parse().unwrap())
        .collect();
    assert_eq!(ports.len(), 3);
    for (number, port) in (1..).zip(&ports) {
        let stream = TcpStream::connect((Ipv4Addr::new(127, 0, 0, number), *port)).unwrap();
        assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    }
}

#[test]
fn ipv6_address_with_a_port() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return testing::skip("no IPv6 here");
    }
    let running = Running::start(&["-l", "[::1]:0"]);
    let ports = running.ports();
    let port: u16 = ports.trim().strip_prefix("TCP INET6: ").unwrap().parse().unwrap();
    let stream = TcpStream::connect(("::1", port)).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
}

#[test]
fn a_taken_port_is_a_failure_with_memcacheds_words() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    for daemon in [&[][..], &["-d"]] {
        let mut arguments = vec!["-l", "127.0.0.1", "-p", &port];
        arguments.extend_from_slice(daemon);
        let output = ended(hypostyle(&arguments));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{daemon:?}: {stderr}");
        assert!(stderr.contains("failed to listen on one of interface(s) 127.0.0.1"), "{stderr}");
    }
}

#[test]
fn unix_socket_has_its_mask_and_goes_with_the_server() {
    let place = Place::new();
    let path = place.path("socket");
    let mut command = hypostyle(&["-a", "0750", "-s"]);
    command.arg(&path);
    let mut child = Killed(command.spawn().unwrap());
    let stream = await_some("the socket", || UnixStream::connect(&path).ok());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    kill_process(raw(child.0.id()), Signal::TERM).unwrap();
    let status = await_some("the end", || child.0.try_wait().unwrap());
    assert!(status.success());
    assert!(!path.exists());
}

/// A server on a Unix socket, which answers when this returns.
fn on_socket(path: &Path) -> Killed {
    let mut command = hypostyle(&["-s"]);
    command.arg(path);
    let child = Killed(command.spawn().unwrap());
    let stream = await_some("the socket", || UnixStream::connect(path).ok());
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    child
}

fn end_with(child: &mut Killed, signal: Signal) {
    kill_process(raw(child.0.id()), signal).unwrap();
    await_some("the end", || child.0.try_wait().unwrap());
}

#[test]
fn a_unix_socket_on_which_somebody_answers_is_not_taken() {
    let place = Place::new();
    let path = place.path("socket");
    let mut first = on_socket(&path);
    let mut command = hypostyle(&["-s"]);
    command.arg(&path);
    let output = ended(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    let said = format!("UNIX socket {}: another server answers there", path.display());
    assert!(stderr.contains(&said), "{stderr}");
    let stream = UnixStream::connect(&path).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    end_with(&mut first, Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_a_killed_server_left_is_replaced() {
    let place = Place::new();
    let path = place.path("socket");
    end_with(&mut on_socket(&path), Signal::KILL);
    assert!(path.exists());
    end_with(&mut on_socket(&path), Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn a_server_that_ends_leaves_the_unix_socket_of_its_successor() {
    let place = Place::new();
    let path = place.path("socket");
    let mut first = on_socket(&path);
    fs::remove_file(&path).unwrap();
    let mut second = on_socket(&path);
    end_with(&mut first, Signal::TERM);
    let stream = UnixStream::connect(&path).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    end_with(&mut second, Signal::TERM);
    assert!(!path.exists());
}

// The process.

#[test]
fn daemon_answers_when_its_parent_ends_and_removes_its_pid_file() {
    let place = Place::new();
    let mut command = hypostyle(&["-d", "-P", "pid", "-p", "-1", "-l", "127.0.0.1"]);
    command.current_dir(&place.0).env("MEMCACHED_PORT_FILENAME", place.path("ports"));
    let parent = ended(command);
    assert_eq!(parent.status.code(), Some(0), "{}", text(&parent.stderr));

    // When `-d` returns, the server answers: nothing is polled here.
    let pid_file = place.path("pid");
    let pid: u32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let daemon = Detached(raw(pid));
    let ports = fs::read_to_string(place.path("ports")).unwrap();
    let port: u16 = ports.trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    for stream in 0..=2 {
        let target = fs::read_link(format!("/proc/{pid}/fd/{stream}")).unwrap();
        assert_eq!(target, Path::new("/dev/null"), "{stream}");
    }
    // Its own session: field 6 of stat, after the name in parentheses.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert_eq!(stat.rsplit(')').next().unwrap().split(' ').nth(4), Some(&*pid.to_string()));

    kill_process(daemon.0, Signal::TERM).unwrap();
    await_some("the daemon's end", || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let zombie = state.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"));
        (zombie || test_kill_process(daemon.0).is_err()).then_some(())
    });
    assert!(!pid_file.exists());
}

#[test]
fn pid_file_of_a_running_process_is_warned_of_and_replaced() {
    let place = Place::new();
    let pid_file = place.path("pid");
    fs::write(&pid_file, format!("{}\n", std::process::id())).unwrap();
    let mut running = Running::on_loopback(&["-P", pid_file.to_str().unwrap()]);
    await_some("the pid", || {
        let written = fs::read_to_string(&pid_file).unwrap();
        (written == format!("{}\n", running.pid())).then_some(())
    });
    let (status, stderr) = running.stop(Signal::TERM);
    assert_eq!(status, 0);
    assert!(stderr.contains("WARNING: The pid file contained the following (running) pid"));
    assert!(!pid_file.exists());
}

#[test]
fn signals_stop_it_cleanly_and_hup_does_not() {
    for (signal, word) in [
        (Signal::TERM, "Exiting normally"),
        (Signal::INT, "Exiting normally"),
        (Signal::USR1, "Gracefully stopping"),
    ] {
        let mut running = Running::on_loopback(&["-v"]);
        running.signal(Signal::HUP);
        running.signal(Signal::PIPE);
        assert_eq!(running.ask("version\r\n"), VERSION_REPLY);
        let (status, stderr) = running.stop(signal);
        assert_eq!(status, 0, "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
    }
}

#[test]
fn shutdown_stops_it_where_it_is_allowed() {
    for (request, word) in
        [("shutdown\r\n", "Exiting normally"), ("shutdown graceful\r\n", "Gracefully stopping")]
    {
        let mut running = Running::on_loopback(&["-A", "-v"]);
        assert_eq!(running.ask("shutdown now\r\n"), "CLIENT_ERROR invalid shutdown mode\r\n");
        assert_eq!(running.ask(request), "");
        let (status, stderr) = running.end();
        assert_eq!(status, 0, "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
    }
}

#[test]
fn verbosity_changes_what_is_told() {
    let mut quiet = Running::on_loopback(&["-v"]);
    assert_eq!(quiet.ask("verbosity 0\r\n"), "OK\r\n");
    assert!(!quiet.stop(Signal::TERM).1.contains("Exiting normally"));
    let mut loud = Running::on_loopback(&[]);
    assert_eq!(loud.ask("verbosity 1\r\n"), "OK\r\n");
    assert!(loud.stop(Signal::TERM).1.contains("Exiting normally"));
}

#[test]
fn it_stops_with_clients_connected_and_half_requests_waiting() {
    let mut running = Running::on_loopback(&["-t", "2"]);
    let mut clients = Vec::new();
    for request in ["", "get ", "set a 0 0 1000000\r\nabc", "version\r\n"] {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, running.port())).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        clients.push(client);
    }
    assert_eq!(running.stop(Signal::TERM).0, 0);
}

#[test]
fn root_is_warned_unless_told_who_to_be() {
    let warned = |arguments: &[&str]| {
        let mut running = Running::on_loopback(arguments);
        let (status, stderr) = running.stop(Signal::TERM);
        assert_eq!(status, 0, "{stderr}");
        stderr.contains("WARNING: running as root")
    };
    assert_eq!(warned(&[]), is_root());
    assert!(!warned(&["-u", "root"]));
}

#[test]
fn root_becomes_the_user() {
    if !is_root() {
        return testing::skip("only root can become another user");
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let Some(entry) = passwd.lines().find(|line| line.starts_with("nobody:")) else {
        return testing::skip("no user nobody here");
    };
    let ids: Vec<&str> = entry.split(':').skip(2).take(2).collect();
    let place = Place::new();
    let pid_file = place.path("pid");
    let mut running =
        Running::on_loopback(&["-u", "nobody", "-t", "2", "-P", pid_file.to_str().unwrap()]);
    assert_eq!(running.ask("version\r\n"), VERSION_REPLY);
    for task in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
        };
        assert_eq!(line("Uid:"), [ids[0]; 4].join("\t"));
        assert_eq!(line("Gid:"), [ids[1]; 4].join("\t"));
        assert_eq!(line("Groups:"), "");
    }
    assert_eq!(running.stop(Signal::TERM).0, 0);
    assert!(!pid_file.exists());

    let output = ended(hypostyle(&["-u", "no-such-user", "-p", "-1"]));
    assert_eq!(output.status.code(), Some(67));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("can't find the user no-such-user to switch to"), "{stderr}");
}

#[test]
fn unix_socket_belongs_to_the_user() {
    if !is_root() {
        return testing::skip("only root can become another user");
    }
    let place = Place::new();
    let path = place.path("socket");
    let mut command = hypostyle(&["-u", "daemon", "-s"]);
    command.arg(&path);
    let child = Killed(command.spawn().unwrap());
    await_some("the socket", || UnixStream::connect(&path).ok());
    assert_ne!(fs::metadata(&path).unwrap().uid(), 0);
    drop(child);
}

#[test]
fn open_files_suffice_for_the_connections() {
    let running = Running::on_loopback(&["-c", "2000"]);
    let limits = running.proc("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft = line.split_whitespace().nth(3).unwrap();
    assert!(soft == "unlimited" || soft.parse::<u64>().unwrap() >= 2000, "{line}");
}

#[test]
fn locked_memory_is_locked_or_said_not_to_be() {
    let mut running = Running::on_loopback(&["-k", "-m", "64"]);
    let status = running.proc("status");
    let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 96 << 10, "{line}, and not all that is reserved");
    let (_, stderr) = running.stop(Signal::TERM);
    assert!(kilobytes > 0 || stderr.contains("-k invalid, mlockall() failed"), "{line} {stderr}");
}

#[test]
fn settings_that_were_given_are_in_force() {
    let running = Running::on_loopback(&[
        "-t", "2", "-m", "100", "-c", "77", "-I", "2m", "-R", "5", "-C", "-F", "-M", "-b", "9",
        "-B", "ascii", "-vv",
    ]);
    let settings = running.ask("stats settings\r\n");
    for line in [
        "maxbytes 104857600",
        "maxconns 77",
        "tcpport -1",
        "inter 127.0.0.1",
        "verbosity 2",
        "evictions off",
        "num_threads 2",
        "reqs_per_event 5",
        "cas_enabled no",
        "tcp_backlog 9",
        "binding_protocol ascii",
        "item_size_max 2097152",
        "flush_enabled no",
    ] {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line}: {settings}");
    }
    let general = running.ask("stats\r\n");
    for line in [&*format!("pid {}", running.pid()), "threads 2", "version 1.6.45"] {
        assert!(general.contains(&format!("STAT {line}\r\n")), "{line}: {general}");
    }
    let columns = fs::read_dir(format!("/proc/{}/task", running.pid()))
        .unwrap()
        .filter(|task| {
            let name = fs::read_to_string(task.as_ref().unwrap().path().join("comm")).unwrap();
            name.starts_with("column-")
        })
        .count();
    assert_eq!(columns, 2);
}

/// Where address space is limited, the index does not reserve room for the most segments that it
/// could ever take.
#[test]
fn half_as_much_again_as_the_memory_is_address_space_enough() {
    for (megabytes, limit_megabytes) in [(64, 135), (1024, 1550)] {
        let place = Place::new();
        let limit = format!("ulimit -v {} && exec \"$@\"", limit_megabytes << 10);
        let mut command = Command::new("sh");
        command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_hypostyle"), "-l", "127.0.0.1"]);
        command.args(["-p", "-1", "-t", "1", "-m", &megabytes.to_string()]);
        command.env("MEMCACHED_PORT_FILENAME", place.path("ports"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = Killed(command.spawn().unwrap());
        let mut running = Running { child, place };
        await_some("the port file", || {
            if let Some(status) = running.child.0.try_wait().unwrap() {
                panic!("-m {megabytes}: ended at its start: {status}: {}", running.stderr());
            }
            running.place.path("ports").exists().then_some(())
        });
        assert_eq!(running.ask("set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
}
