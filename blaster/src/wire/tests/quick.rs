//! Tests that the fast paths (requests by template, usual answers) agree with the general paths.
//!
//! Where: unit tests of `wire`. Invariant: randomness is seeded.

use super::*;

/// True if `found`, a result of `Reader::next`, is the same answer as `quick`.
fn is_the_same(quick: &UsualAnswer, found: &ReadOutcome<'_>) -> bool {
    let ReadOutcome::Piece(piece, used) = found else { return false };
    let kind = match piece.content {
        Content::Value(..) => UsualKind::Hit,
        Content::Absent | Content::End => UsualKind::Miss,
        Content::Done => UsualKind::Done,
        _ => return false,
    };
    piece.ends && (kind, piece.tag, *used) == (quick.kind, quick.tag, quick.used)
}

/// Counts the answers recognised in a stream. Asserts that `next` reads the same answers.
fn recognised(protocol: Protocol, bytes: &[u8]) -> usize {
    let (mut reader, mut at, mut count) = (Reader::new(protocol), 0, 0);
    while at < bytes.len() {
        let quick = reader.next_usual(&bytes[at..]);
        let found = reader.next(&bytes[at..]);
        if let Some(quick) = quick {
            let shown = bytes[at..].escape_ascii();
            assert!(is_the_same(&quick, &found), "{quick:?}, not {found:?} of {shown}");
            count += 1;
        }
        let ReadOutcome::Piece(_, used) = found else { break };
        at += used;
    }
    count
}

/// Returns a stream of answers in a protocol, and the number of answers that must be recognised.
fn usual(protocol: Protocol) -> (Vec<u8>, usize) {
    match protocol {
        Protocol::Text => {
            let hit = "VALUE a-key-of-20-bytes.... 0 ";
            let (short, other) =
                (format!("{hit}2\r\nhi\r\nEND\r\n"), "VALUE b 0 2\r\nhi\r\nEND\r\n");
            let long = format!("{hit}1000\r\n{}\r\nEND\r\n", "v".repeat(1000));
            let bytes = [&short, &short, &long, &short, "END\r\nSTORED\r\n", other, &long, other];
            // When the length of keys changes, the first answer is not recognised: `next` reads
            // this answer and remembers the new length.
            (bytes.concat().into_bytes(), 5)
        }
        Protocol::Meta => (b"VA 2 O65536\r\nhi\r\nEN\r\nHD O131072\r\nVA 0 O0\r\n\r\n".to_vec(), 4),
        Protocol::Resp => {
            let long = format!("$100000\r\n{}\r\n", "v".repeat(100_000));
            let bytes =
                ["$2\r\nhi\r\n$2\r\nho\r\n$-1\r\n+OK\r\n", &long, &long, "$0\r\n\r\n       "];
            (bytes.concat().into_bytes(), 7)
        }
        Protocol::Binary => {
            let hit = frame(0x0c, 0, 5 << 16, [&[0; 4], b"k", b"hi"]);
            let miss = frame(0x0c, 1, 6 << 16, [b"", b"k", b"Not found"]);
            let done = [0x01, 0x04, 0x0e].map(|opcode| frame(opcode, 0, 7 << 16, [b"", b"", b""]));
            ([hit, miss, done.concat()].concat(), 5)
        }
    }
}

#[test]
fn usual_answers_are_recognised() {
    for protocol in PROTOCOLS {
        let (bytes, count) = usual(protocol);
        assert_eq!(recognised(protocol, &bytes), count, "{protocol:?}");
    }
}

#[test]
fn whatever_is_recognised_is_what_it_is_taken_for() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let below = |random: &mut Xoshiro256PlusPlus, end: usize| {
        usize::try_from(random.next_u64() % end as u64).unwrap()
    };
    let letters = b"\r\n $-+*:0123456789OVAHDENk\0\x81";
    let mut count = 0;
    for (protocol, good, _) in streams() {
        let good = [usual(protocol).0, good].concat();
        for _ in 0..4000 {
            let start = below(&mut random, good.len());
            let mut bytes = [&good[..], &good[start..]].concat();
            for _ in 0..below(&mut random, 4) {
                let at = below(&mut random, bytes.len());
                bytes[at] = letters[below(&mut random, letters.len())];
            }
            bytes.truncate(below(&mut random, bytes.len()) + 1);
            count += recognised(protocol, &bytes);
        }
    }
    assert!(count > 10_000, "{count}");
}

#[test]
fn a_request_by_template_has_the_bytes_of_one_that_is_spelled_out() {
    let sizes = ["36", "8", "20", "4", "250", "12"];
    for (size, protocol) in sizes.iter().flat_map(|size| PROTOCOLS.map(|protocol| (size, protocol)))
    {
        let mut workload = Workload::preset("uniform").unwrap();
        workload.set("key-size", size).unwrap();
        workload.set("keys", "3000000000").unwrap();
        let names = Names::new(&Arc::new(workload));
        let mut writer = Writer::new(protocol, names.clone());
        let mut spelling = Writer::new(protocol, names.clone());
        spelling.templates.fill((None, 0));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        for request in 0..400_u32 {
            let mut keys = [0; 3].map(|_| random.next_u64() % 3_000_000_000).to_vec();
            let verb = VERBS[request as usize % VERBS.len()];
            // The size changes every 100 requests and, from request 300 on, with each request.
            let value_bytes =
                if request < 300 { [0, 5, 70][request as usize / 100] } else { request };
            let value_bytes = if verb.writes() { value_bytes } else { 0 };
            let exptime_s = if verb.makes() { request / 200 } else { 0 };
            let number = u16::try_from(random.next_u64() % 65_536).unwrap();
            keys.truncate(if verb == Verb::Get && request % 4 == 0 { 3 } else { 1 });
            let wire_request = WireRequest { verb, keys: &keys, value_bytes, exptime_s, number };
            let (mut short, mut long) = (b"before".to_vec(), b"before".to_vec());
            writer.write(&wire_request, &mut short);
            spelling.write(&wire_request, &mut long);
            assert_eq!(short.escape_ascii().to_string(), long.escape_ascii().to_string());
        }
        let has_templates = writer.templates.iter().all(|(template, _)| template.is_some());
        assert!(has_templates, "{protocol:?}, keys of {size} bytes");
    }
}
