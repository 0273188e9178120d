//! Tests of full memory: operations end, memory stays in bounds, and held memory is freed later.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod each;
mod patient;

use patient::at_last;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::policy::Eviction;
use store::{
    Body, Column, Config, MetaGet, Pinned, Put, PutResult, Store, StoreError, Value, Verb,
};

/// Maximum time for all the refused operations of a test, on a busy machine: 50 times the longest
/// time that one operation waits for other columns.
const PATIENCE: Duration = Duration::from_secs(20);

each::policies! {
    the_smallest_items_fill_the_memory_and_no_more,
    what_everybody_uses_gives_way_too,
    values_in_the_hands_of_slow_readers_end_in_an_error_and_come_back,
    columns_that_fall_asleep_in_the_middle_of_a_walk_hold_nobody_up,
    a_hit_in_hand_stays_as_it_is_whatever_others_fill,
    many_columns_mixed_sizes_and_stalled_bodies_at_2_mib,
    drafts_given_up_leave_no_frame_behind,
    segments_that_are_never_full_are_not_compacted_for_ever,
    what_its_own_extension_evicts_is_made_again,
}

fn config(eviction: Eviction, memory_mb: usize, columns: usize) -> Config {
    Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 1 << 20,
        columns,
        eviction: Some(eviction),
        cas: true,
        now: 100,
    }
}

fn make(config: &Config) -> (Arc<Store>, Vec<Column>) {
    let store = Store::new(config).expect("address space");
    let columns = (0..config.columns)
        .map(|_| {
            let mut column = store.column();
            column.offline();
            column
        })
        .collect();
    (store, columns)
}

fn set(column: &mut Column, key: &[u8], value: &[u8]) -> Result<PutResult, StoreError> {
    at_last(column, |column| set_now(column, key, value))
}

fn set_now(column: &mut Column, key: &[u8], value: &[u8]) -> Result<PutResult, StoreError> {
    column.put(&Put::new(Verb::Set, key), Body::Bytes(value))
}

fn pin(column: &mut Column, key: &[u8]) -> Option<Pinned> {
    match column.get(key)?.value {
        Value::Frames(pinned, _) => Some(pinned),
        Value::Log(_) => None,
    }
}

fn rest_bytes(store: &Store, columns: usize) -> usize {
    let segment = usize::try_from(store.usage().segment_bytes).unwrap();
    let hash = usize::try_from(store.stats().hash_bytes).unwrap();
    hash.next_multiple_of(segment) + segment * (2 + 2 * columns)
}

fn the_smallest_items_fill_the_memory_and_no_more(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    let mut most = 0;
    for i in 0..400_000_u32 {
        let name = i.to_le_bytes();
        let key = if i < 1 << 16 { &name[..2] } else { &name[..3] };
        set(column, key, b"").expect("room is made");
        assert!(column.get(key).is_some(), "what was just set");
        if i % 64 == 0 {
            column.quiesce();
            let used = store.used_bytes();
            let hash = usize::try_from(store.stats().hash_bytes).unwrap();
            assert!(used <= 2 << 20 && hash <= used, "{used} bytes, of these {hash} of index");
            most = most.max(store.stats().curr_items);
        }
    }
    let stats = store.stats();
    assert!(stats.evictions > 0 && most > 80_000, "{most} at most, {stats:?}");
    // An item takes 9 bytes of header, 2 or 3 bytes of key, and about 10 bytes of the index.
    assert!(stats.curr_items > 60_000, "{stats:?}");
}

fn what_everybody_uses_gives_way_too(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    for i in 0..30_000_u32 {
        let key = i.to_le_bytes();
        set(column, &key, &[1; 300]).expect("room is made");
        (0..4).for_each(|_| assert!(column.get(&key).is_some()));
        column.quiesce();
    }
    assert!(store.stats().evictions > 20_000);
}

