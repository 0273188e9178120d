//! Every bound on what a peer can make the server hold or do.
//!
//! Where: read by connections and columns.
//! Invariant: whatever peers send, a column's memory beside the store stays below the sum of the
//! bounds here, and a turn does a bounded amount of work.

use std::time::Duration;

/// Most steps of one connection's turn: a step is a request, a key of one, an entry looked at, or
/// 64 bytes of replies written.
pub const TURN_STEPS_MAX: u64 = 1 << 13;

/// Most steps of one message: those of a turn, and of a reply of `UDP_REPLY_BYTES_MAX` bytes with
/// one value more.
pub const MESSAGE_STEPS_MAX: u64 = 1 << 15;

/// Most steps of all datagrams of one loop, whatever comes: `DATAGRAM_TURNS_MAX` turns, each of
/// which ends behind a message.
pub const LOOP_STEPS_MAX: u64 = DATAGRAM_TURNS_MAX as u64 * MESSAGE_STEPS_MAX;

/// Most events that one loop takes from the kernel, which bounds how long the loop takes.
pub const EVENTS_MAX: usize = 256;

/// Most connections that one loop accepts from one listener: a flood of new connections must not
/// delay open ones.
pub const ACCEPTS_MAX: usize = 64;

/// Bytes of a receive buffer, of which a column has `TURNS_AHEAD`: the most that one read brings.
/// Large enough that one system call receives 32 pipelined requests of a kilobyte, small enough to
/// stay in L2. `receive_bytes` makes it larger where requests need it.
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Most bytes of one turn that are read straight into a large value's frames, beside what the
/// frame that is being filled has room for.
pub const VALUE_READ_BYTES_MAX: usize = 256 << 10;

/// Most bytes that are read behind a large value: what follows may be the next one, whose bytes are
/// to be read into its frames, not copied there.
pub const BEHIND_VALUE_BYTES: usize = 4 << 10;

/// Bytes of replies after which a turn sends them and goes on in the next loop. With
/// `REPLY_BYTES_MAX` on top this is also the most that waits for a peer that does not read, for the
/// column does not read from a peer while replies wait for it.
pub const OUT_BYTES_MAX: usize = 128 << 10;

/// Most bytes of one request's reply beside the value: `VALUE`, key, three numbers; a meta reply's
/// flags. Only a reply to `stats` may be longer, and then the buffer grows.
pub const REPLY_BYTES_MAX: usize = 4 << 10;

/// Shortest value that is sent from the log, where it lies. For a shorter one, another piece of a
/// write costs more than the copy.
pub const KEPT_BYTES_MIN: usize = 8 << 10;

/// Most large values that one turn splices into its replies.
pub const PINS_MAX: usize = 64;

/// Bytes of large values after which a turn sends its replies and goes on in the next loop: one
/// slow reader pins at most this and one value.
pub const PINNED_BYTES_TURN_MAX: usize = 1 << 20;

/// Most pieces of one vectored write; the kernel takes at most 1,024.
pub const PIECES_MAX: usize = 256;

/// Requests of a turn (`-R`) that one `stats` counts as: it costs about as much as 50 gets, so that
/// a client that repeats `stats` delays others no more than a client that repeats `get`.
pub const STATS_REQUESTS: u32 = 50;

/// Most keys of multigets that one turn looks up; a command with more keys takes several turns.
pub const KEYS_TURN_MAX: u32 = 2048;

/// Bytes of a small spare buffer. Input left over between turns that fits is copied into one.
pub const SPARE_SMALL_BYTES: usize = 4 << 10;

/// Most small spare buffers of a column.
pub const SPARES_SMALL_MAX: usize = 32;

/// Most spare receive buffers of a column, beside the `TURNS_AHEAD` in use. A column that is idle
/// after a peak then holds less than a megabyte.
pub const SPARES_LARGE_MAX: usize = 4;

/// Slices of background work that a column does in a row while nothing arrives, before it sleeps
/// for `MAINTAIN_PAUSE_MS`: background work then takes about half of the processor.
pub const MAINTAIN_SLICES_MAX: u32 = 16;

/// See `MAINTAIN_SLICES_MAX`.
pub const MAINTAIN_PAUSE_MS: u64 = 1;

/// How long listeners rest when there is no descriptor for a connection, or `-c` is reached (as
/// memcached's).
pub const LISTENER_REST_MS: u64 = 10;

/// Bytes of the receive buffer, given the longest value that is kept in the log: it always has room
/// for the longest request that must be complete before it is executed.
#[must_use]
pub fn receive_bytes(log_value_bytes_max: usize) -> usize {
    RECEIVE_BYTES.max(log_value_bytes_max + 2 * protocol::LINE_BYTES_MAX)
}

