//! Generates batches of commands. A batch goes over one connection. All batches use the same keys.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: memcached has exactly one correct answer to a batch.

use crate::binary::{self, OPCODES};
use crate::command::{Command, Protocol};
use crate::meta::{self, Dialect};
use crate::values::Values;
use crate::{Features, malformed, text};

const BATCH_COMMANDS_MAX: u64 = 48;

/// If `Features::malformed` is set, one in this number of commands is malformed.
const MALFORMED_ONCE: u64 = 12;

/// Commands whose answers differ between memcached's versions, such as the sign of `me`'s times.
pub(crate) const NEW: [&str; 3] = ["version", "VERSION", "me"];

pub(crate) struct Generator {
    values: Values,
    features: Features,
    opcodes: Vec<((u8, &'static str), u64)>,
    batches: usize,
}

impl Generator {
    pub(crate) fn new(features: Features) -> Generator {
        let opcodes = OPCODES.iter().map(|&(opcode, name, share)| ((opcode, name), share));
        Generator {
            values: Values::new(features.seed, features.malformed),
            features,
            opcodes: opcodes.collect(),
            batches: 0,
        }
    }

    pub(crate) fn batch(&mut self) -> Vec<Command> {
        self.batches += 1;
        let random = &mut self.values.random;
        let count = if random.one_in(4) { 1 } else { random.below(BATCH_COMMANDS_MAX) + 1 };
        let protocol = random.share(&self.features.protocols);
        let mut batch: Vec<Command> = Vec::new();
        for _ in 0..count {
            let mut command = self.command(protocol);
            let Features { malformed, cas, .. } = self.features;
            let flush = command.touches_all && !cas;
            if !malformed && (flush || NEW.contains(&command.name)) {
                continue;
            }
            // While an unsent reply holds the item, memcached's `incr` copies the item instead of
            // changing it in place, and the length of the number's text differs.
            let fetched = |before: &Command| before.fetches && before.meets(&command);
            if command.counts && batch.iter().any(fetched) {
                continue;
            }
            command.batch = self.batches;
            let closes = command.closes;
            batch.push(command);
            if closes {
                break;
            }
        }
        if batch.is_empty() { self.batch() } else { batch }
    }

    fn command(&mut self, protocol: Protocol) -> Command {
        let values = &mut self.values;
        let wrong = self.features.malformed && values.random.one_in(MALFORMED_ONCE);
        match protocol {
            Protocol::Text if wrong => malformed::text(values),
            Protocol::Meta if wrong => malformed::meta(values),
            Protocol::Binary if wrong => malformed::binary(values),
            Protocol::Text => match values.random.share(&text::SHARES) {
                "flush_all" if self.features.flushes => text::flush(values, false),
                "flush_all" => text::flush(values, true),
                verb => text::line(values, verb).command(),
            },
            Protocol::Meta => {
                let Features { malformed: all, flushes, ordered, .. } = self.features;
                let dialect = Dialect { all, chosen_uniques: !flushes, ordered };
                let verb = values.random.share(&meta::SHARES);
                meta::line(values, verb, dialect).well_formed()
            }
            Protocol::Binary => match values.random.share(&self.opcodes) {
                (opcode, name @ ("FLUSH" | "FLUSHQ")) => binary::flush(values, opcode, name),
                (opcode, name) => {
                    binary::frame(values, opcode, name, self.features.malformed).command()
                }
            },
        }
    }
}