fn values_in_the_hands_of_slow_readers_end_in_an_error_and_come_back(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    let mut pinned = Vec::new();
    let refused = loop {
        let key = u32::try_from(pinned.len()).unwrap().to_le_bytes();
        match set(column, &key, &[7; 100_000]) {
            Ok(_) => pinned.extend(pin(column, &key)),
            Err(refused) => break refused,
        }
        assert!(pinned.len() < 30, "memory is bounded");
    };
    assert_eq!(refused, StoreError::NoMemory);
    assert!(pinned.len() > 9, "only {} values", pinned.len());
    let start = Instant::now();
    for i in 0..100_u32 {
        let _ = set(column, &i.to_le_bytes(), &[8; 100_000]);
        column.quiesce();
    }
    assert!(start.elapsed() < PATIENCE, "refused at once");
    assert!(pinned.iter().flat_map(Pinned::pieces).flatten().all(|byte| *byte == 7));
    pinned.clear();
    for i in 0..100_u32 {
        set(column, &i.to_le_bytes(), &[9; 100_000]).expect("room again");
    }
    (0..100_u32).for_each(|i| _ = column.delete(&i.to_le_bytes()));
    column.quiesce();
    while column.maintain() {}
    assert_eq!(store.stats().bytes, 0);
    assert!(store.used_bytes() <= rest_bytes(&store, 1));
}

#[test]
fn without_eviction_a_full_store_refuses_at_once() {
    let (store, mut columns) = make(&Config { eviction: None, ..config(Eviction::Fifo, 2, 4) });
    let column = &mut columns[0];
    column.online();
    let mut kept = Vec::new();
    for i in 0..30_000_u32 {
        if set(column, &i.to_le_bytes(), &[1; 100]).is_ok() {
            kept.push(i);
        }
        column.quiesce();
    }
    assert!(kept.len() > 10_000 && kept.len() < 20_000, "{} items", kept.len());
    let start = Instant::now();
    for i in 30_000..31_000_u32 {
        let _ = set(column, &i.to_le_bytes(), &[1; 1000]);
        column.quiesce();
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(kept.iter().all(|i| column.get(&i.to_le_bytes()).is_some()));
    // A touch of an item without an exptime needs room, and fails without room; no item is lost.
    kept.iter().for_each(|i| _ = column.touch(&i.to_le_bytes(), 1000));
    assert!(kept.iter().all(|i| column.get(&i.to_le_bytes()).is_some()));
    assert_eq!(store.stats().evictions, 0);
}

fn columns_that_fall_asleep_in_the_middle_of_a_walk_hold_nobody_up(eviction: Eviction) {
    for evict in [true, false] {
        let (_, mut columns) =
            make(&Config { eviction: evict.then_some(eviction), ..config(eviction, 2, 12) });
        let mut key = 0_u32;
        for _ in 0..20 {
            for column in &mut columns {
                column.online();
                // These sets suffice to begin a walk, but not to complete it.
                for _ in 0..200 {
                    key += 1;
                    let slot = if evict { key } else { key % 6000 };
                    set(column, &slot.to_le_bytes(), &[3; 150]).expect("room is made");
                    column.quiesce();
                }
                column.offline();
            }
        }
    }
}

/// Holds a hit in one column while another column fills the memory. True if the hit is unchanged.
fn held_while_others_fill(eviction: Eviction, plant: bool) -> bool {
    let (store, mut columns) = make(&config(eviction, 3, 2));
    let (reader, writer) = columns.split_at_mut(1);
    let (reader, writer) = (&mut reader[0], &mut writer[0]);
    if plant {
        #[cfg(debug_assertions)]
        store.plant_early_reuse();
    }
    writer.online();
    // The value is too long to be copied before the reader sees it: the hit is in the log.
    set(writer, b"held", &[5; 1500]).expect("room");
    reader.online();
    let hit = reader.get(b"held").expect("there");
    let mut refused = 0;
    for i in 0..20_000_u32 {
        refused += u32::from(set_now(writer, &i.to_le_bytes(), &[6; 500]).is_err());
        if refused == 3 {
            break;
        }
        writer.quiesce();
    }
    let Value::Log(value) = hit.value else { panic!("in the log") };
    let same = value.iter().all(|byte| *byte == 5);
    // While the reader keeps memory from being freed, the store must not evict ever more items.
    assert!(plant || store.stats().curr_items > 1500, "{:?}", store.stats());
    reader.quiesce();
    set(writer, b"again", &[6; 500]).expect("the reader has moved on");
    same
}

fn a_hit_in_hand_stays_as_it_is_whatever_others_fill(eviction: Eviction) {
    assert!(held_while_others_fill(eviction, false));
}

#[test]
#[cfg(debug_assertions)]
fn a_hit_in_hand_tells_when_memory_is_reused_early() {
    assert!(!held_while_others_fill(Eviction::default(), true));
}

fn many_columns_mixed_sizes_and_stalled_bodies_at_2_mib(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 64));
    let large = vec![9; 200_000];
    let mut stalled = Vec::new();
    for i in 0..4000_u32 {
        let column = &mut columns[i as usize % 64];
        column.online();
        if i % 40 == 0 {
            // Only one piece of this value arrives, so its draft waits, and holds no other memory.
            let mut draft = column.draft(200_000);
            if let Ok(space) = draft.space(column) {
                let bytes = space.len();
                space.fill(1);
                draft.filled(bytes);
                stalled.push(draft);
            }
        }
        let value = if i % 50 == 7 { &large[..] } else { &large[..100] };
        set(column, &i.to_le_bytes(), value).expect("no set fails");
        column.offline();
    }
    drop(stalled);
    let column = &mut columns[0];
    column.online();
    (0..4000_u32).for_each(|i| _ = column.delete(&i.to_le_bytes()));
    column.quiesce();
    while column.maintain() {}
    assert_eq!(store.stats().bytes, 0);
    assert!(store.used_bytes() <= rest_bytes(&store, 4));
}

