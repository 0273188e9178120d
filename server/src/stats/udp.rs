//! `stats udp`: numbers of datagrams received, sent and, for each reason, dropped.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: without `-U` the answer is empty. Without `--xdp` no line is about an interface.

use super::rows::{Rows, stat, stats};
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (sums, _) = shared.since_reset();
    if !shared.settings.datagrams.is_empty() {
        stats!(rows, sums.columns =>
            udp_received, udp_sent, udp_unsent, udp_dropped_frame, udp_dropped_sender,
            udp_dropped_answer, udp_dropped_network, udp_dropped_length, udp_dropped_incomplete,
            udp_dropped_work, udp_dropped_amplified, udp_replies_too_long);
        stat!(rows, "udp_refused", sums.requests.udp_refused);
    }
    if let Some(bypass) = shared.bypass.get() {
        let dropped = bypass.dropped();
        stats!(rows, sums.columns => udp_dropped_damaged, copied_bytes, zero_copy_bytes);
        stat!(rows, "xdp_dropped", dropped.dropped);
        stat!(rows, "xdp_ring_full", dropped.ring_full);
        stat!(rows, "xdp_no_chunk", dropped.no_chunk);
        stat!(rows, "xdp_invalid", dropped.invalid);
    }
}
