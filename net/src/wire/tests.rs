//! Tests of frames that are made by hand, made at random, or broken.
//!
//! Where: in memory, without a network.
//! Invariant: in frames made by hand, each field has the bytes that the RFCs define.

use super::*;
use proptest::prelude::*;

const CLIENT: Mac = Mac([0x02, 0, 0, 0, 0, 0x0c]);
const SERVER: Mac = Mac([0x02, 0, 0, 0, 0, 0x05]);

/// A frame with `get a` from 192.0.2.1:40000 to 192.0.2.2:11211. Another program computed the sums.
const V4: &str = "02000000000502000000000c0800 \
    4500002b000040004011b6be c0000201c0000202 \
    9c402bcb00176d15 0007000000010000 67657420610d0a";
/// The same datagram over IPv6, from 2001:db8::1 to 2001:db8::2.
const V6: &str = "02000000000502000000000c86dd \
    6000000000171140 20010db8000000000000000000000001 20010db8000000000000000000000002 \
    9c402bcb001795a4 0007000000010000 67657420610d0a";
const PAYLOAD: &[u8] = b"\x00\x07\0\0\0\x01\0\0get a\r\n";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn ends(from: &str, to: &str) -> Ends {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let ips = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ips::V4 { from, to },
        (IpAddr::V6(from), IpAddr::V6(to)) => Ips::V6 { from, to },
        _ => panic!("addresses of two families"),
    };
    let ports = Ports { from: from.port(), to: to.port() };
    Ends { macs: Macs { from: CLIENT, to: SERVER }, ips, ports }
}

fn both() -> [(Vec<u8>, Ends); 2] {
    [
        (bytes(V4), ends("192.0.2.1:40000", "192.0.2.2:11211")),
        (bytes(V6), ends("[2001:db8::1]:40000", "[2001:db8::2]:11211")),
    ]
}

fn written(ends: &Ends, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xaa; ends.header_bytes()];
    frame.extend_from_slice(payload);
    assert!(write(&mut frame, ends));
    frame
}

/// Returns a frame with the bytes from `at` on replaced by `new`. The checksum of an IPv4 header is
/// recomputed, unless `at` lies in it.
fn with(frame: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + new.len()].copy_from_slice(new);
    if frame[12..14] == [8, 0] && !(24..26).contains(&at) {
        frame[24..26].fill(0);
        let sum = checksum::Sum::default().add(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum);
    }
    frame
}

#[test]
fn frames_made_by_hand_are_read_and_written_byte_for_byte() {
    for (frame, ends) in both() {
        let packet = read(&frame, Sums::Whole).unwrap();
        assert_eq!(packet, Packet { ends, payload_bytes: PAYLOAD.len() });
        assert_eq!(&frame[ends.header_bytes()..], PAYLOAD);
        assert_eq!(written(&ends, PAYLOAD), frame);
        assert_eq!(ends.from().port(), 40_000);
        assert_eq!(ends.to().port(), 11_211);
        // Padding up to Ethernet's minimum frame length is not part of the packet.
        let padded = [&frame[..], &[7; 20]].concat();
        assert_eq!(read(&padded, Sums::Whole), Ok(packet));
    }
}

/// The checksum of `write_partly` covers only the pseudo header, not the bytes after the headers.
#[test]
fn headers_of_a_packet_whose_rest_lies_elsewhere_are_those_of_the_whole_but_for_the_sum() {
    for (whole, ends) in both() {
        for bytes in [0, 1, 7, PAYLOAD.len()] {
            let mut frame = [&vec![0xaa; ends.header_bytes()], &PAYLOAD[..bytes]].concat();
            let sum = write_partly(&mut frame, PAYLOAD.len() - bytes, &ends).unwrap();
            let at = ends.header_bytes() - 8;
            assert_eq!((usize::from(sum.from), sum.offset), (at, 6));
            frame.extend_from_slice(&PAYLOAD[bytes..]);
            assert_eq!(read(&frame, Sums::Whole), Err(Rejected::Checksum));
            assert_eq!(read(&frame, Sums::PartialToo).unwrap().payload_bytes, PAYLOAD.len());
            let made = checksum::Sum::default().add(&frame[at..]).checksum();
            frame[at + 6..at + 8].copy_from_slice(&made);
            assert_eq!(frame, whole);
        }
        let mut frame = vec![0; ends.header_bytes()];
        assert_eq!(write_partly(&mut frame, usize::from(u16::MAX) - 7, &ends), None, "too long");
        assert_eq!(write_partly(&mut [0; 41], 100, &ends), None, "no room for headers");
    }
}