fn drafts_given_up_leave_no_frame_behind(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    let before = store.used_bytes();
    for round in 0..200 {
        let mut draft = column.draft(600_000);
        for _ in 0..round {
            let Ok(spaces) = draft.spaces(column, 100_000) else { break };
            let bytes = spaces.map(|space| space.len()).take(1 + round % 4).sum();
            if round % 5 != 0 {
                draft.filled(bytes); // otherwise the draft is given up with its unfilled frames
            }
        }
    }
    assert_eq!(store.used_bytes(), before);
    // This set gets frames only if the dropped drafts' frames no longer count as in flight.
    set(column, b"k", &[1; 900_000]).expect("half of the memory may be in flight");
}

/// Eight items fill seven eighths of a segment, and no ninth fits: compaction would gain nothing.
fn segments_that_are_never_full_are_not_compacted_for_ever(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    for i in 0..3000_u32 {
        set(column, &i.to_le_bytes(), &[4; 1830]).expect("room is made");
        column.quiesce();
    }
    let stats = store.stats();
    assert!(stats.evictions > 1500, "{stats:?}");
    assert!(stats.compacted_bytes < stats.evictions * 1830 / 10, "{stats:?}");
}

/// AppendVivify extends the item. If room for that comes from the item's eviction, creates it anew.
fn what_its_own_extension_evicts_is_made_again(eviction: Eviction) {
    let (store, mut columns) = make(&config(eviction, 2, 1));
    let column = &mut columns[0];
    column.online();
    let (mut made_again, mut oldest) = (0, 0_u32);
    for i in 0..4_000_u32 {
        set(column, &i.to_le_bytes(), &[1; 2000]).expect("room is made");
        if store.stats().evictions == 0 {
            continue;
        }
        while !is_there(column, &oldest.to_le_bytes()) {
            oldest += 1;
        }
        let key = oldest.to_le_bytes();
        let append = Put::new(Verb::AppendVivify, &key);
        match at_last(column, |column| column.put(&append, Body::Bytes(&[2; 60]))) {
            Ok(PutResult::Stored { value_bytes, .. }) => made_again += u32::from(value_bytes == 60),
            other => panic!("item {oldest} of {i}: {other:?}"),
        }
        oldest += 1;
    }
    assert!(made_again > 0, "no item was evicted by its own extension");
}

fn is_there(column: &mut Column, key: &[u8]) -> bool {
    let get = MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] };
    column.meta_get(&get).expect("no steps").is_some()
}
