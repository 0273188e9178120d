//! A request that finds no room is refused at once or answered with `Later`, and changes nothing.
//! No column ever waits in the store, whatever other columns do.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod each;
mod patient;

use patient::at_last;
use std::sync::Arc;
use store::policy::Eviction;
use store::{
    Body, Column, Config, Delta, MetaDelete, MetaGet, MetaStep, Put, PutResult, Store, StoreError,
    Verb, Vivify,
};

each::policies! {
    beside_a_column_that_never_passes_what_finds_no_room_comes_later_and_changes_nothing,
    what_came_too_early_is_stored_once_the_others_have_passed,
    a_whole_draft_is_kept_until_there_is_room_for_its_item,
}

/// Maximum number of segments examined per refusal: 10 passes over 512 in 256 refusals, plus 4.
const LOOKS_A_REFUSAL_MAX: u64 = 24;

fn config(eviction: Option<Eviction>, columns: usize) -> Config {
    let (memory_bytes, item_bytes_max) = (8 << 20, 1 << 20);
    Config { memory_bytes, item_bytes_max, columns, eviction, cas: true, now: 100 }
}

fn make(config: &Config) -> (Arc<Store>, Vec<Column>) {
    let store = Store::new(config).expect("address space");
    let mut columns: Vec<_> = (0..config.columns).map(|_| store.column()).collect();
    columns.iter_mut().for_each(Column::offline);
    columns[0].online();
    (store, columns)
}

fn set(column: &mut Column, key: u32, value: &[u8]) -> Result<PutResult, StoreError> {
    column.put(&Put::new(Verb::Set, &key.to_le_bytes()), Body::Bytes(value))
}

/// Sets new keys from `first` on until a set is refused. Returns the refused key and the error.
fn fill(column: &mut Column, first: u32) -> (u32, StoreError) {
    let refused = |key| Some((key, set(column, key, &[1; 700]).err()?));
    (first..first + 100_000).find_map(refused).expect("memory is bounded")
}

/// Sets `count` new keys; each set must be refused. Returns the number of segments examined.
fn refuse(store: &Store, column: &mut Column, count: u32) -> u64 {
    let before = store.stats().segment_looks;
    for key in 0..count {
        assert_eq!(set(column, 1_000_000 + key, &[1; 700]), Err(StoreError::NoMemory));
        column.quiesce();
        column.maintain();
    }
    store.stats().segment_looks - before
}

#[test]
fn without_eviction_a_refusal_costs_a_constant_whatever_the_others_do() {
    let (store, mut columns) = make(&config(None, 3));
    let (first, others) = columns.split_first_mut().unwrap();
    let (key, refused) = fill(first, 0);
    assert_eq!(refused, StoreError::NoMemory);
    let looks = refuse(&store, first, 5000);
    assert!(looks <= 5000 * LOOKS_A_REFUSAL_MAX, "{looks} alone");
    others[0].online();
    let looks = refuse(&store, first, 5000);
    assert!(looks <= 5000 * LOOKS_A_REFUSAL_MAX, "{looks} beside one that is online");
    // The online column overwrites items with longer values, and so begins a walk for room.
    for round in 0..200 {
        let key = round % (key / 2);
        let _refused = set(&mut others[0], key, &vec![2; 700 + round as usize]);
    }
    let before = store.stats().segment_looks;
    for key in 0..5000 {
        let done = set(first, 2_000_000 + key, &[1; 700]);
        assert!(done != Err(StoreError::TooLarge), "{done:?}");
    }
    let looks = store.stats().segment_looks - before;
    assert!(looks <= 5000 * LOOKS_A_REFUSAL_MAX, "{looks} beside one with a walk under way");
}

#[test]
fn without_eviction_what_others_delete_is_room_after_a_bounded_number_of_refusals() {
    const REFUSALS_MAX: u32 = 256 + 1;
    let (_, mut columns) = make(&config(None, 2));
    let (first, others) = columns.split_first_mut().unwrap();
    let (full, _) = fill(first, 0);
    refuse_once(first);
    others[0].online();
    (0..full / 4).for_each(|key| assert!(others[0].delete(&key.to_le_bytes())));
    others[0].offline();
    let stored = |key| at_last(first, |column| set(column, key, &[3; 700])).is_ok();
    let again = (3_000_000..).position(stored).unwrap();
    assert!(again <= REFUSALS_MAX as usize, "{again} refusals");
}

fn refuse_once(column: &mut Column) {
    assert_eq!(set(column, 1_000_000, &[1; 700]), Err(StoreError::NoMemory));
}

#[test]
fn without_eviction_what_a_column_deletes_itself_is_room_at_once() {
    // The first round deletes neighbouring items, which frees whole segments. The second round
    // deletes every fourth item, which frees no segment.
    for (last_part, step) in [(4, 1), (1, 4)] {
        let (_, mut columns) = make(&config(None, 1));
        let column = &mut columns[0];
        let (full, _) = fill(column, 0);
        refuse_once(column);
        for key in (0..full / last_part).step_by(step) {
            assert!(column.delete(&key.to_le_bytes()));
        }
        for key in 0..full / 8 {
            let key = key * u32::try_from(step).unwrap();
            let stored = at_last(column, |column| set(column, key, &[3; 700]));
            assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{key} of {full}: {stored:?}");
        }
    }
}

