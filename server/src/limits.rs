//! Every bound on what a peer can make the server hold or do.
//!
//! Where: read by connections and columns.
//! Invariant: whatever peers send, a column's memory outside the store stays below the sum of the
//! bounds here, and a turn does a bounded amount of work.

use std::time::Duration;

/// Most steps of one connection's turn. A step is one request, one key of a request, one entry that
/// a list or a count examines, or 64 bytes of written replies.
pub const TURN_STEPS_MAX: u64 = 1 << 13;

/// Most steps of one message: the steps of a turn, plus those of writing `UDP_REPLY_BYTES_MAX`
/// bytes of replies and one more value.
pub const MESSAGE_STEPS_MAX: u64 = 1 << 15;

/// Most steps that one loop spends on datagrams: it takes up to `DATAGRAM_TURNS_MAX` turns, each of
/// which may exceed `MESSAGES_TURN_BYTES` by one message.
pub const LOOP_STEPS_MAX: u64 = DATAGRAM_TURNS_MAX as u64 * MESSAGE_STEPS_MAX;

/// Most events that one loop takes from the kernel, which bounds how long the loop takes.
pub const EVENTS_MAX: usize = 256;

/// Most connections that one loop accepts from one listener: a flood of new connections must not
/// delay open ones.
pub const ACCEPTS_MAX: usize = 64;

/// Bytes of a receive buffer, the most that one read receives; a column has `TURNS_AHEAD` buffers.
/// It is large enough for 32 pipelined requests of a kilobyte in one system call, and small enough
/// to stay in the L2 cache. `receive_bytes` makes it larger where requests need it.
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Most bytes that one turn reads straight into a large value's frames, in addition to the room
/// left in the frame that is being filled.
pub const VALUE_READ_BYTES_MAX: usize = 256 << 10;

/// Most bytes of the read that follows a large value. The next bytes may be another large value,
/// which should be read into its frames without a copy.
pub const BEHIND_VALUE_BYTES: usize = 4 << 10;

/// Bytes of replies after which a turn sends the replies and continues in the next loop.
/// `OUT_BYTES_MAX` plus `REPLY_BYTES_MAX` is also the most that waits for a peer that does not
/// read, because the column does not read from a peer while replies wait for that peer.
pub const OUT_BYTES_MAX: usize = 128 << 10;

/// Most bytes of one request's reply without its value: `VALUE`, key and three numbers, or a meta
/// reply's flags. Only a reply to `stats` may be longer; the buffer grows for it.
pub const REPLY_BYTES_MAX: usize = 4 << 10;

/// Bytes of the shortest value that is sent from the log without a copy. A shorter value is copied,
/// because one more piece of a vectored write costs more than the copy.
pub const KEPT_BYTES_MIN: usize = 8 << 10;

/// Most large values that one turn's replies send from the log without a copy.
pub const PINS_MAX: usize = 64;

/// Bytes of large values after which a turn sends its replies and continues in the next loop, so
/// that one slow reader pins at most this number of bytes plus one value.
pub const PINNED_BYTES_TURN_MAX: usize = 1 << 20;

/// Most pieces of one vectored write; the kernel takes at most 1,024.
pub const PIECES_MAX: usize = 256;

/// Requests that one `stats` counts as in a turn (`-R`). A `stats` costs about as much as 50 gets,
/// so a client that repeats `stats` delays others no more than a client that repeats `get`.
pub const STATS_REQUESTS: u32 = 50;

/// Most keys of multigets that one turn looks up; a command with more keys takes several turns.
pub const KEYS_TURN_MAX: u32 = 2048;

/// Bytes of a small spare buffer. Input left between turns is copied into such a buffer if it fits.
pub const SPARE_SMALL_BYTES: usize = 4 << 10;

/// Most small spare buffers of a column.
pub const SPARES_SMALL_MAX: usize = 32;

/// Most spare receive buffers of a column, in addition to the `TURNS_AHEAD` in use. So a column
/// that is idle after a peak has less than a megabyte of receive buffers.
pub const SPARES_LARGE_MAX: usize = 4;

