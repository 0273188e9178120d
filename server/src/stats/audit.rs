//! `stats audit` and `stats steps`, in debug builds: the faults that a check of the whole store
//! finds, and the largest number of steps in one loop.
//!
//! Where: called by `stats::answer`; neither memcached nor release builds have these statistics.
//! Invariant: while no column works and no value is being received or sent, every reported fault is
//! real. During traffic, faults may be false: the caller then checks again after the traffic.
//! Source: `store::Store::audit`.

use super::rows::{Rows, stat};
use crate::shared::Shared;

/// Writes the largest number of steps in one loop since the last call.
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