#[test]
fn headers_of_a_packet_in_parts_are_those_of_the_whole_wherever_it_is_cut() {
    for (whole, ends) in both() {
        let end = whole.len();
        let cuts = (ends.header_bytes()..=end).flat_map(|at| (at..=end).map(move |it| (at, it)));
        for (first, second) in cuts {
            let [a, b] = [&whole[first..second], &whole[second..]];
            let rest = Sum::default().add_behind(first, a).add_behind(second, b);
            let mut frame = whole[..first].to_vec();
            frame[..ends.header_bytes()].fill(0xaa);
            assert!(write_before(&mut frame, end - first, rest, &ends));
            assert_eq!([&frame, a, b].concat(), whole, "cut at {first} and {second}");
        }
        let mut frame = vec![0; ends.header_bytes()];
        let too_long = usize::from(u16::MAX) - 7;
        assert!(!write_before(&mut frame, too_long, Sum::default(), &ends));
    }
}

#[test]
fn an_answer_goes_back_to_where_the_packet_came_from() {
    for (frame, ends) in both() {
        let back = read(&frame, Sums::Whole).unwrap().ends.reversed();
        assert_eq!((back.from(), back.to()), (ends.to(), ends.from()));
        assert_eq!(back.macs, Macs { from: SERVER, to: CLIENT });
        assert_eq!(back.reversed(), ends);
        let answer = written(&back, b"END\r\n");
        assert_eq!(read(&answer, Sums::Whole), Ok(Packet { ends: back, payload_bytes: 5 }));
    }
}

#[test]
fn a_frame_that_ends_early_is_short_or_lies_about_its_length() {
    for (frame, ends) in both() {
        let ip_end = ends.header_bytes() - udp::HEADER_BYTES;
        for bytes in 0..frame.len() {
            let expected = if bytes < ip_end { Rejected::Short } else { Rejected::Length };
            assert_eq!(read(&frame[..bytes], Sums::Whole), Err(expected), "{bytes} bytes");
        }
    }
}

#[test]
fn what_is_not_ours_is_told_by_its_reason() {
    use Rejected::*;
    let [(v4, _), (v6, _)] = both();
    let cases: [(&[u8], usize, &[u8], Rejected); 30] = [
        (&v4, 0, &[0xff; 6], Group),
        (&v4, 0, &[0x01, 0x00, 0x5e], Group),
        (&v6, 0, &[0x33, 0x33], Group),
        (&v4, 6, &[0x03], Group),
        (&v4, 6, &[0; 6], Group),
        (&v4, 12, &[0x81, 0x00], Tagged),
        (&v6, 12, &[0x88, 0xa8], Tagged),
        (&v4, 12, &[0x91, 0x00], Tagged),
        (&v4, 12, &[0x08, 0x06], NotIp),
        (&v4, 14, &[0x65], NotIp),
        (&v6, 14, &[0x45], NotIp),
        (&v4, 14, &[0x46], Options),
        (&v4, 14, &[0x44], Length),
        (&v4, 24, &[0x12, 0x34], HeaderChecksum),
        (&v4, 20, &[0x20, 0x00], Fragment),
        (&v4, 20, &[0x00, 0x01], Fragment),
        (&v4, 23, &[6], NotUdp),
        (&v6, 20, &[6], NotUdp),
        (&v6, 20, &[0], Extension),
        (&v6, 20, &[44], Extension),
        (&v4, 16, &[0, 19], Length),
        (&v4, 16, &[0xff, 0xff], Length),
        (&v6, 18, &[0, 7], Length),
        (&v6, 18, &[0xff, 0xff], Length),
        (&v4, 38, &[0, 7], Length),
        (&v4, 38, &[0, 24], Length),
        (&v6, 58, &[0, 0], Length),
        (&v4, 49, b"G", Checksum),
        (&v6, 61, &[0], Checksum),
        (&v6, 60, &[0, 0], Checksum),
    ];
    for (frame, at, new, expected) in cases {
        let frame = with(frame, at, new);
        assert_eq!(read(&frame, Sums::Whole), Err(expected), "{new:x?} at {at}");
    }
    for (number, reason) in Rejected::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, number);
    }
}