/// Bytes that a column's connections may hold beside the store: incomplete requests, commands whose
/// large value has not arrived, and replies that the peer does not read. All columns together may
/// hold an eighth of `-m`, and never less than 32 MiB. When they hold more than a column's share,
/// the column closes the connection that has not moved for longest; when they hold more than half
/// of the share, it closes that one only if it is stalled.
#[must_use]
pub fn kept_bytes_max(memory_bytes: usize, columns: usize) -> usize {
    (memory_bytes / 8).max(32 << 20) / columns.max(1)
}

/// Most bytes that a turn reads, and answers, while connections hold more than half of what they
/// may: many busy clients are slowed down instead of closed.
pub const PRESSED_TURN_BYTES: usize = 8 << 10;

/// Bytes of frames that a column's arriving values may hold: an eighth of `-m` for all columns
/// together. When they hold more, the column drops stalled ones. The store gives arriving values a
/// quarter of `-m`; a column that gets no frame there drops its stalled values at once.
#[must_use]
pub fn arriving_bytes_share(memory_bytes: usize, columns: usize) -> usize {
    memory_bytes / 8 / columns.max(1)
}

/// Bytes of frames that a column's waiting replies may pin: half of `-m` for all columns together,
/// and one item in any case. When they pin more, the column closes the connection that has not
/// moved for longest; when they pin more than half, only if that one is stalled.
#[must_use]
pub fn pinned_bytes_max(memory_bytes: usize, columns: usize, item_bytes_max: usize) -> usize {
    (memory_bytes / 2 / columns.max(1)).max(item_bytes_max)
}

/// Most arriving values that are dropped to make room for one more piece of another value.
pub const GIVE_WAY_MAX: usize = 4;

/// An arriving value is stalled if it has not gained `ARRIVAL_STEP_BYTES` for this time. It is then
/// dropped when another value asks for frames.
pub const ARRIVAL_STALLED_MS: u64 = 100;

/// See `ARRIVAL_STALLED_MS`.
pub const ARRIVAL_STEP_BYTES: usize = 16 << 10;

/// How long an arriving value waits for a frame while those that hold the frames are not stalled.
pub const ARRIVAL_WAIT_MS_MAX: u64 = 2000;

/// Sleep of a column that has nothing to do but to retry for connections that wait for room: other
/// columns' loops, which may bring room, take less.
pub const ROOM_RETRY: Duration = Duration::from_micros(200);

/// Most connections waiting for room that get a turn in one loop, the longest waiting first.
pub const ROOM_RETRIES_MAX: usize = 16;

/// How long a request waits for room before it is refused.
pub const ROOM_WAIT_MS_MAX: u64 = 2000;

/// How often a column looks for stalled values while values arrive.
pub const ARRIVALS_CHECK_MS: u64 = 1000;

/// The most that one loop counts when a column measures how long a connection has stalled or
/// waited: time in which the column itself did not run is not the connection's fault.
pub const LOOP_MS_MAX: u64 = 50;

/// A connection is stalled if its waiting replies or its incomplete request have not moved for this
/// time. It may be closed when half of a share is used, another one only when all of it is.
pub const STALLED_MS: u64 = 2000;

/// The pause between two searches for stalled connections to close.
pub const RELIEF_REST_MS: u64 = 100;

/// Connections whose requests go through one batch; each has a receive buffer.
pub const TURNS_AHEAD: usize = 8;

/// Requests that are read before the first one is executed, so that the processor fetches the
/// memory they look up: about as many as it has line fill buffers.
pub const REQUESTS_AHEAD: usize = 16;

/// Most bytes of a request that comes in several datagrams.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Most datagrams that one request may come in.
pub const PARTS_MAX: usize = 128;

/// Shortest part of a request in several datagrams that stays in the chunk in which it came. A
/// shorter one is copied, unless it is the last, so that a sender of short ones takes no chunks.
pub const KEPT_PART_BYTES_MIN: usize = 256;

/// Requests of one address that lack parts may keep one in this number of the arena's chunks for
/// values, divided by columns. Further parts are copied.
pub const KEPT_OF_ONE_PART: usize = 64;

/// Chunks that they may keep in any case: one request of the longest kind takes these.
pub const KEPT_OF_ONE_MIN: usize = 64;

/// Requests that a column puts together at once.
pub const ASSEMBLIES_MAX: usize = 128;

/// Most requests of one address that a column puts together at once: a sender that ends none of
/// them leaves the rest to others. While a thief has received some parts and its column others, all
/// requests that a host has in flight may lack some.
pub const ASSEMBLIES_OF_ONE_MAX: usize = 48;

