//! Tests that the server's parser decodes the client's requests, and that the client decodes
//! answers that are cut in two at any byte.
//!
//! Where: unit tests of `wire`. Invariant: randomness is seeded.

mod quick;

use super::*;
use crate::workload::{Verb, Workload};
use protocol::binary::Header;
use protocol::request::{Delete, Get, Meta, Store};
use protocol::resp::{Command, Decoded};
use protocol::{ProtocolMode, Request, Session, Step};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::Arc;

fn names() -> Names {
    Names::new(&Arc::new(Workload::preset("uniform").unwrap()))
}

fn key(key: u64) -> Vec<u8> {
    let mut name = Vec::new();
    names().key(key, &mut name);
    name
}

fn value(key: u64, bytes: u32) -> Vec<u8> {
    let mut value = Vec::new();
    names().value(key, bytes, &mut value);
    value
}

fn written(protocol: Protocol, verb: Verb, keys: &[u64], value_bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let request = WireRequest { verb, keys, value_bytes, exptime_s: 60, number: 0x1234 };
    Writer::new(protocol, names()).write(&request, &mut out);
    out
}

fn understood(bytes: &[u8]) -> Vec<String> {
    let mut session = Session::new(ProtocolMode::Auto);
    let (mut at, mut words) = (0, Vec::new());
    while at < bytes.len() {
        match session.next(&bytes[at..]) {
            Step::Request(request, used) => {
                at += used;
                words.push(word(&request));
            }
            Step::Skip(used) => at += used,
            other => panic!("{other:?} at {at} of {}", bytes.escape_ascii()),
        }
    }
    words
}

fn word(request: &Request<'_>) -> String {
    let tagged = request.tag().map_or(String::new(), |tag| format!(" #{:x}", tag.opaque));
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let what = match *request {
        Request::Get(Get { key, .. }) => format!("get {}", shown(key)),
        Request::Store(Store { verb, key, exptime, value, .. }) => {
            format!("{verb:?} {} {exptime} {}", shown(key), shown(value))
        }
        Request::Delete(Delete { key, .. }) => format!("delete {}", shown(key)),
        Request::Meta(Meta { verb, key, flags, value, .. }) => {
            let flags: Vec<_> = flags.tokens().map(shown).collect();
            format!("{verb:?} {} {} {}", shown(key), flags.join(" "), shown(value))
        }
        Request::Noop(_) => "noop".to_owned(),
        other => panic!("{other:?}"),
    };
    what + &tagged
}

#[test]
fn a_server_understands_what_is_written() {
    let text = |key: &[u8]| key.escape_ascii().to_string();
    let (a, b) = (text(&key(7)), text(&key(8)));
    let stored = text(&value(7, 5));
    let one = |protocol, verb| understood(&written(protocol, verb, &[7], 5));
    let two = |protocol| understood(&written(protocol, Verb::Get, &[7, 8], 0));
    assert_eq!(one(Protocol::Text, Verb::Get), [format!("get {a}")]);
    assert_eq!(two(Protocol::Text), [format!("get {a}"), format!("get {b}")]);
    assert_eq!(one(Protocol::Text, Verb::Set), [format!("Set {a} 60 {stored}")]);
    assert_eq!(one(Protocol::Text, Verb::Append), [format!("Append {a} 60 {stored}")]);
    assert_eq!(one(Protocol::Text, Verb::Add), [format!("Add {a} 60 {stored}")]);
    assert_eq!(one(Protocol::Text, Verb::Replace), [format!("Replace {a} 60 {stored}")]);
    assert_eq!(one(Protocol::Text, Verb::Delete), [format!("delete {a}")]);
    let tag = |index, several| Tag::new(0x1234, index, several).0;
    let (only, first, second) = (tag(0, false), tag(0, true), tag(1, true));
    assert_eq!(one(Protocol::Meta, Verb::Get), [format!("Get {a} v O{only} ")]);
    assert_eq!(
        two(Protocol::Meta),
        [format!("Get {a} v q O{first} "), format!("Get {b} v q O{second} "), "noop".to_owned()]
    );
    assert_eq!(one(Protocol::Meta, Verb::Set), [format!("Set {a} O{only} T60 {stored}")]);
    assert_eq!(one(Protocol::Meta, Verb::Append), [format!("Set {a} MA O{only} {stored}")]);
    assert_eq!(one(Protocol::Meta, Verb::Add), [format!("Set {a} ME O{only} T60 {stored}")]);
    assert_eq!(one(Protocol::Meta, Verb::Replace), [format!("Set {a} MR O{only} T60 {stored}")]);
    assert_eq!(one(Protocol::Meta, Verb::Delete), [format!("Delete {a} O{only} ")]);
    assert_eq!(one(Protocol::Binary, Verb::Get), [format!("get {a} #{only:x}")]);
    assert_eq!(
        two(Protocol::Binary),
        [format!("get {a} #{first:x}"), format!("get {b} #{second:x}"), format!("noop #{only:x}")]
    );
    assert_eq!(one(Protocol::Binary, Verb::Set), [format!("Set {a} 60 {stored} #{only:x}")]);
    assert_eq!(one(Protocol::Binary, Verb::Append), [format!("Append {a} 0 {stored} #{only:x}")]);
    assert_eq!(one(Protocol::Binary, Verb::Add), [format!("Add {a} 60 {stored} #{only:x}")]);
    assert_eq!(
        one(Protocol::Binary, Verb::Replace),
        [format!("Replace {a} 60 {stored} #{only:x}")]
    );
    assert_eq!(one(Protocol::Binary, Verb::Delete), [format!("delete {a} #{only:x}")]);
}