/// Slices of background work that a column does in a row while nothing arrives, before it sleeps
/// for `MAINTAIN_PAUSE_MS`: background work then takes about half of the processor.
pub const MAINTAIN_SLICES_MAX: u32 = 16;

/// Milliseconds that a column sleeps after `MAINTAIN_SLICES_MAX` slices of background work.
pub const MAINTAIN_PAUSE_MS: u64 = 1;

/// Milliseconds for which listeners accept nothing after no descriptor was left for a connection,
/// or after `-c` was reached (as in memcached).
pub const LISTENER_REST_MS: u64 = 10;

/// Bytes of a receive buffer if the log keeps values of up to `log_value_bytes_max` bytes: room for
/// the longest request that must be complete before it is executed.
#[must_use]
pub fn receive_bytes(log_value_bytes_max: usize) -> usize {
    RECEIVE_BYTES.max(log_value_bytes_max + 2 * protocol::LINE_BYTES_MAX)
}

/// Bytes that a column's connections may hold outside the store: incomplete requests, commands
/// whose large value has not arrived, and replies that the peer does not read. All columns together
/// may hold an eighth of `-m`, and never less than 32 MiB. When a column's connections hold more
/// than its share, the column closes the connection that has made no progress for longest; above
/// half of the share, it closes that connection only if it is stalled.
#[must_use]
pub fn kept_bytes_max(memory_bytes: usize, columns: usize) -> usize {
    (memory_bytes / 8).max(32 << 20) / columns.max(1)
}

/// Most bytes that a turn reads, and most bytes of its replies, while the column's connections hold
/// more than half of their share. Many busy clients are then slowed down instead of closed.
pub const PRESSED_TURN_BYTES: usize = 8 << 10;

/// Bytes of frames that a column's arriving values may hold: an eighth of `-m` for all columns
/// together. Above that, the column drops the stalled values among them. The store gives arriving
/// values a quarter of `-m`; a column that gets no frame there drops its stalled values at once.
#[must_use]
pub fn arriving_bytes_share(memory_bytes: usize, columns: usize) -> usize {
    memory_bytes / 8 / columns.max(1)
}

/// Bytes of frames that a column's waiting replies may pin: half of `-m` for all columns together,
/// and one item in any case. Above that, the column closes the connection that has made no progress
/// for longest; above half of it, the column does so only if that connection is stalled.
#[must_use]
pub fn pinned_bytes_max(memory_bytes: usize, columns: usize, item_bytes_max: usize) -> usize {
    (memory_bytes / 2 / columns.max(1)).max(item_bytes_max)
}

/// Most arriving values that are dropped to make room for one more piece of another value.
pub const GIVE_WAY_MAX: usize = 4;

/// Milliseconds after which an arriving value that has not gained `ARRIVAL_STEP_BYTES` is stalled.
/// A stalled value is dropped when another value needs frames.
pub const ARRIVAL_STALLED_MS: u64 = 100;

/// Bytes that an arriving value must gain within `ARRIVAL_STALLED_MS`, or it is stalled.
pub const ARRIVAL_STEP_BYTES: usize = 16 << 10;

/// Most milliseconds that an arriving value waits for a frame while no holder of frames is stalled.
pub const ARRIVAL_WAIT_MS_MAX: u64 = 2000;

/// Time that a column sleeps if it can only retry requests that wait for room in the store. Other
/// columns, whose work may free room, finish a loop in less time.
pub const ROOM_RETRY: Duration = Duration::from_micros(200);

/// Most connections waiting for room that get a turn in one loop; the longest wait comes first.
pub const ROOM_RETRIES_MAX: usize = 16;

/// Most milliseconds that a request waits for room in the store before it is refused.
pub const ROOM_WAIT_MS_MAX: u64 = 2000;

/// Milliseconds between two searches of a column for stalled values, while values arrive.
pub const ARRIVALS_CHECK_MS: u64 = 1000;

