//! `stats detail`: switches the counts of requests by key prefix on and off, and lists them.
//!
//! Where: `stats::answer` calls `pending`.
//! Invariant: while counting is off, earlier counts stay until `stats reset`.
//! Source: memcached 1.6.45 `process_stats_detail`, `process_bin_stat`.

use protocol::{Args, Form, Outcome, Refusal};

use super::pending::{Listing, Order, Pending};

pub(super) const NAME: &[u8] = b"detail";

/// The arguments, in memcached's order; the first for which `Form::asks_for` is true is obeyed.
const ON: &[u8] = b"on";
const OFF: &[u8] = b"off";
const DUMP: &[u8] = b"dump";

pub(super) fn pending(args: Args<'_>, form: Form) -> Pending {
    // In text the argument is the second word; in binary it follows the name after one space.
    let argument = match form.lists_items() {
        true => args.token(1),
        false => args.text.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(b" ")),
    };
    let asks_for = |name: &&[u8]| argument.is_some_and(|argument| form.asks_for(name, argument));
    match [ON, OFF, DUMP].into_iter().find(asks_for) {
        Some(DUMP) => Pending::Errand(Listing::Detail),
        Some(switch) => Pending::Order(Order::CountPrefixes(switch == ON)),
        None => Pending::Reply(Outcome::Refused(Refusal::StatsDetailUsage)),
    }
}
