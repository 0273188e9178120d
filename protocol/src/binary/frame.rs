//! The client's half: requests into frames, and frames that a server answers.
//!
//! Where: a load generator writes the ones and reads the others; the tests go both ways.
//! Invariant: a session reads back what `request` wrote; decoding any bytes neither panics nor
//! asks for more than a frame claims, which is at most `BODY_BYTES_MAX`.
//! Source: memcached 1.6.45 `protocol_binary.h`.

use super::{BODY_BYTES_MAX, EXPTIME_NO_CREATE, HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST};
use crate::form::Tag;
use crate::request::{Delta, Request};

/// The first exptime that is a Unix time.
const EXPTIME_PAST: i64 = 60 * 60 * 24 * 30 + 1;
/// Most bytes of extras that a request has.
const EXTRAS_BYTES_MAX: usize = 20;

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// As on the wire.
    pub header: Header,
    /// With a value: the client flags.
    pub extras: &'a [u8],
    /// Where the command shows it; a statistic's name.
    pub key: &'a [u8],
    /// The value, or words that say what is wrong.
    pub value: &'a [u8],
}

/// What came of looking for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not all of it is here.
    More,
    /// An answer, and its length in bytes.
    Frame(Frame<'a>, usize),
    /// No server of this protocol says this.
    Broken,
}

impl<'a> Frame<'a> {
    /// Reads the answer at the start of `input`.
    #[must_use]
    pub fn decode(input: &'a [u8]) -> Decoded<'a> {
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Decoded::More };
        let header = Header::from_bytes(header);
        let (key_bytes, extras_bytes) = (header.key_bytes.into(), header.extras_bytes.into());
        let body_bytes = header.body_bytes as usize;
        let broken = header.magic != MAGIC_REPLY || header.body_bytes > BODY_BYTES_MAX;
        if broken || key_bytes + extras_bytes > body_bytes {
            return Decoded::Broken;
        }
        let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else {
            return Decoded::More;
        };
        let (extras, rest) = body.split_at(extras_bytes);
        let (key, value) = rest.split_at(key_bytes);
        Decoded::Frame(Frame { header, extras, key, value }, HEADER_BYTES + body_bytes)
    }
}

/// Appends a binary request; what the protocol has no command for becomes a frame without a body.
pub(crate) fn request(request: &Request<'_>, tag: Tag, out: &mut Vec<u8>) {
    let (mut extras, mut key, mut value, mut cas) = (Extras::default(), &[][..], &[][..], 0);
    match *request {
        Request::Get(get) => {
            key = get.key;
            get.exptime.into_iter().for_each(|exptime| extras.push(&seconds(exptime)));
        }
        Request::Store(store) => {
            (key, value, cas) = (store.key, store.value, store.cas);
            if !store.verb.is_extension() {
                extras.push(&store.client_flags.to_be_bytes());
                extras.push(&seconds(store.exptime));
            }
        }
        Request::Delete(delete) => (key, cas) = (delete.key, delete.cas),
        Request::Delta(delta) => {
            (key, cas) = (delta.key, delta.cas);
            arithmetic(&delta, &mut extras);
        }
        Request::FlushAll { exptime: Some(exptime), .. } if exptime != 0 => {
            extras.push(&seconds(exptime));
        }
        Request::Stats { args, .. } => key = args.text,
        _ => {}
    }
    let extras = extras.bytes();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: tag.opcode,
        key_bytes: u16::try_from(key.len()).unwrap_or(u16::MAX),
        extras_bytes: u8::try_from(extras.len()).unwrap_or(u8::MAX),
        body_bytes: length(extras.len() + key.len() + value.len()),
        opaque: tag.opaque,
        cas,
        ..Header::default()
    };
    out.extend_from_slice(&header.to_bytes());
    [extras, key, value].iter().for_each(|part| out.extend_from_slice(part));
}

fn arithmetic(delta: &Delta<'_>, extras: &mut Extras) {
    extras.push(&delta.delta.to_be_bytes());
    extras.push(&delta.initial.map_or(0, |initial| initial.value).to_be_bytes());
    let exptime = delta.initial.map(|initial| seconds(initial.exptime));
    extras.push(&exptime.unwrap_or(EXPTIME_NO_CREATE.to_be_bytes()));
}

/// An exptime as it stands in a frame: expired is a Unix time long past.
fn seconds(exptime: i64) -> [u8; 4] {
    let exptime = if exptime < 0 { EXPTIME_PAST } else { exptime };
    u32::try_from(exptime).unwrap_or(u32::MAX).to_be_bytes()
}

#[derive(Default)]
struct Extras {
    place: [u8; EXTRAS_BYTES_MAX],
    used: usize,
}

impl Extras {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        self.place[self.used..end].copy_from_slice(bytes);
        self.used = end;
    }

    fn bytes(&self) -> &[u8] {
        &self.place[..self.used]
    }
}
