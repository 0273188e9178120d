//! The counters of what columns receive, send and move.
//!
//! Where: a column counts here. What requests do is counted by their executor, and what becomes of
//! items by the store, with the same macro.
//! Invariant: see `memory::counters`.
//! Source: memcached 1.6.45 `struct thread_stats`.

memory::counters! {
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
        let sent = memory::counters::Row {
            name: "udp_sent",
            help: "Datagrams sent.",
            is_gauge: false,
            value: 7,
        };
        assert_eq!(row("udp_sent"), sent);
        assert!(row("queued").is_gauge && row("queued").value == 2);
        let text = "Messages dropped because they look like a server's answer: with forged \
                    packets, two servers can be made to answer each other.";
        assert_eq!(row("udp_dropped_answer").help, text);
        assert!(sums.rows().all(|row| row.help.ends_with('.')));
    }
}
