//! The state that the columns of one server share, in addition to the store.
//!
//! Where: made before the columns start; every column holds an `Arc<Shared>`.
//! Invariant: `counters` has an entry for each column.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::counters::Counters;
use crate::pages::PageRequests;
use crate::settings::Settings;

/// The state that all columns share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The settings of the columns.
    pub settings: Settings,
    /// The counters of each column, in the order of the columns' numbers.
    pub counters: Vec<Arc<Counters>>,
    /// Number of open connections of all columns together. `-c` limits this number.
    pub connections: AtomicU32,
    /// False while listeners pause.
    pub accepting: AtomicBool,
    /// The requests for lists of columns' sockets.
    pub pages: PageRequests,
    /// The time that a test has set for the columns. 0 means that columns use the system's clock.
    #[cfg(debug_assertions)]
    planted_ms: std::sync::atomic::AtomicU64,
}

impl Shared {
    /// Makes the shared state of `settings.count` columns, with all counters at 0.
    #[must_use]
    pub fn new(settings: Settings) -> Shared {
        Shared {
            counters: (0..settings.count).map(|_| Arc::default()).collect(),
            accepting: AtomicBool::new(true),
            settings,
            ..Shared::default()
        }
    }

    /// Makes columns use the time `now_ms` (milliseconds since the start). It must never decrease.
    #[cfg(debug_assertions)]
    pub fn plant_clock(&self, now_ms: u64) {
        // Relaxed, like the load in `planted_ms`: no other data depend on the number.
        self.planted_ms.store(now_ms, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    pub(crate) fn planted_ms(&self) -> u64 {
        // Relaxed: no other data depend on the number.
        self.planted_ms.load(std::sync::atomic::Ordering::Relaxed)
    }
}
