//! Limits of the process, memory, and settings that are in force once they are given.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::running::{Killed, Place, Running, await_some};

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
