//! Every bound on what a peer can make the server hold or do.
//!
//! Where: read by connections and columns.
//! Invariant: whatever peers send, a column's memory outside the store stays below the sum of the
//! bounds here, and a turn does a bounded amount of work.

use std::time::Duration;

/// Maximum number of steps in one connection's turn. A step is one request, one key of a request,
/// one entry that a list or a count examines, or 64 bytes of written replies.
pub const TURN_STEPS_MAX: u64 = 1 << 13;

/// Maximum number of steps for one message. It allows for the steps of a turn, for writing
/// `UDP_REPLY_BYTES_MAX` bytes of replies, and for writing one more value.
pub const MESSAGE_STEPS_MAX: u64 = 1 << 15;

/// Maximum number of steps that one loop spends on datagrams. A loop takes up to
/// `DATAGRAM_TURNS_MAX` turns for them, and each turn may exceed `MESSAGES_TURN_BYTES` by one
/// message.
pub const LOOP_STEPS_MAX: u64 = DATAGRAM_TURNS_MAX as u64 * MESSAGE_STEPS_MAX;

/// Maximum number of events that one loop takes from the kernel. This bounds the duration of the
/// loop.
pub const EVENTS_MAX: usize = 256;

/// Maximum number of connections that one loop accepts from one listener. So a flood of new
/// connections does not delay open ones.
pub const ACCEPTS_MAX: usize = 64;

/// Size of a receive buffer in bytes, and so the most that one read receives. It is large enough
/// for 32 pipelined requests of a kilobyte in one system call, and small enough to stay in the L2
/// cache. `receive_bytes` makes it larger if requests need more.
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Maximum number of bytes that one turn reads straight into the frames of a large value, in
/// addition to the room left in the frame that is being filled.
pub const VALUE_READ_BYTES_MAX: usize = 256 << 10;

/// Maximum number of bytes that a read receives after the end of a large value, and that the next
/// read receives. These bytes may begin another large value, which should be read straight into its
/// frames.
pub const BEHIND_VALUE_BYTES: usize = 4 << 10;

/// When the replies of a turn reach this many bytes, they are sent, and the connection continues in
/// the next loop. A column does not read from a peer while replies wait for that peer. So at most
/// this many bytes plus one reply wait for a peer that does not read.
pub const OUT_BYTES_MAX: usize = 128 << 10;

/// Maximum number of bytes in the reply to one request, without its value: `VALUE`, the key and
/// three numbers, or the flags of a meta reply. Only a reply to `stats` may be longer; the buffer
/// grows for it.
pub const REPLY_BYTES_MAX: usize = 4 << 10;

/// A value in the log of at least this many bytes is sent without a copy. A shorter value is
/// copied, because one more piece of a vectored write costs more than the copy.
pub const KEPT_BYTES_MIN: usize = 8 << 10;

/// Maximum number of large values that the replies of one turn send without a copy.
pub const PINS_MAX: usize = 64;

/// When the large values in a turn's replies reach this many bytes, the replies are sent, and the
/// connection continues in the next loop. So one slow reader pins at most this many bytes plus one
/// value.
pub const PINNED_BYTES_TURN_MAX: usize = 1 << 20;

/// Maximum number of pieces in one vectored write. The kernel takes at most 1,024.
pub const PIECES_MAX: usize = 256;

/// One `stats` counts as this many requests towards `-R`, the limit of a turn. A `stats` costs
/// about as much as 50 gets, so a client that repeats `stats` delays others no more than a client
/// that repeats `get`.
pub const STATS_REQUESTS: u32 = 50;

/// Maximum number of keys of multigets that one turn looks up. A command with more keys takes
/// several turns.
pub const KEYS_TURN_MAX: u32 = 2048;

/// Size of a small spare buffer in bytes. Input left between turns is copied into such a buffer if
/// it fits.
pub const SPARE_SMALL_BYTES: usize = 4 << 10;

/// Maximum number of small spare buffers that a column keeps.
pub const SPARES_SMALL_MAX: usize = 32;

/// Maximum number of spare receive buffers that a column keeps, in addition to the `TURNS_AHEAD` in
/// use. So an idle column has less than a megabyte of receive buffers, even after a peak.
pub const SPARES_LARGE_MAX: usize = 4;

