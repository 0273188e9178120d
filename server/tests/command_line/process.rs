//! The server's process: daemon mode, user, pid file, and its end by signals and commands.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process, test_kill_process};
use testing::{Folder, KillOnDrop, await_some};

use crate::running::{self, Detached, HYPOSTYLE, Running, VERSION_REPLY, ended, hypostyle};
use crate::running::{is_root, talk, text, to_pid};

#[test]
fn daemon_answers_when_its_parent_ends_and_removes_its_pid_file() {
    let place = Folder::new();
    let mut command = hypostyle(&["-d", "-P", "pid", "-p", "-1", "-l", "127.0.0.1"]);
    command.current_dir(&place.0).env("MEMCACHED_PORT_FILENAME", place.path("ports"));
    let parent = ended(command);
    assert_eq!(parent.status.code(), Some(0), "{}", text(&parent.stderr));

    // Do not poll: the server must answer as soon as the parent process has exited.
    let pid_file = place.path("pid");
    let pid: u32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let daemon = Detached(to_pid(pid));
    let ports = fs::read_to_string(place.path("ports")).unwrap();
    let port: u16 = ports.trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    for stream in 0..=2 {
        let target = fs::read_link(format!("/proc/{pid}/fd/{stream}")).unwrap();
        assert_eq!(target, Path::new("/dev/null"), "{stream}");
    }
    // The daemon leads its own session (field 6 of stat). The name (field 2) is in parentheses.
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
    let place = Folder::new();
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

/// Scripts end a daemon by the pid in its pid file, so a daemon does not start without a pid file.
#[test]
fn a_daemon_whose_pid_file_cannot_be_written_does_not_start() {
    let place = Folder::new();
    let mut command = hypostyle(&["-d", "-P", "there/is/no/such", "-s", "socket"]);
    command.current_dir(&place.0);
    let parent = ended(command);
    let stderr = text(&parent.stderr);
    assert_eq!(parent.status.code(), Some(71), "{stderr}");
    let reason = format!("cannot create {}.tmp: ", place.path("there/is/no/such").display());
    assert!(stderr.contains("Could not write the pid file"), "{stderr}");
    assert!(stderr.contains(&reason), "{stderr}");
    assert!(!place.path("socket").exists());

    let mut running = Running::on_loopback(&["-P", "/there/is/no/such"]);
    assert_eq!(running.ask("version\r\n"), VERSION_REPLY);
    assert!(running.stop(Signal::TERM).1.contains("Could not write the pid file"));
}

/// The paths of the pid file and the port file are symbolic links. The paths of their temporary
/// files are FIFOs, each of which blocks a process that opens it.
#[test]
fn what_somebody_planted_is_neither_written_through_nor_waited_for() {
    let place = Folder::new();
    let victim = place.path("victim");
    fs::write(&victim, "precious").unwrap();
    for name in ["pid", "ports"] {
        symlink(&victim, place.path(name)).unwrap();
    }
    for name in ["pid.tmp", "ports.lck"] {
        let mode = Mode::from(0o666);
        mknodat(CWD, place.path(name), FileType::Fifo, mode, 0).unwrap();
    }
    let mut command = hypostyle(&["-P", "pid", "-p", "-1", "-l", "127.0.0.1"]);
    command.current_dir(&place.0).env("MEMCACHED_PORT_FILENAME", place.path("ports"));
    let child = KillOnDrop::spawn(&mut command);
    for (name, begins) in [("pid", child.id().to_string()), ("ports", "TCP INET: ".to_owned())] {
        await_some(name, || {
            let is_file = fs::symlink_metadata(place.path(name)).is_ok_and(|it| it.is_file());
            is_file.then_some(())
        });
        let written = fs::read_to_string(place.path(name)).unwrap();
        assert!(written.starts_with(&begins), "{name}: {written}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!place.path("pid.tmp").exists() && !place.path("ports.lck").exists());
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

/// One client has sent a request without its last byte, another reads no replies, a third is idle.
#[test]
fn a_graceful_end_accepts_nothing_and_lets_what_has_begun_come_to_its_end() {
    let mut running = Running::on_loopback(&["-m", "256", "-t", "2"]);
    let port = running.port();
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let value = "v".repeat(1_000_000);
    assert_eq!(running.ask(&format!("set large 0 0 1000000\r\n{value}\r\n")), "STORED\r\n");
    let mut half = connect().unwrap();
    half.write_all(b"set a 0 0 5\r\nhell").unwrap();
    let mut reader = connect().unwrap();
    reader.write_all("get large\r\n".repeat(40).as_bytes()).unwrap();
    let mut idle = connect().unwrap();
    assert_eq!(idle.write(b"version\r\n").unwrap(), 9);
    let mut reply = [0; VERSION_REPLY.len()];
    idle.read_exact(&mut reply).unwrap();
    // The first value has begun to arrive, so the server has received all requests.
    assert_eq!(reader.peek(&mut [0]).unwrap(), 1);

    running.signal(Signal::USR1);
    assert_eq!(idle.read(&mut reply).unwrap(), 0, "an idle connection is closed");
    await_some("the listener's end", || connect().err());
    half.write_all(b"o\r\n").unwrap();
    let mut reply = String::new();
    half.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "STORED\r\n");
    let mut values = Vec::new();
    reader.read_to_end(&mut values).unwrap();
    let each = "VALUE large 0 1000000\r\n".len() + 1_000_000 + "\r\nEND\r\n".len();
    assert_eq!(values.len(), 40 * each);
    assert!(values.ends_with(b"vvv\r\nEND\r\n"));
    let (status, stderr) = running.end();
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("Gracefully stopping"), "{stderr}");
}

#[test]
fn a_graceful_end_does_not_wait_for_ever() {
    let mut running = Running::on_loopback(&["-t", "2"]);
    let mut half = TcpStream::connect((Ipv4Addr::LOCALHOST, running.port())).unwrap();
    half.write_all(b"version\r\nset a 0 0 5\r\nhell").unwrap();
    half.read_exact(&mut [0; VERSION_REPLY.len()]).unwrap();
    let (status, stderr) = running.stop(Signal::USR1);
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(half.read(&mut [0]).unwrap(), 0);
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
fn a_limit_that_is_refused_is_told_with_those_that_are_not() {
    let mut running = Running::on_loopback(&["-v", "-m", "64"]);
    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    assert_eq!(running.ask("cache_memlimit 1025\r\n"), refused);
    let store = running.ask("stats store\r\n");
    assert!(store.contains(&format!("STAT limit_maxbytes_max {}\r\n", 1 << 30)), "{store}");
    let stderr = running.stop(Signal::TERM).1;
    let reason = "cache_memlimit 1025 is refused: the limit must be 8 to 1024";
    assert!(stderr.contains(reason), "{stderr}");
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
    let place = Folder::new();
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

fn with_privileges(words: &[&str], arguments: &[&str]) -> Running {
    let mut command = running::launch(words, HYPOSTYLE);
    command.args(["-l", "127.0.0.1", "-p", "-1", "-t", "2"]).args(arguments);
    Running::of(command)
}

#[track_caller]
fn assert_capabilities(running: &Running, capabilities: u64, bounding: Option<u64>) {
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
        };
        let set = |name| u64::from_str_radix(&line(name), 16).unwrap();
        assert_eq!([set("CapEff:"), set("CapPrm:")], [capabilities; 2], "{status}");
        assert_eq!([set("CapInh:"), set("CapAmb:")], [0; 2], "{status}");
        assert_eq!(set("CapBnd:"), bounding.unwrap_or(set("CapBnd:")), "{status}");
        assert_eq!(line("NoNewPrivs:"), "1", "{status}");
        threads += 1;
    }
    assert!(threads > 2, "the main thread and two columns run");
}

#[test]
fn whoever_starts_it_it_serves_without_any_capability() {
    if !is_root() {
        return testing::skip("only root can give capabilities");
    }
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let given = "+net_admin,+net_raw,+bpf";
    let ambient = [&nobody[..], &["--inh-caps", given, "--ambient-caps", given]].concat();
    let mut running = with_privileges(&ambient, &["-u", "daemon"]);
    assert_capabilities(&running, 0, None);
    assert_eq!(running.ask("version\r\n"), VERSION_REPLY);
    let (status, stderr) = running.stop(Signal::TERM);
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("-u daemon has no effect: this server runs as user 65534"), "{stderr}");

    for user in ["root", "daemon"] {
        let running = Running::on_loopback(&["-u", user, "-t", "2"]);
        assert_capabilities(&running, 0, Some(0));
    }
}

#[test]
fn to_lock_memory_beyond_its_limit_one_capability_is_kept_and_told() {
    const IPC_LOCK: u64 = 1 << 14;
    if !is_root() {
        return testing::skip("only root can give capabilities");
    }
    let script = "ulimit -l 64 && exec setpriv --reuid 65534 --clear-groups \
                  --inh-caps +ipc_lock,+net_raw --ambient-caps +ipc_lock,+net_raw \"$@\"";
    let mut running = with_privileges(&["sh", "-c", script, "sh"], &["-k", "-m", "64"]);
    assert_capabilities(&running, IPC_LOCK, None);
    let (status, stderr) = running.stop(Signal::TERM);
    assert_eq!(status, 0, "{stderr}");
    assert!(
        stderr.contains("this server keeps the capability CAP_IPC_LOCK, so that -k can lock more"),
        "{stderr}"
    );
    assert!(!stderr.contains("-k invalid"), "{stderr}");
}

#[test]
fn unix_socket_belongs_to_the_user() {
    if !is_root() {
        return testing::skip("only root can become another user");
    }
    let place = Folder::new();
    let path = place.path("socket");
    let mut command = hypostyle(&["-u", "daemon", "-s"]);
    command.arg(&path);
    let child = KillOnDrop::spawn(&mut command);
    await_some("the socket", || UnixStream::connect(&path).ok());
    assert_ne!(fs::metadata(&path).unwrap().uid(), 0);
    drop(child);
}
