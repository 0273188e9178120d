//! Random malformed commands of all three protocols.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: memcached's answer does not depend on how its reads split the bytes. The bytes that
//! memcached skips after a wrong length end before the next command. Before a command that would
//! drop unsent replies, such as a fetch of an over-long key, an `mn` makes memcached send the
//! replies.
//! Source: memcached 1.6.45 `proto_parser.c`, `proto_text.c`, `proto_bin.c`.
//!
//! This file does not make some commands, because memcached's answer depends on chance:
//! - A fetch of an over-long key after other keys: memcached may have touched items of other keys.
//! - A store right after an `ms` with `E` that fails after memcached has read the line: memcached
//!   gives the CAS unique of this `E` to the connection's next store. This is why a store of
//!   `SCRATCH` follows such an `ms`.
//! - Lines over 2048 bytes without an end: the answer depends on how many bytes have arrived.

use crate::binary::{self, Frame, HEADER_BYTES};
use crate::command::{Command, Protocol, Unique};
use crate::meta::{self, Dialect, Flag};
use crate::text::{self, Word};
use crate::values::{CHOSEN_UNIQUE, TOO_LARGE_BYTES, Values};

/// Stores an item under a key that no other command uses.
const SCRATCH: &[u8] = b"set scratch 0 0 0\r\n\r\n";

/// Words that are not numbers, numbers out of an integer's range, and the limits of such ranges.
const BAD_WORDS: [&[u8]; 24] = [
    b"",
    b" ",
    b"-1",
    b"-0",
    b"abc",
    b"1x",
    b"0x10",
    b"1.5",
    b"+0",
    b"--1",
    b"\0",
    b"0\0",
    b"\xff",
    b"noreply",
    b"4294967295",
    b"4294967296",
    b"2147483648",
    b"-2147483649",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"99999999999999999999",
];

/// Malformed lines. After each of the last `LINES_CLOSING` lines the server closes the connection.
const LINES: [&[u8]; 36] = [
    b"",
    b" ",
    b"   ",
    b"x",
    b"foo",
    b"foo bar",
    b"foo bar noreply",
    b"noreply",
    b" get a",
    b"GET a",
    b"get_ a",
    b"get",
    b"gets ",
    b"gat",
    b"gat 0",
    b"gat a",
    b"set",
    b"set a",
    b"delete",
    b"incr",
    b"touch a",
    b"\0\0\0",
    b"ge\0 a",
    b"get a\0b",
    b"mg",
    b"mx a",
    b"ms a",
    b"md",
    b"ma ",
    b"me",
    b"mn mn",
    b"verbosity",
    b"verbosity x",
    b"flush_all x",
    b"quit now",
    b"GET / HTTP/1.1",
];
const LINES_CLOSING: usize = 2;

pub(crate) fn text(values: &mut Values) -> Command {
    let mut command = match values.random.below(40) {
        0..6 => bare_line(values),
        6 => too_large(values, Protocol::Text),
        7..14 => bad_chunk(values),
        _ => wrong_words(values),
    };
    command.protocol = Protocol::Text;
    command.malformed = true;
    command
}

fn bare_line(values: &mut Values) -> Command {
    let at = values.random.index(LINES.len());
    let closes = at >= LINES.len() - LINES_CLOSING;
    if closes && !values.random.one_in(4) {
        return bare_line(values);
    }
    let mut command = Command::new(Protocol::Text, "line");
    command.push(LINES[at]);
    command.push(values.random.pick(&[&b"\r\n"[..], b"\n"]));
    if closes {
        command.flush_before();
    }
    command.closes = closes;
    command
}

fn wrong_words(values: &mut Values) -> Command {
    let verbs = &text::SHARES[..14];
    let verb = values.random.share(verbs);
    let mut line = text::line(values, verb);
    if let Some(value) = &mut line.value {
        // A wrong length would make the server read the rest of the value as lines. So each word
        // that can take the place of the length is 0 or is not a number.
        *value = b"abc".to_vec();
        line.words[1] = Word::Text(b"0".to_vec());
        line.words[2] = Word::Text(values.random.pick(&[&b"0"[..], b"00"]).to_vec());
        line.words[3] = Word::Text(b"3".to_vec());
    }
    let count = line.words.len();
    let at = values.random.index(count);
    match values.random.below(8) {
        0 => line.words.truncate(at),
        1 => line.words.insert(at, bad_word(values)),
        2 => line.words.push(bad_word(values)),
        3 => {
            let at = usize::from(verb.starts_with("gat")).min(count - 1);
            line.words[at] = Word::Text(vec![b'l'; values.random.pick(&[251, 300, 1000])]);
        }
        _ => line.words[at] = bad_word(values),
    }
    // A CAS unique, which differs between the servers, may now be in the place of a length.
    for word in &mut line.words {
        if matches!(word, Word::Unique(_)) {
            *word = Word::Text(values.random.pick(&[&b"5"[..], b"0", b"x"]).to_vec());
        }
    }
    let long = line.words.iter().any(|word| matches!(word, Word::Text(text) if text.len() > 250));
    let mut command = line.command();
    if command.fetches && long {
        command.flush_before();
    }
    command
}

