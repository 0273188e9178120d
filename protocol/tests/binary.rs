//! Tests that the binary codec decodes its own encoding, and decodes streams that are cut anywhere.
//!
//! Where: integration tests, which use only the crate's public interface.
//! Invariant: decoding undoes encoding; the pieces of a stream do not change its requests; a frame
//! whose lengths do not fit its command ends the connection.
//! Source: memcached 1.6.45 `protocol_binary.h`.

mod encode;
mod item;
mod stream;

use item::Item;
use proptest::prelude::*;
use protocol::binary::frame::{Decoded, Frame};
use protocol::binary::opcode::{OPCODES, Shape};
use protocol::binary::{HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST, write};
use protocol::show::Show;
use protocol::{
    Answer, Args, Delete, Delta, Form, Get, GetForm, Initial, Outcome, ProtocolMode, Refusal,
    Request, Session, Stats, Step, Store, Tag,
};
use stream::feed;

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 1..=250)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

#[derive(Clone, Copy, Debug)]
struct Numbers {
    client_flags: u32,
    exptime: u32,
    cas: u64,
    delta: u64,
}

fn request<'a>(
    shape: Shape,
    tag: Tag,
    key: &'a [u8],
    value: &'a [u8],
    numbers: Numbers,
) -> Option<Request<'a>> {
    let form = Form::Binary(tag);
    let Numbers { client_flags, cas, delta, .. } = numbers;
    let exptime = i64::from(numbers.exptime);
    let store = |verb, client_flags, exptime| {
        let terminated = true;
        Request::Store(Store { verb, key, client_flags, exptime, cas, form, value, terminated })
    };
    let get = |exptime| Request::Get(Get { key, exptime, form: GetForm::Binary(tag) });
    Some(match shape {
        Shape::Get { .. } => get(None),
        Shape::GetAndTouch { .. } | Shape::Touch => get(Some(exptime)),
        Shape::Store(verb) => store(verb, client_flags, exptime),
        Shape::Extend(verb) => store(verb, 0, 0),
        Shape::Delete => Request::Delete(Delete { key, cas, form }),
        Shape::Delta { incr } => {
            let initial = Initial { value: delta ^ 1, exptime };
            let initial = (numbers.exptime != u32::MAX).then_some(initial);
            Request::Delta(Delta { incr, key, delta, cas, initial, form })
        }
        Shape::Flush => Request::FlushAll { exptime: Some(exptime), form },
        Shape::Noop => Request::Noop(form),
        Shape::Version => Request::Version(form),
        Shape::Stat => Request::Stats(Stats { args: Args::Word(key), lists: false, form }),
        Shape::Quit => Request::Quit(form),
        Shape::SaslList | Shape::Sasl => return None,
    })
}

proptest! {
    #[test]
    fn every_command_is_read_back(
        key in key(),
        value in value(),
        opaque in any::<u32>(),
        (client_flags, exptime, cas, delta) in any::<(u32, u32, u64, u64)>(),
    ) {
        let numbers = Numbers { client_flags, exptime, cas, delta };
        for opcode in OPCODES {
            let tag = Tag { opcode: opcode.code, quiet: opcode.quiet, opaque };
            let Some(request) = request(opcode.shape, tag, &key, &value, numbers) else { continue };
            let mut bytes = Vec::new();
            encode::request(&request, &mut bytes);
            let read = Session::new(ProtocolMode::Auto).next(&bytes);
            prop_assert_eq!(read, Step::Request(request, bytes.len()), "{}", opcode.name);
        }
    }

    #[test]
    fn answers_are_read_back(
        key in key(),
        value in value(),
        (opaque, client_flags, cas, number) in any::<(u32, u32, u64, u64)>(),
    ) {
        for opcode in OPCODES {
            let tag = Tag { opcode: opcode.code, quiet: false, opaque };
            let mut bytes = Vec::new();
            let value_bytes = u32::try_from(value.len()).unwrap();
            let show = write::Value { key: &key, tag };
            let found = Item { client_flags, value_bytes, cas, ..Item::default() };
            if show.head(&found, &mut bytes) == Some(true) {
                bytes.extend_from_slice(&value);
            }
            let hit = read_whole(&bytes)?;
            prop_assert_eq!((hit.header.opcode, hit.header.opaque), (opcode.code, opaque));
            prop_assert_eq!((hit.header.status, hit.header.cas), (0, cas));
            prop_assert_eq!(hit.extras, &client_flags.to_be_bytes());
            let with_key = matches!(
                opcode.shape,
                Shape::Get { key: true } | Shape::GetAndTouch { key: true },
            );
            prop_assert_eq!(hit.key, if with_key { &key[..] } else { b"" });
            let no_value = opcode.shape == Shape::Touch;
            prop_assert_eq!(hit.value, if no_value { b"" } else { &value[..] });
            bytes.clear();
            show.miss(&mut bytes);
            let miss = read_whole(&bytes)?;
            prop_assert_eq!(miss.header.status, 1);
            prop_assert_eq!(miss.key, if with_key { &key[..] } else { b"" });
            bytes.clear();
            Form::Binary(tag).number(number.into(), cas, &mut bytes);
            prop_assert_eq!(read_whole(&bytes)?.value, &number.to_be_bytes());
            bytes.clear();
            Form::Binary(tag).stat("name", format_args!("{number}"), &mut bytes);
            let digits = number.to_string();
            let stat = read_whole(&bytes)?;
            prop_assert_eq!((stat.key, stat.value), (&b"name"[..], digits.as_bytes()));
        }
    }

    #[test]
    fn a_stream_means_the_same_wherever_it_is_cut(
        frames in proptest::collection::vec(frame(), 1..8),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let stream = frames.concat();
        for speak in [ProtocolMode::Auto, ProtocolMode::Binary] {
            let whole = feed(speak, [&stream[..]]);
            let mut cuts: Vec<usize> =
                cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let cut = feed(speak, cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]));
            prop_assert!(whole.agrees(&cut) && cut.agrees(&whole), "{whole:?}\n{cut:?}");
        }
    }

    #[test]
    fn any_bytes_are_some_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = MAGIC_REPLY;
        }
        if let Decoded::Whole(_, used) = Frame::decode(&bytes) {
            prop_assert!(used <= bytes.len());
        }
    }
}