#[test]
fn whom_nobody_could_answer_has_sent_nothing() {
    let sent = |from: &str| {
        let to = if from.starts_with('[') { "[2001:db8::2]:11211" } else { "192.0.2.2:11211" };
        read(&written(&ends(from, to), PAYLOAD), Sums::Whole).map(|packet| packet.payload_bytes)
    };
    for from in ["192.0.2.1:1", "10.0.0.255:1", "[fe80::1]:1", "[2001:db8::1]:0"] {
        assert_eq!(sent(from), Ok(PAYLOAD.len()), "{from}");
    }
    for from in [
        "192.0.2.2:1",
        "224.0.0.1:1",
        "255.255.255.255:1",
        "0.0.0.0:1",
        "127.0.0.1:1",
        "[2001:db8::2]:1",
        "[ff02::1]:1",
        "[::]:1",
        "[::1]:1",
    ] {
        assert_eq!(sent(from), Err(Rejected::Sender), "{from}");
    }
}

#[test]
fn a_checksum_may_be_left_out_over_ipv4_only() {
    let [(v4, _), (v6, _)] = both();
    let without = with(&v4, 40, &[0, 0]);
    assert!(read(&without, Sums::Whole).is_ok());
    assert_eq!(read(&with(&without, 49, b"G"), Sums::Whole).unwrap().payload_bytes, 15);
    assert_eq!(read(&with(&v6, 60, &[0, 0]), Sums::PartialToo), Err(Rejected::Checksum));
}

/// Another program computed the sums of the addresses, protocol number 17 and length 23.
#[test]
fn a_partial_checksum_is_right_only_where_it_is_expected() {
    for ((frame, ends), partial) in both().into_iter().zip([[0x84, 0x2c], [0x5b, 0x9d]]) {
        let frame = with(&frame, ends.header_bytes() - 2, &partial);
        assert_eq!(read(&frame, Sums::Whole), Err(Rejected::Checksum));
        assert_eq!(read(&frame, Sums::PartialToo).map(|packet| packet.ends), Ok(ends));
        let wrong = with(&frame, ends.header_bytes() - 1, &[partial[1] + 1]);
        assert_eq!(read(&wrong, Sums::PartialToo), Err(Rejected::Checksum));
        assert!(both().iter().all(|(whole, _)| read(whole, Sums::PartialToo).is_ok()));
    }
}

#[test]
fn a_checksum_that_comes_to_zero_is_written_as_all_ones() {
    for (_, ends) in both() {
        let without = written(&ends, &[0, 0]);
        let sum = &without[ends.header_bytes() - 2..ends.header_bytes()];
        // With the packet's checksum as payload, the sum is all ones, and the checksum would be 0.
        let frame = written(&ends, sum);
        assert_eq!(frame[ends.header_bytes() - 2..ends.header_bytes()], [0xff; 2]);
        assert_eq!(read(&frame, Sums::Whole).map(|packet| packet.ends), Ok(ends));
    }
}

#[test]
fn options_behind_the_payload_are_left_alone() {
    let ends = ends("192.0.2.1:40000", "192.0.2.2:11211");
    let mut frame = written(&ends, PAYLOAD);
    frame.extend_from_slice(&[1; 5]);
    let bytes = u8::try_from(frame.len() - ethernet::HEADER_BYTES).unwrap();
    let frame = with(&frame, 16, &[0, bytes]);
    assert_eq!(read(&frame, Sums::Whole), Ok(Packet { ends, payload_bytes: PAYLOAD.len() }));
}

#[test]
fn what_is_no_packet_is_not_written() {
    for (_, ends) in both() {
        for bytes in 0..ends.header_bytes() {
            assert!(!write(&mut vec![0; bytes], &ends), "{bytes} bytes");
        }
        let most = usize::from(u16::MAX)
            + match ends.ips {
                Ips::V4 { .. } => ethernet::HEADER_BYTES,
                Ips::V6 { .. } => ethernet::HEADER_BYTES + ipv6::HEADER_BYTES,
            };
        let mut frame = vec![7; most + 1];
        assert!(!write(&mut frame, &ends));
        assert!(write(&mut frame[..most], &ends));
        assert!(read(&frame[..most], Sums::Whole).is_ok());
    }
}

