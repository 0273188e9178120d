//! Counts the commands, flags, opcodes, replies and errors that a run has covered.
//!
//! Where: client side.
//! Invariant: each counted command was sent to both servers, and both servers sent the same reply.

use crate::binary::OPCODES;
use crate::command::{Command, Protocol};
use crate::replies::Reply;
use crate::{generator, meta, text};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Minimum number of times that a run must reach each row of the tables below.
const REACHED_MIN: u64 = 2;

/// Codes, errors and marks in replies to well-formed commands. An entry for a meta command begins
/// with the command's name.
const REPLIES: [&str; 37] = [
    "STORED",
    "NOT_STORED",
    "EXISTS",
    "NOT_FOUND",
    "DELETED",
    "TOUCHED",
    "VALUE",
    "END",
    "number",
    "OK",
    "VERSION",
    "RESET",
    "Closed",
    "CLIENT_ERROR cannot increment or decrement non-numeric value",
    "mg HD",
    "mg VA",
    "mg EN",
    "mg W",
    "mg X",
    "mg Z",
    "ms HD",
    "ms EX",
    "ms NF",
    "ms NS",
    "md HD",
    "md EX",
    "md NF",
    "ma HD",
    "ma VA",
    "ma EX",
    "ma NF",
    "me EN",
    "ME",
    "MN",
    "status 0x05",
    "status 0x06",
    "status 0x81",
];

/// Statuses of replies to well-formed binary frames. Quiet opcodes send no reply to a success.
const STATUSES: [(&str, &[u16]); 13] = [
    ("GET GETK GAT GATK TOUCH STAT", &[0, 1]),
    ("GETQ GETKQ GATQ GATKQ NOOP QUIT VERSION FLUSH", &[0]),
    ("SET REPLACE ADD DELETE", &[0, 1, 2]),
    ("SETQ REPLACEQ ADDQ DELETEQ", &[1, 2]),
    ("APPEND PREPEND", &[0, 2, 5]),
    ("APPENDQ PREPENDQ", &[2, 5]),
    ("INCREMENT DECREMENT", &[0, 1, 2, 6]),
    ("INCREMENTQ DECREMENTQ", &[1, 2, 6]),
    ("VERBOSITY", &[0x81]),
    ("SASL_LIST_MECHS SASL_AUTH SASL_STEP", &[0x81]),
    ("RGET", &[0x81]),
    ("RDECRQ", &[0x81]),
    ("255", &[0x81]),
];

const ERRORS: [&str; 20] = [
    "ERROR",
    "CLIENT_ERROR bad command line format",
    "CLIENT_ERROR bad data chunk",
    "CLIENT_ERROR bad token in command line format",
    "CLIENT_ERROR duplicate flag",
    "CLIENT_ERROR error decoding key",
    "CLIENT_ERROR invalid exptime argument",
    "CLIENT_ERROR invalid flag",
    "CLIENT_ERROR invalid mode for ma M token",
    "CLIENT_ERROR invalid mode for ms M token",
    "CLIENT_ERROR invalid numeric delta argument",
    "CLIENT_ERROR invalid numeric delta value",
    "CLIENT_ERROR invalid numeric initial value",
    "CLIENT_ERROR invalid or duplicate flag",
    "CLIENT_ERROR opaque token too long",
    "CLIENT_ERROR options flags are too long",
    "SERVER_ERROR object too large for cache",
    "status 0x03",
    "status 0x04",
    "Closed",
];

#[derive(Default)]
pub(crate) struct Coverage {
    /// Number of occurrences, by group (commands of a protocol, flags, or replies) and by name.
    counts: BTreeMap<(&'static str, String), u64>,
}

impl Coverage {
    pub(crate) fn note(&mut self, command: &Command, reply: &Reply) {
        let group = match (command.malformed, command.protocol) {
            (true, Protocol::Text) => "malformed text",
            (true, Protocol::Meta) => "malformed meta",
            (true, Protocol::Binary) => "malformed binary",
            (false, Protocol::Text) => "text",
            (false, Protocol::Meta) => "meta",
            (false, Protocol::Binary) => "binary",
        };
        self.count(group, command.name.to_owned());
        if !command.malformed {
            for &flag in &command.flags {
                self.count("flags", format!("{} {}", command.name, char::from(flag)));
            }
        }
        let group = if command.malformed { "replies to the malformed" } else { "replies" };
        for kind in &reply.kinds {
            self.count(group, kind.clone());
        }
    }

    fn count(&mut self, group: &'static str, what: String) {
        *self.counts.entry((group, what)).or_default() += 1;
    }

    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for ((group, what), count) in &self.counts {
            let before = if *group == last { "," } else { &format!("\n{group}:") };
            let _ = write!(text, "{before} {what} {count}");
            last = group;
        }
        text.trim_start().to_owned() + "\n"
    }

    pub(crate) fn missed(&self, malformed: bool) -> Vec<String> {
        let mut wanted: Vec<(&'static str, String)> = Vec::new();
        wanted.extend(text::SHARES.iter().map(|(verb, _)| ("text", (*verb).to_owned())));
        wanted.extend(meta::SHARES.iter().map(|(verb, _)| ("meta", (*verb).to_owned())));
        wanted.extend(OPCODES.iter().map(|(_, name, _)| ("binary", (*name).to_owned())));
        for (verb, used) in meta::USED_LONG {
            let letters = if malformed { &meta::KNOWN[..] } else { used };
            let flags = letters.iter().map(|&letter| format!("{verb} {}", char::from(letter)));
            wanted.extend(flags.map(|flag| ("flags", flag)));
        }
        wanted.extend(REPLIES.iter().map(|kind| ("replies", (*kind).to_owned())));
        for (names, statuses) in STATUSES {
            let pairs =
                names.split(' ').flat_map(|name| statuses.iter().map(move |one| (name, one)));
            wanted.extend(pairs.map(|(name, status)| ("replies", format!("{name} {status:#04x}"))));
        }
        if malformed {
            let errors = ERRORS.iter().map(|kind| ("replies to the malformed", (*kind).to_owned()));
            wanted.extend(errors);
        }
        if !malformed {
            wanted.retain(|(_, what)| {
                let name = what.split(' ').next().unwrap_or_default();
                !generator::NEW.contains(&name) && name != "ME"
            });
        }
        let count = |wanted: &(&'static str, String)| self.counts.get(wanted).copied();
        wanted.retain(|one| count(one).unwrap_or(0) < REACHED_MIN);
        wanted.into_iter().map(|(group, what)| format!("{group}: {what}")).collect()
    }
}