/// Fills the store until even the smallest items are refused: a column that passes no quiescent
/// point holds all memory that could become free. Returns a key that has an item.
fn stall(column: &mut Column) -> u32 {
    /// This number of refusals shows that no queue has room: if one of two queues has room, only
    /// keys that the ghost seems to remember are refused.
    const REFUSED_IN_A_ROW: u32 = 32;
    let (key, refused) = fill(column, 0);
    assert_eq!(refused, StoreError::Later);
    let mut in_a_row = 0;
    for small in 0..100_000 {
        match set(column, 5_000_000 + small, &[]) {
            Ok(_) => in_a_row = 0,
            Err(refused) => {
                assert_eq!(refused, StoreError::Later);
                in_a_row += 1;
            }
        }
        if in_a_row == REFUSED_IN_A_ROW {
            return key - 1;
        }
    }
    panic!("there is always room for the smallest");
}

fn later<R: std::fmt::Debug>(what: &str, done: Result<R, StoreError>) {
    assert_eq!(done.map(|done| format!("{done:?}")), Err(StoreError::Later), "{what}");
}

fn beside_a_column_that_never_passes_what_finds_no_room_comes_later_and_changes_nothing(
    eviction: Eviction,
) {
    let (store, mut columns) = make(&config(Some(eviction), 2));
    let (first, others) = columns.split_first_mut().unwrap();
    others[0].online();
    let key = stall(first).to_le_bytes();
    let before = store.stats();
    let long = [4; 9000];
    let delete = MetaDelete {
        key: &key,
        cas: None,
        cas_in: None,
        stale: true,
        exptime: Some(900),
        remove_value: false,
        client_flags: 0,
    };
    let steps = &[MetaStep::Vivify(900)];
    let get =
        MetaGet { key: b"new", key_binary: false, cas_in: None, bump: true, win: true, steps };
    let vivify = Some(Vivify { initial: 1, exptime: 0 });
    let delta =
        Delta { key: b"new", incr: true, delta: 1, cas: 0, cas_in: None, vivify, exptime: None };
    for _ in 0..200 {
        for verb in [Verb::Set, Verb::Replace, Verb::Append, Verb::Prepend, Verb::AppendVivify] {
            later("put", first.put(&Put::new(verb, &key), Body::Bytes(&long)));
        }
        for verb in [Verb::Set, Verb::Add, Verb::PrependVivify] {
            later("put", first.put(&Put::new(verb, b"new"), Body::Bytes(&long)));
        }
        later("arithmetic", first.delta(&delta));
        later("vivify", first.meta_get(&get));
        later("touch", first.touch(&key, 900));
        later("get and touch", first.get_and_touch(&key, 900));
        later("mark", first.meta_delete(&delete));
    }
    assert_eq!(store.stats(), before, "nothing was looked for, evicted or counted");
    let hit = first.meta_get(&MetaGet { key: &key, steps: &[], ..get }).unwrap().expect("there");
    assert_eq!((hit.hit.value_bytes, hit.exptime, hit.stale, hit.fetched), (700, 0, false, false));
}

fn what_came_too_early_is_stored_once_the_others_have_passed(eviction: Eviction) {
    let (_, mut columns) = make(&config(Some(eviction), 2));
    let (first, others) = columns.split_first_mut().unwrap();
    others[0].online();
    stall(first);
    assert_eq!(set(first, 8_000_000, &[5; 700]), Err(StoreError::Later));
    others[0].quiesce();
    let stored = at_last(first, |column| set(column, 8_000_000, &[5; 700]));
    assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
    assert!(first.get(&8_000_000_u32.to_le_bytes()).is_some());
}

fn a_whole_draft_is_kept_until_there_is_room_for_its_item(eviction: Eviction) {
    let (store, mut columns) = make(&config(Some(eviction), 2));
    let (first, others) = columns.split_first_mut().unwrap();
    let bytes = 3 * first.log_value_bytes_max() + 1000;
    let mut draft = first.draft(u32::try_from(bytes).unwrap());
    while draft.missing_bytes() > 0 {
        let space = draft.space(first).expect("room");
        let filled = space.len();
        space.fill(6);
        draft.filled(filled);
    }
    others[0].online();
    stall(first);
    let put = Put::new(Verb::Set, b"large");
    for _ in 0..20 {
        assert_eq!(first.put(&put, Body::Draft(&mut draft)), Err(StoreError::Later));
    }
    others[0].offline();
    let stored = at_last(first, |column| column.put(&put, Body::Draft(&mut draft)));
    assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
    drop(draft);
    let hit = first.get(b"large").expect("stored");
    assert_eq!(hit.value_bytes as usize, bytes);
    let store::Value::Frames(pinned, rest) = hit.value else { panic!("in frames") };
    assert!(pinned.pieces().chain([rest]).flatten().all(|byte| *byte == 6));
    drop(pinned);
    assert!(first.delete(b"large"));
    assert_eq!(store.usage().frame_bytes, 0, "none is left behind");
}