/// Number of slices of background work that a column does in a row while nothing arrives. The
/// column then sleeps for `MAINTAIN_PAUSE_MS`, so this work takes about half of the processor's
/// time.
pub const MAINTAIN_SLICES_MAX: u32 = 16;

/// After `MAINTAIN_SLICES_MAX` slices of background work, a column sleeps for this many
/// milliseconds.
pub const MAINTAIN_PAUSE_MS: u64 = 1;

/// Listeners accept nothing for this many milliseconds if no descriptor is left for a new
/// connection, or if `-c` is reached (as in memcached).
pub const LISTENER_REST_MS: u64 = 10;

/// Size of a receive buffer in bytes, if the log keeps values of up to `log_value_bytes_max` bytes.
/// The buffer has room for the longest request that must be complete before it is executed.
#[must_use]
pub fn receive_bytes(log_value_bytes_max: usize) -> usize {
    RECEIVE_BYTES.max(log_value_bytes_max + 2 * protocol::LINE_BYTES_MAX)
}

/// Share of a column: bytes that the column's connections may hold outside the store, for
/// incomplete requests, for commands whose large value has not arrived, and for replies that the
/// peer does not read. The shares of all columns are an eighth of `-m` together, and at least 32
/// MiB. Above its share, a column closes the connection that has made no progress for longest;
/// above half of the share, it does so only if that connection is stalled.
#[must_use]
pub fn kept_bytes_max(memory_bytes: usize, columns: usize) -> usize {
    (memory_bytes / 8).max(32 << 20) / columns.max(1)
}

/// While a column's connections hold more than half of their share of memory, a turn reads at most
/// this many bytes. Its replies have the same limit. Many busy clients are then slowed down instead
/// of closed.
pub const PRESSED_TURN_BYTES: usize = 8 << 10;

/// Bytes of frames that the arriving values of a column may hold: an eighth of `-m` for all columns
/// together. Above that, the column drops the stalled ones among these values. The store gives
/// arriving values a quarter of `-m`; if it has no frame left for a column, the column drops its
/// stalled values at once.
#[must_use]
pub fn arriving_bytes_share(memory_bytes: usize, columns: usize) -> usize {
    memory_bytes / 8 / columns.max(1)
}

/// Bytes of frames that the waiting replies of a column may pin: half of `-m` for all columns
/// together, and one item in any case. Above that, the column closes the connection that has made
/// no progress for longest; above half of it, the column does so only if that connection is
/// stalled.
#[must_use]
pub fn pinned_bytes_max(memory_bytes: usize, columns: usize, item_bytes_max: usize) -> usize {
    (memory_bytes / 2 / columns.max(1)).max(item_bytes_max)
}

/// To make room for the next piece of an arriving value, a column drops at most this many other
/// arriving values.
pub const GIVE_WAY_MAX: usize = 4;

/// An arriving value is stalled if it gains less than `ARRIVAL_STEP_BYTES` in this many
/// milliseconds. A stalled value is dropped when another value needs frames.
pub const ARRIVAL_STALLED_MS: u64 = 100;

/// An arriving value is stalled if it gains less than this many bytes in `ARRIVAL_STALLED_MS`.
pub const ARRIVAL_STEP_BYTES: usize = 16 << 10;

/// Maximum number of milliseconds that an arriving value waits for a frame while no other arriving
/// value is stalled.
pub const ARRIVAL_WAIT_MS_MAX: u64 = 2000;

/// A column that can only retry requests that wait for room in the store sleeps for this time.
/// Other columns, whose work may free room, finish a loop in less time.
pub const ROOM_RETRY: Duration = Duration::from_micros(200);

/// Maximum number of connections waiting for room in the store that get a turn in one loop. The
/// connection that has waited longest comes first.
pub const ROOM_RETRIES_MAX: usize = 16;

/// Maximum number of milliseconds that a request waits for room in the store. After that it is
/// refused.
pub const ROOM_WAIT_MS_MAX: u64 = 2000;

/// While values arrive, a column searches for stalled values once in this many milliseconds.
pub const ARRIVALS_CHECK_MS: u64 = 1000;

/// A column adds up the milliseconds of its loops to measure how long a connection has stalled or
/// waited. One loop counts as at most this many, because a connection is not responsible for time
/// in which the column did not run.
pub const LOOP_MS_MAX: u64 = 50;

