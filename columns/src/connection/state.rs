//! The state that a column's connections share.
//!
//! Where: each column has one `StreamState`, and lends it to the connection that has a turn.
//! Invariant: all bytes in the buffers of the connections, and all bytes of the stored values to
//! which unsent replies refer, are counted here. So each limit in bytes holds for all connections
//! of the column together.

use store::Column;

use super::arrival::Arrivals;
use super::spares::Spares;
use super::unsent::UnsentTotals;
use crate::budget::Budget;
use crate::executor::Executor;
use crate::limits;
use crate::turn::TurnState;

/// The state of a column that only the column's connections use.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) spares: Spares,
    pub(crate) arrivals: Arrivals,
    pub(crate) waiting: UnsentTotals,
    /// Maximum number of requests that a turn executes (`-R`).
    pub(crate) requests_turn_max: u32,
    /// Maximum bytes of a value in the log. `arrivals` receives longer values into frames.
    pub(crate) log_value_bytes: usize,
    /// The store's memory limit, from which the two bounds below follow.
    memory_bytes: usize,
    kept_bytes_max: usize,
    pinned_bytes_max: usize,
    /// True if connections keep or pin more than half of the allowed bytes; turns are short then.
    pub(crate) pressed: bool,
}

impl StreamState {
    pub(crate) fn new<E: Executor>(turn: &TurnState<E>) -> StreamState {
        let settings = &turn.shared.settings;
        let store = turn.executor.store();
        let log_value_bytes = store.map_or(0, Column::log_value_bytes_max);
        let mut streams = StreamState {
            spares: Spares::new(limits::receive_bytes(log_value_bytes)),
            arrivals: Arrivals::new(settings.evict),
            waiting: UnsentTotals::default(),
            requests_turn_max: settings.requests_per_event.max(1),
            log_value_bytes,
            memory_bytes: 0,
            kept_bytes_max: 0,
            pinned_bytes_max: 0,
            pressed: false,
        };
        streams.follow_memory_limit(turn);
        streams
    }

    pub(crate) fn follow_memory_limit<E: Executor>(&mut self, turn: &TurnState<E>) {
        let settings = &turn.shared.settings;
        let memory_bytes = turn.executor.store().map_or(0, Column::memory_bytes);
        if memory_bytes == self.memory_bytes {
            return;
        }
        let (columns, item_bytes_max) = (settings.count, settings.item_bytes_max);
        self.memory_bytes = memory_bytes;
        self.kept_bytes_max = limits::kept_bytes_max(memory_bytes, columns);
        self.pinned_bytes_max = limits::pinned_bytes_max(memory_bytes, columns, item_bytes_max);
        self.arrivals.set_bytes_share(limits::arriving_bytes_share(memory_bytes, columns));
    }

    #[inline]
    pub(crate) fn budget(&self) -> Budget {
        let reply_bytes_max =
            if self.pressed { limits::PRESSED_TURN_BYTES } else { limits::OUT_BYTES_MAX };
        Budget::new(self.requests_turn_max, reply_bytes_max)
    }

    /// Maximum number of bytes that one read may take into a buffer with `room` bytes of room.
    #[inline]
    pub(crate) fn read_bytes_max(&self, room: usize) -> usize {
        if self.pressed { room.min(limits::PRESSED_TURN_BYTES) } else { room }
    }

    /// True if connections keep or pin more than the allowed bytes divided by `divisor`.
    #[inline]
    pub(crate) fn is_pressed(&self, divisor: usize) -> bool {
        self.keeps_much(divisor) || self.pins_much(divisor)
    }

    #[inline]
    pub(crate) fn keeps_much(&self, divisor: usize) -> bool {
        let kept = self.spares.held_bytes() + self.arrivals.beside_bytes();
        kept + self.waiting.held_bytes > self.kept_bytes_max / divisor
    }

    #[inline]
    pub(crate) fn pins_much(&self, divisor: usize) -> bool {
        self.waiting.pinned_bytes > self.pinned_bytes_max / divisor
    }
}