fn bad_word(values: &mut Values) -> Word {
    Word::Text(values.random.pick(&BAD_WORDS).to_vec())
}

/// Returns a command whose value is longer or shorter than its length word. The server completes a
/// short value with the beginning of the next fence.
fn bad_chunk(values: &mut Values) -> Command {
    let verb = values.random.pick(&["set", "add", "replace", "append", "prepend"]);
    let mut line = text::line(values, verb);
    let value = vec![b'v'; values.random.index(30)];
    let declared = match values.random.below(3) {
        0 => value.len().saturating_sub(1 + values.random.index(3)),
        1 => value.len() + 1 + values.random.index(10),
        _ => value.len() + 1,
    };
    line.words[3] = Word::Text(declared.to_string().into_bytes());
    line.value = Some(value);
    line.command()
}

fn too_large(values: &mut Values, protocol: Protocol) -> Command {
    let value = vec![b'v'; TOO_LARGE_BYTES];
    if protocol == Protocol::Text {
        let verb = values.random.pick(&["set", "add", "replace", "append", "set"]);
        let mut line = text::line(values, verb);
        line.words[3] = Word::Text(value.len().to_string().into_bytes());
        line.value = Some(value);
        return line.command();
    }
    let mut line = meta::line(values, "ms", ALL);
    line.value = Some(value);
    line.well_formed()
}

const ALL: Dialect = Dialect { all: true, chosen_uniques: true, ordered: false };

pub(crate) fn meta(values: &mut Values) -> Command {
    let mut command = match values.random.below(60) {
        0..4 => bare_line(values),
        4 => too_large(values, Protocol::Meta),
        5..10 => wrong_value(values),
        10..20 => wrong_key(values),
        _ => wrong_flag(values),
    };
    command.protocol = Protocol::Meta;
    command.malformed = true;
    command
}

fn wrong_value(values: &mut Values) -> Command {
    let mut line = meta::line(values, "ms", ALL);
    let value = vec![b'v'; values.random.index(30)];
    let declared = match values.random.below(3) {
        0 => value.len().saturating_sub(1 + values.random.index(3)).to_string().into_bytes(),
        1 => (value.len() + 1 + values.random.index(10)).to_string().into_bytes(),
        // The length is not a number, so the server reads the value as lines.
        _ => loop {
            let word = values.random.pick(&BAD_WORDS);
            if word != b"noreply" {
                break word.to_vec();
            }
        },
    };
    line.value = Some(value);
    let mut command = line.command(&declared);
    // The server reads this line as the rest of a value that is too short.
    command.push(b"mn mn mn mn mn mn\r\n");
    command.push(SCRATCH);
    command
}

fn wrong_key(values: &mut Values) -> Command {
    let verb = values.random.pick(&["mg", "ms", "md", "ma", "me"]);
    let mut line = meta::line(values, verb, ALL);
    line.value = line.value.map(|_| b"abc".to_vec());
    let texts: [&'static [u8]; 10] = [
        &[b'l'; 251],
        &[b'l'; 300],
        b"!!!!",
        b"Zm9",
        b"Zm9v=",
        b"Zm9vZ===",
        b"====",
        b"Zg=v",
        b"\xff\xff\xff\xff",
        b"aGVsbG8",
    ];
    let text = values.random.pick(&texts);
    line.key_text = text.to_vec();
    let mut command = line.well_formed();
    command.keys = vec![text];
    command
}