/// Most milliseconds that one loop adds when a column measures how long a connection has stalled or
/// waited. The connection is not responsible for time in which the column did not run.
pub const LOOP_MS_MAX: u64 = 50;

/// Milliseconds without progress of waiting replies or an incomplete request after which their
/// connection is stalled. A stalled connection may be closed when half of a share is used, any
/// other connection only when the whole share is used.
pub const STALLED_MS: u64 = 2000;

/// Milliseconds between two searches for stalled connections to close.
pub const RELIEF_REST_MS: u64 = 100;

/// Most connections whose requests are executed as one batch; each has a receive buffer.
pub const TURNS_AHEAD: usize = 8;

/// Requests that are parsed before the first of them is executed, so that the processor prefetches
/// the memory that they access: about as many as it has line fill buffers.
pub const REQUESTS_AHEAD: usize = 16;

/// Most bytes of a request that arrives in several datagrams.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Most datagrams of one request.
pub const PARTS_MAX: usize = 128;

/// Bytes of the shortest part of a request in several datagrams that stays in the chunk in which it
/// arrived. A shorter part is copied unless it is the last, so that short parts occupy no chunks.
pub const KEPT_PART_BYTES_MIN: usize = 256;

/// Divisor for the chunks that one address's incomplete requests may keep at a column: the arena's
/// chunks for values, divided by the number of columns and by this. Further parts are copied.
pub const KEPT_OF_ONE_PART: usize = 64;

/// Chunks that the incomplete requests of one address may always keep: enough for one request of
/// the greatest length.
pub const KEPT_OF_ONE_MIN: usize = 64;

/// Most incomplete requests in several datagrams that a column keeps at once.
pub const ASSEMBLIES_MAX: usize = 128;

/// Most incomplete requests of one address that a column keeps at once, so that a sender that
/// completes none leaves places to others. All requests that a host has in flight may be incomplete
/// while another column steals some of their datagrams.
pub const ASSEMBLIES_OF_ONE_MAX: usize = 48;

/// Milliseconds that an incomplete request waits for its other datagrams; it is dropped then, or up
/// to a second later.
pub const PARTS_WAIT_MS_MAX: u64 = 1000;

/// Most requests of one message, counted as for a connection's turn; they take about half a
/// millisecond. The next request is refused, and the rest of the message dropped.
pub const MESSAGE_REQUESTS_MAX: u32 = 1024;

/// Bytes added to each request's length when it is counted against `MESSAGES_TURN_BYTES`.
pub const REQUEST_COST_BYTES: usize = 64;

/// Bytes added for each key of a retrieval line but the last, as with `REQUEST_COST_BYTES`.
pub const KEY_COST_BYTES: usize = 16;

/// Most bytes of one reply over UDP if only known networks may send requests and `-o udp_reply_max`
/// is not given.
pub const UDP_REPLY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one reply over UDP if any network may send requests. A request has the same limit;
/// and a socket buffer of the usual 208 KiB holds that number of bytes in datagrams of 1,400 bytes,
/// with the kernel's overhead.
pub const UDP_REPLY_OPEN_BYTES_MAX: usize = 64 << 10;

/// Length of an answer, as a multiple of its request's bytes, that is free if any network may send
/// requests. Further bytes are charged to the sender's network (RFC 9000, section 8.1, has the same
/// factor).
pub const AMPLIFIED_TIMES_FREE: usize = 3;

/// Bytes that may be charged to a network in a second: a hundredth of a gigabit link, and enough
/// for trials by hand. The answer that exceeds the limit is the last long one in that second.
pub const AMPLIFIED_BYTES_SECOND_MAX: u32 = 1 << 20;

/// Entries of the table of bytes charged to networks. Networks that share an entry share its limit.
pub const CHARGES: usize = 4096;

/// Datagrams, or bursts of them, that a column receives at once; each has `SLOT_BYTES_MAX` bytes.
pub const DATAGRAMS_RECEIVED_MAX: usize = net::BATCH_MAX;

