//! Atomics that record each access, and let a scheduler choose the next thread at each access.
//!
//! Where: replaces the standard library's atomics under `--cfg shuttle`, only in tests.
//! Invariant: each type has the layout of the standard type, so that values may lie in a mapping.
//! All accesses are `SeqCst`, because loom tests the effects of weaker orderings.
//! Source: the atomics of shuttle, which are larger than the values that they contain.

use shuttle::sync::atomic::AtomicBool as Point;
use std::cell::{Cell, RefCell};
pub use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::SeqCst;

/// An access to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// The address of the first byte.
    pub at: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// False if the access only loads.
    pub is_write: bool,
}

thread_local! {
    static WATCHED: RefCell<Option<Vec<Access>>> = const { RefCell::new(None) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` without scheduling points, which saves time. No other thread may run meanwhile.
pub fn alone<T>(work: impl FnOnce() -> T) -> T {
    let before = ALONE.replace(true);
    let done = work();
    ALONE.set(before);
    done
}

/// Runs `work`. Returns its result, and the accesses that all threads made meanwhile.
pub fn watch<T>(work: impl FnOnce() -> T) -> (T, Vec<Access>) {
    WATCHED.with(|watched| watched.replace(Some(Vec::new())));
    let done = work();
    (done, WATCHED.with(RefCell::take).unwrap_or_default())
}

/// Records an access that the caller will make. Before the access, another thread may run.
#[inline(never)]
pub fn access(at: usize, bytes: usize, is_write: bool) {
    note(at, bytes, is_write);
    point();
}

fn point() {
    if !ALONE.get() {
        // At this load, shuttle may run another thread. The load has no other effect.
        Point::new(false).load(SeqCst);
    }
}

/// Records an access like `access`, but lets no other thread run first.
pub fn note(at: usize, bytes: usize, is_write: bool) {
    WATCHED.with_borrow_mut(|watched| {
        if let Some(watched) = watched {
            watched.push(Access { at, bytes, is_write });
        }
    });
}

/// Lets another thread run. No fence is needed, because all accesses are `SeqCst`.
pub fn fence(_order: Ordering) {
    point();
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// Like the standard type, but records each access and lets another thread run before it.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        const _: () = assert!(
            size_of::<$name>() == size_of::<$value>(),
            "the atomic has the size of its value"
        );

        impl $name {
            /// Like `new` of the standard library.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            fn access(&self, is_write: bool) {
                access(std::ptr::from_ref(self).addr(), size_of::<$value>(), is_write);
            }

            /// Like `load` of the standard library.
            pub fn load(&self, _order: Ordering) -> $value {
                self.access(false);
                self.0.load(SeqCst)
            }

            /// Like `store` of the standard library.
            pub fn store(&self, value: $value, _order: Ordering) {
                self.access(true);
                self.0.store(value, SeqCst);
            }

            /// Like `swap` of the standard library.
            pub fn swap(&self, value: $value, _order: Ordering) -> $value {
                self.access(true);
                self.0.swap(value, SeqCst)
            }

            /// Like `compare_exchange` of the standard library.
            ///
            /// # Errors
            /// The value was not `current`. The error is the actual value.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                self.access(true);
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }

            /// Like `fetch_update` of the standard library: retries the exchange until it succeeds.
            ///
            /// # Errors
            /// `change` returned `None`. The error is the value that `change` got.
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fetch_order);
                while let Some(next) = change(before) {
                    match self.compare_exchange(before, next, set_order, fetch_order) {
                        Ok(_) => return Ok(before),
                        Err(there) => before = there,
                    }
                }
                Err(before)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($function:ident),+) => {
        impl $name {
            $(
                /// Like the standard library's function of this name.
                pub fn $function(&self, value: $value, _order: Ordering) -> $value {
                    self.access(true);
                    self.0.$function(value, SeqCst)
                }
            )+
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);
        arithmetic!($name, $value, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max, fetch_min);
    };
}

atomic!(AtomicBool, bool);
integer!(AtomicI64, i64);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
