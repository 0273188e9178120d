//! `stats detail`: switches the counts of requests by key prefix on and off, and lists them.
//!
//! Where: `stats::answer` calls `pending`.
//! Invariant: while counting is off, earlier counts stay until `stats reset`.
//! Source: memcached 1.6.45 `process_stats_detail`, `process_bin_stat`.

use protocol::{Outcome, Refusal, Stats};

use super::pending::{Listing, Order, Pending};

pub(super) const NAME: &[u8] = b"detail";

/// The arguments, in memcached's order; the first for which `Form::asks_for` is true is obeyed.
const ON: &[u8] = b"on";
const OFF: &[u8] = b"off";
const DUMP: &[u8] = b"dump";

pub(super) fn pending(request: &Stats<'_>) -> Pending {
    let argument = request.argument(NAME);
    let asks_for = |name: &&[u8]| argument.is_some_and(|word| request.form.asks_for(name, word));
    match [ON, OFF, DUMP].into_iter().find(asks_for) {
        Some(DUMP) => Pending::Errand(Listing::Detail),
        Some(switch) => Pending::Order(Order::CountPrefixes(switch == ON)),
        None => Pending::Reply(Outcome::Refused(Refusal::StatsDetailUsage)),
    }
}
