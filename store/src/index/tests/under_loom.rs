//! The index under every interleaving that loom can tell apart.
//!
//! Where: `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
//! Invariant: the tests run the shipped source.

use super::super::width::LINES_MAX;
use super::*;
use loom::{sync::Arc, thread};

fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Loom counts operations before the threads start as branches too.
    builder.max_branches = 20_000;
    // To explore all interleavings would take hours, but a fault shows up in seconds.
    builder.max_duration = Some(std::time::Duration::from_secs(20));
    builder.check(test);
}

fn small() -> Arc<Index> {
    let index = Index::new(1024, 0, GhostScope::None).expect("small");
    index.grant(8192);
    Arc::new(index)
}

/// Inserts nine keys with the same home line, which has eight slots: one key is in its other line.
fn crowd(index: &Index) -> Vec<u64> {
    let home = |loc: &u64| hash_of(*loc) >> 61 == 0;
    let crowd: Vec<u64> = (0..).filter(home).take(9).collect();
    crowd.iter().for_each(|loc| insert(index, *loc).expect("room"));
    crowd
}

/// Fills lines 0 and 1 with keys that have no third line, and puts one more such key in an overflow
/// line. Returns a key of line 1, whose removal makes room, and the spilled key.
fn spilled(index: &Index) -> (u64, u64) {
    let pair = |home: u64| (0..).filter(move |loc| lines_of(*loc, 8) == [home, 1 - home]).take(9);
    let full: Vec<u64> = pair(0).take(8).chain(pair(1).take(8)).collect();
    let spilled = pair(0).last().expect("the ninth");
    full.iter().chain([&spilled]).for_each(|loc| insert(index, *loc).expect("room"));
    assert_ne!(index.groups.word(0).load(Ordering::Relaxed) & OVERFLOW_AT, 0);
    (full[8], spilled)
}

/// The home line and the other line of a key, in a group of `lines` lines.
fn lines_of(loc: u64, lines: u64) -> [u64; 2] {
    let (homes, tag) = (width::Homes::of(lines), tag(hash_of(loc)));
    [homes.home(tag), homes.other(tag)]
}

/// A reader finds a key that is in the index all the time, even if a step moves the key's slot. The
/// tests up to `a_removal_hides_no_other_key` fail if `find_validated` does not compare versions.
#[test]
fn a_step_hides_no_key() {
    model(2, || {
        let index = small();
        let crowd = crowd(&index);
        // The key is in its other line before the step, and in the new line after the step.
        let goes = |loc: &u64| lines_of(*loc, 8)[0] == 0 && lines_of(*loc, 9)[0] == 8;
        let goes = (0..).filter(goes).find(|loc| !crowd.contains(loc)).expect("some");
        insert(&index, goes).expect("room");
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || has(&index, goes))
        };
        assert_eq!(index.step(moment(), |loc| hash_of(loc.offset())), grow::Step::Done);
        assert!(reader.join().expect("reads"), "missed what was there throughout");
        assert!(crowd.iter().chain([&goes]).all(|loc| has(&index, *loc)));
    });
}

/// Like `a_step_hides_no_key`, but the index contracts and the group is laid out again.
#[test]
fn a_step_back_hides_no_key() {
    contracts(9);
}

/// Like `a_step_back_hides_no_key`, but only the last line's slots move.
#[test]
fn a_line_that_is_folded_hides_no_key() {
    contracts(2);
}

/// Contracts the index with `count` keys at home in the line that is removed.
fn contracts(count: usize) {
    model(2, move || {
        let index = small();
        assert_eq!(index.step(moment(), |loc| hash_of(loc.offset())), grow::Step::Done);
        // The removed line is the home of these keys. The ninth key moves to a third line.
        let ninth = |loc: &u64| lines_of(*loc, 9)[0] == 8;
        let moves = |loc: &u64| lines_of(*loc, 9)[1] != lines_of(*loc, 8)[0];
        let crowd: Vec<u64> = (0..).filter(ninth).filter(moves).take(count).collect();
        crowd.iter().for_each(|loc| insert(&index, *loc).expect("room"));
        let reader = {
            let (index, moves) = (Arc::clone(&index), crowd[count - 1]);
            thread::spawn(move || has(&index, moves))
        };
        assert_eq!(index.step_back(), grow::Step::Done);
        assert!(reader.join().expect("reads"), "missed what was there throughout");
        assert!(crowd.iter().all(|loc| has(&index, *loc)));
    });
}

