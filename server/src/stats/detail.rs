//! `stats detail`: switches the counts of requests by the prefixes of their keys, and lists them.
//!
//! Where: `stats::answer` calls it.
//! Invariant: while it is off nothing is counted, and earlier counts stay until `stats reset`.
//! Source: memcached 1.6.45 `process_stats_detail`, `process_bin_stat`.

use protocol::{Args, Form, Outcome, Refusal};

use super::{Act, Left};

/// Arguments, in the order in which memcached compares them with the beginning of a word.
const ON: &[u8] = b"on";
const OFF: &[u8] = b"off";
const DUMP: &[u8] = b"dump";

/// Returns the rest of the answer to `stats detail`.
pub(super) fn asked(args: Args<'_>, form: Form) -> Left {
    // In text a second word is needed; in binary the argument follows after one space.
    let asked = match form.lists_items() {
        true => args.token(1),
        false => args.text.strip_prefix(super::DETAIL).and_then(|rest| rest.strip_prefix(b" ")),
    };
    let asks_for = |name: &&[u8]| asked.is_some_and(|asked| form.asks_for(name, asked));
    match [ON, OFF, DUMP].into_iter().find(asks_for) {
        Some(DUMP) => Left::Detail,
        Some(switch) => Left::Act(Act::CountPrefixes(switch == ON)),
        None => Left::Say(Outcome::Refused(Refusal::StatsDetailUsage)),
    }
}