fn wrong_flag(values: &mut Values) -> Command {
    let verb = values.random.pick(&["mg", "ms", "md", "ma", "me"]);
    let mut line = meta::line(values, verb, ALL);
    line.value = line.value.map(|_| b"abc".to_vec());
    let letter = values.random.pick(b"NTRFDJCEM");
    let mut flag = Flag { letter, text: Vec::new(), unique: None };
    let mut fails_late = false;
    match values.random.below(8) {
        0 => flag.letter = b"adegijmnopryzABGHKQSUVZ019"[values.random.index(26)],
        1 => flag.letter = b"!#$-@[_{|~\x7f\x80\xff\0\x01"[values.random.index(15)],
        2 => {
            flag.letter = b'O';
            flag.text = vec![b'o'; values.random.pick(&[32, 33, 60])];
            line.flags.retain(|flag| !b"OE".contains(&flag.letter));
            fails_late = true;
        }
        3 if !line.flags.is_empty() => {
            flag = line.flags[values.random.index(line.flags.len())].clone();
        }
        4 => {
            let many = values.random.pick(&[16, 17, 18, 19, 20, 30]);
            let letters = meta::KNOWN.iter().filter(|letter| !b"bMNTRFDJCE".contains(letter));
            line.flags = letters
                .chain(b"vvvvvvvvvvvvvvvvvvvvvv")
                .take(many)
                .map(|&letter| Flag { letter, text: Vec::new(), unique: None })
                .collect();
            fails_late = true;
        }
        _ => {
            let word = values.random.pick(&BAD_WORDS);
            // A unique in the range that servers give out may belong to an item of one server only.
            let near = str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok());
            let near = near.is_some_and(|near| near < CHOSEN_UNIQUE) && b"CE".contains(&letter);
            flag.text = if near || word == b"+0" { Vec::new() } else { word.to_vec() };
            line.flags.retain(|flag| flag.letter != letter);
            if verb == "ma" && b"TE".contains(&letter) {
                meta::stay_in_place(&mut line);
            }
        }
    }
    let at = values.random.index(line.flags.len() + 1);
    line.flags.insert(at, flag);
    let mut command = line.well_formed();
    if fails_late {
        command.push(SCRATCH);
    }
    command
}

pub(crate) fn binary(values: &mut Values) -> Command {
    let all = &binary::OPCODES;
    let (opcode, name, _) = loop {
        let one = all[values.random.index(all.len())];
        if !one.1.starts_with("FLUSH") && !one.1.starts_with("QUIT") && one.1 != "STAT" {
            break one;
        }
    };
    let mut frame = binary::frame(values, opcode, name, true);
    let mut closes = true;
    let unknown = matches!(opcode, 0x1b | 0x30.. | 0x20..=0x22);
    match values.random.below(9) {
        0 => frame.magic = values.random.pick(&[0x81, 0, 0x67, 0x7f, 0xff]),
        1 if !unknown => wrong_extras(values, &mut frame),
        2 if !unknown && name != "NOOP" && name != "VERSION" => frame.key.clear(),
        3 => frame.key = vec![b'l'; values.random.pick(&[251, 300, 2000])],
        4 => {
            let short = u32::try_from(frame.key.len() + frame.extras.len()).unwrap();
            frame.body_bytes = Some(short.saturating_sub(1));
            closes = short > 0;
        }
        5 => frame.body_bytes = Some(values.random.pick(&[u32::MAX, 1 << 31, (1 << 30) + 1])),
        6 if !unknown => closes = longer_body(values, &mut frame),
        7 => return large_frame(values),
        _ => {
            closes = false;
            frame.opcode = values.random.pick(&[0x1f, 0x25, 0x2f, 0x3d, 0x40, 0x80, 0xfe]);
            frame.name = "255";
            frame.value = vec![b'x'; frame.key.len() + frame.extras.len() + 3];
            frame.body_bytes = Some(u32::try_from(frame.value.len()).unwrap());
        }
    }
    let mut command = frame.command();
    command.closes = closes;
    command.malformed = true;
    command
}

fn wrong_extras(values: &mut Values, frame: &mut Frame) {
    let right = frame.extras.len();
    let wrong = loop {
        let wrong = values.random.pick(&[0, 1, 3, 4, 7, 8, 9, 20, 21, 24, 255]);
        if wrong != right {
            break wrong;
        }
    };
    frame.extras = vec![0; wrong];
}

/// Makes the frame's body longer than the opcode allows. The server then closes the connection,
/// except after GAT and TOUCH: there the server reads the excess bytes as a frame. Returns true if
/// the server closes the connection.
fn longer_body(values: &mut Values, frame: &mut Frame) -> bool {
    let stores = frame.name.contains("SET") || frame.name.contains("ADD");
    if stores || frame.name.contains("REPLACE") || frame.name.contains("PEND") {
        // These commands accept a body of any length, so give the frame an empty key instead.
        frame.key.clear();
        return true;
    }
    if frame.name.starts_with("GA") || frame.name == "TOUCH" {
        frame.value = vec![0; HEADER_BYTES];
        (frame.value[0], frame.value[1]) = (frame.magic, binary::NOOP);
        return false;
    }
    frame.value = vec![b'z'; 1 + values.random.index(20)];
    true
}

fn large_frame(values: &mut Values) -> Command {
    let stores = [(0x01, "SET"), (0x02, "ADD"), (0x03, "REPLACE"), (0x0e, "APPEND")];
    let (opcode, name) = values.random.pick(&stores);
    let mut frame = binary::frame(values, opcode, name, true);
    if values.random.one_in(4) {
        frame.value = vec![b'v'; TOO_LARGE_BYTES];
    }
    frame.cas = Unique::Number(values.random.pick(&[0, CHOSEN_UNIQUE]));
    let mut command = frame.command();
    command.malformed = true;
    command
}
