//! The server under a service manager: what it tells, and the unit for systemd.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use testing::{Folder, PATIENCE, skip};

use crate::running::{HYPOSTYLE, Running, ended, hypostyle, text};

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/systemd/hypostyle.service");

fn next_state(socket: &UnixDatagram) -> String {
    let mut state = [0; 1024];
    let bytes = socket.recv(&mut state).unwrap();
    String::from_utf8_lossy(&state[..bytes]).trim().to_owned()
}

#[test]
fn start_work_and_end_are_told_to_what_started_the_server() {
    let place = Folder::new();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = hypostyle(&["-l", "127.0.0.1", "-p", "-1"]);
    command.env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "100000");
    let mut server = Running::of(command);
    assert_eq!(next_state(&socket), "READY=1");
    assert_eq!(server.ask("version\r\n").split(' ').next(), Some("VERSION"));
    assert_eq!(next_state(&socket), "WATCHDOG=1");
    assert_eq!(next_state(&socket), "WATCHDOG=1");
    server.signal(Signal::USR1);
    while next_state(&socket) != "STOPPING=1" {}
    let (status, stderr) = server.end();
    assert!(status == 0 && stderr.ends_with("Gracefully stopping\n"), "{status}: {stderr}");
}

#[test]
fn a_socket_that_cannot_be_written_is_told_and_the_server_serves() {
    let mut command = hypostyle(&["-l", "127.0.0.1", "-p", "-1"]);
    command.env("NOTIFY_SOCKET", "/nonexistent/notify");
    let mut server = Running::of(command);
    assert_eq!(server.ask("version\r\n").split(' ').next(), Some("VERSION"));
    let (status, stderr) = server.stop(Signal::TERM);
    assert_eq!(status, 0);
    assert!(stderr.contains("cannot notify the service manager (NOTIFY_SOCKET): "), "{stderr}");
}

/// Runs `systemd-analyze`. Returns its output; `None` if it is not installed.
fn analyzed(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).env("SYSTEMD_COLORS", "0");
    let Ok(output) = command.output() else {
        skip("no systemd-analyze");
        return None;
    };
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let place = Folder::new();
    let unit = place.path("hypostyle.service");
    // The program of the package is not installed here.
    fs::write(&unit, fs::read_to_string(UNIT).unwrap().replace("/usr/bin/hypostyle", HYPOSTYLE))
        .unwrap();
    let Some(said) = analyzed(&["verify", "--man=no", unit.to_str().unwrap()]) else { return };
    assert!(!said.contains("hypostyle.service"), "{said}");
}

#[test]
fn the_unit_is_hardened_more_than_memcacheds() {
    let exposure = |unit: &str| -> Option<f64> {
        let said = analyzed(&["security", "--offline=yes", "--no-pager", unit])?;
        let (_, level) = said.split_once("exposure level for ")?;
        level.split_once(": ")?.1.split(' ').next()?.parse().ok()
    };
    let Some(ours) = exposure(UNIT) else { return };
    assert!(ours < 2.0, "{ours}");
    // The unit of Debian's package, if memcached was installed from it.
    let theirs = "/lib/systemd/system/memcached.service";
    if Path::new(theirs).exists() {
        assert!(exposure(theirs).unwrap() > ours);
    }
}

#[test]
fn the_unit_has_options_that_the_server_takes() {
    let unit = fs::read_to_string(UNIT).unwrap();
    let options = unit.lines().find_map(|line| line.strip_prefix("Environment=\"OPTIONS="));
    let options: Vec<&str> = options.unwrap().trim_end_matches('"').split(' ').collect();
    let version = ended(hypostyle(&[&options[..], &["-V"]].concat()));
    assert!(version.status.success());
}
