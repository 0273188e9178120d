//! The counters of columns.
//!
//! Where: a column counts here what it receives, sends and moves. What requests do is counted by
//! their executor, with the same macro.
//! Invariant: only a column's own thread writes the column's counters, so that an addition is a
//! plain load and store. Exceptions are the shared counters, to which any thread adds. Any thread
//! may read all counters. No counter is ever set back.
//! Source: memcached 1.6.45 `struct thread_stats`.

use std::sync::atomic::{AtomicU64, Ordering};

pub use memory::sync::Counter;

/// A counter to which any thread may add, for rare events.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds one.
    pub fn add_one(&self) {
        // Relaxed, like the load in `get`: no other data depend on the number.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // no other data depend on the number
    }
}

/// A sum of counters with its description, as a page of metrics needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name of the counter.
    pub name: &'static str,
    /// One or more sentences that describe the counter.
    pub help: &'static str,
    /// True if the number is the current value of a quantity, which may fall.
    pub is_gauge: bool,
    /// The number.
    pub value: u64,
}

/// Defines, from one list of names, `Counters` (the counters of a column), `Sums` (sums of
/// counters), and functions that add and subtract sums. After `stats reset`, counts are reported
/// from 0 on. Other columns may add to a shared count. A gauge is the current value of a quantity.
#[macro_export]
macro_rules! counters {
    (
        counts: $($(#[doc = $doc:literal])+ $count:ident),+;
        shared: $($(#[doc = $shared_doc:literal])+ $shared:ident),*;
        gauges: $($(#[doc = $gauge_doc:literal])+ $gauge:ident),*;
    ) => {
        /// One column's counters, on separate cache lines.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $count: $crate::counters::Counter,)*
            $($(#[doc = $gauge_doc])+ pub $gauge: $crate::counters::Counter,)*
            $($(#[doc = $shared_doc])+ pub $shared: $crate::counters::SharedCounter,)*
        }

        /// Sums of `Counters`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sums {
            $($(#[doc = $doc])+ pub $count: u64,)*
            $($(#[doc = $shared_doc])+ pub $shared: u64,)*
            $($(#[doc = $gauge_doc])+ pub $gauge: u64,)*
        }

        impl Sums {
            /// Reads one column's counters.
            #[must_use]
            pub fn of(column: &Counters) -> Sums {
                Sums {
                    $($count: column.$count.get(),)*
                    $($shared: column.$shared.get(),)*
                    $($gauge: column.$gauge.get(),)*
                }
            }

            /// Adds other sums, or another column's counters.
            pub fn add(&mut self, more: &Sums) {
                $(self.$count = self.$count.wrapping_add(more.$count);)*
                $(self.$shared = self.$shared.wrapping_add(more.$shared);)*
                $(self.$gauge = self.$gauge.wrapping_add(more.$gauge);)*
            }

            /// The increase of each count since `earlier`, and the current value of each gauge.
            #[must_use]
            pub fn since(&self, earlier: &Sums) -> Sums {
                Sums {
                    $($count: self.$count.wrapping_sub(earlier.$count),)*
                    $($shared: self.$shared.wrapping_sub(earlier.$shared),)*
                    $($gauge: self.$gauge,)*
                }
            }

            /// All sums, each with the text that describes it.
            pub fn rows(&self) -> impl Iterator<Item = $crate::counters::Row> {
                [
                    $((stringify!($count), concat!($($doc),+), false, self.$count),)*
                    $((stringify!($shared), concat!($($shared_doc),+), false, self.$shared),)*
                    $((stringify!($gauge), concat!($($gauge_doc),+), true, self.$gauge),)*
                ]
                .into_iter()
                .map(|(name, help, is_gauge, value)| {
                    $crate::counters::Row { name, help: help.trim_start(), is_gauge, value }
                })
            }
        }
    };
}

counters! {
    counts:
    /// Bytes received from clients.
    bytes_read,
    /// Bytes sent to clients.
    bytes_written,
    /// Turns that ended after `-R` requests although more requests were left.
    conn_yields,
    /// Connections accepted.
    total_connections,
    /// Connections refused by `-c`.
    rejected_connections,
    /// Connections closed by `-o idle_timeout`.
    idle_kicks,
    /// Datagrams received.
    udp_received,
    /// Datagrams sent.
    udp_sent,
    /// Datagrams of answers that could not be sent.
    udp_unsent,
    /// AF_XDP: bytes copied into the packets of answers, headers included.
    copied_bytes,
    /// AF_XDP: bytes of values sent in place, without a copy.
    zero_copy_bytes,
    /// Datagrams dropped because their UDP frame header is missing, wrong or repeated.
    udp_dropped_frame,
    /// Datagrams dropped because an answer to their sender could start a loop of answers, or
    /// because they were sent to a multicast or broadcast address.
    udp_dropped_sender,
    /// Messages dropped because they look like a server's answer: with forged packets, two servers
    /// can be made to answer each other.
    udp_dropped_answer,
    /// Datagrams dropped because their sender is in no network of `-o udp_allow`.
    udp_dropped_network,
    /// Datagrams dropped because they, or the requests to which they belong, are too long.
    udp_dropped_length,
    /// Packets received by `--xdp` and dropped for a wrong checksum, length or sender address.
    udp_dropped_damaged,
    /// Requests dropped because they are incomplete: bytes or datagrams are missing.
    udp_dropped_incomplete,
    /// Replies refused because they are longer than `-o udp_reply_max`.
    udp_replies_too_long,
    /// Messages with more requests or keys than allowed; the excess requests were dropped.
    udp_dropped_work,
    /// Long answers dropped because the client's network reached `AMPLIFIED_BYTES_SECOND_MAX`.
    udp_dropped_amplified,
    /// Loops. A loop executes the input that arrived since the previous loop.
    loops,
    /// Times that the listeners paused, because no descriptor was left or, with
    /// `-o no_maxconns_fast`, because `-c` was reached.
    listen_disabled,
    /// Microseconds for which listeners paused.
    listen_disabled_us,
    /// Times that the column took datagrams from another column of its NUMA node.
    steals_taken_near,
    /// Times that the column took datagrams from a column of another node.
    steals_taken_far,
    /// Datagrams that the column took from other columns.
    datagrams_stolen,
    /// Connections that moved from this column to other columns.
    migrations_given,
    /// Connections that moved to this column from other columns.
    migrations_taken;

    shared:
    /// Times that a column of the same node took datagrams from this column.
    steals_given_near,
    /// Times that a column of another node took datagrams from this column.
    steals_given_far;

    gauges:
    /// The largest number of connections that have ever been open at the same time.
    connection_structures,
    /// Bytes allocated for the state of connections, and for arriving values outside the store.
    connection_bytes,
    /// Number of receive buffers, used and spare, and of buffers with input that connections keep.
    read_buf_count,
    /// Bytes of receive buffers, in use and spare, and of input that connections keep.
    read_buf_bytes,
    /// Bytes of spare receive buffers.
    read_buf_bytes_free,
    /// Number of reply buffers: the column's own, and one for each connection that waits to send.
    response_obj_count,
    /// Bytes of replies: the column's own buffer, and replies that connections wait to send.
    response_obj_bytes,
    /// Connections that wait for room in the store.
    awaiting_room,
    /// Connections that are open.
    connections,
    /// Connections with work left for the next loop.
    queued,
    /// System calls that the column has made for its clients.
    system_calls,
    /// The id that the system gave to the column's thread.
    thread_id;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sum_is_told_with_the_whole_text_that_describes_it() {
        let sums = Sums { udp_sent: 7, queued: 2, ..Sums::default() };
        let row = |name| sums.rows().find(|row| row.name == name).unwrap();
        let sent = Row { name: "udp_sent", help: "Datagrams sent.", is_gauge: false, value: 7 };
        assert_eq!(row("udp_sent"), sent);
        assert!(row("queued").is_gauge && row("queued").value == 2);
        let text = "Messages dropped because they look like a server's answer: with forged \
                    packets, two servers can be made to answer each other.";
        assert_eq!(row("udp_dropped_answer").help, text);
        assert!(sums.rows().all(|row| row.help.ends_with('.')));
    }
}
