//! Reports evictions to a test, which then accepts misses of the evicted keys.
//!
//! Where: under `--cfg shuttle`, where all columns run in one system thread.
//! Invariant: each eviction is reported twice, first before it happens and then after it.

use std::cell::RefCell;

/// A callback whose arguments are the evicting column, the key, and true after the eviction.
pub(crate) type Hook = Box<dyn Fn(usize, &[u8], bool)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Sets the callback to which this thread reports evictions; `None` ends the reports.
#[doc(hidden)]
pub fn set_eviction_hook(hook: Option<Box<dyn Fn(usize, &[u8], bool)>>) {
    HOOK.set(hook);
}

pub(crate) fn report_eviction(column: usize, key: &[u8], is_done: bool) {
    HOOK.with_borrow(|hook| {
        if let Some(hook) = hook {
            hook(column, key, is_done);
        }
    });
}
