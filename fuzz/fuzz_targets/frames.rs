//! Fuzzes `wire::read`, with random bytes as an Ethernet frame with an IPv4 or IPv6 packet and UDP.
//!
//! Where: `cargo fuzz run --sanitizer none frames -- -max_total_time=20`.
//! Invariant: no panic; a packet that is read lies within the frame, and `check_sums` below accepts
//! the packet's checksums; a packet that is written back is read as the same packet.
//! Source: the invariant of `net/src/wire.rs`; RFC 1071, section 1.
#![no_main]

use libfuzzer_sys::fuzz_target;
use net::wire::{self, Ends, Ips, Packet, Sums};

const ETHERNET_BYTES: usize = wire::ETHERNET_BYTES;
const UDP_BYTES: usize = 8;

fuzz_target!(|data: &[u8]| {
    // Random bytes rarely have correct checksums, so the first byte tells which ones to correct.
    let Some((right, data)) = data.split_first() else { return };
    let mut frame = data.to_vec();
    if right & 1 != 0 {
        put_right_header(&mut frame);
    }
    if right & 2 != 0 {
        put_right_udp(&mut frame);
    }
    let whole = wire::read(&frame, Sums::Whole);
    let partial = wire::read(&frame, Sums::PartialToo);
    if let Ok(packet) = whole {
        assert_eq!(partial, Ok(packet));
        check_sums(&frame, &packet);
    }
    let Ok(Packet { ends, payload_bytes }) = partial else {
        assert!(whole.is_err());
        return;
    };
    let payload = &frame[ends.header_bytes()..][..payload_bytes];
    let mut written = [&vec![0xaa; ends.header_bytes()][..], payload].concat();
    assert!(wire::write(&mut written, &ends));
    assert_eq!(wire::read(&written, Sums::Whole), Ok(Packet { ends, payload_bytes }));
    assert_eq!(ends.reversed().reversed(), ends);
});

/// Returns the one's complement sum of all 16-bit words (RFC 1071, section 1).
fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    bytes.chunks(2).fold(0_u16, |sum, pair| {
        let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        let (sum, carries) = sum.overflowing_add(word);
        sum + u16::from(carries)
    })
}

fn udp_sum(frame: &[u8], ends: &Ends, payload_bytes: usize) -> u16 {
    let at = ends.header_bytes() - UDP_BYTES;
    let packet = &frame[at..at + UDP_BYTES + payload_bytes];
    let bytes = u16::try_from(packet.len()).unwrap_or(0).to_be_bytes();
    let tail = [0, 17, bytes[0], bytes[1]];
    match ends.ips {
        Ips::V4 { from, to } => sum(&[&from.octets(), &to.octets(), &tail, packet]),
        Ips::V6 { from, to } => sum(&[&from.octets(), &to.octets(), &tail, packet]),
    }
}

fn check_sums(frame: &[u8], packet: &Packet) {
    let ends = &packet.ends;
    let is_v4 = matches!(ends.ips, Ips::V4 { .. });
    if is_v4 {
        assert_eq!(sum(&[&frame[ETHERNET_BYTES..ETHERNET_BYTES + 20]]), 0xffff);
    }
    let is_left_out = frame[ends.header_bytes() - 2..ends.header_bytes()] == [0, 0];
    let is_right = udp_sum(frame, ends, packet.payload_bytes) == 0xffff;
    assert!(is_right || (is_v4 && is_left_out));
}

fn put_right_header(frame: &mut [u8]) {
    let Some(header) = frame.get_mut(ETHERNET_BYTES..ETHERNET_BYTES + 20) else { return };
    header[10..12].fill(0);
    let right = !sum(&[header]);
    header[10..12].copy_from_slice(&right.to_be_bytes());
}

fn put_right_udp(frame: &mut [u8]) {
    let (ips, at) = match frame.get(12..14) {
        Some([0x86, 0xdd]) => (22..54, 54),
        _ => (26..34, 34),
    };
    let Some(header) = frame.get_mut(at..at + UDP_BYTES) else { return };
    header[6..].fill(0);
    let bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let tail = [0, 17, header[4], header[5]];
    let Some(packet) = frame.get(at..at + bytes) else { return };
    let right = !sum(&[&frame[ips], &tail, packet]);
    let right = if right == 0 { 0xffff } else { right };
    frame[at + 6..at + UDP_BYTES].copy_from_slice(&right.to_be_bytes());
}
