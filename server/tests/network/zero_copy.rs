//! Values in the arena are sent without a copy; with `full`, they stay in their packets' chunks.
//!
//! Where: a server with `--xdp` and `-o zero_copy=send` or `full` on one end of a link, and clients
//! with kernel sockets on the other.
//! Invariant: each reply is, byte for byte, that of a server without zero copy, and the kernel
//! finds no descriptor invalid.

use super::bypass::bypassing;
use super::{Network, Veth, hit};
use hypostyle::start::settings::{Listen, Port, Settings, Xdp, ZeroCopy};
use net::xdp::Mode;
use protocol::ProtocolMode;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use testing::namespace::pair;
use testing::wait_until;

fn sharing(zero_copy: ZeroCopy, mode: Mode, bytes_min: usize) -> Settings {
    let settings = bypassing(1, &[]);
    let listen = |host: &str| Listen {
        host: Some(host.to_owned()),
        port: Port::Number(11211),
        protocol: ProtocolMode::Auto,
    };
    Settings {
        datagrams: ["0.0.0.0", "::"].map(listen).to_vec(),
        xdp: settings.xdp.map(|xdp| Xdp { mode, ..xdp }),
        zero_copy,
        zero_copy_bytes_min: bytes_min,
        memory_bytes: 64 << 20,
        ..settings
    }
}

impl Network {
    pub(super) fn row(&mut self, of: &str, name: &str) -> u64 {
        self.stream.stats(of)[name].parse().unwrap()
    }

    pub(super) fn await_free_chunks(&mut self, bytes: u64) {
        wait_until("a free arena", || self.row("memory", "arena_free_bytes") == bytes);
    }
}

#[test]
fn values_of_every_length_are_sent_from_where_they_lie() {
    let (send, full) = (ZeroCopy::Send, ZeroCopy::Full);
    let cases = [
        (send, Mode::Native, 1500),
        (send, Mode::Generic, 1500),
        (send, Mode::Native, 9000),
        (full, Mode::Native, 1500),
        (full, Mode::Generic, 9000),
    ];
    for (zero_copy, mode, mtu) in cases {
        let veth = Veth { queues: 1, mtu };
        let Some(mut network) = Network::of(veth, sharing(zero_copy, mode, 1)) else { return };
        let all = network.row("memory", "arena_free_bytes");
        assert_eq!(network.row("memory", "arena_bytes"), 0);
        let lengths = [1, 2, 99, 255, 256, 257, 1300, 1392, 2031, 2032, 2033, 4080, 9000, 20_000];
        for (number, bytes) in lengths.into_iter().enumerate() {
            let value: String = ('a'..='z').cycle().skip(number).take(bytes).collect();
            let set = format!("set k{number} 0 0 {bytes}\r\n{value}\r\n");
            // Set values with odd numbers over AF_XDP, and values with even numbers over TCP.
            match number % 2 {
                0 => network.stream.ask(set, "STORED\r\n"),
                _ => {
                    let mut client = network.client(true);
                    client.send_parts(set.as_bytes(), 1000, |_| {});
                    assert_eq!(client.receive().0, b"STORED\r\n");
                }
            }
            for is_v6 in [false, true] {
                let before = network.row("udp", "zero_copy_bytes");
                let mut client = network.client(is_v6);
                client.ask(format!("get k{number}\r\n"), hit(&format!("k{number}"), &value));
                let in_place = network.row("udp", "zero_copy_bytes") - before;
                // No byte of the value is copied, because `zero_copy_min` is 1.
                assert_eq!(in_place, bytes as u64, "{mode:?}, {mtu}");
            }
            network.stream.ask(format!("get k{number}\r\n"), hit(&format!("k{number}"), &value));
        }
        let used = all - network.row("memory", "arena_free_bytes");
        assert_eq!((used > 0, network.row("memory", "arena_bytes")), (true, used));
        for counter in ["udp_unsent", "xdp_dropped", "xdp_invalid"] {
            assert_eq!(network.count(counter), 0, "{counter}, {mode:?}");
        }
        network.stream.ask("flush_all\r\n", "OK\r\n");
        for number in 0..lengths.len() {
            network.stream.ask(format!("get k{number}\r\n"), "END\r\n");
        }
        network.await_free_chunks(all);
        network.server.stop();
    }
}

