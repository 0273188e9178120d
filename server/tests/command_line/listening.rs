//! The server's listening sockets: ports, addresses, Unix sockets.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Signal, kill_process};
use testing::{Folder, KillOnDrop, await_some};

use crate::running::{Running, VERSION_REPLY, ended, hypostyle, talk, text, to_pid};

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

/// A client of another protocol gets an error in its own protocol, or its connection is closed.
#[test]
fn who_speaks_another_protocol_is_told_or_closed_on() {
    let running = Running::on_loopback(&[]);
    let replies = |request: &str| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, running.port())).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        replies
    };
    let reply = replies("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    assert_eq!(reply, "-ERR no RESP here: this server speaks memcached's protocols\r\n");
    assert_eq!(replies("GET / HTTP/1.1\r\nHost: cache\r\n\r\n"), "");
    assert_eq!(replies("version\r\n*1\r\nquit\r\n"), format!("{VERSION_REPLY}ERROR\r\n"));
    // A server with a fixed protocol does not guess the protocol from the first byte.
    let running = Running::on_loopback(&["-B", "ascii"]);
    assert_eq!(running.ask("*1\r\n"), "ERROR\r\n");
}

/// The server names each address that it could not bind, even if it listens on other addresses.
#[test]
fn an_address_that_is_not_bound_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let taken = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let has_ipv6 = TcpListener::bind("[::]:0").is_ok();
    if has_ipv6 {
        let mut command = hypostyle(&["-p", &port.to_string(), "-U", &port.to_string()]);
        command.args(["-t", "1", "-m", "8", "-I", "1m"]);
        let mut running = Running::of(command);
        let (status, stderr) = running.stop(Signal::TERM);
        assert_eq!(status, 0, "{stderr}");
        for (at, transport) in [("TCP", port), ("UDP", port)] {
            let warning =
                format!("not listening on 0.0.0.0:{transport} ({at}): Address already in use");
            assert!(stderr.contains(&warning), "{stderr}");
        }
    }
    for (line, flag, at) in [
        (format!("-l 127.0.0.1 -p {port}"), "one of interface(s) 127.0.0.1", "TCP"),
        (format!("-l 127.0.0.1 -p 0 -U {port}"), "one of interface(s) 127.0.0.1", "UDP"),
        (format!("-l 127.0.0.1:{port},127.0.0.1"), "one of interface(s) 127.0.0.1:", "TCP"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = ended(hypostyle(&arguments));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{line}: {stderr}");
        let reason = format!(", at 127.0.0.1:{port} ({at}): Address already in use");
        assert!(stderr.contains("failed to listen on ") && stderr.contains(flag), "{stderr}");
        assert!(stderr.contains(&reason), "{line}: {stderr}");
    }
    drop(taken);
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
    let place = Folder::new();
    let path = place.path("socket");
    let mut command = hypostyle(&["-a", "0750", "-s"]);
    command.arg(&path);
    let mut child = KillOnDrop::spawn(&mut command);
    let stream = await_some("the socket", || UnixStream::connect(&path).ok());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    kill_process(to_pid(child.id()), Signal::TERM).unwrap();
    let status = await_some("the end", || child.try_wait().unwrap());
    assert!(status.success());
    assert!(!path.exists());
}

fn on_socket(path: &Path) -> KillOnDrop {
    let mut command = hypostyle(&["-s"]);
    command.arg(path);
    let child = KillOnDrop::spawn(&mut command);
    let stream = await_some("the socket", || UnixStream::connect(path).ok());
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    child
}

fn end_with(child: &mut KillOnDrop, signal: Signal) {
    kill_process(to_pid(child.id()), signal).unwrap();
    await_some("the end", || child.try_wait().unwrap());
}

#[test]
fn a_unix_socket_on_which_somebody_answers_is_not_taken() {
    let place = Folder::new();
    let path = place.path("socket");
    let mut first = on_socket(&path);
    let mut command = hypostyle(&["-s"]);
    command.arg(&path);
    let output = ended(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    let reason = format!("UNIX socket {}: another server answers on this path", path.display());
    assert!(stderr.contains(&reason), "{stderr}");
    let stream = UnixStream::connect(&path).unwrap();
    assert_eq!(talk(stream, "version\r\n"), VERSION_REPLY);
    end_with(&mut first, Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_a_killed_server_left_is_replaced() {
    let place = Folder::new();
    let path = place.path("socket");
    end_with(&mut on_socket(&path), Signal::KILL);
    assert!(path.exists());
    end_with(&mut on_socket(&path), Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn a_server_that_ends_leaves_the_unix_socket_of_its_successor() {
    let place = Folder::new();
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
