//! The table of all binary commands.
//!
//! Where: `binary::parse` finds a frame's command here; `binary::write` finds which fields to show.
//! Invariant: a binary command exists if and only if it has a row. To add a command, write a row
//! here, an arm in the server's executor, and a test in `server/tests/transcripts`.
//! Source: memcached 1.6.45 `protocol_binary.h`, `dispatch_bin_command`.

use memory::verb::Verb;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// The code on the wire.
    pub code: u8,
    /// The command's name, for people.
    pub name: &'static str,
    /// The parts of the command's frame.
    pub shape: Shape,
    /// True if a miss of a lookup, or a success of another command, gets no answer.
    pub quiet: bool,
}

/// The parts of a command's frame. A number in parentheses is the length of the extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A key.
    Get {
        /// True if the answer shows the key.
        key: bool,
    },
    /// Exptime (4) and a key.
    GetAndTouch {
        /// True if the answer shows the key.
        key: bool,
    },
    /// Exptime (4) and a key; the answer shows the client flags.
    Touch,
    /// Client flags and exptime (8), a key and a value.
    Store(Verb),
    /// A key and a value: append, prepend.
    Extend(Verb),
    /// A key.
    Delete,
    /// Delta, initial value and exptime (20), and a key.
    Delta {
        /// True for increment, false for decrement.
        incr: bool,
    },
    /// Optionally an exptime (4).
    Flush,
    /// Only a header.
    Noop,
    /// Only a header.
    Version,
    /// Optionally a key, which names the statistics.
    Stat,
    /// Only a header.
    Quit,
    /// Only a header. The command is refused, because the server has no SASL.
    SaslList,
    /// A key and a value. The command is refused like `SaslList`.
    Sasl,
}

const fn loud(code: u8, name: &'static str, shape: Shape) -> Opcode {
    Opcode { code, name, shape, quiet: false }
}

const fn quiet(code: u8, name: &'static str, shape: Shape) -> Opcode {
    Opcode { code, name, shape, quiet: true }
}

/// The opcodes of GET. With Q, a miss gets no answer; with K, the answer shows the key.
pub(crate) const GET: u8 = 0x00;
pub(crate) const GETQ: u8 = 0x09;
pub(crate) const GETK: u8 = 0x0c;
pub(crate) const GETKQ: u8 = 0x0d;

/// All binary commands, in the order of their codes.
pub const OPCODES: [Opcode; 35] = [
    loud(GET, "get", Shape::Get { key: false }),
    loud(0x01, "set", Shape::Store(Verb::Set)),
    loud(0x02, "add", Shape::Store(Verb::Add)),
    loud(0x03, "replace", Shape::Store(Verb::Replace)),
    loud(0x04, "delete", Shape::Delete),
    loud(0x05, "increment", Shape::Delta { incr: true }),
    loud(0x06, "decrement", Shape::Delta { incr: false }),
    loud(0x07, "quit", Shape::Quit),
    loud(0x08, "flush", Shape::Flush),
    quiet(GETQ, "getq", Shape::Get { key: false }),
    loud(0x0a, "noop", Shape::Noop),
    loud(0x0b, "version", Shape::Version),
    loud(GETK, "getk", Shape::Get { key: true }),
    quiet(GETKQ, "getkq", Shape::Get { key: true }),
    loud(0x0e, "append", Shape::Extend(Verb::Append)),
    loud(0x0f, "prepend", Shape::Extend(Verb::Prepend)),
    loud(0x10, "stat", Shape::Stat),
    quiet(0x11, "setq", Shape::Store(Verb::Set)),
    quiet(0x12, "addq", Shape::Store(Verb::Add)),
    quiet(0x13, "replaceq", Shape::Store(Verb::Replace)),
    quiet(0x14, "deleteq", Shape::Delete),
    quiet(0x15, "incrementq", Shape::Delta { incr: true }),
    quiet(0x16, "decrementq", Shape::Delta { incr: false }),
    quiet(0x17, "quitq", Shape::Quit),
    quiet(0x18, "flushq", Shape::Flush),
    quiet(0x19, "appendq", Shape::Extend(Verb::Append)),
    quiet(0x1a, "prependq", Shape::Extend(Verb::Prepend)),
    loud(0x1c, "touch", Shape::Touch),
    loud(0x1d, "gat", Shape::GetAndTouch { key: false }),
    quiet(0x1e, "gatq", Shape::GetAndTouch { key: false }),
    loud(0x20, "sasl_list_mechs", Shape::SaslList),
    loud(0x21, "sasl_auth", Shape::Sasl),
    loud(0x22, "sasl_step", Shape::Sasl),
    loud(0x23, "gatk", Shape::GetAndTouch { key: true }),
    quiet(0x24, "gatkq", Shape::GetAndTouch { key: true }),
];

const CODE_END: usize = 0x25;

/// Maps a code to the index of its row in `OPCODES`, or to `u8::MAX` if no row has the code.
const ROWS: [u8; CODE_END] = {
    let mut rows = [u8::MAX; CODE_END];
    let mut row: u8 = 0;
    while (row as usize) < OPCODES.len() {
        rows[OPCODES[row as usize].code as usize] = row;
        row += 1;
    }
    rows
};

/// Returns the row of `code`.
#[inline]
#[must_use]
pub fn find(code: u8) -> Option<&'static Opcode> {
    OPCODES.get(usize::from(*ROWS.get(usize::from(code))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_finds_its_own_row() {
        for code in 0..=u8::MAX {
            let row = OPCODES.iter().find(|opcode| opcode.code == code);
            assert_eq!(find(code), row, "{code:#x}");
        }
    }
}
