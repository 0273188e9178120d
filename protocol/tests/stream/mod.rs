//! Feeds a stream of bytes, cut into pieces, to a session as a connection does.
//!
//! Where: the codec tests and the fuzz targets both include this file.
//! Invariant: no step consumes more bytes than the input has; a `Skip` or `Request` consumes some.
//! Source: the invariants of `protocol/src/session.rs`.

use protocol::{
    Get, GetForm, LINE_BYTES_MAX, ProtocolMode, Request, Session, Step, TailRead, meta,
};

/// A stream's events. The end of a retrieval line is a separate event, because the session may
/// yield the last key before the line's end arrives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// The requests and the ends of retrieval lines, in order.
    pub(crate) list: Vec<String>,
    /// True if the server would have closed the connection.
    pub(crate) closed: bool,
}

impl Events {
    /// True if `cut`, the events of the same stream in other pieces, equals `self`. `cut` may end
    /// early with a close, because the pieces decide if an over-long line closes the connection.
    pub(crate) fn agrees(&self, cut: &Events) -> bool {
        let begins = self.list.get(..cut.list.len()).is_some_and(|begin| begin == cut.list);
        begins && (cut.closed || cut == self)
    }
}

pub(crate) fn feed<'p>(speak: ProtocolMode, pieces: impl IntoIterator<Item = &'p [u8]>) -> Events {
    let mut session = Session::new(speak);
    let mut held = Vec::new();
    let mut events = Events::default();
    for piece in pieces {
        held.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let input = &held[at..];
            match session.next(input) {
                Step::More => {
                    assert!(input.len() < LINE_BYTES_MAX);
                    break;
                }
                Step::Body { request, header_bytes, value_bytes, tail } => {
                    assert!(matches!(request, Request::Store(_) | Request::Meta(_)));
                    assert!(header_bytes <= input.len());
                    let rest = input.get(header_bytes + value_bytes as usize..);
                    assert!(rest.is_none_or(|rest| tail.read(rest) == TailRead::More));
                    break;
                }
                Step::Skip(used) => {
                    assert!(used > 0 && used <= input.len());
                    at += used;
                }
                Step::Request(request, used) => {
                    assert!(used > 0 && used <= input.len());
                    at += used;
                    note(&request, &mut events.list);
                    events.closed |= matches!(request, Request::LastAnswer(_));
                }
                Step::Close => events.closed = true,
            }
            if events.closed {
                return events;
            }
        }
        held.drain(..at);
    }
    events
}

fn note(request: &Request<'_>, list: &mut Vec<String>) {
    match request {
        Request::Get(get) => {
            let (form, ends) = match get.form {
                GetForm::Text { cas, last } => (GetForm::Text { cas, last: false }, last),
                form @ GetForm::Binary(_) => (form, false),
            };
            list.push(format!("{:?}", Get { form, ..*get }));
            if ends {
                list.push("END\r\n".to_owned());
            }
        }
        Request::Answer(answer) => {
            let mut text = Vec::new();
            answer.write(&mut text);
            list.push(String::from_utf8_lossy(&text).into_owned());
        }
        Request::Meta(meta) => {
            let flags = meta::Flags::parse(meta);
            let flags = flags.map(|flags| flags.key(meta, &mut None).to_vec());
            list.push(format!("{meta:?} {flags:?}"));
        }
        other => list.push(format!("{other:?}")),
    }
}