/// A request whose other datagrams have not come by then is dropped, at most a second later.
pub const PARTS_WAIT_MS_MAX: u64 = 1000;

/// Most requests of one message, by the count of a connection's turn; they take about half a
/// millisecond. The request behind them is refused, and what follows it dropped.
pub const MESSAGE_REQUESTS_MAX: u32 = 1024;

/// Bytes that a request of a message counts for, beside its own, to `MESSAGES_TURN_BYTES`.
pub const REQUEST_COST_BYTES: usize = 64;

/// Bytes that each key but the last of a retrieval line counts for, likewise.
pub const KEY_COST_BYTES: usize = 16;

/// Most bytes of one reply over UDP, unless `-o udp_reply_max` says otherwise, where the server
/// knows who may ask.
pub const UDP_REPLY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one reply over UDP where anybody may ask. A request may have as many; and a socket
/// buffer of the usual 208 KiB holds them in datagrams of 1,400 bytes, with the kernel's part.
pub const UDP_REPLY_OPEN_BYTES_MAX: usize = 64 << 10;

/// Where anybody may ask, an answer of up to this many times its request's bytes is free. What it
/// has beyond that is charged to the network of the sender (RFC 9000, section 8.1, has the same).
pub const AMPLIFIED_TIMES_FREE: usize = 3;

/// Bytes that may be charged to a network in a second. The answer that passes this is the last in
/// that second: a hundredth of what a gigabit link carries, and enough for trials by hand.
pub const AMPLIFIED_BYTES_SECOND_MAX: u32 = 1 << 20;

/// Entries of the table of charges. Networks that share one share what may be charged.
pub const CHARGES: usize = 4096;

/// Datagrams, or bursts of them, that a column receives at once; each has `SLOT_BYTES_MAX` bytes.
pub const DATAGRAMS_RECEIVED_MAX: usize = net::BATCH_MAX;

/// Most turns of a column's datagrams in one loop, while more keep coming.
pub const DATAGRAM_TURNS_MAX: usize = 4;

/// Fewest datagrams received in a loop that show it to be behind: while it executed some, others
/// came.
pub const BEHIND_DATAGRAMS: usize = 16;

/// Nanoseconds of a loop that show it to be behind, if it received a quarter of `BEHIND_DATAGRAMS`
/// at once.
pub const BEHIND_NS: u64 = 100_000;

/// Loops in a row that were behind after which others may take a column's datagrams.
pub const BEHIND_LOOPS: u32 = 2;

/// Nanoseconds for whose work a column receives datagrams at once while others help. The rest stays
/// in the socket for them.
pub const SHARED_NS: u64 = BEHIND_NS;

/// How long a column believes, once others have taken from it, that they go on.
pub const HELPED_NS: u64 = 2_000_000;

/// Least nanoseconds between two times that a column which is behind wakes a sleeping one.
pub const STEAL_WAKE_NS: u64 = 1_000_000;

/// Attempts to steal that may find nothing, one after the other, before the column sleeps: about as
/// many microseconds.
pub const STEAL_TRIES_MAX: u32 = 64;

/// Milliseconds for which a column's load is measured before it is published; the column gives
/// connections away at most once in them.
pub const MIGRATION_PERIOD_MS: u64 = 500;

/// Thousandths of a period for which a saturated column was busy, or ready to run.
pub const MIGRATION_BUSY: u32 = 900;

/// Most thousandths of a period for which a column with time to spare was busy.
pub const MIGRATION_SPARE: u32 = 800;

/// Periods in a row in which a column must be saturated, while others have time to spare, before it
/// gives connections away; and for how many periods it then gives nothing, and they take nothing.
pub const MIGRATION_PERIODS: u32 = 2;

/// How long a connection that has moved stays where it is.
pub const MIGRATION_REST_MS: u64 = 5000;

/// Most connections that a column gives away at a time, and that wait in a column's mailbox.
pub const MIGRATIONS_MAX: usize = 512;

/// Most connections that a column compares to choose from, the busiest of all.
pub const MIGRATION_CANDIDATES_MAX: usize = 1024;

/// Bytes that a turn counts for beside those that it moves: the cost of two system calls.
pub const TURN_COST_BYTES: u64 = 4096;

/// Bytes of messages that one turn of a column's datagrams executes, before others have a turn.
/// Each message counts for `MESSAGE_COST_BYTES` more, for there may be many small ones.
pub const MESSAGES_TURN_BYTES: usize = 256 << 10;

/// See `MESSAGES_TURN_BYTES`.
pub const MESSAGE_COST_BYTES: usize = 64;

/// How long a datagram waits for room in the store before its request is refused: less than a
/// request of a connection, for those behind it wait as well.
pub const DATAGRAM_WAIT_MS_MAX: u64 = 50;

