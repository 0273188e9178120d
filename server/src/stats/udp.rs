//! `stats udp`: numbers of datagrams received, sent and, for each reason, dropped.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: without `-U` the answer is empty. Without `--xdp` no line is about an interface.

use super::rows::{Rows, stat};
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, _) = shared.since_reset();
    if !shared.settings.datagrams.is_empty() {
        stat!(rows, "udp_received", sums.columns.udp_received);
        stat!(rows, "udp_sent", sums.columns.udp_sent);
        stat!(rows, "udp_unsent", sums.columns.udp_unsent);
        stat!(rows, "udp_dropped_frame", sums.columns.udp_dropped_frame);
        stat!(rows, "udp_dropped_sender", sums.columns.udp_dropped_sender);
        stat!(rows, "udp_dropped_answer", sums.columns.udp_dropped_answer);
        stat!(rows, "udp_dropped_network", sums.columns.udp_dropped_network);
        stat!(rows, "udp_dropped_length", sums.columns.udp_dropped_length);
        stat!(rows, "udp_dropped_incomplete", sums.columns.udp_dropped_incomplete);
        stat!(rows, "udp_dropped_work", sums.columns.udp_dropped_work);
        stat!(rows, "udp_dropped_amplified", sums.columns.udp_dropped_amplified);
        stat!(rows, "udp_replies_too_long", sums.columns.udp_replies_too_long);
        stat!(rows, "udp_refused", sums.requests.udp_refused);
    }
    if let Some(bypass) = shared.bypass.get() {
        let dropped = bypass.dropped();
        stat!(rows, "udp_dropped_damaged", sums.columns.udp_dropped_damaged);
        stat!(rows, "copied_bytes", sums.columns.copied_bytes);
        stat!(rows, "zero_copy_bytes", sums.columns.zero_copy_bytes);
        stat!(rows, "xdp_dropped", dropped.dropped);
        stat!(rows, "xdp_ring_full", dropped.ring_full);
        stat!(rows, "xdp_no_chunk", dropped.no_chunk);
        stat!(rows, "xdp_invalid", dropped.invalid);
    }
}
