//! Any bytes, cut anywhere, into the text protocol's parser.
//!
//! Where: `cargo fuzz run --sanitizer none text -- -dict=fuzz/text.dict -max_total_time=20`. The
//! first two bytes of the input say how it is cut, the rest is the stream; replies are decoded from
//! the same bytes.
//! Invariant: no panic; no step consumes more than there is; every step but `More` and `Body`
//! consumes something; what the stream comes to does not depend on the cuts.
//! Source: the invariants of `protocol/src/session.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::reply::Decoded;
use protocol::{Get, LINE_BYTES_MAX, Reply, Request, Session, Speak, Step, answer};

fuzz_target!(|data: &[u8]| {
    let [first, second, stream @ ..] = data else { return };
    let whole = feed(stream, stream.len().max(1));
    for piece_bytes in [usize::from(*first) + 1, usize::from(*second) * 16 + 1] {
        let cut = feed(stream, piece_bytes);
        // Whether an over-long line closes the connection depends on how it arrives; and a line of
        // keys that came whole is checked whole, while an endless one is answered as it arrives.
        if stream.len() < LINE_BYTES_MAX {
            assert_eq!(cut.list[..], whole.list[..cut.list.len()]);
            assert!(cut.closed || cut.list.len() == whole.list.len());
        }
    }
    let mut at = 0;
    while let Decoded::Reply(_, used) = Reply::decode(&stream[at..]) {
        assert!(used > 0 && used <= stream.len() - at);
        at += used;
    }
});

#[derive(Debug, Default, PartialEq, Eq)]
struct Events {
    list: Vec<String>,
    closed: bool,
}

fn feed(stream: &[u8], piece_bytes: usize) -> Events {
    let mut session = Session::new(Speak::Auto);
    let mut events = Events::default();
    let (mut start, mut end) = (0, 0);
    while end < stream.len() {
        end = (end + piece_bytes).min(stream.len());
        loop {
            let input = &stream[start..end];
            match session.next(input) {
                Step::More => {
                    assert!(input.len() < LINE_BYTES_MAX);
                    break;
                }
                Step::Body { request, header_bytes, value_bytes } => {
                    assert!(matches!(request, Request::Store(_) | Request::Meta(_)));
                    assert!(header_bytes <= input.len());
                    assert!(header_bytes + value_bytes as usize + 2 > input.len());
                    break;
                }
                Step::Skip(used) => {
                    assert!(used > 0 && used <= input.len());
                    start += used;
                }
                Step::Request(request, used) => {
                    assert!(used > 0 && used <= input.len());
                    start += used;
                    note(&request, &mut events.list);
                }
                Step::Close => {
                    events.closed = true;
                    return events;
                }
            }
        }
    }
    events
}

/// The end of a retrieval line is an event of its own: it may show after its last key.
fn note(request: &Request<'_>, list: &mut Vec<String>) {
    match request {
        Request::Get(get) => {
            list.push(format!("{:?}", Get { last: false, ..*get }));
            if get.last {
                list.push(answer::END.to_owned());
            }
        }
        Request::Answer(answer) => list.push((*answer).to_owned()),
        Request::Meta(meta) => {
            let flags = protocol::meta::Flags::parse(meta);
            let flags = flags.map(|flags| flags.key(meta, &mut None).to_vec());
            list.push(format!("{meta:?} {flags:?}"));
        }
        other => list.push(format!("{other:?}")),
    }
}
