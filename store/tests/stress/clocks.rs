//! Columns whose clocks are a second apart: an item may be dead by one clock and alive by another.
//!
//! Invariant: an index slot points to its item, whichever column drained or moved the segment.

use crate::patient::at_last;
use crate::{THREADS, at_once, config, each, key_of, random, value};
use std::sync::atomic::{AtomicUsize, Ordering};
use store::policy::Eviction;
use store::{Body, Column, Put, Store, Verb};

each::policies! {
    what_is_drained_while_a_flush_is_called_off_is_all_gone_or_all_there,
}

const STEPS: u32 = 30_000;
const KEYS: u32 = 3000;

fn set(column: &mut Column, key: u32, bytes: usize) -> Result<(), String> {
    let (name, value) = (key_of(key), value::make(key, 1, bytes));
    let put = Put::new(Verb::Set, &name);
    let stored = at_last(column, |column| column.put(&put, Body::Bytes(&value)));
    stored.map(|_| ()).map_err(|refused| format!("set: {refused:?}"))
}

fn what_is_drained_while_a_flush_is_called_off_is_all_gone_or_all_there(eviction: Eviction) {
    let store = Store::new(&config(eviction, 2)).expect("address space");
    let at_work = AtomicUsize::new(THREADS - 1);
    let all = at_once(&store, |id, column| {
        while id == 0 && at_work.load(Ordering::SeqCst) > 0 {
            // The other columns' clocks are a second ahead: by these clocks, all items are flushed
            // between the two calls.
            column.flush(Some(1001));
            column.flush(Some(0));
            column.quiesce();
        }
        let mut random = random(id);
        let mut step = |column: &mut Column| {
            column.set_now(1001);
            let key = u32::try_from(random.below(u64::from(KEYS))).unwrap();
            let bytes = 100 + usize::try_from(random.below(300)).unwrap();
            let stored = set(column, key, bytes);
            column.maintain();
            column.quiesce();
            stored
        };
        let steps = if id == 0 { 0 } else { STEPS };
        let all = (0..steps).try_for_each(|_| step(column));
        // Done after a failed step too, because the first column loops until the count is 0.
        at_work.fetch_sub(usize::from(id != 0), Ordering::SeqCst);
        all
    });
    all.unwrap_or_else(|error| panic!("{error}"));
    let mut column = store.column();
    column.flush(Some(0));
    while column.maintain() {}
    let mut there = 0;
    for key in 0..KEYS {
        if let Some(hit) = column.get(&key_of(key)) {
            there += 1;
            assert_eq!(value::version(key, &value::bytes(&hit)), Ok(1));
        }
    }
    assert_eq!(store.stats().curr_items, there, "items counted and items readable");
}