/// Most turns that a column's datagrams get in one loop while more datagrams keep arriving.
pub const DATAGRAM_TURNS_MAX: usize = 4;

/// Fewest datagrams received in one loop that show that the column is behind: some arrived while
/// the column executed others.
pub const BEHIND_DATAGRAMS: usize = 16;

/// Least nanoseconds of a loop that show the column to be behind, if one receive brought a quarter
/// of `BEHIND_DATAGRAMS`.
pub const BEHIND_NS: u64 = 100_000;

/// Number of loops in a row in which a column is behind before others may take its datagrams.
pub const BEHIND_LOOPS: u32 = 2;

/// Nanoseconds of work whose datagrams a column receives at once while other columns take datagrams
/// from it. Further datagrams stay in the socket for the others.
pub const SHARED_NS: u64 = BEHIND_NS;

/// Nanoseconds in which a column from which others took datagrams expects them to take more.
pub const HELPED_NS: u64 = 2_000_000;

/// Least nanoseconds between two times that a column which is behind wakes a sleeping column.
pub const STEAL_WAKE_NS: u64 = 1_000_000;

/// Attempts to steal that may fail in a row before the column sleeps. An attempt takes about a
/// microsecond.
pub const STEAL_TRIES_MAX: u32 = 64;

/// Milliseconds for which a column's load is measured before it is published; the column gives
/// connections away at most once in this time.
pub const MIGRATION_PERIOD_MS: u64 = 500;

/// Fewest thousandths of a period for which a saturated column was busy or ready to run.
pub const MIGRATION_BUSY: u32 = 900;

/// Most thousandths of a period for which a column with time to spare was busy.
pub const MIGRATION_SPARE: u32 = 800;

/// Periods in a row in which a column must be saturated, while others have time to spare, before it
/// gives connections away. For as many periods afterwards it gives none, and its takers take none.
pub const MIGRATION_PERIODS: u32 = 2;

/// Milliseconds for which a connection that has moved stays in its new column.
pub const MIGRATION_REST_MS: u64 = 5000;

/// Most connections that a column gives away at a time, and most that wait in a column's mailbox.
pub const MIGRATIONS_MAX: usize = 512;

/// Most connections among which a column chooses those that it gives away: its busiest ones.
pub const MIGRATION_CANDIDATES_MAX: usize = 1024;

/// Bytes added to those that a turn moves when its load is measured: the cost of two system calls.
pub const TURN_COST_BYTES: u64 = 4096;

/// Bytes of messages after which one turn of a column's datagrams ends, so that others get a turn.
/// `MESSAGE_COST_BYTES` are added to each message's length, because there may be many short ones.
pub const MESSAGES_TURN_BYTES: usize = 256 << 10;

/// Bytes added to each message's length when it is counted against `MESSAGES_TURN_BYTES`.
pub const MESSAGE_COST_BYTES: usize = 64;

/// Most milliseconds that a datagram waits for room in the store before its request is refused. The
/// time is shorter than for a connection's request, because later datagrams wait as well.
pub const DATAGRAM_WAIT_MS_MAX: u64 = 50;

/// Most answers to datagrams that wait to be sent at once.
pub const ANSWERS_MAX: usize = 256;

/// Most datagrams that are handed to the system at once.
pub const DATAGRAMS_SENT_MAX: usize = 256;

/// Most pieces of all datagrams that are handed to the system at once. A datagram has few pieces:
/// text, and one or two frames of a large value.
pub const DATAGRAM_PIECES_SENT_MAX: usize = 1024;

/// Bytes requested for a UDP socket's buffers, for a burst to fit; the kernel may allow fewer.
pub const UDP_BUFFER_BYTES: usize = 4 << 20;

/// Most packets of an interface's queue that are in memory: half for receiving, half for sending.
pub const RING_CHUNKS_MAX: u32 = 4096;

/// Divisor of `-m`: the packets of all queues take at most this fraction of it.
pub const RING_PART: usize = 4;

/// Most dumps of items that are under way at a time, in all columns together.
pub const DUMPS_MAX: usize = 4;