/// A connection is stalled if its waiting replies or its incomplete request have made no progress
/// for this many milliseconds. A stalled connection may be closed once half of a column's share of
/// memory is used, any other only once the whole share is used.
pub const STALLED_MS: u64 = 2000;

/// If a search finds no stalled connection to close, the next search begins after this many
/// milliseconds.
pub const RELIEF_REST_MS: u64 = 100;

/// Maximum number of connections whose requests are executed as one batch. A column has this many
/// receive buffers, one for each.
pub const TURNS_AHEAD: usize = 8;

/// Number of requests that are parsed before the first of them is executed, so that the processor
/// prefetches the memory that they access. A processor has about this many line fill buffers.
pub const REQUESTS_AHEAD: usize = 16;

/// Maximum number of bytes in a request that arrives in several datagrams.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of datagrams in which one request may arrive.
pub const PARTS_MAX: usize = 128;

/// A part of a request in several datagrams stays in its chunk if it has at least this many bytes,
/// or is the last part. A shorter part is copied, so that short parts occupy no chunks.
pub const KEPT_PART_BYTES_MIN: usize = 256;

/// Divisor of the chunks that the incomplete requests of one address may keep at a column: the
/// arena's chunks for values, divided by the number of columns and by this number. Parts that
/// arrive beyond this limit are copied.
pub const KEPT_OF_ONE_PART: usize = 64;

/// The incomplete requests of one address may always keep this many chunks at a column. That is
/// enough for one request of the maximum length.
pub const KEPT_OF_ONE_MIN: usize = 64;

/// Maximum number of incomplete requests in several datagrams that a column keeps.
pub const ASSEMBLIES_MAX: usize = 128;

/// Maximum number of incomplete requests from one address that a column keeps. So a sender that
/// completes no request leaves room for others. All requests that a host has in flight may be
/// incomplete while another column steals some of their datagrams.
pub const ASSEMBLIES_OF_ONE_MAX: usize = 48;

/// An incomplete request waits this many milliseconds for its other datagrams. After that it is
/// dropped within a second.
pub const PARTS_WAIT_MS_MAX: u64 = 1000;

/// Maximum number of requests in one message, counted as in a connection's turn. They take about
/// half a millisecond. The next request is refused, and the rest of the message is dropped.
pub const MESSAGE_REQUESTS_MAX: u32 = 1024;

/// Bytes that each request of a message adds to the size that counts towards `MESSAGES_TURN_BYTES`.
pub const REQUEST_COST_BYTES: usize = 64;

/// Bytes added for each key but the last of a retrieval line when a message counts towards
/// `MESSAGES_TURN_BYTES`.
pub const KEY_COST_BYTES: usize = 16;

/// Maximum number of bytes in one reply over UDP if only known networks may send requests and `-o
/// udp_reply_max` is not given.
pub const UDP_REPLY_BYTES_MAX: usize = 1 << 20;

/// Maximum number of bytes in one reply over UDP if any network may send requests and `-o
/// udp_reply_max` is not given. A request has the same limit. A socket buffer of the usual 208 KiB
/// holds such a reply in datagrams of 1,400 bytes, with the kernel's overhead.
pub const UDP_REPLY_OPEN_BYTES_MAX: usize = 64 << 10;

/// If any network may send requests, an answer is free up to this many times the bytes of its
/// request. Further bytes are charged to the sender's network (RFC 9000, section 8.1, has the same
/// factor).
pub const AMPLIFIED_TIMES_FREE: usize = 3;

/// Maximum number of bytes that may be charged to a network in a second. It is a hundredth of a
/// gigabit link, and enough for trials by hand. The answer that exceeds the limit is the last long
/// one in that second.
pub const AMPLIFIED_BYTES_SECOND_MAX: u32 = 1 << 20;

/// Number of entries in the table of bytes charged to networks. All columns share the table.
/// Networks that share an entry share its limit.
pub const CHARGES: usize = 4096;

/// Maximum number of datagrams, or bursts of datagrams, that one receive brings. Each has a slot of
/// `SLOT_BYTES_MAX` bytes.
pub const DATAGRAMS_RECEIVED_MAX: usize = net::BATCH_MAX;

/// While datagrams keep arriving, a loop takes at most this many turns for them.
pub const DATAGRAM_TURNS_MAX: usize = 4;

