//! Hand-made Ethernet frames, which are answered over AF_XDP or by the kernel, or are dropped.
//!
//! Where: a packet socket on one end of a link, a server with `--xdp` on the other.
//! Invariant: a request is answered once, either over AF_XDP or by the kernel. A damaged request is
//! counted and not answered. No request prevents the answer to the next request.

use std::net::SocketAddr;

use super::{Network, Veth, Way, datagrams, hit};
use protocol::udp::Header;
use testing::forged::Frames;
use testing::namespace::WIRE;

const IP: usize = 14;
const UDP: [usize; 2] = [34, 54];
const HEADERS: [usize; 2] = [42, 62];
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Answered over AF_XDP, bypassing the kernel.
    Bypasses,
    /// Passed to the kernel, and answered through the kernel's socket.
    Passes,
    /// Received over AF_XDP, and counted as damaged.
    Damaged,
    /// Received over AF_XDP, and counted as longer than the interface's MTU.
    Long,
    /// Dropped by the kernel, because the frame has no receiver.
    NoReceiver,
}
use Fate::*;

/// Counts of answers, of datagrams received by the kernel, of damaged and of too long datagrams.
type Counts = [u64; 4];

struct Maker<'n> {
    network: &'n mut Network,
    client: datagrams::Client,
    wire: Frames,
    is_v6: bool,
    id: u16,
}

impl Maker<'_> {
    fn frame(&mut self, text: &str) -> Vec<u8> {
        self.id += 1;
        let message = [&Header::request(self.id, 0).bytes()[..], text.as_bytes()].concat();
        let ends = (self.client.socket.local_addr().unwrap(), self.client.server);
        self.frame_between(ends, &message)
    }

    fn frame_between(&self, ends: (SocketAddr, SocketAddr), payload: &[u8]) -> Vec<u8> {
        let frame = self.network.near.frame(&self.network.far, ends, payload);
        assert_eq!(frame.len(), HEADERS[usize::from(self.is_v6)] + payload.len());
        frame
    }

    fn counts(&mut self) -> Counts {
        let [sent, damaged, long] = ["udp_sent", "udp_dropped_damaged", "udp_dropped_length"]
            .map(|name| self.network.count(name));
        [sent, self.network.far.counter("Udp", "InDatagrams"), damaged, long]
    }

    /// Sends `frames`. Fails unless the last frame meets `fate` and a later request is answered.
    fn expect(&mut self, what: &str, frames: &[Vec<u8>], fate: Fate) {
        let before = self.counts();
        frames.iter().for_each(|frame| self.wire.send(frame));
        if matches!(fate, Bypasses | Passes) {
            self.client.expect(self.id, hit("k", "v"));
        }
        self.client.ask("mn\r\n", "MN\r\n");
        let [answers, by_the_kernel, damaged, long] = match fate {
            Bypasses => [1, 0, 0, 0],
            Passes => [1, 1, 0, 0],
            Damaged => [0, 0, 1, 0],
            Long => [0, 0, 0, 1],
            NoReceiver => [0; 4],
        };
        let due = [before[0] + answers + 1, before[1] + by_the_kernel, before[2] + damaged];
        let due = [due[0], due[1], due[2], before[3] + long];
        assert_eq!(self.counts(), due, "{what}: {fate:?}; answers, the kernel's, damaged, long");
        assert!(self.client.is_silent(), "{what} is answered");
    }
}

fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn inserted(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    [&frame[..at], bytes, &frame[at..]].concat()
}

fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let header_bytes = usize::from(frame[IP] & 15) * 4;
    let bytes = u16::try_from(frame.len() - IP).unwrap();
    frame[IP + 2..IP + 4].copy_from_slice(&bytes.to_be_bytes());
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..IP + header_bytes].chunks(2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    frame[IP + 10..IP + 12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    frame
}

/// Inserts an IPv6 extension header of eight bytes, whose protocol number is `number`.
fn extended(frame: &[u8], number: u8, header: [u8; 8]) -> Vec<u8> {
    let bytes = u16::try_from(frame.len() - UDP[1] + header.len()).unwrap();
    let frame = with(frame, IP + 4, &bytes.to_be_bytes());
    inserted(&with(&frame, IP + 6, &[number]), UDP[1], &header)
}

#[test]
fn each_frame_made_by_hand_meets_its_fate() {
    let Some(mut network) = Network::new(Veth::default(), Way::Xdp) else { return };
    network.stream.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    for is_v6 in [false, true] {
        let (client, wire) = (network.client(is_v6), network.near.frames());
        let mut maker = Maker { network: &mut network, client, wire, is_v6, id: 1000 };
        of_both_families(&mut maker);
        if is_v6 { of_v6(&mut maker) } else { of_v4(&mut maker) }
    }
    assert_eq!(["udp_unsent", "xdp_dropped", "xdp_invalid"].map(|it| network.count(it)), [0; 3]);
    network.server.stop();
}

fn of_both_families(maker: &mut Maker<'_>) {
    let udp = UDP[usize::from(maker.is_v6)];
    let get = |maker: &mut Maker<'_>| maker.frame("get k\r\n");
    let frame = get(maker);
    maker.expect("a plain one", &[frame], Bypasses);
    let frame = get(maker);
    let padded = [&frame[..], &[0x55; 30]].concat();
    maker.expect("bytes behind the packet", &[padded], Bypasses);
    let frame = get(maker);
    maker.expect("a wrong checksum", &[with(&frame, frame.len() - 1, b"!")], Damaged);
    for bytes in [0_u16, 7, 1000] {
        let frame = with(&get(maker), udp + 4, &bytes.to_be_bytes());
        maker.expect("a length that lies", &[frame], Damaged);
    }
    let frame = get(maker);
    for bytes in [14, 20, udp, udp + 7] {
        maker.expect("an end within a header", &[frame[..bytes].to_vec()], NoReceiver);
    }
    let tagged = inserted(&frame, 12, &[0x81, 0, 0, 5]);
    maker.expect("a VLAN's", &[tagged], NoReceiver);
    let port = maker.client.server.port() + 1;
    maker.expect("another port's", &[with(&frame, udp + 2, &port.to_be_bytes())], NoReceiver);
    let frame = with(&maker.frame("get k\r\n"), 0, &[1, 0, 0x5e]);
    maker.expect("a group's Ethernet address", &[frame], Passes);
    let [here, there] = [maker.client.socket.local_addr().unwrap(), maker.client.server];
    let martians: &[&str] = match maker.is_v6 {
        true => &["::", "::1", "ff02::1", "fd77::2"],
        false => &["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.77.0.2"],
    };
    let message = [&Header::request(1, 0).bytes()[..], b"get k\r\n"].concat();
    for from in martians {
        let from = SocketAddr::new(from.parse().unwrap(), here.port());
        let frame = maker.frame_between((from, there), &message);
        maker.expect(&format!("from {from}"), &[frame], Damaged);
    }
    // The far end keeps an MTU of 1500, but accepts four more bytes: the length of a VLAN tag.
    maker.network.near.ip(&format!("link set {WIRE} mtu 1504"));
    for (bytes, fate) in [(1500, Bypasses), (1501, Long), (1504, Long)] {
        let headers = HEADERS[usize::from(maker.is_v6)] - IP + 8;
        let spaces = " ".repeat(bytes - headers - "get k\r\n".len());
        let frame = maker.frame(&format!("get{spaces} k\r\n"));
        assert_eq!(frame.len(), IP + bytes);
        maker.expect(&format!("{bytes} bytes"), &[frame], fate);
    }
    maker.network.near.ip(&format!("link set {WIRE} mtu 1500"));
}

fn of_v4(maker: &mut Maker<'_>) {
    let frame = with(&maker.frame("get k\r\n"), UDP[0] + 6, &[0, 0]);
    maker.expect("no checksum", &[frame], Bypasses);
    let frame = with(&maker.frame("get k\r\n"), IP + 10, &[1, 1]);
    maker.expect("a wrong checksum of the header", &[frame], Damaged);
    let frame = with(&maker.frame("get k\r\n"), IP, &[0x46]);
    maker.expect("options", &[summed(inserted(&frame, UDP[0], &[1, 1, 1, 0]))], Passes);
    let frame = maker.frame("get k\r\n");
    let (first, rest) = (&frame[..UDP[0] + 16], &frame[UDP[0] + 16..]);
    let second = [&frame[..UDP[0]], rest].concat();
    let parts = [with(first, IP + 6, &[0x20, 0]), with(&second, IP + 6, &[0, 2])];
    maker.expect("the second of two fragments", &parts.map(summed), Passes);
    let (to, port) = ("10.77.0.9".parse().unwrap(), maker.client.server.port());
    let from = maker.client.socket.local_addr().unwrap();
    let frame = maker.frame_between((from, SocketAddr::new(to, port)), b"12345678get k\r\n");
    maker.expect("another host's", &[frame], NoReceiver);
}

fn of_v6(maker: &mut Maker<'_>) {
    let frame = with(&maker.frame("get k\r\n"), UDP[1] + 6, &[0, 0]);
    maker.expect("no checksum", &[frame], Damaged);
    // Extension headers: options that contain only padding, and a fragment with the whole packet.
    let (padding, whole) = ([17, 0, 1, 4, 0, 0, 0, 0], [17, 0, 0, 0, 0, 0, 0, 9]);
    for (number, header) in [(HOP_BY_HOP, padding), (OPTIONS, padding), (FRAGMENT, whole)] {
        let frame = maker.frame("get k\r\n");
        maker.expect("one more header", &[extended(&frame, number, header)], Passes);
    }
    let frame = maker.frame("get k\r\n");
    let (head, rest) = (&frame[..UDP[1] + 16], &frame[UDP[1] + 16..]);
    let second = [&frame[..UDP[1]], rest].concat();
    let parts = [
        extended(head, FRAGMENT, [17, 0, 0, 1, 0, 0, 0, 10]),
        extended(&second, FRAGMENT, [17, 0, 0, 16, 0, 0, 0, 10]),
    ];
    maker.expect("the second of two fragments", &parts, Passes);
}
