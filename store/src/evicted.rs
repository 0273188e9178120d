//! Evictions told to a test: a miss that has one behind it is no fault.
//!
//! Where: under `--cfg shuttle`, where all columns run in one thread of the system's.
//! Invariant: what is told first has not happened yet, and what is told second has.
//! Source: none.

use std::cell::RefCell;

/// What is told: the column that evicts, the key, and whether that is done.
pub(crate) type Hook = Box<dyn Fn(usize, &[u8], bool)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Has evictions be told to `hook` from now on.
#[doc(hidden)]
pub fn tell_evictions(hook: Option<Box<dyn Fn(usize, &[u8], bool)>>) {
    HOOK.set(hook);
}

pub(crate) fn tell(column: usize, key: &[u8], is_done: bool) {
    HOOK.with_borrow(|hook| {
        if let Some(hook) = hook {
            hook(column, key, is_done);
        }
    });
}