/// A column counts as behind if one loop receives at least this many datagrams: some of them
/// arrived while the column executed others.
pub const BEHIND_DATAGRAMS: usize = 16;

/// A column also counts as behind if a loop takes at least this many nanoseconds and one receive in
/// it brought at least a quarter of `BEHIND_DATAGRAMS` datagrams.
pub const BEHIND_NS: u64 = 100_000;

/// Other columns may take a column's datagrams once the column was behind in this many loops in a
/// row.
pub const BEHIND_LOOPS: u32 = 2;

/// While other columns take datagrams from a column, that column receives at most as many at once
/// as it executes in this many nanoseconds. It leaves the other datagrams in the socket for those
/// columns.
pub const SHARED_NS: u64 = BEHIND_NS;

/// When other columns have taken datagrams from a column, it expects them to take more within this
/// many nanoseconds.
pub const HELPED_NS: u64 = 2_000_000;

/// A column that is behind wakes a sleeping column at most once in this many nanoseconds.
pub const STEAL_WAKE_NS: u64 = 1_000_000;

/// After this many failed attempts in a row to take datagrams from other columns, a column sleeps.
/// An attempt takes about a microsecond.
pub const STEAL_TRIES_MAX: u32 = 64;

/// A column measures its load for this many milliseconds, a period, and then publishes the load. It
/// gives connections away at most once in a period.
pub const MIGRATION_PERIOD_MS: u64 = 500;

/// A column is saturated in a period if it was busy or ready to run for at least this many
/// thousandths of the period.
pub const MIGRATION_BUSY: u32 = 900;

/// A column has time to spare in a period if it was busy or ready to run for at most this many
/// thousandths of the period.
pub const MIGRATION_SPARE: u32 = 800;

/// A column gives connections away when it was saturated for this many periods in a row while
/// others had time to spare. For the same number of periods afterwards it gives none, and the
/// columns that took connections take no others.
pub const MIGRATION_PERIODS: u32 = 2;

/// A connection that has moved stays in its new column for at least this many milliseconds.
pub const MIGRATION_REST_MS: u64 = 5000;

/// Maximum number of connections that a column gives away at a time. A column's mailbox holds at
/// most the same number of connections.
pub const MIGRATIONS_MAX: usize = 512;

/// A column chooses the connections that it gives away from at most this many, its busiest ones.
pub const MIGRATION_CANDIDATES_MAX: usize = 1024;

/// A connection's load is measured in the bytes that it moves. For each read, this many bytes is
/// added: the cost of two system calls.
pub const TURN_COST_BYTES: u64 = 4096;

/// A turn for a column's datagrams ends after this many bytes of messages, so that others get a
/// turn. `MESSAGE_COST_BYTES` are added for each message, because there may be many short ones.
pub const MESSAGES_TURN_BYTES: usize = 256 << 10;

/// Bytes added to the length of a message when the message counts towards `MESSAGES_TURN_BYTES`.
pub const MESSAGE_COST_BYTES: usize = 64;

/// Maximum number of milliseconds that a datagram waits for room in the store. After that its
/// request is refused. This is less than `ROOM_WAIT_MS_MAX`, because later datagrams wait as well.
pub const DATAGRAM_WAIT_MS_MAX: u64 = 50;

/// When this many answers to datagrams wait, they are sent before more requests are executed.
pub const ANSWERS_MAX: usize = 256;

/// Maximum number of datagrams handed to the system in one call.
pub const DATAGRAMS_SENT_MAX: usize = 256;

/// Maximum number of pieces of all datagrams handed to the system in one call. A datagram has few
/// pieces: text, and one or two frames of a large value.
pub const DATAGRAM_PIECES_SENT_MAX: usize = 1024;

/// Number of bytes requested for each buffer of a UDP socket, so that a burst fits. The kernel may
/// allow fewer.
pub const UDP_BUFFER_BYTES: usize = 4 << 20;

/// Maximum number of packets in memory for one queue of an interface: half of them for receiving,
/// half for sending.
pub const RING_CHUNKS_MAX: u32 = 4096;

/// The packets of all queues take at most `-m` divided by this number.
pub const RING_PART: usize = 4;

/// Number of places for dumps, in all columns together. A dump or a count of all items has a place
/// while it is under way.
pub const DUMPS_MAX: usize = 4;

