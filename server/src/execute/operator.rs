//! Operators' commands that change a running server: `flush_all` and `cache_memlimit`.
//!
//! Where: called by `execute`.
//! Invariant: an item that is stored in a later second than the one flushed stays. Of the memory
//! only the limit is set here; the store comes down to it slice by slice.
//! Source: memcached 1.6.45 `process_flush_all_command`, `item_flush_expired`, `item_is_flushed`,
//! `process_memlimit_command`.

use protocol::{Outcome, Refusal};
use store::OutOfBounds;

use super::Context;

/// Smallest and largest `cache_memlimit`, in MiB.
const MEMLIMIT_MIN: u32 = 8;
const MEMLIMIT_MAX: u32 = 1_000_000_000;

/// `flush_all`, now or at a time; `exptime` is `None` when it was no number.
pub(super) fn flush_all(context: &mut Context, exptime: Option<i64>) -> Outcome {
    context.counters.flush_cmds.add(1);
    if !context.shared.settings.flush_enabled {
        return Outcome::Refused(Refusal::FlushOff);
    }
    let Some(exptime) = exptime else { return Outcome::Refused(Refusal::BadExptime) };
    let oldest_live = match exptime {
        // A time before the server started becomes 0: nothing is flushed, and a flush that was
        // planned is called off.
        1.. => Some(context.clock.realtime(exptime) - 1),
        _ => None,
    };
    // memcached drops at once what is at least as old as the time given. For a time in the past
    // that is everything.
    let past = oldest_live.is_some_and(|second| second > 0 && second < context.clock.now);
    context.store.flush(oldest_live.filter(|_| !past));
    Outcome::Done
}

/// `cache_memlimit`.
pub(super) fn limit_memory(context: &mut Context, megabytes: u32) -> Outcome {
    Outcome::Refused(match megabytes {
        ..MEMLIMIT_MIN => Refusal::LimitTooSmall,
        MEMLIMIT_MIN..=MEMLIMIT_MAX => {
            let store_bytes =
                ((megabytes as usize) << 20).saturating_sub(context.shared.ring_bytes());
            match context.store.limit_memory(store_bytes) {
                Ok(()) => {
                    log::info!("maxbytes adjusted to {megabytes}m");
                    return Outcome::Done;
                }
                Err(OutOfBounds) => Refusal::LimitOutOfBounds,
            }
        }
        _ => Refusal::LimitInBytes,
    })
}