/// Returns how many chunks a request takes if its datagrams have `part_bytes` bytes each.
fn chunks(request_bytes: usize, part_bytes: usize, mtu: usize) -> usize {
    let (mut left, mut chunks) = (request_bytes, 0);
    while left > 0 {
        let part = left.min(part_bytes);
        let frame_bytes = 14 + 40 + 8 + 8 + part;
        // In each chunk the kernel keeps a headroom of 256 bytes before the packet.
        chunks += if mtu == 1500 { 1 } else { frame_bytes.div_ceil(4096 - 256) };
        left -= part;
    }
    chunks
}

#[test]
fn values_stay_in_the_packets_and_frames_that_brought_them_and_none_is_copied() {
    let of_1500 = [(1024, 1392), (1300, 1392), (1400, 1392), (3000, 1392), (50_000, 1392)];
    let of_9000 = [(1300, 8800), (5000, 8800), (8192, 8800), (20_000, 8800), (60_000, 4000)];
    for (mode, mtu) in [(Mode::Native, 1500), (Mode::Generic, 1500), (Mode::Native, 9000)] {
        let veth = Veth { queues: 1, mtu };
        let full = sharing(ZeroCopy::Full, mode, 1024);
        let Some(mut network) = Network::of(veth, full) else { return };
        let all = network.row("memory", "arena_free_bytes");
        let (chunk_bytes, mtu) = (if mtu == 1500 { 2048 } else { 4096 }, mtu as usize);
        let (mut kept, mut used) = (0, 0);
        for (number, (bytes, part_bytes)) in
            (if mtu == 1500 { of_1500 } else { of_9000 }).into_iter().enumerate()
        {
            let value: String = ('a'..='z').cycle().skip(number).take(bytes).collect();
            for (how, rest, reply) in [("set", "0 0 ", "STORED\r\n"), ("ms", "", "HD\r\n")] {
                let request = format!("{how} {how}{number} {rest}{bytes}\r\n{value}\r\n");
                let mut client = network.client(true);
                // The kernel charges a page to the receive buffer for each part of a value.
                set_socket_recv_buffer_size_force(&client.socket, 8 << 20).unwrap();
                let order = |datagrams: &mut Vec<Vec<u8>>| datagrams.reverse();
                client.send_parts(request.as_bytes(), part_bytes, order);
                assert_eq!(client.receive().0, reply.as_bytes());
                kept += bytes as u64;
                used += chunks(request.len(), part_bytes, mtu) * chunk_bytes;
                let counts = ["arena_kept_bytes", "arena_copied_bytes", "arena_full"];
                let counts = counts.map(|name| network.row("store", name));
                assert_eq!(counts, [kept, 0, 0], "{request:.20} {mode:?} {mtu}");
                let free = network.row("memory", "arena_free_bytes");
                assert_eq!(all - free, used as u64, "{request:.20} {mode:?} {mtu}");
                let hit = hit(&format!("{how}{number}"), &value);
                client.ask(format!("get {how}{number}\r\n"), &hit);
                network.stream.ask(format!("get {how}{number}\r\n"), &hit);
            }
        }
        for counter in ["udp_unsent", "xdp_dropped", "xdp_invalid"] {
            assert_eq!(network.count(counter), 0, "{counter}, {mode:?}");
        }
        // A command that changes a value copies the value out of the arena.
        network.stream.ask("append set2 0 0 3\r\nend\r\n", "STORED\r\n");
        network.stream.ask("touch ms2 1000\r\n", "TOUCHED\r\n");
        network.stream.ask("flush_all\r\n", "OK\r\n");
        network.stream.ask("get set2\r\n", "END\r\n");
        network.await_free_chunks(all);
        network.server.stop();
    }
}

