//! The null server's answers. Requests are parsed only to find their ends and their answers.
//!
//! Where: between the bytes that are read and the bytes that are written.
//! Invariant: bytes that are not a request end the connection. The value of a set is skipped,
//! however long it is, and takes no memory.
//! Source: memcached's `protocol.txt` and `protocol_binary.h`; the Redis serialization protocol.

use std::collections::VecDeque;

use protocol::binary::{HEADER_BYTES, Header, MAGIC_REPLY, MAGIC_REQUEST};
use protocol::number::{strict_u32, strict_u64};
use protocol::reply::number;
use protocol::resp::{self, Decoded, Reply};

/// A connection ends if an incomplete request, without the value of a set, is longer than this.
pub(super) const HELD_BYTES_MAX: usize = 64 << 10;
/// The version that the null server reports.
pub const NAME: &str = "reflect";
/// Maximum length of a line: a multiget of a thousand keys of 60 bytes each fits.
const LINE_BYTES_MAX: usize = HELD_BYTES_MAX;
/// Opcodes of the binary commands that return a value: get, getq, getk, getkq.
const GETS: [u8; 4] = [0x00, 0x09, 0x0c, 0x0d];
/// The commands in `GETS` whose answers contain the key.
const GETKS: [u8; 2] = [0x0c, 0x0d];
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;

/// Answers the requests of one connection or datagram.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Bytes of the current request's value that are still to be skipped.
    skip: usize,
    /// The answer to the current request, which is sent once the request's value has been skipped.
    after: Vec<u8>,
}

/// The value that every key has, in the form of each protocol.
#[derive(Debug)]
pub(super) struct Value {
    /// For the text protocol: client flags, length and value.
    classic: Vec<u8>,
    /// For RESP: length and value.
    bulk: Vec<u8>,
    plain: Vec<u8>,
}

impl Value {
    pub(super) fn new(bytes: usize) -> Value {
        let plain = vec![b'v'; bytes];
        let (mut classic, mut bulk) = (b" 0 ".to_vec(), Vec::new());
        number(&mut classic, bytes);
        classic.extend_from_slice(b"\r\n");
        classic.extend_from_slice(&plain);
        classic.extend_from_slice(b"\r\n");
        resp::bulk(&plain, &mut bulk);
        Value { classic, bulk, plain }
    }
}

/// A buffer for answers, which contains the values or only the positions at which they belong.
#[derive(Debug)]
pub(super) struct ReplyBuffer<'o> {
    text: &'o mut Vec<u8>,
    /// Positions in `text`, ascending, at which values belong; `None` if values are copied.
    places: Option<&'o mut VecDeque<usize>>,
    value_bytes: usize,
}

impl<'o> ReplyBuffer<'o> {
    pub(super) fn copied(text: &'o mut Vec<u8>) -> ReplyBuffer<'o> {
        ReplyBuffer { text, places: None, value_bytes: 0 }
    }

    /// Returns a buffer that records the positions of values, of `value_bytes` > 0 bytes each.
    pub(super) fn in_place(
        text: &'o mut Vec<u8>,
        places: &'o mut VecDeque<usize>,
        value_bytes: usize,
    ) -> ReplyBuffer<'o> {
        ReplyBuffer { text, places: Some(places), value_bytes }
    }

    fn bytes(&self) -> usize {
        let values = self.places.as_ref().map_or(0, |places| places.len());
        self.text.len() + values * self.value_bytes
    }

    fn add(&mut self, part: &[u8]) {
        self.text.extend_from_slice(part);
    }

    /// Adds `framed`, which consists of text, a value, and `behind` more bytes of text.
    #[inline]
    fn value(&mut self, framed: &[u8], behind: usize) {
        let Some(places) = &mut self.places else { return self.text.extend_from_slice(framed) };
        let end = framed.len() - behind;
        self.text.extend_from_slice(&framed[..end - self.value_bytes]);
        places.push_back(self.text.len());
        self.text.extend_from_slice(&framed[end..]);
    }
}

enum Step {
    More,
    /// Number of bytes used and number of answers.
    Taken(usize, u64),
    /// The bytes are not a request.
    Broken,
}

impl Responder {
    pub(super) fn reset(&mut self) {
        self.skip = 0;
        self.after.clear();
    }

