//! Every bound on what a peer can make a column hold or do.
//!
//! Where: read by connections, datagrams and the loop.
//! Invariant: whatever peers send, a column's memory outside the store stays below the sum of the
//! bounds here, and a turn does a bounded amount of work.

use std::time::Duration;

/// Maximum number of events that one pass of the loop takes from the kernel. This limit bounds the
/// duration of the pass.
pub const EVENTS_MAX: usize = 256;

/// Maximum number of connections that one pass of the loop accepts from one listener. The limit
/// keeps new connections from delaying open connections.
pub const ACCEPTS_MAX: usize = 64;

/// Size of a receive buffer in bytes, which is also the maximum that one read receives. The buffer
/// holds 32 pipelined requests of a kilobyte and fits into the L2 cache. `receive_bytes` computes a
/// larger size if requests need a larger buffer.
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Maximum number of bytes of a large value that one turn reads directly into new frames (parts of
/// a segment). In addition, the turn fills the frame that earlier turns have filled in part.
pub const VALUE_READ_BYTES_MAX: usize = 256 << 10;

/// Maximum number of bytes that a read receives after the end of a large value. The next read has
/// the same limit. The limit is small because another large value may follow, and its bytes should
/// be received directly into frames.
pub const BEHIND_VALUE_BYTES: usize = 4 << 10;

/// When the replies of a turn reach this many bytes, the column sends them, and the connection
/// continues in the next pass of the loop. So at most this many bytes plus one reply wait for a
/// peer that does not read.
pub const OUT_BYTES_MAX: usize = 128 << 10;

/// Maximum number of bytes in the reply to one request, without the value. Only a reply to `stats`
/// may be longer; the buffer then grows.
pub const REPLY_BYTES_MAX: usize = 4 << 10;

/// If a value in the store's segments has at least this many bytes, the server sends it without a
/// copy. The server copies shorter values, because an additional piece of a vectored write costs
/// more than a copy of a short value.
pub const KEPT_BYTES_MIN: usize = 8 << 10;

/// Maximum number of large values that the replies of one turn send without a copy.
pub const PINS_MAX: usize = 64;

/// When the large values in a turn's replies reach this many bytes, the column sends the replies.
/// So a client that reads slowly keeps at most this many bytes plus one value in use.
pub const PINNED_BYTES_TURN_MAX: usize = 1 << 20;

/// Maximum number of pieces in one vectored write. The kernel takes at most 1,024.
pub const PIECES_MAX: usize = 256;

/// One `stats` command counts as this many requests towards `-R` (the maximum number of requests in
/// a turn), because the command costs about as much as 50 gets.
pub const STATS_REQUESTS: u32 = 50;

/// Maximum number of keys of text multigets that one turn looks up. The last key of a command does
/// not count. A multiget with more keys takes several turns.
pub const KEYS_TURN_MAX: u32 = 2048;

/// Size of a small spare buffer in bytes. If a connection's turn leaves input that fits into such a
/// buffer, the column copies the input there, and keeps it until the connection's next turn.
pub const SPARE_SMALL_BYTES: usize = 4 << 10;

/// Maximum number of small spare buffers that a column keeps.
pub const SPARES_SMALL_MAX: usize = 32;

/// Maximum number of spare receive buffers that a column keeps. The `TURNS_AHEAD` buffers in use do
/// not count. So an idle column has less than a megabyte of receive buffers, even after a peak of
/// load.
pub const SPARES_LARGE_MAX: usize = 4;

/// While no input arrives, a column does this many slices of background work in a row and then
/// sleeps for `MAINTAIN_PAUSE_MS`. So background work takes about half of the processor's time.
pub const MAINTAIN_SLICES_MAX: u32 = 16;

/// After `MAINTAIN_SLICES_MAX` slices of background work, a column sleeps this many milliseconds.
pub const MAINTAIN_PAUSE_MS: u64 = 1;

/// If no file descriptor is free for a new connection, or if `-c` is reached, listeners accept no
/// connection for this many milliseconds (as in memcached).
pub const LISTENER_REST_MS: u64 = 10;

/// Size of a receive buffer in bytes, if the log keeps values of up to `log_value_bytes_max` bytes.
/// The buffer has room for the longest request that must be complete before it is executed.
#[must_use]
pub fn receive_bytes(log_value_bytes_max: usize) -> usize {
    RECEIVE_BYTES.max(log_value_bytes_max + 2 * protocol::LINE_BYTES_MAX)
}

/// Bytes that the connections of one column may hold outside the store: incomplete requests,
/// commands whose large value has not arrived, and replies that the peer does not read. All columns
/// together have an eighth of `-m`, at least 32 MiB. A column that exceeds its share closes the
/// connection that has made no progress for the longest time. A column that exceeds half of its
/// share closes only stalled connections.
#[must_use]
pub fn kept_bytes_max(memory_bytes: usize, columns: usize) -> usize {
    (memory_bytes / 8).max(32 << 20) / columns.max(1)
}

/// While a column's connections use more than half of their share of memory, a turn reads at most
/// this many bytes, and its replies have at most this many bytes. So busy clients are slowed down
/// instead of disconnected.
pub const PRESSED_TURN_BYTES: usize = 8 << 10;

/// Bytes of frames that the arriving values of a column may hold: an eighth of `-m` for all columns
/// together. Above this limit, the column drops stalled values. The column also drops stalled
/// values if the store, which gives arriving values a quarter of `-m`, has no frame left for the
/// column.
#[must_use]
pub fn arriving_bytes_share(memory_bytes: usize, columns: usize) -> usize {
    memory_bytes / 8 / columns.max(1)
}

/// Bytes of frames that the waiting replies of a column may pin: half of `-m` for all columns
/// together, and at least one item. A column that exceeds this limit closes the connection that has
/// made no progress for the longest time. A column that exceeds half of this limit closes only
/// stalled connections.
#[must_use]
pub fn pinned_bytes_max(memory_bytes: usize, columns: usize, item_bytes_max: usize) -> usize {
    (memory_bytes / 2 / columns.max(1)).max(item_bytes_max)
}

/// Maximum number of arriving values that a column drops to make room for the next piece of another
/// arriving value.
pub const GIVE_WAY_MAX: usize = 4;

/// An arriving value is stalled if it gains less than `ARRIVAL_STEP_BYTES` in this many
/// milliseconds. A stalled value is dropped when another value needs frames.
pub const ARRIVAL_STALLED_MS: u64 = 100;

/// An arriving value is stalled if it gains less than this many bytes in `ARRIVAL_STALLED_MS`.
pub const ARRIVAL_STEP_BYTES: usize = 16 << 10;

/// Maximum number of milliseconds that an arriving value waits for a frame while no other arriving
/// value is stalled.
pub const ARRIVAL_WAIT_MS_MAX: u64 = 2000;

/// A column sleeps for this time if its only work is to retry requests that wait for room in the
/// store. In this time, other columns finish a pass of the loop, which may free room.
pub const ROOM_RETRY: Duration = Duration::from_micros(200);

/// In one pass of the loop, a column retries the requests of at most this many connections that
/// wait for room in the store. The connection that has waited longest comes first.
pub const ROOM_RETRIES_MAX: usize = 16;

/// Maximum number of milliseconds that a request waits for room in the store. After this time the
/// request is refused.
pub const ROOM_WAIT_MS_MAX: u64 = 2000;

/// While values arrive, a column searches for stalled values once in this many milliseconds.
pub const ARRIVALS_CHECK_MS: u64 = 1000;

/// A column adds up the durations of the passes of its loop to measure how long a connection has
/// stalled or waited. One pass of the loop counts as at most this many milliseconds, so that time
/// in which the column did not run does not count against the connection.
pub const LOOP_MS_MAX: u64 = 50;

/// A connection is stalled if its waiting replies or its incomplete request have made no progress
/// for this many milliseconds. The column may close stalled connections if more than half of its
/// share of memory is used. It may close other connections only if the whole share is used.
pub const STALLED_MS: u64 = 2000;

/// If a search finds no stalled connection to close, the column waits this many milliseconds before
/// the next search.
pub const RELIEF_REST_MS: u64 = 100;

/// Maximum number of connections whose requests are executed as one batch. A column has a receive
/// buffer for each of these connections.
pub const TURNS_AHEAD: usize = 8;

/// Number of requests that are parsed before the first of them is executed, so that the processor
/// can prefetch the memory that these requests access. A processor has about this many line fill
/// buffers.
pub const REQUESTS_AHEAD: usize = 16;

/// Maximum number of bytes in a request that arrives in several datagrams.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of datagrams in which one request may arrive.
pub const PARTS_MAX: usize = 128;

/// A request may arrive in several datagrams. A part of such a request stays in its chunk if the
/// part has at least this many bytes or is the last part. The column copies shorter parts out of
/// their chunks, so that they occupy no chunks.
pub const KEPT_PART_BYTES_MIN: usize = 256;

/// The incomplete requests of one address may keep at most this number of chunks at one column:
/// (all chunks for values) / (columns x `KEPT_OF_ONE_PART`). The column copies further parts of
/// these requests out of their chunks.
pub const KEPT_OF_ONE_PART: usize = 64;

/// At one column, the incomplete requests of one address may always keep this many chunks, even if
/// `KEPT_OF_ONE_PART` gives a lower limit. This many chunks hold one request of the maximum length.
pub const KEPT_OF_ONE_MIN: usize = 64;

/// Maximum number of incomplete requests that a column keeps. Some datagrams of such a request have
/// not arrived.
pub const ASSEMBLIES_MAX: usize = 128;

/// Maximum number of incomplete requests of one address that a column keeps, so that there is room
/// for the requests of other addresses. The limit is large, because all requests of a host may be
/// incomplete while other columns help and take some of the datagrams.
pub const ASSEMBLIES_OF_ONE_MAX: usize = 48;

/// Number of milliseconds that an incomplete request waits for its missing datagrams. After this
/// time, the column drops the request within a second.
pub const PARTS_WAIT_MS_MAX: u64 = 1000;

/// Maximum number of requests in one message. The next request is refused, and the rest of the
/// message is dropped. Requests are counted as for `-R` (so one `stats` counts as 50). 1,024
/// requests take about half a millisecond.
pub const MESSAGE_REQUESTS_MAX: u32 = 1024;

/// Number of bytes that each request of a message adds to the bytes counted for
/// `MESSAGES_TURN_BYTES`.
pub const REQUEST_COST_BYTES: usize = 64;

/// Number of bytes that each key of a `get` line or a similar line adds to the bytes counted for
/// `MESSAGES_TURN_BYTES`. The last key of a line adds none.
pub const KEY_COST_BYTES: usize = 16;

/// If any network may send requests, an answer may be up to this many times as long as its request
/// without a charge. Further bytes are charged to the sender's network. RFC 9000, section 8.1, has
/// the same factor.
pub const AMPLIFIED_TIMES_FREE: usize = 3;

/// Maximum number of bytes that may be charged to a network in a second. This is about a hundredth
/// of a gigabit link, and enough for tests by hand. After the answer that exceeds the limit, the
/// network gets no further answer with charged bytes in the same second.
pub const AMPLIFIED_BYTES_SECOND_MAX: u32 = 1 << 20;

/// Number of entries in the table of bytes charged to networks. All columns share the table.
/// Networks that share an entry share its limit.
pub const CHARGES: usize = 4096;

/// Maximum number of datagrams, or bursts of datagrams, that one receive call returns. Each
/// datagram or burst has a slot of `SLOT_BYTES_MAX` bytes.
pub const DATAGRAMS_RECEIVED_MAX: usize = net::BATCH_MAX;

/// While datagrams keep arriving, one pass of the loop takes at most this many turns for datagrams.
pub const DATAGRAM_TURNS_MAX: usize = 4;

/// A column counts as behind if one pass of the loop receives at least this many datagrams. In that
/// case some of the datagrams arrived while the column executed earlier datagrams.
pub const BEHIND_DATAGRAMS: usize = 16;

/// A column also counts as behind if a pass of the loop takes at least this many nanoseconds and
/// one receive call in this pass returned at least a quarter of `BEHIND_DATAGRAMS` datagrams.
pub const BEHIND_NS: u64 = 100_000;

/// Other columns may take datagrams from a column that was behind in this many passes of its loop
/// in a row.
pub const BEHIND_LOOPS: u32 = 2;

/// While other columns take datagrams from a column, the column receives at most as many datagrams
/// at once as it executes in this many nanoseconds. It leaves the other datagrams in the socket.
pub const SHARED_NS: u64 = BEHIND_NS;

/// After other columns have taken datagrams from a column, the column expects their further help
/// for this many nanoseconds.
pub const HELPED_NS: u64 = 2_000_000;

/// A column that is behind wakes a sleeping column at most once in this many nanoseconds.
pub const STEAL_WAKE_NS: u64 = 1_000_000;

/// A column sleeps after this many failed attempts in a row to take datagrams from other columns.
/// An attempt takes about a microsecond.
pub const STEAL_TRIES_MAX: u32 = 64;

/// Length of a period in milliseconds. At the end of each period, a column publishes its load of
/// the period. A column gives connections away at most once in a period.
pub const MIGRATION_PERIOD_MS: u64 = 500;

/// A column is saturated in a period if it was busy or ready to run for at least this many
/// thousandths of the period.
pub const MIGRATION_BUSY: u32 = 900;

/// A column has time to spare in a period if it was busy or ready to run for at most this many
/// thousandths of the period.
pub const MIGRATION_SPARE: u32 = 800;

/// A column (a thread with its own event loop) gives connections away if it was saturated for this
/// many periods in a row while other columns had time to spare. For the same number of periods
/// after a move, the column gives no connections away, and the columns that took its connections
/// take no more connections.
pub const MIGRATION_PERIODS: u32 = 2;

/// A connection that has moved stays in its new column for at least this many milliseconds.
pub const MIGRATION_REST_MS: u64 = 5000;

/// Maximum number of connections that a column gives away at a time. A column's mailbox also holds
/// at most this many connections.
pub const MIGRATIONS_MAX: usize = 512;

/// Maximum number of candidates from which a column chooses the connections that it gives away. The
/// candidates are the column's busiest connections.
pub const MIGRATION_CANDIDATES_MAX: usize = 1024;

/// A connection's load is the number of bytes that it receives and sends, plus this many bytes for
/// each read.
pub const TURN_COST_BYTES: u64 = 4096;

/// A turn for a column's datagrams ends after this many bytes of messages, so that the column's
/// connections get their turns too. Each message counts as `MESSAGE_COST_BYTES` more than its
/// length, because a turn may have many short messages.
pub const MESSAGES_TURN_BYTES: usize = 256 << 10;

/// Each message counts towards `MESSAGES_TURN_BYTES` as this many bytes more than its length.
pub const MESSAGE_COST_BYTES: usize = 64;

/// Maximum number of milliseconds that a datagram waits for room in the store. After this time, its
/// request is refused. This limit is less than `ROOM_WAIT_MS_MAX`, because all later datagrams wait
/// as well.
pub const DATAGRAM_WAIT_MS_MAX: u64 = 50;

/// When this many answers to datagrams wait to be sent, the column sends them before it executes
/// more requests.
pub const ANSWERS_MAX: usize = 256;

/// Maximum number of datagrams that the server passes to the kernel in one call.
pub const DATAGRAMS_SENT_MAX: usize = 256;

/// Maximum number of pieces, in all datagrams together, that the server passes to the kernel in one
/// call.
pub const DATAGRAM_PIECES_SENT_MAX: usize = 1024;

/// `stats conns` asks each column for its list of connections page by page. A page has at most this
/// many connections.
pub const CONNECTIONS_TOLD_MAX: usize = 256;

/// Maximum number of page requests of `stats conns` that are open at a time, in all columns
/// together. Further page requests wait.
pub const PAGE_REQUESTS_MAX: usize = 64;

/// Maximum number of page requests of `stats conns` that a column answers in one pass of the loop.
pub const PAGES_ANSWERED_MAX: usize = 4;

/// If an errand has nothing to do at the moment, its next step begins after this time.
pub const ERRAND_RETRY: Duration = Duration::from_millis(10);