#[test]
fn what_no_chunk_is_free_for_is_copied_and_nothing_is_evicted() {
    let shares = sharing(ZeroCopy::Full, Mode::Native, 1024);
    let mut settings = Settings { memory_bytes: 8 << 20, ..shares };
    settings.columns.item_bytes_max = 1 << 17;
    let Some(mut network) = Network::of(Veth::default(), settings) else { return };
    let chunks = network.row("memory", "arena_free_bytes") / 2048;
    let value = |key: u64| format!("{key},").chars().cycle().take(1300).collect::<String>();
    let mut client = network.client(false);
    let keys = chunks + 200;
    for key in 0..keys {
        client.ask(format!("set k{key} 0 0 1300\r\n{}\r\n", value(key)), "STORED\r\n");
    }
    assert_eq!(network.row("memory", "arena_free_bytes"), 0);
    assert_eq!(network.row("store", "arena_full"), 200);
    assert_eq!(network.row("store", "arena_kept_bytes"), chunks * 1300);
    for key in 0..keys {
        client.ask(format!("get k{key}\r\n"), hit(&format!("k{key}"), &value(key)));
    }
    for counter in ["evictions", "xdp_dropped", "xdp_invalid"] {
        assert_eq!(network.count(counter), 0, "{counter}");
    }
    network.server.stop();
}

fn text(key: usize, of: &str) -> String {
    format!("{of} {key},").chars().cycle().take(100 + 150 * key).collect()
}

#[test]
fn values_in_flight_stay_what_was_asked_for_whatever_becomes_of_their_keys() {
    const KEYS: usize = 40;
    let Some([near, far]) = pair(Veth::default()) else { return };
    far.add_egress_queue(&near);
    let settings = sharing(ZeroCopy::Full, Mode::Generic, 1);
    let mut network = Network::between([near, far], settings);
    let all = network.row("memory", "arena_free_bytes");
    let set = |key: String, value: &str| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    let mut client = network.client(true);
    set_socket_recv_buffer_size_force(&client.socket, 64 << 20).unwrap();
    for key in 0..KEYS {
        client.send_parts(set(format!("k{key}"), &text(key, "old")).as_bytes(), 1392, |_| {});
        assert_eq!(client.receive().0, b"STORED\r\n");
    }
    let stored = network.row("memory", "arena_bytes");
    assert_eq!(all - network.row("memory", "arena_free_bytes"), stored);
    network.far.hold_egress();
    let ids: Vec<u16> = (0..KEYS).map(|key| client.send(format!("get k{key}\r\n"))).collect();
    let bytes: usize = (0..KEYS).map(|key| text(key, "old").len()).sum();
    wait_until("all answers", || network.row("udp", "zero_copy_bytes") == bytes as u64);
    // Replace, change, delete or expire the values, then flush them. Other keys are evicted.
    for key in 0..KEYS {
        let (ask, reply) = match key % 4 {
            0 => (set(format!("k{key}"), &text(key, "new")), "STORED\r\n"),
            1 => (format!("append k{key} 0 0 3\r\nend\r\n"), "STORED\r\n"),
            2 => (format!("delete k{key}\r\n"), "DELETED\r\n"),
            _ => (format!("touch k{key} -1\r\n"), "TOUCHED\r\n"),
        };
        network.stream.ask(ask, reply);
    }
    network.stream.ask("flush_all\r\n", "OK\r\n");
    let mut fills = 0;
    wait_until("evictions of other keys", || {
        for key in 0..500 {
            let (key, value) = (fills * 500 + key, "x".repeat(10_000));
            network.stream.send(format!("set f{key} 0 0 10000 noreply\r\n{value}\r\n"));
        }
        network.stream.ask("mn\r\n", "MN\r\n");
        fills += 1;
        network.count("evictions") > 0
    });
    for megabytes in [40, 64] {
        network.stream.ask(format!("cache_memlimit {megabytes}\r\n"), "OK\r\n");
    }
    network.stream.ask("flush_all\r\n", "OK\r\n");
    wait_until("the release of other chunks", || network.row("memory", "arena_bytes") <= stored);
    // Only a few packets have been sent. The values in the waiting packets keep their chunks.
    let waiting = network.far.egress_backlog();
    assert!(waiting > bytes as u64 / 1400 / 2, "{waiting} packets wait");
    let kept = network.row("memory", "arena_bytes");
    assert!(kept > stored / 2, "{kept} of {stored} bytes are kept, {waiting} packets wait");
    network.far.release_egress();
    let next = client.send("mn\r\n");
    for (key, id) in ids.into_iter().enumerate() {
        client.expect(id, hit(&format!("k{key}"), &text(key, "old")));
    }
    client.expect(next, "MN\r\n");
    network.await_free_chunks(all);
    for counter in ["udp_unsent", "xdp_dropped", "xdp_invalid"] {
        assert_eq!(network.count(counter), 0, "{counter}");
    }
    network.server.stop();
}
