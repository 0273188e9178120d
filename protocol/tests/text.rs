//! Tests that the text codec decodes its own encoding, and decodes streams that are cut anywhere.
//!
//! Where: integration tests, which use only the crate's public interface.
//! Invariant: decoding undoes encoding; the pieces of a stream do not change its requests.
//! Source: memcached's `protocol.txt`.

mod encode;
mod stream;

use proptest::prelude::*;
use protocol::meta::Flags;
use protocol::reply::Decoded;
use protocol::text::head::HEAD_BYTES_MAX;
use protocol::{
    Delete, Delta, Form, Get, GetForm, LINE_BYTES_MAX, LineTokens, Meta, MetaVerb, ProtocolMode,
    Refusal, Reply, Request, Session, Step, Store, Tail, Verb,
};
use stream::feed;

const VERSION: &str = "Version(Text { noreply: false })";

/// The answer to a key over 250 bytes. memcached sends its line end twice.
const KEY_TOO_LONG: &str = "CLIENT_ERROR bad command line format\r\n\r\n";

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![33..=126u8, 128..=255u8, Just(1u8)];
    proptest::collection::vec(byte, 1..=250)
        .prop_filter("a word of its own", |key| key != b"noreply")
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn read_back(request: &Request<'_>) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    encode::request(request, &mut bytes);
    let mut session = Session::new(ProtocolMode::Auto);
    let mut at = 0;
    loop {
        match session.next(&bytes[at..]) {
            Step::Skip(used) => at += used,
            Step::Request(read, used) => {
                prop_assert_eq!(&read, request);
                prop_assert_eq!(at + used, bytes.len());
                return Ok(());
            }
            other => return Err(TestCaseError::fail(format!("{other:?} of {bytes:?}"))),
        }
    }
}

