//! flush_all.
//!
//! Where: called by `execute`.
//! Invariant: an item stored in a later second than the one flushed is not touched.
//! Source: memcached 1.6.45 `process_flush_all_command`, `item_flush_expired`, `item_is_flushed`.

use protocol::{Form, Refusal, answer};

use super::Context;
use crate::out::Out;

/// `flush_all`, now or at a time; `exptime` is `None` when it was no number.
pub(super) fn all(context: &mut Context, exptime: Option<i64>, form: Form, out: &mut Out) {
    context.counters.flush_cmds.add(1);
    if !context.shared.settings.flush_enabled {
        return form.say(Refusal::FlushRefused, &mut out.buf);
    }
    let Some(exptime) = exptime else {
        return form.say(Refusal::BadExptime, &mut out.buf);
    };
    let oldest_live = match exptime {
        // A time that was before the server started becomes 0: nothing is flushed, and what was
        // planned is off.
        1.. => Some(context.clock.realtime(exptime) - 1),
        _ => None,
    };
    // memcached drops at once what is at least as old as the time given, which for a past one is
    // everything.
    let past = oldest_live.is_some_and(|second| second > 0 && second < context.clock.now);
    context.store.flush(oldest_live.filter(|_| !past));
    form.done(answer::OK, 0, &mut out.buf);
}
