//! `stats audit`, of debug builds: is everything in the store where it should be?
//!
//! Where: `stats::write` calls it; memcached has no such thing, and neither have release builds.
//! Invariant: where no column works and no value is on its way in or out, what it tells are faults.
//! While they work it may tell what is none, so who asks waits until traffic has stopped, and asks
//! again.
//! Source: `store::Store::audit`.

use super::{Rows, stat};
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let faults = shared.store.audit();
    if faults.is_empty() {
        stat!(rows, "audit", "ok");
    }
    for fault in faults {
        stat!(rows, "audit_fault", fault);
    }
}