/// Decodes `bytes`, which must be one answer. Asserts that half of the bytes are incomplete.
fn read_whole(bytes: &[u8]) -> Result<Frame<'_>, TestCaseError> {
    prop_assert_eq!(Frame::decode(&bytes[..bytes.len() / 2]), Decoded::More);
    match Frame::decode(bytes) {
        Decoded::Whole(frame, used) if used == bytes.len() => Ok(frame),
        other => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}

/// Generates a frame; most lengths fit the command. One frame in four states too short a body.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![8 => 0..=0x25u8, 1 => any::<u8>()];
    let extras = prop_oneof![Just(0u8), Just(4), Just(8), Just(20), any::<u8>()];
    let key = prop_oneof![6 => 0..9u16, 1 => 249..252u16, 1 => 65_000..=u16::MAX];
    (opcode, extras, key, 0..20u32, 0..4u32, any::<u32>()).prop_map(
        |(opcode, extras_bytes, key_bytes, value_bytes, lie, opaque)| {
            let bytes = u32::from(extras_bytes) + u32::from(key_bytes) + value_bytes;
            let header = Header {
                magic: MAGIC_REQUEST,
                opcode,
                key_bytes,
                extras_bytes,
                body_bytes: bytes.saturating_sub(u32::from(lie == 0)),
                opaque,
                ..Header::default()
            };
            [&header.to_bytes()[..], &vec![b'x'; bytes as usize]].concat()
        },
    )
}

#[test]
fn a_long_key_is_not_waited_for_in_the_buffer() {
    let header = Header {
        magic: MAGIC_REQUEST,
        key_bytes: u16::MAX,
        body_bytes: 1 << 20,
        ..Header::default()
    };
    let mut session = Session::new(ProtocolMode::Auto);
    assert_eq!(session.next(&header.to_bytes()), Step::Skip(HEADER_BYTES));
    assert_eq!(session.next(&[b'k'; 65_000]), Step::Skip(65_000));
    let tag = Tag { opcode: 0, quiet: false, opaque: 0 };
    let answer = Form::Binary(tag).refused(Refusal::BadFormat);
    let last = Step::Request(Request::LastAnswer(answer), 535);
    assert_eq!(session.next(&[b'k'; 600]), last);
}

#[test]
fn a_quiet_request_is_told_what_failed_and_not_what_succeeded() {
    for quiet in [false, true] {
        let form = Form::Binary(Tag { opcode: 0x1e, quiet, opaque: 7 });
        let said = |say: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            say(&mut bytes);
            bytes
        };
        let status = |bytes: &[u8]| match Frame::decode(bytes) {
            Decoded::Whole(frame, used) if used == bytes.len() => Some(frame.header.status),
            _ => None,
        };
        let success = (!quiet).then_some(0);
        assert_eq!(status(&said(&|out| form.refuse(Refusal::TooLarge, out))), Some(3), "{quiet}");
        assert_eq!(
            status(&said(&|out| form.write_outcome(Outcome::Done, out))),
            success,
            "{quiet}"
        );
        assert_eq!(
            status(&said(&|out| form.write_outcome(Outcome::Stored(9), out))),
            success,
            "{quiet}"
        );
        assert_eq!(status(&said(&|out| form.number(5, 9, out))), success, "{quiet}");
    }
}

#[test]
fn a_number_comes_with_its_cas_unique_and_a_version_is_a_text() {
    let form = Form::Binary(Tag { opcode: 5, quiet: false, opaque: 7 });
    let mut bytes = Vec::new();
    form.number(5, 9, &mut bytes);
    form.write_outcome(Outcome::Stored(11), &mut bytes);
    form.version("1.6.45", &mut bytes);
    form.write_outcome(Outcome::StatsEnd, &mut bytes);
    form.number(-2, 13, &mut bytes);
    let mut rest = &bytes[..];
    let (five, minus_two) = (5_u64.to_be_bytes(), (-2_i64).to_be_bytes());
    for (cas, value) in [(9, &five[..]), (11, b""), (0, b"1.6.45"), (0, b""), (13, &minus_two)] {
        let Decoded::Whole(frame, used) = Frame::decode(rest) else { panic!("{rest:?}") };
        assert_eq!((frame.header.cas, frame.header.opaque, frame.value), (cas, 7, value));
        rest = &rest[used..];
    }
    assert_eq!(rest, b"");
}

#[test]
fn only_its_own_first_byte_makes_a_frame() {
    assert_eq!(Session::new(ProtocolMode::Binary).next(&[b'x'; HEADER_BYTES]), Step::Close);
    assert_eq!(Session::new(ProtocolMode::Binary).next(&[b'x'; HEADER_BYTES - 1]), Step::More);
    let text = Session::new(ProtocolMode::Ascii).next(b"\x80\n");
    let is_line = |answer: Answer| matches!(answer.form, Form::Text { .. });
    assert!(
        matches!(text, Step::Request(Request::Answer(answer), 2) if is_line(answer)),
        "{text:?}"
    );
}
