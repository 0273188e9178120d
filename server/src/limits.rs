//! Every bound on what commands can make the server hold or do. `columns::limits` has the bounds of
//! connections, datagrams and the loop.
//!
//! Where: read by the executor, by `listen` and by `run`.
//! Invariant: a command does a bounded amount of work in a turn, and makes the server keep a
//! bounded number of bytes.

use std::time::Duration;

use columns::limits::DATAGRAM_TURNS_MAX;

/// Maximum number of steps in one connection's turn. A step is one request, one key of a request,
/// one entry that a list or a count examines, or 64 bytes of written replies.
pub const TURN_STEPS_MAX: u64 = 1 << 13;

/// Maximum number of steps for one message. This limit is enough for the steps of a turn, for
/// writing `UDP_REPLY_BYTES_MAX` bytes of replies, and for writing one more value.
pub const MESSAGE_STEPS_MAX: u64 = 1 << 15;

/// Maximum number of steps that one pass of a column's loop spends on datagrams. A pass has at most
/// `DATAGRAM_TURNS_MAX` turns for datagrams. Each of these turns may take as many steps as one
/// message.
pub const LOOP_STEPS_MAX: u64 = DATAGRAM_TURNS_MAX as u64 * MESSAGE_STEPS_MAX;

/// Maximum number of bytes in a reply over UDP if only known networks may send requests and `-o
/// udp_reply_max` is not given.
pub const UDP_REPLY_BYTES_MAX: usize = 1 << 20;

/// Maximum number of bytes in a reply over UDP if any network may send requests and `-o
/// udp_reply_max` is not given. A socket buffer of 208 KiB holds such a reply in datagrams
/// of 1,400 bytes.
pub const UDP_REPLY_OPEN_BYTES_MAX: usize = 64 << 10;

/// Number of bytes that the server requests for each buffer of a UDP socket, so that the buffer
/// holds a burst. The kernel may grant fewer bytes.
pub const UDP_BUFFER_BYTES: usize = 4 << 20;

/// Maximum number of packets in memory for one queue of an interface. Half of these packets are for
/// receiving, and half are for sending.
pub const RING_CHUNKS_MAX: u32 = 4096;

/// The packets of all queues take at most `-m` divided by this number.
pub const RING_PART: usize = 4;

/// At most this many dumps may run at a time, in all columns together. A count of all items counts
/// as a dump.
pub const DUMPS_MAX: usize = 4;

/// On average, a busy column samples one of this many passes of its loop, chosen at random.
pub const LOOPS_SAMPLED_ONE_IN: u32 = 128;

/// If this many milliseconds have passed since the last pass of its loop, a column also samples the
/// next pass.
pub const REST_MS: u64 = 10;

/// Maximum number of requests that are sampled in one pass of the loop.
pub const SAMPLED_LOOP_MAX: u32 = 256;

/// Number of keys that each column keeps for `stats hot`. If a key has more than 1/`HOT_KEYS_MAX`
/// of the sampled requests, the key is always among these keys.
pub const HOT_KEYS_MAX: usize = 128;

/// Maximum number of keys that `stats hot` lists, from all columns together.
pub const HOT_KEYS_TOLD: usize = 20;

/// Number of keys with the longest values that each column keeps. `stats hot` lists at most this
/// many such keys.
pub const BIG_KEYS_MAX: usize = 16;

/// Each time a column has taken this many samples, `stats hot` counts all earlier samples half as
/// much as before.
pub const HOT_SAMPLES: u32 = 1 << 14;

/// A dump is stalled if it takes fewer than `DUMP_STEPS_MIN` steps in this many seconds. If another
/// dump needs the place of a stalled dump, the stalled dump ends.
pub const DUMP_STALLED_SECONDS: u32 = 10;

/// A dump does not end to make room for another dump if it takes at least this many steps in
/// `DUMP_STALLED_SECONDS`. This many steps usually list 256 KiB of lines.
pub const DUMP_STEPS_MIN: u32 = 16;

/// Maximum number of steps that an errand takes in its first turn. In each later turn, the errand
/// takes one step.
pub const ERRAND_STEPS_AT_ONCE: usize = 4;

/// Maximum number of key prefixes for which `stats detail` counts requests. All columns share one
/// table of prefixes.
pub const PREFIXES_MAX: usize = 1 << 16;

/// Number of parts (shelves) into which the table of prefixes for `stats detail` is divided. Each
/// shelf has a lock.
pub const PREFIX_SHELVES: usize = 256;

/// Maximum number of bytes that the prefixes of `stats detail` and their counts take, in all
/// columns together.
pub const PREFIX_BYTES_MAX: usize = 8 << 20;

/// Maximum number of bytes in the answer to `stats detail dump` in the binary protocol, where the
/// whole list is one value.
pub const DETAIL_VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of prefixes that `stats prefixes` lists one by one.
pub const PREFIXES_TOLD_MAX: usize = 1 << 12;

/// For sizes up to this many bytes, `stats sizes` has a row for each 32 bytes. For larger sizes, it
/// has a row for each MiB.
pub const SIZES_FINE_BYTES: u64 = 1 << 20;

/// Maximum number of index groups that one step of a dump or of a count examines. A group is a few
/// cache lines of the index, and has at most about 150 items.
pub const DUMP_STEP_GROUPS: usize = 64;

/// When a step of a count of items has counted this many items, it finishes the current index group
/// and ends.
pub const CENSUS_STEP_ITEMS: usize = 1024;

/// A step of a dump ends when it has written this many bytes of lines. So a step writes about 150
/// lines, which takes a few tens of microseconds.
pub const DUMP_STEP_BYTES: usize = 16 << 10;

/// Maximum number of bytes of lines in the answer to `stats cachedump` (as in memcached).
pub const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Maximum number of connections that may watch (command `watch`) at a time, in all columns
/// together (as in memcached).
pub const WATCHERS_MAX: usize = 20;

/// Maximum number of evictions that a column records in one pass of the loop, for connections that
/// watch evictions.
pub const EVICTIONS_NOTED_MAX: usize = 1024;

/// Maximum number of connections to `--admin` that are answered at a time. Later connections wait
/// in the listener's backlog.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;

/// Maximum number of bytes in the line and the headers of a request to `--admin`.
pub const ADMIN_REQUEST_BYTES_MAX: usize = 16 << 10;

/// A connection to `--admin` is closed if its request is not sent, or its answer not received, in
/// this time.
pub const ADMIN_REQUEST_TIME: Duration = Duration::from_secs(5);

/// If the thread of `--admin` cannot accept a connection, it waits for this time.
pub const ADMIN_REST: Duration = Duration::from_millis(100);

/// If the first column has not run for more than this many seconds, `/healthz` reports a fault, and
/// the server does not tell the service manager's watchdog that it works. The column runs once a
/// second even without requests.
pub const HEALTHY_LAG_SECONDS_MAX: u32 = 5;

/// If a server ends gracefully, this is the maximum time for which it waits for requests and
/// replies under way.
pub const END_GRACEFULLY: Duration = Duration::from_secs(5);

/// While a server ends gracefully, it checks once in this time whether requests and replies are
/// still under way.
pub const END_LOOK: Duration = Duration::from_millis(1);
