//! Every bound on what a peer can make the server hold or do, in one place.
//!
//! Where: read by connections and columns.
//! Invariant: whatever peers send, a column's memory beside the store stays under the sum of the
//! bounds here, and one turn of one connection does a bounded amount of work.

use std::time::Duration;

/// Ready descriptors taken from the kernel per loop: bounds how long one loop takes.
pub const EVENTS_MAX: usize = 256;

/// Connections one listener hands over per loop: a flood of them must not stall those that stand.
pub const ACCEPTS_MAX: usize = 64;

/// A receive buffer of the column, one of `TURNS_AHEAD`: what one read of one connection may bring.
/// Large enough that 32 pipelined requests of a kilobyte come by one system call, small enough to
/// stay in L2. Never less than a line and a value that is kept in the log (see `receive_bytes`).
pub const RECEIVE_BYTES: usize = 64 << 10;

/// Reads of one turn that go straight into a large value's frames, one frame each.
pub const VALUE_READS_MAX: usize = 8;

/// Reply text one turn may produce before it is sent; the turn goes on in the next loop. It is also
/// the most that waits for a peer that does not read, with `REPLY_BYTES_MAX` on top: a peer with
/// anything waiting is not read from, so never 256 KiB.
pub const OUT_BYTES_MAX: usize = 128 << 10;

/// Reply text of one request beside the value: `VALUE`, key, three numbers; a meta reply's flags.
/// (`stats` may take more; it then grows the buffer.)
pub const REPLY_BYTES_MAX: usize = 4 << 10;

/// Large values one turn may splice into its replies.
pub const PINS_MAX: usize = 64;

/// A turn that has spliced in so many bytes of large values sends them before it goes on: bounds
/// what one slow reader pins to this and one value.
pub const PINNED_BYTES_TURN_MAX: usize = 1 << 20;

/// Pieces of one vectored write; the kernel takes 1,024 at most.
pub const PIECES_MAX: usize = 256;

/// What `stats` counts of a turn's requests (`-R`): it costs about as much as so many gets. A
/// client that repeats it delays the others no more than one that gets.
pub const STATS_REQUESTS: u32 = 50;

/// Keys of multigets looked up in one turn; lines longer than this take several turns.
pub const KEYS_TURN_MAX: usize = 2048;

/// Input kept between turns in a buffer of this size is kept in a recycled one.
pub const SPARE_SMALL_BYTES: usize = 4 << 10;

/// Recycled small buffers a column keeps.
pub const SPARES_SMALL_MAX: usize = 32;

/// Recycled receive buffers a column keeps, beside the `TURNS_AHEAD` in use: with them, a column at
/// rest after a peak holds under a megabyte.
pub const SPARES_LARGE_MAX: usize = 4;

/// After so many background slices of the store in a row while nothing arrives, the column lets the
/// processor go for `MAINTAIN_PAUSE_MS`: much work takes half of it.
pub const MAINTAIN_SLICES_MAX: u32 = 16;

/// See `MAINTAIN_SLICES_MAX`.
pub const MAINTAIN_PAUSE_MS: u64 = 1;

/// A listener that found no descriptor or no room under `-c` rests this long (as memcached's).
pub const LISTENER_REST_MS: u64 = 10;

/// Length of the receive buffer, given the longest value that is kept in the log: a partial
/// request that must be whole before it is executed always fits.
#[must_use]
pub fn receive_bytes(log_value_bytes_max: usize) -> usize {
    RECEIVE_BYTES.max(log_value_bytes_max + 2 * protocol::LINE_BYTES_MAX)
}

/// One column's share of the memory that connections may hold beside the store: input of requests
/// that are not complete, commands whose large value has not come, and replies that the peer does
/// not read. All columns together an eighth
/// of `-m`, and never less than 32 MiB. Over it, the connection that has not moved for longest is
/// told so and closed (over half of it, only if it is stalled).
#[must_use]
pub fn kept_bytes_max(memory_bytes: usize, columns: usize) -> usize {
    (memory_bytes / 8).max(32 << 20) / columns.max(1)
}

/// While connections hold more than half of what they may, a turn reads and answers no more than
/// this at a time, so that many busy clients are slowed down instead of closed.
pub const PRESSED_TURN_BYTES: usize = 8 << 10;

/// One column's share of the frames that values still arriving may hold: all columns together an
/// eighth of `-m`. Over it, values that stall give way unasked. (The store gives a quarter of `-m`
/// to arriving values; a column that asks in vain makes its stalled ones give way at once.)
#[must_use]
pub fn arriving_bytes_share(memory_bytes: usize, columns: usize) -> usize {
    memory_bytes / 8 / columns.max(1)
}

/// One column's share of the frames that replies still waiting may pin: all columns together half
/// of `-m`, and one item in any case. Over it (over half of it, if it is stalled) the connection
/// that has not moved for longest is closed.
#[must_use]
pub fn pinned_bytes_max(memory_bytes: usize, columns: usize, item_bytes_max: usize) -> usize {
    (memory_bytes / 2 / columns.max(1)).max(item_bytes_max)
}

/// Drafts that may be dropped to make room for one more piece of a value.
pub const GIVE_WAY_MAX: usize = 4;

/// An arriving value that has not gained `ARRIVAL_STEP_BYTES` for so long is stalled, and gives way
/// to one that asks for frames.
pub const ARRIVAL_STALLED_MS: u64 = 100;

/// See `ARRIVAL_STALLED_MS`.
pub const ARRIVAL_STEP_BYTES: usize = 16 << 10;

/// An arriving value waits no longer than this for frames that others, which move, hold.
pub const ARRIVAL_WAIT_MS_MAX: u64 = 2000;

/// A connection whose request waits for room, or whose arriving value for a frame, asks again in
/// the column's next loop, and after so long where the column has nothing else to do: others' loops
/// take less.
pub const REST: Duration = Duration::from_micros(200);

/// Connections that wait and ask again in one loop, those that have not asked for longest first.
pub const REST_TURNS_MAX: usize = 16;

/// A request waits no longer than this for room; then it is refused.
pub const ROOM_WAIT_MS_MAX: u64 = 2000;

/// While values arrive, the column looks so often for stalled ones.
pub const ARRIVALS_CHECK_MS: u64 = 1000;

/// One loop of a column counts as no more than this where it is measured how long somebody has
/// stalled or waited: a column that had no processor meanwhile is not to blame others for it.
pub const LOOP_MS_MAX: u64 = 50;

/// A connection whose waiting replies or half request have not moved for so long gives way when
/// half of a share is used; one that moves, only when all of it is.
pub const STALLED_MS: u64 = 2000;

/// Between two searches for stalled connections to close.
pub const RELIEF_REST_MS: u64 = 100;

/// Connections received from before the first of them is executed: each has a receive buffer.
pub const TURNS_AHEAD: usize = 8;

/// Requests of one connection read before the first of them is executed, so that their memory is
/// on its way: about as many as the processor has line fills outstanding.
pub const REQUESTS_AHEAD: usize = 16;
