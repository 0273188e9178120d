//! `stats detail`: requests counted by the prefixes of their keys, or not, and what was counted.
//!
//! Where: `stats::answer` calls it.
//! Invariant: while it is off nothing is counted, and what was counted stays until `stats reset`.
//! Source: memcached 1.6.45 `process_stats_detail`, `process_bin_stat`.

use protocol::{Args, Outcome, Refusal};

use super::{Left, Rows};
use crate::errand::detail::Detail;
use crate::shared::Shared;
use crate::watch;

/// What may be asked, in the order in which memcached looks for the beginning of a word.
const ON: &[u8] = b"on";
const OFF: &[u8] = b"off";
const DUMP: &[u8] = b"dump";

pub(super) fn write(shared: &Shared, args: Args<'_>, rows: &mut Rows<'_>) -> Left {
    let is_text = rows.form.lists_items();
    // In text a second word has to be there; in binary it stands behind one space.
    let asked = match is_text {
        true => args.token(1),
        false => args.text.strip_prefix(super::DETAIL).and_then(|rest| rest.strip_prefix(b" ")),
    };
    let Some(asked) = asked else { return Left::Say(Outcome::Refused(Refusal::StatsDetailUsage)) };
    let asks_for = |name: &&[u8]| rows.form.asks_for(name, asked);
    Left::Say(match [ON, OFF, DUMP].into_iter().find(asks_for) {
        Some(DUMP) if is_text => return Left::Detail,
        Some(DUMP) => {
            Detail::whole(&shared.prefixes, rows.form, rows.out);
            Outcome::StatsEnd
        }
        Some(switch) => {
            shared.watch.set(watch::DETAIL, switch == ON);
            if is_text { Outcome::Done } else { Outcome::StatsEnd }
        }
        None => Outcome::Refused(Refusal::StatsDetailUsage),
    })
}