/// On average, a busy column samples one loop in this many, chosen at random.
pub const LOOPS_SAMPLED_ONE_IN: u32 = 128;

/// If a column ran no loop for this many milliseconds, its next loop is sampled too.
pub const REST_MS: u64 = 10;

/// Maximum number of requests that are sampled in one loop.
pub const SAMPLED_LOOP_MAX: u32 = 256;

/// Number of keys that each column keeps for `stats hot`. A key with more than 1/`HOT_KEYS_MAX` of
/// the sampled requests is always among them.
pub const HOT_KEYS_MAX: usize = 128;

/// Maximum number of keys that `stats hot` lists, from all columns together.
pub const HOT_KEYS_TOLD: usize = 20;

/// Number of keys with the longest values that each column keeps. `stats hot` lists the same
/// number.
pub const BIG_KEYS_MAX: usize = 16;

/// Each time a column has taken this many samples, all earlier samples count half as much in `stats
/// hot`.
pub const HOT_SAMPLES: u32 = 1 << 14;

/// A dump is stalled if it takes fewer than `DUMP_STEPS_MIN` steps in this many seconds. A stalled
/// dump ends if another dump needs its place.
pub const DUMP_STALLED_SECONDS: u32 = 10;

/// A dump keeps its place if it takes at least this many steps in `DUMP_STALLED_SECONDS`. The steps
/// usually list 256 KiB of lines.
pub const DUMP_STEPS_MIN: u32 = 16;

/// Maximum number of steps that an errand takes in its first turn. In each later turn it takes one
/// step.
pub const ERRAND_STEPS_AT_ONCE: usize = 4;

/// Maximum number of prefixes whose requests are counted for `stats detail`, in all columns
/// together (as in memcached).
pub const PREFIXES_MAX: usize = 1 << 16;

/// Number of shelves that hold the prefixes for `stats detail`. Each shelf has a lock.
pub const PREFIX_SHELVES: usize = 256;

/// Maximum number of bytes that the prefixes for `stats detail` and their counts take, in all
/// columns together.
pub const PREFIX_BYTES_MAX: usize = 8 << 20;

/// Maximum number of bytes of `stats detail dump` in the binary protocol, where the whole list is
/// one value.
pub const DETAIL_VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of prefixes that `stats prefixes` lists one by one.
pub const PREFIXES_TOLD_MAX: usize = 1 << 12;

/// For sizes up to this many bytes, `stats sizes` has a row for each 32 bytes. For larger sizes, it
/// has a row for each MiB.
pub const SIZES_FINE_BYTES: u64 = 1 << 20;

/// Maximum number of connections in one page of the list that a column makes for `stats conns`.
pub const CONNECTIONS_TOLD_MAX: usize = 256;

/// Maximum number of page requests of `stats conns` that are open at a time, in all columns
/// together. Further ones wait.
pub const PAGE_REQUESTS_MAX: usize = 64;

/// Maximum number of page requests of `stats conns` that a column answers in one loop.
pub const PAGES_ANSWERED_MAX: usize = 4;

/// Maximum number of groups of the index that one step of a dump or a count goes through. A group
/// has at most about 150 items.
pub const DUMP_STEP_GROUPS: usize = 64;

/// A step of a count ends after this many items, once it has counted the whole index group.
pub const CENSUS_STEP_ITEMS: usize = 1024;

/// A step of a dump ends after this many bytes of lines. That is about 150 lines, which take a few
/// tens of microseconds.
pub const DUMP_STEP_BYTES: usize = 16 << 10;

/// Maximum number of bytes of lines in the answer to `stats cachedump` (as in memcached).
pub const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Maximum number of connections that watch at a time, in all columns together (as in memcached).
pub const WATCHERS_MAX: usize = 20;

/// Maximum number of evictions of one loop that a column keeps for connections that watch.
pub const EVICTIONS_NOTED_MAX: usize = 1024;

/// If an errand has nothing to do, its connection waits for this time before the errand's next
/// step.
pub const ERRAND_RETRY: Duration = Duration::from_millis(10);

/// A server that ends gracefully waits at most this time for requests and replies under way.
pub const END_GRACEFULLY: Duration = Duration::from_secs(5);

/// Time between two checks for requests and replies under way, in a server that ends gracefully.
pub const END_LOOK: Duration = Duration::from_millis(1);
