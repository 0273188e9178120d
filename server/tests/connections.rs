//! Connections: their start and end, and the limit of their number.
//!
//! Where: an in-process server, and the built binary for ten thousand connections.
//! Invariant: connections behave like memcached's connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;

use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port};
use inprocess::{Client, allow_files, connect, resident_bytes_of, settings, start};
use protocol::ProtocolMode;
use testing::{PATIENCE, wait_until};

const VERSION: &str = "VERSION 1.6.45\r\n";

fn open_connections(server: &Server) -> u32 {
    server.shared().columns.connections.load(Ordering::Relaxed)
}

#[test]
fn over_the_limit_a_client_is_told_and_closed() {
    let mut settings = settings(2);
    settings.columns.connections_max = 3;
    let server = start(settings);
    let mut clients: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.ask("version\r\n", VERSION);
    }
    let mut fourth = connect(&server);
    fourth.expect("ERROR Too many open connections\r\n");
    fourth.expect_end();
    assert_eq!(server.shared().sums().columns.rejected_connections, 1);
    drop(clients.pop());
    wait_until("the close", || open_connections(&server) == 2);
    connect(&server).ask("version\r\n", VERSION);
    server.stop();
}

#[test]
fn without_maxconns_fast_a_client_over_the_limit_waits() {
    let mut settings = settings(1);
    settings.columns.connections_max = 1;
    settings.columns.connections_max_fast = false;
    let server = start(settings);
    let mut first = connect(&server);
    first.ask("version\r\n", VERSION);
    let mut second = connect(&server);
    second.send("version\r\n");
    wait_until("the stop of accepting", || {
        !server.shared().columns.accepting.load(Ordering::Relaxed)
    });
    assert_eq!(open_connections(&server), 1);
    first.ask("version\r\n", VERSION);
    drop(first);
    second.expect(VERSION);
    assert_eq!(server.shared().sums().columns.rejected_connections, 0);
    server.stop();
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let mut settings = settings(1);
    // This is enough time for the client to send its request, even on a loaded machine.
    settings.columns.idle_seconds_max = 5;
    let server = start(settings);
    let mut client = connect(&server);
    client.ask("version\r\n", VERSION);
    client.expect_end();
    assert_eq!(server.shared().sums().columns.idle_kicks, 1);
    server.stop();
}

#[test]
fn quit_ends_the_connection_after_the_replies_before_it() {
    let server = start(settings(1));
    let mut client = connect(&server);
    client.send("version\r\nquit\r\nversion\r\n");
    client.expect(VERSION);
    client.expect_end();
    wait_until("the close", || open_connections(&server) == 0);
    server.stop();
}

#[test]
fn a_peer_that_has_said_its_last_still_gets_its_replies() {
    let server = start(settings(1));
    let mut client = connect(&server);
    let requests = 50_000;
    let mut writer = client.0.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        writer.write_all("version\r\n".repeat(requests).as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    client.expect(VERSION.repeat(requests));
    client.expect_end();
    writing.join().unwrap();
    wait_until("the close", || open_connections(&server) == 0);
    server.stop();
}

#[test]
fn several_addresses_of_both_families_are_served() {
    let mut settings = settings(2);
    let listen = |host: &str| Listen {
        host: Some(host.to_owned()),
        port: Port::Any,
        protocol: ProtocolMode::Auto,
    };
    settings.listen = vec![listen("127.0.0.1"), listen("127.0.0.2"), listen("::1")];
    let server = start(settings);
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 3);
    for address in addresses {
        assert_ne!(address.port(), 0);
        // With eight connections to an address, each column probably accepts one.
        for _ in 0..8 {
            Client::to(address).ask("version\r\n", VERSION);
        }
    }
    server.stop();
}

#[test]
fn every_column_gets_connections() {
    let server = start(settings(2));
    let clients: Vec<Client> = (0..64).map(|_| connect(&server)).collect();
    wait_until("64 connections", || open_connections(&server) == 64);
    for column in &server.shared().columns.counters {
        assert!(column.total_connections.get() > 0);
    }
    drop(clients);
    wait_until("the end of all connections", || open_connections(&server) == 0);
    server.stop();
}

/// Maximum number of ports to try: another process may bind a free port before the server does.
const PORTS: usize = 20;

fn start_on(port: u16) -> Result<Server, impl std::fmt::Debug> {
    let mut settings = settings(2);
    settings.listen[0].port = Port::Number(port);
    Server::start(settings)
}

#[test]
fn a_port_that_another_server_has_is_refused() {
    let ours = start(settings(2));
    assert!(start_on(ours.addresses()[0].port()).is_err());
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    (0..PORTS).find_map(|_| start_on(free()).ok()).unwrap().stop();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = settings(1);
    settings.listen[0].port = Port::Number(other.local_addr().unwrap().port());
    let error = Server::start(settings).unwrap_err().to_string();
    assert!(error.starts_with("failed to listen on TCP port "), "{error}");
    ours.stop();
}

#[test]
fn a_stopped_server_frees_its_port_and_closes_its_clients() {
    let again = (0..PORTS).find_map(|_| {
        let server = start(settings(2));
        let port = server.addresses()[0].port();
        let mut client = connect(&server);
        client.ask("version\r\n", VERSION);
        server.stop();
        client.expect_end();
        start_on(port).ok()
    });
    let again = again.unwrap();
    connect(&again).ask("version\r\n", VERSION);
    again.stop();
}

fn socket_path(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("hypostyle-{}-{name}.sock", std::process::id()))
}

#[test]
fn a_unix_socket_is_served_by_all_columns_and_removed_at_the_end() {
    let path = socket_path("served");
    // Leave a socket file behind, like a server that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let mut settings = settings(2);
    settings.unix_path = Some(path.clone());
    settings.unix_mask = 0o750;
    let server = start(settings);
    assert!(server.addresses().is_empty());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    for _ in 0..16 {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"version\r\n").unwrap();
        let mut reply = [0; VERSION.len()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, VERSION.as_bytes());
    }
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let path = socket_path("file");
    std::fs::write(&path, "precious").unwrap();
    let mut settings = settings(1);
    settings.unix_path = Some(path.clone());
    assert!(Server::start(settings).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}

/// Maximum memory that an idle connection may take in the server's process.
const IDLE_BYTES_MAX: usize = 512;

#[test]
fn ten_thousand_idle_connections_cost_next_to_nothing() {
    if !allow_files(10_100) {
        return testing::skip("the hard limit of open files is under 10,100");
    }
    let server = live::Server::under_test(&["-t", "2", "-c", "10050"]);
    let resident = || resident_bytes_of(&server.pid().to_string());
    let mut clients = vec![Client::to(server.address())];
    clients[0].ask("version\r\n", VERSION);
    // A thread of the server takes memory ahead of need, perhaps even after the first answer.
    let mut before = 0;
    wait_until("constant resident memory", || {
        (0..3000).for_each(|_| clients[0].ask("version\r\n", VERSION));
        let now = resident();
        std::mem::replace(&mut before, now) == now
    });
    for _ in 0..10_000 {
        let mut client = Client::to(server.address());
        client.send("version\r\n");
        clients.push(client);
    }
    for client in clients.iter_mut().skip(1) {
        client.expect(VERSION);
    }
    assert_eq!(clients[0].stat("curr_connections"), 10_001);
    let each = resident().saturating_sub(before) / 10_000;
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes for each idle connection");
    for client in &mut clients {
        client.ask("version\r\n", VERSION);
    }
}