fn any_ends() -> impl Strategy<Value = Ends> {
    let macs = (any::<[u8; 6]>(), any::<[u8; 6]>()).prop_map(|(mut from, mut to)| {
        (from[0], to[0]) = (from[0] & 0xfe | 2, to[0] & 0xfe | 2);
        Macs { from: Mac(from), to: Mac(to) }
    });
    let ips = prop_oneof![
        (any::<[u8; 4]>(), any::<[u8; 4]>())
            .prop_map(|(from, to)| Ips::V4 { from: from.into(), to: to.into() }),
        (any::<[u8; 16]>(), any::<[u8; 16]>())
            .prop_map(|(from, to)| Ips::V6 { from: from.into(), to: to.into() }),
    ];
    let ports = (any::<u16>(), any::<u16>()).prop_map(|(from, to)| Ports { from, to });
    (macs, ips, ports)
        .prop_filter("a single sender", |(_, ips, _)| is_from_another(ips))
        .prop_map(|(macs, ips, ports)| Ends { macs, ips, ports })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        ends in any_ends(),
        payload in prop::collection::vec(any::<u8>(), 0..1500),
    ) {
        let frame = written(&ends, &payload);
        let packet = Packet { ends, payload_bytes: payload.len() };
        prop_assert_eq!(read(&frame, Sums::Whole), Ok(packet));
        prop_assert_eq!(&frame[ends.header_bytes()..], &payload[..]);
    }

    /// A flipped bit may go unnoticed in three places: the Ethernet addresses, which no checksum
    /// protects; traffic class, flow label and hop limit of IPv6, which may have any value; and the
    /// UDP length, which determines the bytes that are summed.
    #[test]
    fn a_bit_that_flips_is_noticed(
        ends in any_ends(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut frame = written(&ends, &payload);
        let first = ethernet::HEADER_BYTES;
        let at = first + at.index(frame.len() - first);
        let is_v6 = matches!(ends.ips, Ips::V6 { .. });
        prop_assume!(!is_v6 || !((15..18).contains(&at) || at == 21 || at == 14 && bit < 4));
        prop_assume!(!(ends.header_bytes() - 4..ends.header_bytes() - 2).contains(&at));
        frame[at] ^= 1 << bit;
        let read = read(&frame, Sums::Whole);
        // A checksum of zero means that the packet has no checksum.
        let is_none = !is_v6 && frame[40..42] == [0, 0];
        prop_assert!(read.is_err() || is_none, "{read:?} with bit {bit} of byte {at}");
    }

    #[test]
    fn a_frame_in_pieces_reads_as_the_whole(
        ends in any_ends(),
        payload in prop::collection::vec(any::<u8>(), 0..1500),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        flip in any::<Option<(prop::sample::Index, u8)>>(),
        padding in 0..30_usize,
        sums in prop::sample::select(&[Sums::Whole, Sums::PartialToo][..]),
    ) {
        let mut frame = written(&ends, &payload);
        frame.resize(frame.len() + padding, 0);
        if let Some((at, byte)) = flip {
            let at = at.index(frame.len());
            frame[at] ^= byte;
        }
        let first = ends.header_bytes();
        let mut cuts: Vec<usize> =
            cuts.iter().map(|cut| first + cut.index(frame.len() - first + 1)).collect();
        cuts.push(frame.len());
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &frame[two[0]..two[1]]).collect();
        let parted = read_parted(&frame[..cuts[0]], pieces.iter().copied(), sums);
        prop_assert_eq!(parted, read(&frame, sums));
    }

    #[test]
    fn whatever_comes_is_read_without_harm(
        frame in prop::collection::vec(any::<u8>(), 0..120),
        kind in 0..3_usize,
    ) {
        let mut frame = frame;
        // With a valid beginning, `read` looks at more of the random bytes.
        let [(v4, _), (v6, _)] = both();
        let start = [&[][..], &v4[..20], &v6[..21]][kind];
        let bytes = start.len().min(frame.len());
        frame[..bytes].copy_from_slice(&start[..bytes]);
        if let Ok(packet) = read(&frame, Sums::PartialToo) {
            let end = packet.ends.header_bytes() + packet.payload_bytes;
            prop_assert!(end <= frame.len());
        }
    }
}