proptest! {
    #[test]
    fn storage_commands_are_read_back(
        key in key(),
        value in value(),
        (client_flags, exptime, cas, noreply) in any::<(u32, i32, u64, bool)>(),
        which in 0..6usize,
    ) {
        let verb = [
            Verb::Set, Verb::Add, Verb::Replace,
            Verb::Append, Verb::Prepend, Verb::Cas,
        ][which];
        let cas = if verb == Verb::Cas { cas } else { 0 };
        read_back(&Request::Store(Store {
            verb,
            key: &key,
            client_flags,
            exptime: exptime.into(),
            cas,
            form: Form::Text { noreply },
            value: &value,
            terminated: true,
        }))?;
    }

    #[test]
    fn commands_on_a_key_are_read_back(
        key in key(),
        (exptime, delta, noreply, incr) in any::<(i32, u64, bool, bool)>(),
    ) {
        let (key, exptime, form) = (&key[..], i64::from(exptime), Form::Text { noreply });
        read_back(&Request::Delete(Delete { key, cas: 0, form }))?;
        read_back(&Request::Touch { key, exptime, form })?;
        read_back(&Request::Delta(Delta { incr, key, delta, cas: 0, initial: None, form }))?;
        for cas in [false, true] {
            for exptime in [None, Some(exptime)] {
                let form = GetForm::Text { cas, last: true };
                read_back(&Request::Get(Get { key, exptime, form }))?;
            }
        }
        read_back(&Request::FlushAll { exptime: Some(exptime), form })?;
    }

    #[test]
    fn meta_commands_are_read_back(
        key in key(),
        value in value(),
        flags in proptest::collection::vec("[A-Za-z][0-9a-z]{0,9}", 0..15),
        which in 0..4usize,
    ) {
        let text = flags.join(" ");
        let flags = LineTokens::of(text.as_bytes());
        let verbs = [MetaVerb::Get, MetaVerb::Set, MetaVerb::Delete, MetaVerb::Arithmetic];
        let verb = verbs[which];
        let value = if verb == MetaVerb::Set { &value[..] } else { b"" };
        read_back(&Request::Meta(Meta { verb, key: &key, flags, value, terminated: true }))?;
    }

    #[test]
    fn a_line_of_keys_is_read_key_by_key(
        keys in proptest::collection::vec(key(), 1..40),
        cas in any::<bool>(),
        exptime in any::<Option<i32>>(),
    ) {
        let exptime = exptime.map(i64::from);
        let mut bytes = Vec::new();
        encode::get_line(keys.iter().map(Vec::as_slice), cas, exptime, &mut bytes);
        let mut session = Session::new(ProtocolMode::Ascii);
        let (mut at, mut next) = (0, 0);
        while at < bytes.len() {
            match session.next(&bytes[at..]) {
                Step::Skip(used) => at += used,
                Step::Request(Request::Get(get), used) => {
                    at += used;
                    let last = next + 1 == keys.len();
                    let form = GetForm::Text { cas, last };
                    prop_assert_eq!(get, Get { key: &keys[next], exptime, form });
                    next += 1;
                }
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
        }
        prop_assert_eq!(next, keys.len());
    }

    #[test]
    fn replies_are_read_back(
        key in key(),
        value in value(),
        (client_flags, cas, number) in any::<(u32, Option<u64>, u64)>(),
        words in proptest::collection::vec("[a-z][0-9]{0,5}", 0..5),
        text in "[a-z][a-z ]{0,20}",
    ) {
        let flags = words.join(" ");
        let flags = LineTokens::of(flags.as_bytes());
        let text = text.as_bytes();
        for reply in [
            Reply::Value { key: &key, client_flags, cas, value: &value },
            Reply::MetaValue { flags, value: &value },
            Reply::Meta { code: *b"HD", flags },
            Reply::Number(number),
            Reply::Stat(b"name", text),
            Reply::Version(text),
            Reply::ClientError(text),
            Reply::ServerError(text),
            Reply::Line(b"END"),
        ] {
            let mut bytes = Vec::new();
            encode::reply(&reply, &mut bytes);
            prop_assert_eq!(Reply::decode(&bytes), Decoded::Whole(reply, bytes.len()));
            let cut = bytes.len() / 2;
            prop_assert_eq!(Reply::decode(&bytes[..cut]), Decoded::More);
        }
    }

    #[test]
    fn any_bytes_are_some_reply_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Decoded::Whole(_, used) = Reply::decode(&bytes) {
            prop_assert!(used <= bytes.len());
        }
    }
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let plausible = prop_oneof![
        "(get|gets|gat 5|gats x|mg|md|ma|delete|touch|incr)( {1,2}[a-z\r]{1,4}){0,4} {0,2}\r?\n",
        "(set|add|cas|append) k( [0-9]{1,2}){2,4}( noreply)?\r\n[a-c\r\n]{0,12}\r?\n",
        "ms k [0-9]{1,2}( [a-zA-Z!][0-9]?){0,3}\r\n[a-c]{0,12}\r?\n",
        "get k{248,252}( a){0,2}\r\n",
        "set k{250,252} 0 0 3\r\nabc\r\n",
        "[ a-z]{0,6}\r?\n",
        "get( [a-z]{1,90}){20,60}\r\n",
    ];
    prop_oneof![
        6 => plausible.prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(Just(b'x'), 2040..2060),
    ]
}

proptest! {
    #[test]
    fn a_stream_means_the_same_wherever_it_is_cut(
        lines in proptest::collection::vec(line(), 1..8),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let stream = lines.concat();
        let whole = feed(ProtocolMode::Auto, [&stream[..]]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let cut = feed(ProtocolMode::Auto, cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]));
        prop_assert!(whole.agrees(&cut), "{whole:?}\n{cut:?}");
    }
}