/// A writer may lock the upper group just before a merge removes the group, or just after a split
/// has made the group again. In both cases only one column holds the group's lock.
#[test]
fn a_group_that_went_and_came_back_is_locked_by_one() {
    let upper = |loc: &u64| hash_of(*loc) & 1 == 1;
    let keys: Vec<u64> = (0..).filter(upper).take(2).collect();
    model(2, move || {
        let index = small();
        let step = |index: &Index| index.step(moment(), |loc| hash_of(loc.offset()));
        (LINES_MIN..=LINES_MAX).for_each(|_| _ = step(&index));
        let other = {
            let (index, key) = (Arc::clone(&index), keys[0]);
            thread::spawn(move || insert(&index, key).is_ok())
        };
        _ = index.step_back();
        _ = step(&index);
        insert(&index, keys[1]).expect("room");
        assert!(other.join().expect("inserts"));
        assert!(keys.iter().all(|key| has(&index, *key)));
        assert!(index.groups.word(0).load(Ordering::Relaxed) & (LOCK | ODD) == 0);
        assert!(index.groups.word(1).load(Ordering::Relaxed) & (LOCK | ODD) == 0);
    });
}

/// Like `a_step_hides_no_key`, but an insertion moves the key to its other line.
#[test]
fn an_insertion_hides_no_key_that_makes_place() {
    model(2, || {
        let index = small();
        // The ninth key's two lines are full; the other line of the first eight keys is empty.
        let keys = |home: u64, other: u64| {
            (0..).filter(move |loc| lines_of(*loc, 8) == [home, other]).take(8)
        };
        let full = keys(0, 2).chain(keys(1, 2));
        full.for_each(|loc| insert(&index, loc).expect("room"));
        let moved = keys(0, 2).next().expect("some");
        let ninth = keys(0, 1).next().expect("some");
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || has(&index, moved))
        };
        insert(&index, ninth).expect("room");
        assert!(reader.join().expect("reads"), "missed what was there throughout");
        assert!(has(&index, ninth) && has(&index, moved));
        assert_eq!(index.groups.word(0).load(Ordering::Relaxed) & OVERFLOW_AT, 0);
    });
}

/// Like `a_step_hides_no_key`, but a removal moves the key home from an overflow line.
#[test]
fn a_removal_hides_no_other_key() {
    model(3, || {
        let index = small();
        let (gone, spilled) = spilled(&index);
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || has(&index, spilled))
        };
        let mut locked = index.lock(moment(), hash_of(gone));
        let at = locked.find_loc(gone).expect("there").at();
        locked.remove(at);
        drop(locked);
        assert!(reader.join().expect("reads"), "missed what was there throughout");
        assert!(!has(&index, gone) && has(&index, spilled));
    });
}

fn all_dead() -> super::super::pass::Marks {
    let mut marks = super::super::pass::Marks::new(1, 39);
    marks.set(0, true);
    marks
}

fn pass(index: &Index, is_dead: impl Fn(u64) -> bool) {
    let (marks, mut next) = (all_dead(), Some(0));
    while let Some(group) = next {
        next = index.pass(moment(), group, 1, &marks, |found| is_dead(found.slot().loc())).next;
    }
}

/// A complete pass leaves no dead slot, even if a split moves a dead slot to a group that did not
/// exist when the pass began. Fails if the pass reads the number of groups only once.
#[test]
fn a_pass_misses_nothing_that_a_split_moves() {
    let upper: Vec<u64> = (0..).filter(|loc| hash_of(*loc) & 1 == 1).take(2).collect();
    model(3, move || {
        let index = small();
        (LINES_MIN..LINES_MAX).for_each(|_| _ = index.step(moment(), |loc| hash_of(loc.offset())));
        upper.iter().for_each(|loc| insert(&index, *loc).expect("room"));
        let grower = {
            let index = Arc::clone(&index);
            thread::spawn(move || index.step(moment(), |loc| hash_of(loc.offset())))
        };
        let dead = upper[0];
        pass(&index, |loc| loc == dead);
        _ = grower.join().expect("steps");
        assert!(!has(&index, dead) && has(&index, upper[1]));
    });
}

/// The index does not contract during a pass, because contraction would move slots to a group that
/// the pass has left. Fails if `step_back` does not check for a pass.
#[test]
fn a_pass_misses_nothing_that_would_come_back() {
    let upper: Vec<u64> = (0..).filter(|loc| hash_of(*loc) & 1 == 1).take(2).collect();
    model(3, move || {
        let index = small();
        (LINES_MIN..=LINES_MAX).for_each(|_| _ = index.step(moment(), |loc| hash_of(loc.offset())));
        upper.iter().for_each(|loc| insert(&index, *loc).expect("room"));
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || _ = index.step_back())
        };
        let dead = upper[0];
        if index.begin_pass() {
            pass(&index, |loc| loc == dead);
            assert!(!has(&index, dead), "it has come back");
            index.end_pass();
        }
        other.join().expect("steps back");
        assert!(has(&index, upper[1]));
    });
}