/// Most answers that are made before they are sent.
pub const ANSWERS_MAX: usize = 256;

/// Most datagrams that are handed to the system at once, and most pieces of all of them.
pub const LETTERS_MAX: usize = 256;

/// See `LETTERS_MAX`. A datagram has few pieces: text, and of a large value one frame or two.
pub const LETTER_PIECES_MAX: usize = 1024;

/// Bytes of the kernel's buffers of a UDP socket, as far as it allows: a burst must fit.
pub const UDP_BUFFER_BYTES: usize = 4 << 20;

/// Most packets of an interface's queue that are in memory: one half arrives, one half leaves.
pub const RING_CHUNKS_MAX: u32 = 4096;

/// All queues' packets take at most this part of `-m`.
pub const RING_PART: usize = 4;

/// Most dumps of items that are under way at a time, in all columns together.
pub const DUMPS_MAX: usize = 4;

/// One in this number of a busy column's loops is sampled, at random.
pub const LOOPS_SAMPLED_ONE_IN: u32 = 128;

/// Milliseconds of rest before a loop behind which that loop is sampled too.
pub const REST_MS: u64 = 10;

/// Most requests of one loop that are sampled.
pub const SAMPLED_LOOP_MAX: u32 = 256;

/// Keys that each column keeps for `stats hot`. A key with more than one in this number of the
/// requests is always among them.
pub const HOT_KEYS_MAX: usize = 128;

/// Most keys of all columns that `stats hot` lists.
pub const HOT_KEYS_TOLD: usize = 20;

/// Keys with the longest values that each column keeps, and that `stats hot` lists.
pub const BIG_KEYS_MAX: usize = 16;

/// Samples of a column after which the past counts half as much for `stats hot`.
pub const HOT_SAMPLES: u32 = 1 << 14;

/// Seconds for which a dump's client may take fewer than `DUMP_STEPS_MIN` steps. Then another who
/// asks for a dump may have its place, and the dump ends.
pub const DUMP_STALLED_SECONDS: u32 = 10;

/// See `DUMP_STALLED_SECONDS`: a quarter of a megabyte, mostly.
pub const DUMP_STEPS_MIN: u32 = 16;

/// Steps of an errand that are taken at once, before others have a turn.
pub const ERRAND_STEPS_AT_ONCE: usize = 4;

/// Most prefixes whose keys' requests are counted, as memcached's, and the parts they are kept in,
/// each with a lock.
pub const PREFIXES_MAX: usize = 1 << 16;

/// See `PREFIXES_MAX`.
pub const PREFIX_SHELVES: usize = 256;

/// Most bytes that these prefixes and their counts take.
pub const PREFIX_BYTES_MAX: usize = 8 << 20;

/// Most bytes of `stats detail dump` in binary, where they are one value.
pub const DETAIL_VALUE_BYTES_MAX: usize = 1 << 20;

/// Most prefixes that `stats prefixes` lists one by one.
pub const PREFIXES_TOLD_MAX: usize = 1 << 12;

/// Longest item that `stats sizes` counts in rows of 32 bytes; longer ones have a row for each MiB.
pub const SIZES_FINE_BYTES: u64 = 1 << 20;

/// Connections that a column lists in one loop.
pub const CONNECTIONS_TOLD_MAX: usize = 256;

/// Most `stats conns` that ask columns for their sockets at a time; others wait for room.
pub const ASKS_MAX: usize = 64;

/// Most `stats conns` that a column answers in one loop.
pub const ASKS_ANSWERED_MAX: usize = 4;

/// Groups of the index that a step of a dump lists, of at most some 150 items each.
pub const DUMP_STEP_GROUPS: usize = 64;

/// Items behind which a step of a count ends, at the end of their group.
pub const CENSUS_STEP_ITEMS: usize = 1024;

/// Bytes of lines behind which a step of a dump ends: some 150 of an item's lines, which take a few
/// tens of microseconds.
pub const DUMP_STEP_BYTES: usize = 16 << 10;

/// Most bytes of lines that `stats cachedump` answers (as memcached's).
pub const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Most connections that watch at a time (as memcached's).
pub const WATCHERS_MAX: usize = 20;

/// Most evictions that a column keeps of one loop for those who watch them.
pub const EVICTIONS_NOTED_MAX: usize = 1024;

/// How often a connection whose errand has nothing to do looks whether there is more.
pub const ERRAND_RETRY: Duration = Duration::from_millis(10);

/// How long a server that ends gracefully waits for requests and replies that are under way.
pub const END_GRACEFULLY: Duration = Duration::from_secs(5);

/// Pause between two looks whether those requests and replies have ended.
pub const END_LOOK: Duration = Duration::from_millis(1);