    /// Answers the requests in `input` until `out` has `most` bytes. Returns the number of used
    /// bytes and the number of answers, or `None` if bytes are not a request.
    #[inline]
    pub(super) fn respond(
        &mut self,
        input: &[u8],
        value: &Value,
        most: usize,
        out: &mut ReplyBuffer<'_>,
    ) -> Option<(usize, u64)> {
        let (mut at, mut answers) = (0, 0);
        while at < input.len() && out.bytes() < most {
            if self.skip > 0 {
                let skipped = self.skip.min(input.len() - at);
                self.skip -= skipped;
                at += skipped;
                if self.skip == 0 {
                    out.text.append(&mut self.after);
                }
                continue;
            }
            let rest = &input[at..];
            let step = match rest[0] {
                MAGIC_REQUEST => self.binary_frame(rest, value, out),
                b'*' => self.resp_command(rest, value, out),
                _ => self.text_line(rest, value, out),
            };
            match step {
                Step::More if rest.len() >= LINE_BYTES_MAX => return None,
                Step::More => break,
                Step::Taken(bytes, given) => {
                    at += bytes;
                    answers += given;
                }
                Step::Broken => return None,
            }
        }
        Some((at, answers))
    }

    /// Skips the `bytes` bytes of a value, and then answers with `word`.
    fn store(&mut self, bytes: usize, word: &[u8]) {
        self.skip = bytes;
        self.after.extend_from_slice(word);
    }

