//! `stats audit` and `stats steps`, of debug builds: the faults that a check of the whole store
//! finds, and the most that one loop has done.
//!
//! Where: `stats::answer` calls it; memcached has no such thing, and neither have release builds.
//! Invariant: while no column works and no value is on its way in or out, every fault that is told
//! is one. During traffic the check may tell of faults that are none: the caller waits until
//! traffic has stopped and asks again.
//! Source: `store::Store::audit`.

use super::{Rows, stat};
use crate::shared::Shared;

/// The most steps of one loop since this was asked last.
pub(super) fn steps(shared: &Shared, rows: &mut Rows<'_>) {
    stat!(rows, "loop_steps_max", shared.take_steps());
}

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let faults = shared.store.audit();
    if faults.is_empty() {
        stat!(rows, "audit", "ok");
    }
    for fault in faults {
        stat!(rows, "audit_fault", fault);
    }
}