/// Mean number of loops of a busy column of which one is sampled, at random.
pub const LOOPS_SAMPLED_ONE_IN: u32 = 128;

/// Milliseconds without a loop after which the next loop is sampled too.
pub const REST_MS: u64 = 10;

/// Most requests of one loop that are sampled.
pub const SAMPLED_LOOP_MAX: u32 = 256;

/// Keys that each column keeps for `stats hot`. A key with more than one in `HOT_KEYS_MAX` of the
/// sampled requests is always among them.
pub const HOT_KEYS_MAX: usize = 128;

/// Most keys of all columns that `stats hot` lists.
pub const HOT_KEYS_TOLD: usize = 20;

/// Keys with the longest values that each column keeps, and that `stats hot` lists.
pub const BIG_KEYS_MAX: usize = 16;

/// Samples of a column after which all earlier samples count half as much in `stats hot`.
pub const HOT_SAMPLES: u32 = 1 << 14;

/// Seconds for which a dump may take fewer than `DUMP_STEPS_MIN` steps. After that, the dump ends
/// if another dump needs its place.
pub const DUMP_STALLED_SECONDS: u32 = 10;

/// Steps in `DUMP_STALLED_SECONDS` that keep a dump's place: usually 256 KiB of lines.
pub const DUMP_STEPS_MIN: u32 = 16;

/// Steps that an errand takes in a row before other connections get a turn.
pub const ERRAND_STEPS_AT_ONCE: usize = 4;

/// Most prefixes whose requests are counted for `stats detail` (as memcached's).
pub const PREFIXES_MAX: usize = 1 << 16;

/// Number of shelves that hold the prefixes for `stats detail`, each with a lock.
pub const PREFIX_SHELVES: usize = 256;

/// Most bytes that the prefixes for `stats detail` and their counts take.
pub const PREFIX_BYTES_MAX: usize = 8 << 20;

/// Most bytes of `stats detail dump` in the binary protocol, where the list is one value.
pub const DETAIL_VALUE_BYTES_MAX: usize = 1 << 20;

/// Most prefixes that `stats prefixes` lists one by one.
pub const PREFIXES_TOLD_MAX: usize = 1 << 12;

/// Bytes up to which `stats sizes` has a row for each 32 bytes; above, it has a row for each MiB.
pub const SIZES_FINE_BYTES: u64 = 1 << 20;

/// Most connections in one page of a column's list for `stats conns`.
pub const CONNECTIONS_TOLD_MAX: usize = 256;

/// Most requests of `stats conns` for columns' lists that are open at a time; others wait.
pub const PAGE_REQUESTS_MAX: usize = 64;

/// Most requests of `stats conns` that a column answers in one loop.
pub const PAGES_ANSWERED_MAX: usize = 4;

/// Most groups of the index that a step of a dump lists; a group has at most about 150 items.
pub const DUMP_STEP_GROUPS: usize = 64;

/// Number of items after which a step of a count ends, at the end of a group.
pub const CENSUS_STEP_ITEMS: usize = 1024;

/// Bytes of lines after which a step of a dump ends: about 150 lines, which take a few tens of
/// microseconds.
pub const DUMP_STEP_BYTES: usize = 16 << 10;

/// Most bytes of lines that `stats cachedump` answers (as memcached's).
pub const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Most connections that watch at a time (as memcached's).
pub const WATCHERS_MAX: usize = 20;

/// Most evictions of one loop that a column keeps for watchers.
pub const EVICTIONS_NOTED_MAX: usize = 1024;

/// Pause of a connection whose errand has nothing to do, before the errand's next step.
pub const ERRAND_RETRY: Duration = Duration::from_millis(10);

/// Most time that a server that ends gracefully waits for requests and replies under way.
pub const END_GRACEFULLY: Duration = Duration::from_secs(5);

/// Pause between two checks by a gracefully ending server for requests and replies under way.
pub const END_LOOK: Duration = Duration::from_millis(1);