#[test]
fn an_endless_line_of_keys_is_answered_as_it_arrives() {
    let keys: Vec<String> = (0..20_000).map(|number| format!("key{number}")).collect();
    let line = format!("gets {}  \r\nversion\r\n", keys.join(" "));
    let events = feed(ProtocolMode::Auto, line.as_bytes().chunks(1000));
    assert_eq!(events.list.len(), keys.len() + 2);
    assert!(events.list[keys.len() - 1].contains("cas: true"));
    assert_eq!(events.list[keys.len()], "END\r\n");
    assert_eq!(events.list[keys.len() + 1], VERSION);
    assert_eq!(events, feed(ProtocolMode::Auto, [line.as_bytes()]));
}

#[test]
fn an_over_long_key_ends_an_endless_line() {
    let line = format!("get {}{} b\r\nversion\r\n", "a ".repeat(10_000), "k".repeat(251));
    let events = feed(ProtocolMode::Auto, line.as_bytes().chunks(1000));
    assert_eq!(events.list.len(), 10_000 + 2);
    assert_eq!(events.list[10_000], KEY_TOO_LONG);
    // If a line arrives whole, the session checks all keys before it yields the first key.
    let events = feed(ProtocolMode::Auto, [line.as_bytes()]);
    assert_eq!(events.list, [KEY_TOO_LONG, VERSION]);
}

#[test]
fn a_long_line_of_anything_else_closes_the_connection() {
    assert!(!feed(ProtocolMode::Auto, [&[b'x'; 2048][..]]).closed);
    assert!(feed(ProtocolMode::Auto, [&[b'x'; 2049][..]]).closed);
    let spaces = [" ".repeat(100), "get ".to_owned(), "k".repeat(3000)].concat();
    assert!(!feed(ProtocolMode::Auto, [spaces.as_bytes()]).closed);
    assert!(feed(ProtocolMode::Auto, [format!(" {spaces}").as_bytes()]).closed);
    assert!(feed(ProtocolMode::Auto, [format!("gat 0 {}", "k ".repeat(1200)).as_bytes()]).closed);
}

#[test]
fn a_line_longer_than_memcacheds_read_buffer_is_a_retrieval() {
    let line = |start: &str, bytes: usize| {
        let fill = "0".repeat(bytes - start.len() - 2);
        format!("{start}{fill}\r\nversion\r\n").into_bytes()
    };
    let starts = [
        "set k 0 0 1000000 ",
        "ms k 1000000 q",
        "ms ",
        "mg k O",
        "mg ",
        "delete k ",
        "mn ",
        "gat 0 ",
        "xyz",
        "  set k 0 0 1 ",
    ];
    for start in starts {
        assert!(!feed(ProtocolMode::Auto, [&line(start, LINE_BYTES_MAX)[..]]).closed, "{start}");
        assert!(feed(ProtocolMode::Auto, [&line(start, LINE_BYTES_MAX + 1)[..]]).closed, "{start}");
    }
    for start in ["get ", "gets k ", " get "] {
        let events = feed(ProtocolMode::Auto, [&line(start, LINE_BYTES_MAX + 1)[..]]);
        assert_eq!(events.list.last().map(String::as_str), Some(VERSION), "{start}");
    }
}

fn head(request: &Request<'_>, value_bytes: u32) -> Vec<u8> {
    let mut head = Vec::new();
    request.short_head(b"", value_bytes, &mut head);
    head
}