#[test]
fn redis_understands_what_is_written() {
    let words = |verb, keys: &[u64]| -> Vec<Vec<u8>> {
        let bytes = written(Protocol::Resp, verb, keys, 5);
        match Command::decode(&bytes) {
            Decoded::Whole(command, used) if used == bytes.len() => {
                command.words().map(<[u8]>::to_vec).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let (a, b, stored) = (key(7), key(8), value(7, 5));
    assert_eq!(words(Verb::Get, &[7]), [b"GET".to_vec(), a.clone()]);
    assert_eq!(words(Verb::Get, &[7, 8]), [b"MGET".to_vec(), a.clone(), b]);
    assert_eq!(words(Verb::Delete, &[7]), [b"DEL".to_vec(), a.clone()]);
    assert_eq!(words(Verb::Append, &[7]), [b"APPEND".to_vec(), a.clone(), stored.clone()]);
    let set = [b"SET".to_vec(), a, stored, b"EX".to_vec(), b"60".to_vec()];
    assert_eq!(words(Verb::Set, &[7]), set);
    assert_eq!(words(Verb::Add, &[7]), [&set[..], &[b"NX".to_vec()]].concat());
    assert_eq!(words(Verb::Replace, &[7]), [&set[..], &[b"XX".to_vec()]].concat());
}

/// Describes all pieces of a stream, and returns their length; `None` if the stream is broken.
fn pieces(protocol: Protocol, bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut reader = Reader::new(protocol);
    let (mut at, mut words) = (0, Vec::new());
    loop {
        match reader.next(&bytes[at..]) {
            ReadOutcome::Piece(piece, used) => {
                assert!(used > 0 && used <= bytes.len() - at);
                at += used;
                let tag = piece.tag.map_or(String::new(), |tag| format!(" #{:x}", tag.0));
                let end = if piece.ends { "." } else { "" };
                words.push(format!("{}{tag}{end}", describe_content(&piece.content)));
            }
            ReadOutcome::More => return Some((words, at)),
            ReadOutcome::Broken => return None,
        }
    }
}

fn describe_content(content: &Content<'_>) -> String {
    match content {
        Content::Value(key, value) => {
            let key = key.map_or(String::new(), |key| key.escape_ascii().to_string());
            format!("{key}={}", value.escape_ascii())
        }
        Content::Refused(_) => "Refused".to_owned(),
        other => format!("{other:?}"),
    }
}

fn frame(opcode: u8, status: u16, opaque: u32, parts: [&[u8]; 3]) -> Vec<u8> {
    let [extras, key, value] = parts;
    let header = Header {
        magic: protocol::binary::MAGIC_REPLY,
        opcode,
        status,
        key_bytes: u16::try_from(key.len()).unwrap(),
        extras_bytes: u8::try_from(extras.len()).unwrap(),
        body_bytes: u32::try_from(extras.len() + key.len() + value.len()).unwrap(),
        opaque,
        ..Header::default()
    };
    [&header.to_bytes()[..], extras, key, value].concat()
}

#[test]
fn a_refusal_has_the_servers_words() {
    let binary = frame(0x01, 0x82, 10, [b"", b"", b"Out of memory"]);
    let streams: [(Protocol, &[u8], &[u8]); 6] = [
        (Protocol::Text, b"SERVER_ERROR no room\r\n", b"SERVER_ERROR no room"),
        (Protocol::Text, b"ERROR\r\n", b"ERROR"),
        (Protocol::Meta, b"CLIENT_ERROR bad\r\n", b"CLIENT_ERROR bad"),
        (Protocol::Resp, b"-OOM no\r\n", b"OOM no"),
        (Protocol::Resp, b"-ERR no\r\n", b"ERR no"),
        (Protocol::Binary, &binary, b"SERVER_ERROR out of memory"),
    ];
    for (protocol, bytes, expected) in streams {
        let ReadOutcome::Piece(Piece { content, ends: true, .. }, used) =
            Reader::new(protocol).next(bytes)
        else {
            panic!("{}", bytes.escape_ascii());
        };
        let words = content.error_text().escape_ascii().to_string();
        assert_eq!((words, used), (expected.escape_ascii().to_string(), bytes.len()));
    }
}

/// For each protocol, returns a stream and the descriptions of the stream's pieces.
fn streams() -> Vec<(Protocol, Vec<u8>, Vec<&'static str>)> {
    let text: &[u8] =
        b"VALUE k 0 2\r\nhi\r\nEND\r\nVALUE a 0 0\r\n\r\nVALUE b 7 1 9\r\nx\r\nEND\r\n\
        END\r\nSTORED\r\nNOT_FOUND\r\nDELETED\r\nSERVER_ERROR out of memory\r\nNOT_STORED\r\n";
    let meta: &[u8] = b"VA 2 O5\r\nhi\r\nEN\r\nHD O6\r\nVA 1 t0 O32775 s1\r\nx\r\nMN\r\nNS O8\r\n\
        NF O9\r\nCLIENT_ERROR bad\r\n";
    let resp: &[u8] = b"$2\r\nhi\r\n$-1\r\n+OK\r\n:1\r\n:0\r\n*2\r\n$1\r\nx\r\n$-1\r\n-ERR no\r\n";
    let binary = [
        frame(0x0c, 0, 5, [&[0; 4], b"k", b"hi"]),
        frame(0x0c, 1, 6, [b"", b"k", b"Not found"]),
        frame(0x0d, 0, 0x8007, [&[0; 4], b"k", b"x"]),
        frame(0x0a, 0, 7, [b"", b"", b""]),
        frame(0x01, 0, 8, [b"", b"", b""]),
        frame(0x04, 1, 9, [b"", b"", b"Not found"]),
        frame(0x01, 0x82, 10, [b"", b"", b"Out of memory"]),
    ];
    vec![
        (
            Protocol::Text,
            text.to_vec(),
            vec![
                "k=hi.", "a=", "b=x.", "End.", "Done.", "NotDone.", "Done.", "Refused.", "NotDone.",
            ],
        ),
        (
            Protocol::Meta,
            meta.to_vec(),
            vec![
                "=hi #5.",
                "Absent.",
                "Done #6.",
                "=x #8007",
                "End.",
                "NotDone #8.",
                "NotDone #9.",
                "Refused.",
            ],
        ),
        (
            Protocol::Resp,
            resp.to_vec(),
            vec![
                "=hi.",
                "Absent.",
                "Done.",
                "Count(1).",
                "Count(0).",
                "End",
                "=x",
                "Absent.",
                "Refused.",
            ],
        ),
        (
            Protocol::Binary,
            binary.concat(),
            vec![
                "k=hi #5.",
                "Absent #6.",
                "k=x #8007",
                "End #7.",
                "Done #8.",
                "NotDone #9.",
                "Refused #a.",
            ],
        ),
    ]
}

#[test]
fn answers_are_read_wherever_the_stream_is_cut() {
    for (protocol, bytes, expected) in streams() {
        assert_eq!(pieces(protocol, &bytes), Some((owned(&expected), bytes.len())), "{protocol:?}");
        for cut in 0..bytes.len() {
            let (mut words, used) = pieces(protocol, &bytes[..cut]).unwrap();
            if protocol == Protocol::Resp {
                // A RESP reader counts the elements that an array still lacks, so a new reader
                // cannot continue within an array.
                assert!(words.len() <= expected.len() && used <= cut);
                continue;
            }
            words.extend(pieces(protocol, &bytes[used..]).unwrap().0);
            let plain =
                |words: &[String]| words.iter().flat_map(|word| apart(word)).collect::<Vec<_>>();
            assert_eq!(plain(&words), plain(&owned(&expected)), "{protocol:?} cut at {cut}");
        }
    }
}

/// Splits the last value of a reply into a value and a separate `End`, as if `END` came later.
fn apart(word: &str) -> Vec<String> {
    match word.strip_suffix('.') {
        Some(value) if value.contains('=') && !value.contains('#') => {
            vec![value.to_owned(), "End.".to_owned()]
        }
        _ => vec![word.to_owned()],
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn nonsense_is_broken_and_never_a_panic() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut broken = 0;
    for (protocol, good, _) in streams() {
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            let index = |random: &mut Xoshiro256PlusPlus, below: usize| {
                usize::try_from(random.next_u64() % below as u64).unwrap()
            };
            for _ in 0..=index(&mut random, 3) {
                let at = index(&mut random, bytes.len());
                let [byte, ..] = random.next_u64().to_le_bytes();
                bytes[at] = byte;
            }
            broken += usize::from(pieces(protocol, &bytes).is_none());
        }
    }
    assert!(broken > 1000, "{broken}");
    for protocol in PROTOCOLS {
        assert_eq!(pieces(protocol, b"HTTP/1.1 400 Bad Request\r\n\r\nVERSION 0\r\n"), None);
    }
}

#[test]
fn tags_hold_number_index_and_kind() {
    for (number, index, several) in [(0, 0, false), (u16::MAX, KEYS_MAX - 1, true), (7, 47, true)] {
        let tag = Tag::new(number, index, several);
        assert_eq!((tag.number(), tag.index(), tag.is_of_several()), (number, index, several));
    }
}
