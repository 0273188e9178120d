//! Lists of counters, from which each crate makes its counters and their sums.
//!
//! Where: a column counts what it receives and sends, what requests do, and what becomes of items.
//! Invariant: only a column's own thread writes the column's counters, so that an addition is a
//! plain load and store. Exceptions are the shared counters, to which any thread adds. Any thread
//! may read all counters. No counter is ever set back.
//! Source: memcached 1.6.45 `struct thread_stats`.

use std::sync::atomic::{AtomicU64, Ordering};

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
            $($(#[doc = $doc])+ pub $count: $crate::sync::Counter,)*
            $($(#[doc = $gauge_doc])+ pub $gauge: $crate::sync::Counter,)*
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