/// Asserts that the short form of a line is short, and gives the same request as the line.
fn is_kept(line: &[u8]) -> Result<(), TestCaseError> {
    let mut session = Session::new(ProtocolMode::Ascii);
    let Step::Body { request, value_bytes, .. } = session.next(line) else { return Ok(()) };
    let head = head(&request, value_bytes);
    prop_assert!(head.len() <= HEAD_BYTES_MAX, "{} bytes", head.len());
    let Step::Body { request: again, value_bytes: bytes_again, header_bytes, .. } =
        session.next(&head)
    else {
        return Err(TestCaseError::fail(format!("{head:?}")));
    };
    prop_assert_eq!((bytes_again, header_bytes), (value_bytes, head.len()));
    match (request, again) {
        (Request::Meta(meta), Request::Meta(again)) => {
            let flags = |meta| format!("{:?}", Flags::parse(meta));
            prop_assert_eq!((again.key, flags(&again)), (meta.key, flags(&meta)));
            let shown = |meta: Meta<'_>| -> Vec<Vec<u8>> {
                meta.flags
                    .tokens()
                    .map(|token| match token[0] {
                        b'O' => token.to_vec(),
                        letter => vec![letter],
                    })
                    .collect()
            };
            prop_assert_eq!(shown(again), shown(meta));
        }
        (request, again) => prop_assert_eq!(again, request),
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_kept_of_a_line_asks_for_the_same(
        verb in "set|add|replace|append|prepend|cas",
        key in "[a-z]{1,250}",
        flags in "[-+\t]{0,2}[0-9]{1,22}",
        exptime in "[-+\t]{0,2}[0-9]{1,19}",
        more in "( {1,9}[0-9]{1,30}){0,3}( {1,9}[a-z0-9]{1,900}){0,9}( noreply)? {0,2000}",
        end in "\r?\n",
    ) {
        is_kept(format!("{verb} {key} {flags}  {exptime} 100000{more}{end}").as_bytes())?;
    }

    #[test]
    fn what_is_kept_of_a_meta_line_asks_for_the_same(
        key in "[a-zA-Z0-9/+]{1,250}",
        flags in proptest::collection::vec(
            prop_oneof![
                "[bcfhklqstuvxIPL][a-z0-9]{0,900}",
                "M[SARPE]?[a-z]{0,50}",
                "O[a-z0-9]{0,31}",
                "[NTRFCEJD][0-9]{0,12}",
            ],
            0..14,
        ),
    ) {
        let line = format!("ms {key} 100000 {}\r\n", flags.join("  "));
        let Step::Body { request: Request::Meta(meta), .. } =
            Session::new(ProtocolMode::Ascii).next(line.as_bytes())
        else {
            return Ok(());
        };
        if Flags::parse(&meta).is_ok() {
            is_kept(line.as_bytes())?;
        }
    }
}

#[test]
fn a_refused_value_is_swallowed_before_the_answer() {
    let key = "k".repeat(251);
    let line = format!("set {key} 0 0 10\r\n0123456789\r\nget a\r\n");
    let mut session = Session::new(ProtocolMode::Ascii);
    let header = line.find('\n').unwrap() + 1;
    assert_eq!(session.next(line.as_bytes()), Step::Skip(header));
    assert_eq!(session.next(&line.as_bytes()[header..header + 4]), Step::Skip(4));
    assert_eq!(session.next(b""), Step::More);
    let rest = &line.as_bytes()[header + 4..];
    assert_eq!(
        session.next(rest),
        Step::Request(Request::Answer(Form::LINE.refused(Refusal::BadFormat)), 8)
    );
    assert!(matches!(session.next(&rest[8..]), Step::Request(Request::Get(_), 7)));
}

#[test]
fn a_caller_may_refuse_a_value() {
    let mut session = Session::new(ProtocolMode::Ascii);
    let Step::Body { header_bytes, value_bytes, .. } = session.next(b"set k 0 0 100\r\nabc") else {
        panic!("the value is not here");
    };
    assert_eq!((header_bytes, value_bytes), (15, 100));
    session.swallow(value_bytes.into(), Tail::LineEnd, Form::LINE.refused(Refusal::TooLarge));
    assert_eq!(session.next(&[b'x'; 101]), Step::Skip(100));
    assert_eq!(session.next(b"\r"), Step::More);
    // Like memcached, skips two bytes after the value even if they are not a line end.
    for end in [b"\r\n", b"xx"] {
        let answer = Request::Answer(Form::LINE.refused(Refusal::TooLarge));
        assert_eq!(session.clone().next(end), Step::Request(answer, 2));
    }
}