/// A reader finds a key although a pass moves the key from an overflow line to one of its two
/// lines. Fails if the pass does not make the version odd.
#[test]
fn a_pass_hides_no_key() {
    model(3, || {
        let index = small();
        let (gone, spilled) = spilled(&index);
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || has(&index, spilled))
        };
        pass(&index, |loc| loc == gone);
        assert!(reader.join().expect("reads"), "missed what was there throughout");
        assert!(!has(&index, gone) && has(&index, spilled));
        let word = index.groups.word(0).load(Ordering::Relaxed);
        assert_eq!(word & OVERFLOW_AT, 0, "its line is free");
    });
}

#[test]
fn a_split_forgets_no_key() {
    let key = (0..).find(|loc| hash_of(*loc) & 1 == 1).expect("every other");
    let hash = hash_of(key);
    model(2, move || {
        let index = Index::new(1024, 0, GhostScope::Probation).expect("small");
        index.grant(8192);
        let index = Arc::new(index);
        (LINES_MIN..LINES_MAX).for_each(|_| _ = index.step(moment(), |loc| hash_of(loc.offset())));
        let grower = {
            let index = Arc::clone(&index);
            thread::spawn(move || index.step(moment(), |loc| hash_of(loc.offset())))
        };
        index.lock(moment(), hash).remember(Queue::Probation);
        let stepped = grower.join().expect("steps");
        assert!(index.remembers(hash));
        assert!(stepped != super::super::grow::Step::NeedsMemory);
        assert!(index.lock(moment(), hash).recall().is_some() && !index.remembers(hash));
    });
}

/// An item of two words. Each write stores the same number to both words.
struct Item {
    index: Arc<Index>,
    loc: u64,
    words: [memory::sync::AtomicU64; 2],
}

impl Item {
    fn new(index: Arc<Index>, loc: u64) -> Arc<Self> {
        let word = || memory::sync::AtomicU64::new(0);
        Arc::new(Self { index, loc, words: [word(), word()] })
    }

    /// Like `View::rewrite`: writes the number of the new version to both words.
    fn rewrite(&self) {
        let locked = self.index.lock(moment(), hash_of(self.loc));
        let found = locked.find_loc(self.loc).expect("there");
        let (at, version) = (found.at(), found.slot().ver() + 1);
        locked.rewrite(
            at,
            |slot| slot.rewritten(0, 0),
            || self.words.iter().for_each(|word| word.store(version, Ordering::Relaxed)),
        );
    }

    /// Like `Column::get`, but tries once.
    fn read(&self) -> Option<u64> {
        let found = self.index.find(moment(), hash_of(self.loc), |at| at.offset() == self.loc);
        let found = found.expect("there throughout");
        let copy: Vec<_> = self.words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        if !found.is_unchanged() {
            return None;
        }
        found.bump(|| true);
        assert_eq!(copy, [found.slot().ver(); 2], "torn, or another version's");
        Some(found.slot().ver())
    }
}

/// A reader's copy has both words of the slot's version, or is refused. Fails without one of the
/// fences, without the `busy` bit, or without the check of the slot after the copy.
#[test]
fn a_copy_of_what_is_rewritten_is_whole_or_refused() {
    model(3, || {
        let item = Item::new(small(), 5);
        insert(&item.index, 5).expect("room");
        let reader = {
            let item = Arc::clone(&item);
            thread::spawn(move || item.read())
        };
        item.rewrite();
        item.rewrite();
        let seen = reader.join().expect("reads");
        assert!(seen.is_none_or(|version| version <= 2));
        assert_eq!(item.read(), Some(2), "and nothing is left busy");
    });
}

#[test]
fn nor_is_it_taken_for_whole_when_its_slot_moves() {
    model(2, || {
        let index = small();
        let (gone, spilled) = spilled(&index);
        let item = Item::new(index, spilled);
        let reader = {
            let item = Arc::clone(&item);
            thread::spawn(move || item.read())
        };
        item.rewrite();
        let line = || {
            let locked = item.index.lock(moment(), hash_of(spilled));
            locked.line_of(locked.find_loc(spilled).expect("there").at())
        };
        assert_eq!(line(), None);
        let mut locked = item.index.lock(moment(), hash_of(gone));
        let at = locked.find_loc(gone).expect("there").at();
        locked.remove(at);
        drop(locked);
        assert!(line().is_some(), "it moved");
        item.rewrite();
        reader.join().expect("reads");
        assert_eq!(item.read(), Some(2));
    });
}

#[test]
fn writers_of_a_key_exclude_each_other() {
    model(3, || {
        let index = small();
        let put = |index: &Index| {
            let mut locked = index.lock(moment(), hash_of(5));
            if locked.find_loc(5).is_none() {
                locked.insert(Slot::new(hash_of(5), 5)).expect("room");
                return 1;
            }
            0
        };
        let other = {
            let index = Arc::clone(&index);
            thread::spawn(move || put(&index))
        };
        let ours = put(&index);
        assert_eq!(ours + other.join().expect("puts"), 1);
    });
}
