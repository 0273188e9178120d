//! `stats columns`: the work and the idle time of each column.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: if `stats` shows a count too, it shows the sum of the columns' counts.
//! Source: /proc/self/task/ID/schedstat, whose first number is nanoseconds on a processor.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use super::rows::Rows;
use crate::machine::numa::Nodes;
use crate::shared::{Shared, Sums};

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let (cpus, nodes) = (&shared.settings.cpus, Nodes::read(Path::new("/")));
    for (number, column) in shared.columns_since_reset().iter().enumerate() {
        let cpu = cpus.get(number % cpus.len().max(1)).copied();
        let mut row = |name: &str, value: &dyn Display| {
            rows.row(&format!("columns:{number}:{name}"), format_args!("{value}"));
        };
        row("cpu", &or_none(cpu));
        row("numa_node", &or_none(cpu.and_then(|cpu| nodes.of(cpu))));
        row("idle_percent", &or_none(idle_percent(shared, column.columns.thread_id)));
        row("curr_connections", &column.columns.connections);
        row("total_connections", &column.columns.total_connections);
        row("bytes_read", &column.columns.bytes_read);
        row("bytes_written", &column.columns.bytes_written);
        row("udp_received", &column.columns.udp_received);
        row("udp_sent", &column.columns.udp_sent);
        row("datagrams_stolen", &column.columns.datagrams_stolen);
        row("steals_taken_near", &column.columns.steals_taken_near);
        row("steals_taken_far", &column.columns.steals_taken_far);
        row("steals_given_near", &column.columns.steals_given_near);
        row("steals_given_far", &column.columns.steals_given_far);
        row("migrations_taken", &column.columns.migrations_taken);
        row("migrations_given", &column.columns.migrations_given);
        row("executed", &executed(column));
        row("batches", &column.columns.loops);
        row("system_calls", &column.columns.system_calls);
        row("queued", &column.columns.queued);
        row("awaiting_room", &column.columns.awaiting_room);
    }
}

/// Converts a number for display. An unknown number, such as an unpinned column's, becomes -1.
fn or_none(number: Option<usize>) -> i64 {
    number.and_then(|number| i64::try_from(number).ok()).unwrap_or(-1)
}

/// Number of requests that `stats` counts by command; each key of a multiget counts as one.
pub(crate) fn executed(column: &Sums) -> u64 {
    column.requests.gets()
        + column.requests.set_cmds
        + column.requests.touches()
        + column.requests.flush_cmds
        + column.requests.meta_cmds
        + column.requests.delete_hits
        + column.requests.delete_misses
        + column.requests.incr_hits
        + column.requests.incr_misses
        + column.requests.decr_hits
        + column.requests.decr_misses
}

/// The percentage of the time since the server started in which the column's thread did not run.
fn idle_percent(shared: &Shared, thread_id: u64) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).ok()?;
    let busy_ns: u128 = text.split(' ').next()?.parse().ok()?;
    let all_ns = shared.started.elapsed().as_nanos().max(1);
    let busy_percent = usize::try_from(busy_ns * 100 / all_ns).ok()?;
    Some(100 - busy_percent.min(100))
}
