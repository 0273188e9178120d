//! Plants one small fault in a server's replies, to show that the comparison finds it.
//!
//! Where: client side.
//! Invariant: a fault changes only the replies of one rare case.

use crate::command::Command;
use crate::replies::{Piece, Reply};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `get` shows wrong client flags for a touched item.
    FlagsAfterTouch,
    /// `incr` returns a number that is off by one, if the number is 1000 or more.
    NumberOffByOne,
    /// `mg` with `t` shows that an item with an exptime of 30 days never expires.
    LongTtlIsNone,
    /// `ADD` of an existing key is answered "not stored" instead of "exists".
    StatusSwapped,
    /// `GATK` returns a wrong opaque.
    OpaqueWrong,
    /// A quiet `ms` with client flags is answered although it stored the item.
    NotQuiet,
    /// The marks `X` and `W` of a meta reply are in the wrong order.
    MarksSwapped,
    /// `gets` after an `append` shows the CAS unique that the item had before the `append`.
    UniqueKept,
    /// After an `mg` with `u`, an `mg` with `h` wrongly shows that the item had no hit.
    HitForgotten,
    /// `INCREMENT` returns a wrong number if the number is 256 or more.
    BodyWrong,
    /// An `append` with a bad data chunk is answered like a bad command line.
    ErrorSwapped,
}

pub(crate) struct Liar {
    lie: Lie,
    /// The lie changes the next reply about each of these keys.
    marked: HashSet<&'static [u8]>,
    uniques: HashMap<Vec<u8>, Vec<u8>>,
}

impl Liar {
    pub(crate) fn new(lie: Lie) -> Liar {
        Liar { lie, marked: HashSet::new(), uniques: HashMap::new() }
    }

    pub(crate) fn instead_of(&mut self, command: &Command, piece: Piece) -> Piece {
        match piece {
            Piece::Line(line, value) => Piece::Line(self.line(command, line), value),
            Piece::Frame(mut header, mut body) => {
                match self.lie {
                    Lie::StatusSwapped if command.name == "ADD" && header[7] == 2 => header[7] = 5,
                    Lie::OpaqueWrong if command.name == "GATK" => header[15] ^= 1,
                    Lie::BodyWrong if command.name == "INCREMENT" && body.len() == 8 => {
                        body[7] ^= u8::from(body[6] > 0);
                    }
                    _ => {}
                }
                Piece::Frame(header, body)
            }
            Piece::Fence(_) => piece,
        }
    }

    pub(crate) fn adds(&self, command: &Command, reply: &Reply) -> Option<Piece> {
        let stored = command.name == "ms" && reply.text.is_empty() && !command.malformed;
        let lies = self.lie == Lie::NotQuiet && stored && command.flags.contains(&b'F');
        lies.then(|| Piece::Line(b"HD\r\n".to_vec(), None))
    }

    fn line(&mut self, command: &Command, line: Vec<u8>) -> Vec<u8> {
        let mut words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        let number: Option<u64> = str::from_utf8(words[0]).ok().and_then(|word| word.parse().ok());
        let replaced;
        match self.lie {
            Lie::FlagsAfterTouch if line == b"TOUCHED\r\n" => {
                self.marked.insert(command.key());
            }
            Lie::FlagsAfterTouch if words[0] == b"VALUE" && self.marked.contains(words[1]) => {
                words[2] = b"4";
            }
            Lie::NumberOffByOne if command.name == "incr" && number >= Some(1000) => {
                replaced = (number.unwrap() + 1).to_string();
                words[0] = replaced.as_bytes();
            }
            Lie::LongTtlIsNone => {
                for word in words.iter_mut().filter(|word| word.starts_with(b"t25")) {
                    *word = b"t-1";
                }
            }
            Lie::MarksSwapped if words.ends_with(&[b"X", b"W"]) => {
                let count = words.len();
                words.swap(count - 2, count - 1);
            }
            Lie::UniqueKept if command.name == "append" && line == b"STORED\r\n" => {
                self.marked.insert(command.key());
            }
            Lie::UniqueKept if words[0] == b"VALUE" && words.len() == 5 => {
                let (key, unique) = (words[1].to_vec(), words[4].to_vec());
                let before = self.uniques.insert(key, unique);
                if let (Some(before), true) = (before, self.marked.remove(words[1])) {
                    replaced = String::from_utf8(before).unwrap();
                    words[4] = replaced.as_bytes();
                }
            }
            Lie::HitForgotten if command.name == "mg" && command.flags.contains(&b'u') => {
                self.marked.insert(command.key());
            }
            Lie::HitForgotten if self.marked.contains(command.key()) => {
                for word in words.iter_mut().filter(|word| **word == b"h1") {
                    *word = b"h0";
                }
            }
            Lie::ErrorSwapped
                if command.name == "append" && line == b"CLIENT_ERROR bad data chunk\r\n" =>
            {
                return b"CLIENT_ERROR bad command line format\r\n".to_vec();
            }
            _ => return line,
        }
        [&words.join(&b' ')[..], b"\r\n"].concat()
    }
}