    #[inline]
    fn text_line(&mut self, input: &[u8], value: &Value, out: &mut ReplyBuffer<'_>) -> Step {
        let Some(end) = memchr::memchr(b'\n', input) else { return Step::More };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let Some(name) = words.next() else { return Step::Broken };
        let mut answers = 1;
        match name {
            b"get" | b"gets" => {
                answers = 0;
                for key in words {
                    out.add(b"VALUE ");
                    out.add(key);
                    out.value(&value.classic, 2);
                    answers += 1;
                }
                out.add(b"END\r\n");
            }
            b"mg" | b"ms" | b"md" | b"ma" => return self.meta(line, end + 1, value, out),
            b"mn" => out.add(b"MN\r\n"),
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
                let Some(bytes) = words.nth(3).and_then(strict_u32) else { return Step::Broken };
                let is_quiet = line.ends_with(b" noreply");
                self.store(bytes as usize + 2, if is_quiet { b"" } else { b"STORED\r\n" });
            }
            b"delete" => out.add(b"DELETED\r\n"),
            b"touch" => out.add(b"TOUCHED\r\n"),
            b"incr" | b"decr" => out.add(b"1\r\n"),
            b"flush_all" | b"verbosity" => out.add(b"OK\r\n"),
            b"stats" => out.add(b"STAT curr_items 0\r\nEND\r\n"),
            b"version" => {
                for part in [b"VERSION ", NAME.as_bytes(), b"\r\n"] {
                    out.add(part);
                }
            }
            _ => out.add(b"ERROR\r\n"),
        }
        Step::Taken(end + 1, answers)
    }

    /// Answers `mg`, `ms`, `md` and `ma`, honouring flags that return parts of the request.
    fn meta(&mut self, line: &[u8], used: usize, value: &Value, out: &mut ReplyBuffer<'_>) -> Step {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let (name, Some(key)) = (words.next().unwrap_or_default(), words.next()) else {
            return Step::Broken;
        };
        let mut bytes = 0;
        if name == b"ms" {
            let Some(length) = words.next().and_then(strict_u32) else { return Step::Broken };
            bytes = length as usize + 2;
        }
        let start = out.text.len();
        let wants_value = name != b"ms" && words.clone().any(|flag| flag == b"v");
        let is_quiet = words.clone().any(|flag| flag == b"q");
        out.add(if wants_value { b"VA " } else { b"HD" });
        if wants_value {
            number(out.text, value.plain.len());
        }
        for flag in words {
            match flag {
                [b'O', ..] => [b" ", flag].iter().for_each(|part| out.add(part)),
                b"k" => [b" k", key].iter().for_each(|part| out.add(part)),
                _ => {}
            }
        }
        out.add(b"\r\n");
        if wants_value {
            out.value(&value.plain, 0);
            out.add(b"\r\n");
        } else if is_quiet {
            out.text.truncate(start);
        }
        if bytes > 0 {
            self.after.extend_from_slice(&out.text[start..]);
            out.text.truncate(start);
            self.skip = bytes;
        }
        Step::Taken(used, 1)
    }

    #[inline]
    fn binary_frame(&mut self, input: &[u8], value: &Value, out: &mut ReplyBuffer<'_>) -> Step {
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Step::More };
        let request = Header::from_bytes(header);
        let (extras, key) = (usize::from(request.extras_bytes), usize::from(request.key_bytes));
        let body = request.body_bytes as usize;
        let Some(value_bytes) = body.checked_sub(extras + key) else { return Step::Broken };
        let Some(key) = input.get(HEADER_BYTES + extras..HEADER_BYTES + extras + key) else {
            return Step::More;
        };
        let is_get = GETS.contains(&request.opcode);
        let key = if GETKS.contains(&request.opcode) { key } else { &[] };
        let (extras, text): (&[u8], &[u8]) = match request.opcode {
            VERSION => (&[], NAME.as_bytes()),
            _ if is_get => (&[0; 4], &value.plain),
            _ => (&[], &[]),
        };
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let reply = Header {
            magic: MAGIC_REPLY,
            opcode: request.opcode,
            key_bytes: u16::try_from(key.len()).unwrap_or(0),
            extras_bytes: u8::try_from(extras.len()).unwrap_or(0),
            body_bytes: length(extras.len() + key.len() + text.len()),
            opaque: request.opaque,
            ..Header::default()
        };
        // Quiet commands are not answered, except for gets.
        let is_quiet = !is_get
            && protocol::binary::opcode::find(request.opcode).is_some_and(|opcode| opcode.quiet);
        if value_bytes > 0 {
            let reply = reply.to_bytes();
            self.store(value_bytes, if is_quiet { &[] } else { &reply });
        } else if !is_quiet {
            out.add(&reply.to_bytes());
            [extras, key].iter().for_each(|part| out.add(part));
            if is_get { out.value(text, 0) } else { out.add(text) }
        }
        Step::Taken(HEADER_BYTES + body - value_bytes, u64::from(request.opcode != NOOP))
    }

    #[inline]
    fn resp_command(&mut self, input: &[u8], value: &Value, out: &mut ReplyBuffer<'_>) -> Step {
        let command = match resp::Command::decode(input) {
            Decoded::Whole(command, used) => (command, used),
            Decoded::Broken => return Step::Broken,
            Decoded::More => return self.long_command(input),
        };
        let (command, used) = command;
        let mut words = command.words();
        let name = words.next().unwrap_or_default();
        let mut answers = 1;
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        if is(b"GET") {
            out.value(&value.bulk, 2);
        } else if is(b"MGET") {
            answers = command.len() as u64 - 1;
            Reply::Array(u32::try_from(answers).unwrap_or(0)).encode(out.text);
            words.for_each(|_| out.value(&value.bulk, 2));
        } else if is(b"DEL") || is(b"APPEND") {
            out.add(b":1\r\n");
        } else if is(b"PING") {
            out.add(b"+PONG\r\n");
        } else if is(b"CONFIG") {
            // Benchmark programs send CONFIG before their other commands.
            out.add(b"*0\r\n");
        } else {
            out.add(b"+OK\r\n");
        }
        Step::Taken(used, answers)
    }

    /// Answers a `SET` or `APPEND` whose value is incomplete, once the value's length is known.
    fn long_command(&mut self, input: &[u8]) -> Step {
        let Decoded::Whole(Reply::Array(words), mut at) = Reply::decode(input) else {
            return Step::More;
        };
        let mut name: &[u8] = &[];
        for word in 0..2 {
            match Reply::decode(&input[at..]) {
                Decoded::Whole(Reply::Bulk(text), used) => {
                    at += used;
                    if word == 0 {
                        name = text;
                    }
                }
                _ => return Step::More,
            }
        }
        let Some(end) = memchr::memchr(b'\n', &input[at..]) else { return Step::More };
        let digits = input[at..at + end]
            .strip_prefix(b"$")
            .and_then(|line| strict_u64(line.strip_suffix(b"\r")?));
        let bytes = digits.and_then(|bytes| usize::try_from(bytes).ok());
        let is_set = name.eq_ignore_ascii_case(b"SET");
        let stores = words == 3 && (is_set || name.eq_ignore_ascii_case(b"APPEND"));
        match bytes.filter(|bytes| stores && *bytes <= resp::BULK_BYTES_MAX) {
            Some(bytes) => {
                self.store(bytes + 2, if is_set { b"+OK\r\n" } else { b":1\r\n" });
                Step::Taken(at + end + 1, 1)
            }
            None => Step::More,
        }
    }
}
