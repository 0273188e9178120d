//! Values that lie where packets lie, and are sent from there.
//!
//! Where: `--xdp` with `-o zero_copy=send` on one end of a link, clients of the kernel on the
//! other.
//! Invariant: who asks gets what a server without it answers, to the byte, and the kernel finds
//! nothing to object to.

use super::bypass::bypassing;
use super::{Network, Veth, hit};
use crate::inprocess::wait_until;
use hypostyle::settings::{Listen, Port, Settings, Xdp, ZeroCopy};
use net::xdp::Mode;
use protocol::Speak;

/// With values of this length and longer in the arena.
fn sending(mode: Mode, bytes_min: usize) -> Settings {
    let settings = bypassing(1, &[]);
    let listen = |host: &str| Listen {
        host: Some(host.to_owned()),
        port: Port::Number(11211),
        protocol: Speak::Auto,
    };
    Settings {
        datagrams: ["0.0.0.0", "::"].map(listen).to_vec(),
        xdp: settings.xdp.map(|xdp| Xdp { mode, ..xdp }),
        zero_copy: ZeroCopy::Send,
        zero_copy_bytes_min: bytes_min,
        memory_bytes: 64 << 20,
        ..settings
    }
}

impl Network {
    /// A row of `stats NAME`.
    fn row(&mut self, of: &str, name: &str) -> u64 {
        self.stream.stats(of)[name].parse().unwrap()
    }
}

#[test]
fn values_of_every_length_are_sent_from_where_they_lie() {
    for (mode, mtu) in [(Mode::Native, 1500), (Mode::Generic, 1500), (Mode::Native, 9000)] {
        let veth = Veth { queues: 1, mtu };
        let Some(mut network) = Network::of(veth, sending(mode, 1)) else { return };
        let all = network.row("memory", "arena_free_bytes");
        assert_eq!(network.row("memory", "arena_bytes"), 0);
        let lengths = [1, 2, 99, 255, 256, 257, 1300, 1392, 2031, 2032, 2033, 4080, 9000, 20_000];
        for (number, bytes) in lengths.into_iter().enumerate() {
            let value: String = ('a'..='z').cycle().skip(number).take(bytes).collect();
            let set = format!("set k{number} 0 0 {bytes}\r\n{value}\r\n");
            // Half of them come past the kernel as well.
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
                // Each byte, for no part is too short: the server was told that none is.
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
        let stream = &mut network.stream;
        wait_until("all chunks are free", || {
            stream.stats("memory")["arena_free_bytes"] == all.to_string()
        });
        network.server.stop();
    }
}
