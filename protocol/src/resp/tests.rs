//! Tests of RESP in both directions.
//!
//! Where: unit tests of `resp`. Invariant: a message without its end reads as `More`.

use super::*;
use proptest::prelude::*;

fn written(reply: Reply<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes
}

fn command_of(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    command(words.len(), &mut bytes);
    words.iter().for_each(|word| bulk(word, &mut bytes));
    bytes
}

#[test]
fn replies_read_back_and_ask_for_more_where_they_are_cut() {
    let replies = [
        Reply::Simple(b"OK"),
        Reply::Error(b"ERR no"),
        Reply::Integer(-12),
        Reply::Integer(i64::MAX),
        Reply::Bulk(b""),
        Reply::Bulk(b"a\r\nb"),
        Reply::Null,
        Reply::Array(0),
        Reply::Array(48),
    ];
    for reply in replies {
        let bytes = written(reply);
        for cut in 0..bytes.len() {
            assert_eq!(Reply::decode(&bytes[..cut]), Decoded::More, "{reply:?} cut at {cut}");
        }
        assert_eq!(Reply::decode(&bytes), Decoded::Whole(reply, bytes.len()));
    }
    assert_eq!(Reply::decode(b"*-1\r\n"), Decoded::Whole(Reply::Null, 5));
}

#[test]
fn commands_read_back_word_by_word() {
    let words: [&[u8]; 4] = [b"MGET", b"a", b"", b"\r\n"];
    let bytes = command_of(&words);
    for cut in 0..bytes.len() {
        assert_eq!(Command::decode(&bytes[..cut]), Decoded::More, "cut at {cut}");
    }
    let Decoded::Whole(command, used) = Command::decode(&bytes) else { panic!("not whole") };
    assert_eq!((command.len(), used), (4, bytes.len()));
    assert_eq!(command.words().collect::<Vec<_>>(), words);
}

#[test]
fn what_nobody_says_is_broken() {
    let long = [b"+", vec![b'a'; LINE_BYTES_MAX].as_slice()].concat();
    let lies: [&[u8]; 10] = [
        b"HTTP/1.1 200 OK\r\n",
        b"+OK\n",
        b":\r\n",
        b":1x\r\n",
        b":9223372036854775808\r\n",
        b"$\r\n",
        b"$-2\r\n",
        b"$536870913\r\n",
        b"$1\r\nabc",
        &long,
    ];
    for lie in lies {
        assert_eq!(Reply::decode(lie), Decoded::Broken, "{}", lie.escape_ascii());
    }
    for lie in [&b"*0\r\n"[..], b"*1\r\n:1\r\n", b"*1048577\r\n", b"*1\r\n*1\r\n"] {
        assert_eq!(Command::decode(lie), Decoded::Broken, "{}", lie.escape_ascii());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_and_within_bounds(
        bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), b'0'..=b'9', any::<u8>()],
            0..64,
        )
    ) {
        if let Decoded::Whole(reply, used) = Reply::decode(&bytes) {
            prop_assert!(used <= bytes.len());
            let again = written(reply);
            prop_assert_eq!(Reply::decode(&again), Decoded::Whole(reply, again.len()));
        }
        if let Decoded::Whole(command, used) = Command::decode(&bytes) {
            prop_assert!(used <= bytes.len());
            prop_assert_eq!(command.words().count(), command.len());
        }
    }
}
