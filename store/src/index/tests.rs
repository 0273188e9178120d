//! The index alone, its items played by hashes: `loc` is the key, its hash a mix of it.

use super::locked::Full;
use super::*;
use crate::policy::Queue;

fn hash_of(loc: u64) -> u64 {
    let mixed = (loc + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

fn has(index: &Index, loc: u64) -> bool {
    index.find(hash_of(loc), |slot| slot.loc() == loc).is_some()
}

fn insert(index: &Index, loc: u64) -> Result<(), Full> {
    let hash = hash_of(loc);
    index.lock(hash).insert(Slot::new(hash, loc))
}

#[cfg(not(loom))]
mod alone {
    mod given_back;

    use super::super::grow::Step;
    use super::super::pass::Marks;
    use super::super::width::LINES_MAX;
    use super::*;
    use memory::quiescence::Quiescence;
    use std::collections::{BTreeSet, HashSet};

    /// How many slots stand at home, in their other line, and in overflow lines; none anywhere
    /// else, none twice, and the group's word tells of each.
    fn count_checked(index: &Index) -> [usize; 3] {
        let width = index.width();
        let mut counts = [0; 3];
        let mut seen = HashSet::new();
        for group in 0..width.total_groups() {
            let address = width.address(group);
            assert_eq!(address.group, group);
            let word = index.groups.word(address.group()).load(Ordering::Relaxed);
            assert_eq!(word & (LOCK | ODD), 0, "locked or moving");
            let is_spilled = |home: u64| word & (1 << (u64::from(SPILLED_AT) + home)) != 0;
            let mut met = |word: &AtomicU64| {
                let slot = Slot(word.load(Ordering::Relaxed));
                assert!(slot.0 == 0 || seen.insert(slot.loc()), "{} is there twice", slot.loc());
                (slot.0 != 0).then(|| slot.tag())
            };
            for line in 0..address.lines {
                for tag in index.lines.line(address.line(line)).iter().filter_map(&mut met) {
                    let home = address.home(tag);
                    assert!(home == line || address.other(tag) == line && is_spilled(home));
                    counts[usize::from(home != line)] += 1;
                }
            }
            let mut at = word & OVERFLOW_AT;
            let first = at;
            while at != 0 {
                let tags: Vec<u64> = index.overflow.slots(at).iter().filter_map(&mut met).collect();
                assert!(tags.iter().all(|tag| is_spilled(address.home(*tag))));
                assert!(tags.len() == overflow::SLOTS || at == first && !tags.is_empty());
                counts[2] += tags.len();
                at = index.overflow.next(at);
            }
        }
        counts
    }

    fn step(index: &Index) -> Step {
        index.step(|slot| hash_of(slot.loc()))
    }

    fn fill(index: &Index, locs: std::ops::Range<u64>) {
        for loc in locs {
            insert(index, loc).expect("room");
            index.count(1);
            if index.wants_to_grow() {
                assert_eq!(step(index), Step::Done);
            }
        }
    }

    fn remove(index: &Index, loc: u64) -> bool {
        let mut locked = index.lock(hash_of(loc));
        let found = locked.find_loc(loc);
        found.inspect(|at| locked.remove(*at)).is_some()
    }

    #[test]
    fn it_grows_line_by_line_and_keeps_every_item() {
        let index = Index::new(8 << 20, 1, Remembered::None).expect("address space");
        index.grant(4 << 20);
        let (mut lines, count) = (index.home_slots() / 8, 60_000);
        for loc in 0..count {
            insert(&index, loc).expect("room");
            index.count(1);
            if index.wants_to_grow() {
                assert_eq!(index.step(|slot| hash_of(slot.loc())), Step::Done);
                lines += 1;
                assert_eq!(index.home_slots(), lines * 8);
            }
            if loc % 997 == 0 {
                assert!((0..=loc).all(|loc| has(&index, loc)), "at {loc}");
            }
        }
        assert!((0..count).all(|loc| has(&index, loc)));
        assert!(!has(&index, count));
        let per_item = index.bytes() as f64 / count as f64;
        assert!(per_item < 9.2, "{per_item} bytes an item");
        let [home, other, overflown] = count_checked(&index);
        assert_eq!(home + other + overflown, 60_000);
        assert!(home > 45_000 && overflown < 6_000, "{home}, {other}, {overflown}");
    }

    /// Line by line, through several splits that are undone, and back again.
    #[test]
    fn it_contracts_as_it_grew_and_keeps_every_item() {
        let index = Index::new(8 << 20, 1, Remembered::Both).expect("address space");
        index.grant(4 << 20);
        let (start, count) = (index.bytes(), 60_000);
        for _ in 0..2 {
            fill(&index, 0..count);
            assert_eq!(count_checked(&index).iter().sum::<usize>(), 60_000);
            let most = index.bytes();
            for loc in 0..count {
                assert!(remove(&index, loc));
                index.count(-1);
                while index.wants_to_shrink() {
                    assert_eq!(index.step_back(), Step::Done);
                }
                if loc % 997 == 0 {
                    assert!((loc + 1..count).all(|loc| has(&index, loc)), "at {loc}");
                    let left = usize::try_from(count - loc - 1).expect("few");
                    assert_eq!(count_checked(&index).iter().sum::<usize>(), left);
                }
            }
            // What stays are overflow lines that are free.
            assert!(index.bytes() < start + most / 8, "{start}, {most}, {}", index.bytes());
            assert_eq!(index.step_back(), Step::NotNow, "it is as at the start");
        }
    }

    #[test]
    fn any_order_of_everything_keeps_every_item_and_no_other() {
        for seed in 1..40 {
            let index = Index::new(1 << 20, 1, Remembered::None).expect("address space");
            index.grant(1 << 18);
            let (mut random, mut there) = (seed, BTreeSet::new());
            for next in 0..6000_u64 {
                random = hash_of(random ^ next);
                let target = 64 + (random >> 8) % 1500;
                match random % 16 {
                    0 => _ = step(&index),
                    1 => _ = index.step_back(),
                    _ if (there.len() as u64) < target => {
                        if insert(&index, next).is_ok() {
                            there.insert(next);
                        }
                    }
                    _ => {
                        let from = (random >> 32) % next;
                        let picked = there.range(from..).next().or(there.first()).copied();
                        let Some(loc) = picked else { continue };
                        there.remove(&loc);
                        assert!(remove(&index, loc));
                    }
                }
                if next % 500 == 0 {
                    assert_eq!(count_checked(&index).iter().sum::<usize>(), there.len());
                }
            }
            assert!((0..6000).all(|loc| has(&index, loc) == there.contains(&loc)));
        }
    }

    /// More keys of one home line than two lines and several overflow lines hold.
    #[test]
    fn keys_that_crowd_are_all_found_and_let_go() {
        let index = Index::new(1 << 20, 0, Remembered::None).expect("address space");
        index.grant(1 << 18);
        let home = |loc: &u64| hash_of(*loc) >> 61 == 3;
        let crowd: Vec<u64> = (0..).filter(home).take(150).collect();
        crowd.iter().for_each(|loc| insert(&index, *loc).expect("room"));
        let [_, other, overflown] = count_checked(&index);
        assert!(other > 40 && overflown > 70, "{other}, {overflown}");
        for _ in LINES_MIN..=LINES_MAX {
            assert_eq!(step(&index), Step::Done);
            assert_eq!(count_checked(&index).iter().sum::<usize>(), 150);
        }
        assert!(crowd.iter().all(|loc| has(&index, *loc)));
        while index.step_back() == Step::Done {
            assert_eq!(count_checked(&index).iter().sum::<usize>(), 150);
        }
        for (at, loc) in crowd.iter().enumerate() {
            assert!(remove(&index, *loc) && !has(&index, *loc));
            assert!(crowd[at + 1..].iter().all(|loc| has(&index, *loc)));
        }
        assert_eq!(count_checked(&index), [0; 3]);
    }

    #[test]
    fn items_that_come_and_go_take_hardly_more_than_those_that_came() {
        let index = Index::new(32 << 20, 4, Remembered::None).expect("address space");
        index.grant(30 << 20);
        fill(&index, 0..140_000);
        let before = index.bytes();
        let churn = |oldest| remove(&index, oldest) && insert(&index, oldest + 140_000).is_ok();
        assert!((0..420_000).all(churn) && index.bytes() < before + before / 20);
    }

    #[test]
    fn churn_at_full_load_stays_within_its_memory() {
        let index = Index::new(1 << 20, 4, Remembered::None).expect("address space");
        index.grant(64 << 10);
        let window = index.home_slots() * 105 / 100;
        for loc in 0..window * 20 {
            insert(&index, loc).expect("overflow lines are used again");
            assert!(loc < window || remove(&index, loc - window));
        }
        let first = window * 20 - window;
        assert!((first..window * 20).all(|loc| has(&index, loc)));
        assert!(!(0..first).any(|loc| has(&index, loc)));
        let [home, other, overflown] = count_checked(&index);
        // It is as full as growth lets it be, and more.
        assert!(home * 10 > (home + other + overflown) * 7, "{home}, {other}, {overflown}");
    }

    #[test]
    fn without_memory_an_insert_is_refused_and_nothing_lost() {
        let index = Index::new(1 << 20, 0, Remembered::None).expect("address space");
        let mut there = HashSet::new();
        for loc in 0..1000 {
            if insert(&index, loc).is_ok() {
                there.insert(loc);
            }
        }
        assert!(there.len() >= 32 && there.len() <= 64);
        assert_eq!(index.step(|slot| hash_of(slot.loc())), Step::NeedsMemory);
        assert!((0..1000).all(|loc| has(&index, loc) == there.contains(&loc)));
    }

    /// Through many a line more, and several splits.
    #[test]
    fn growth_forgets_nothing() {
        let index = Index::new(8 << 20, 0, Remembered::Probation).expect("address space");
        let plain = Index::new(8 << 20, 0, Remembered::None).expect("address space").bytes();
        assert_eq!(index.bytes(), plain + ghost::WORDS * 8, "its memory is counted");
        index.grant(4 << 20);
        let count = 60_000;
        // Few enough that no word has to let one go.
        let gone = count..count + 12;
        gone.clone().for_each(|loc| index.lock(hash_of(loc)).remember(Queue::Probation));
        for loc in 0..count {
            insert(&index, loc).expect("room");
            index.count(1);
            if index.wants_to_grow() {
                assert_eq!(index.step(|slot| hash_of(slot.loc())), Step::Done);
            }
        }
        assert!(gone.clone().all(|loc| index.remembers(hash_of(loc))));
        assert!(gone.clone().all(|loc| index.lock(hash_of(loc)).recall().is_some()));
        assert!(!gone.clone().any(|loc| index.remembers(hash_of(loc))));
        let known = (0..count).filter(|loc| index.remembers(hash_of(*loc))).count();
        // Twelve tags, one in each word or two, which all groups inherit from the first.
        assert!(known < 130, "{known} that were never remembered");
    }

    /// Marks of segments of a thousand keys, every third of which is dead.
    fn thirds() -> Marks {
        let mut marks = Marks::new(1024, 10);
        (0..1024).step_by(3).for_each(|segment| marks.set(segment, true));
        marks
    }

    fn in_thirds(loc: u64) -> bool {
        (loc >> 10).is_multiple_of(3)
    }

    /// In the middle of growth, of lines more and of splits, and once nothing grows.
    #[test]
    fn a_pass_empties_what_is_dead_and_nothing_else_while_the_index_grows() {
        for grows in [false, true] {
            let index = Index::new(8 << 20, 1, Remembered::None).expect("address space");
            index.grant(4 << 20);
            fill(&index, 0..60_000);
            let (marks, mut next, mut more) = (thirds(), Some(0), 60_000);
            let kept = |loc: u64| loc.is_multiple_of(1000);
            assert!(index.begin_pass() && index.is_passing());
            let before = index.home_lines();
            while let Some(group) = next {
                let passed = index.pass(group, 100, &marks, |slot| !kept(slot.loc()));
                next = passed.next;
                assert!(passed.lines < 120, "{} lines are no slice", passed.lines);
                for loc in (more..more + 300).filter(|loc| grows && !in_thirds(*loc)) {
                    insert(&index, loc).expect("room");
                    _ = step(&index);
                }
                more += 300;
                assert_eq!(index.step_back(), Step::NotNow, "it does not contract meanwhile");
            }
            index.end_pass();
            assert_eq!(index.home_lines() > before * 2, grows);
            let there = |loc| {
                let old = loc < 60_000 && (!in_thirds(loc) || kept(loc));
                old || loc < more && grows && loc >= 60_000 && !in_thirds(loc)
            };
            for loc in 0..more + 1000 {
                assert_eq!(has(&index, loc), there(loc), "{loc} of {more}");
            }
            let all = (0..more).filter(|loc| there(*loc)).count();
            assert_eq!(count_checked(&index).iter().sum::<usize>(), all);
            assert_eq!(index.step_back(), Step::Done);
        }
    }

    /// Of overflow lines that many keys of one home line fill, a few or most or all go.
    #[test]
    fn a_pass_leaves_overflow_lines_full_but_for_the_first() {
        let home = |loc: &u64| hash_of(*loc) >> 61 == 3;
        for (gone, of) in [(1, 20), (1, 2), (5, 6), (1, 1)] {
            let index = Index::new(1 << 20, 0, Remembered::None).expect("address space");
            index.grant(1 << 18);
            let crowd: Vec<u64> = (0..).filter(home).take(150).collect();
            crowd.iter().for_each(|loc| insert(&index, *loc).expect("room"));
            let (mut marks, mut dead) = (Marks::new(1, 40), 0);
            marks.set(0, true);
            let passed = index.pass(0, 1, &marks, |_| {
                dead += 1;
                dead * gone / of != (dead - 1) * gone / of
            });
            assert_eq!((passed.next, index.home_lines()), (Some(1), 8));
            assert_eq!(dead, 150, "each is asked about once");
            let left = 150 - 150 * gone / of;
            assert_eq!(count_checked(&index).iter().sum::<usize>(), left);
            let found: Vec<_> = crowd.iter().filter(|loc| has(&index, **loc)).collect();
            assert_eq!(found.len(), left);
            found.iter().for_each(|loc| assert!(remove(&index, **loc)));
            assert_eq!(count_checked(&index), [0; 3]);
        }
    }

    #[test]
    fn permanent_keys_are_never_missed_while_others_grow_and_shrink_the_index() {
        let index = Index::new(8 << 20, 0, Remembered::None).expect("address space");
        index.grant(4 << 20);
        let permanent = 200;
        (0..permanent).for_each(|loc| insert(&index, loc).expect("room"));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut rounds = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) || rounds == 0 {
                    (0..permanent).for_each(|loc| assert!(has(&index, loc), "missed {loc}"));
                    rounds += 1;
                }
            });
            let mut locs = permanent..;
            for _ in 0..6 {
                let (mut grown, mut oldest) = (0, locs.start);
                for loc in locs.by_ref().take(30_000) {
                    insert(&index, loc).expect("room");
                    index.count(1);
                    if index.wants_to_grow() {
                        grown += usize::from(step(&index) == Step::Done);
                    }
                    if loc % 3 == 0 {
                        assert!(remove(&index, oldest));
                        index.count(-1);
                        oldest += 1;
                    }
                }
                assert!(grown > 1000);
                for loc in oldest..locs.start {
                    assert!(remove(&index, loc));
                    index.count(-1);
                    if index.wants_to_shrink() {
                        index.step_back();
                    }
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            reader.join().expect("no key was missed");
        });
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib index`.
#[cfg(loom)]
mod under_loom {
    use super::super::width::LINES_MAX;
    use super::*;
    use loom::{sync::Arc, thread};

    fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        // What is done before the threads part counts too.
        builder.max_branches = 20_000;
        // All of a step's moves against all of a reader's probes would take hours; what is
        // missing shows early.
        builder.max_duration = Some(std::time::Duration::from_secs(20));
        builder.check(test);
    }

    fn small() -> Arc<Index> {
        let index = Index::new(1024, 0, Remembered::None).expect("small");
        index.grant(8192);
        Arc::new(index)
    }

    /// Nine keys of one home line, in `index`: one is in its other line, so that a lookup looks
    /// twice.
    fn crowd(index: &Index) -> Vec<u64> {
        let home = |loc: &u64| hash_of(*loc) >> 61 == 0;
        let crowd: Vec<u64> = (0..).filter(home).take(9).collect();
        crowd.iter().for_each(|loc| insert(index, *loc).expect("room"));
        crowd
    }

    /// Two lines of `index` full of keys that have no others, and one more in an overflow line.
    /// What the first key given leaves behind is filled with the second.
    fn spilled(index: &Index) -> (u64, u64) {
        let pair =
            |home: u64| (0..).filter(move |loc| lines_of(*loc, 8) == [home, 1 - home]).take(9);
        let full: Vec<u64> = pair(0).take(8).chain(pair(1).take(8)).collect();
        let spilled = pair(0).last().expect("the ninth");
        full.iter().chain([&spilled]).for_each(|loc| insert(index, *loc).expect("room"));
        assert_ne!(index.groups.word(0).load(Ordering::Relaxed) & OVERFLOW_AT, 0);
        (full[8], spilled)
    }

    /// The line that a key is at home in where its group has so many, and its other one.
    fn lines_of(loc: u64, lines: u64) -> [u64; 2] {
        let (homes, tag) = (width::Homes::of(lines), tag(hash_of(loc)));
        [homes.home(tag), homes.other(tag)]
    }

    /// A key that is there throughout is found, whatever a step moves meanwhile. Fails if
    /// `find_validated` does not compare versions; so do the next, and a removal's.
    #[test]
    fn a_step_hides_no_key() {
        model(2, || {
            let index = small();
            let crowd = crowd(&index);
            // In its other line, and then in the line that comes.
            let goes = |loc: &u64| lines_of(*loc, 8)[0] == 0 && lines_of(*loc, 9)[0] == 8;
            let goes = (0..).filter(goes).find(|loc| !crowd.contains(loc)).expect("some");
            insert(&index, goes).expect("room");
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || has(&index, goes))
            };
            assert_eq!(index.step(|slot| hash_of(slot.loc())), grow::Step::Done);
            assert!(reader.join().expect("reads"), "missed what was there throughout");
            assert!(crowd.iter().chain([&goes]).all(|loc| has(&index, *loc)));
        });
    }

    /// The same when the index contracts and the group is laid out anew.
    #[test]
    fn a_step_back_hides_no_key() {
        contracts(9);
    }

    /// And when the last line's slots alone move.
    #[test]
    fn a_line_that_is_folded_hides_no_key() {
        contracts(2);
    }

    /// With so many keys at home in the line that goes.
    fn contracts(count: usize) {
        model(2, move || {
            let index = small();
            assert_eq!(index.step(|slot| hash_of(slot.loc())), grow::Step::Done);
            // Of the line that goes, and the last in its other line, which is not its home then.
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

    /// Two writers, of whom one goes to a group that is becoming part of another, and to its word
    /// when that is a group's again.
    #[test]
    fn a_group_that_went_and_came_back_is_locked_by_one() {
        let upper = |loc: &u64| hash_of(*loc) & 1 == 1;
        let keys: Vec<u64> = (0..).filter(upper).take(2).collect();
        model(2, move || {
            let index = small();
            let step = |index: &Index| index.step(|slot| hash_of(slot.loc()));
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

    /// The same for a key that has another one go to its other line, for it to come home.
    #[test]
    fn an_insertion_hides_no_key_that_makes_place() {
        model(2, || {
            let index = small();
            // The other line of the ninth is full, that of the others is not.
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

    /// The same for a key that comes from an overflow line because another one goes.
    #[test]
    fn a_removal_hides_no_other_key() {
        model(3, || {
            let index = small();
            let (gone, spilled) = spilled(&index);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || has(&index, spilled))
            };
            let mut locked = index.lock(hash_of(gone));
            let at = locked.find_loc(gone).expect("there");
            locked.remove(at);
            drop(locked);
            assert!(reader.join().expect("reads"), "missed what was there throughout");
            assert!(!has(&index, gone) && has(&index, spilled));
        });
    }

    /// Marks that say that all segments of one key are dead.
    fn all_dead() -> super::super::pass::Marks {
        let mut marks = super::super::pass::Marks::new(1, 39);
        marks.set(0, true);
        marks
    }

    fn pass(index: &Index, is_dead: impl Fn(u64) -> bool) {
        let (marks, mut next) = (all_dead(), Some(0));
        while let Some(group) = next {
            next = index.pass(group, 1, &marks, |slot| is_dead(slot.loc())).next;
        }
    }

    /// What is dead is gone when a pass is through, though its group splits meanwhile and sends it
    /// to one that was not there when the pass began. Fails if the pass asks only then how many
    /// groups there are.
    #[test]
    fn a_pass_misses_nothing_that_a_split_moves() {
        // At home in the new half.
        let upper: Vec<u64> = (0..).filter(|loc| hash_of(*loc) & 1 == 1).take(2).collect();
        model(3, move || {
            let index = small();
            (LINES_MIN..LINES_MAX).for_each(|_| _ = index.step(|slot| hash_of(slot.loc())));
            upper.iter().for_each(|loc| insert(&index, *loc).expect("room"));
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.step(|slot| hash_of(slot.loc())))
            };
            let dead = upper[0];
            pass(&index, |loc| loc == dead);
            _ = grower.join().expect("steps");
            assert!(!has(&index, dead) && has(&index, upper[1]));
        });
    }

    /// Nor does the index contract under a pass, which would send a slot back to a group that the
    /// pass has left. Fails if `step_back` does not ask.
    #[test]
    fn a_pass_misses_nothing_that_would_come_back() {
        let upper: Vec<u64> = (0..).filter(|loc| hash_of(*loc) & 1 == 1).take(2).collect();
        model(3, move || {
            let index = small();
            (LINES_MIN..=LINES_MAX).for_each(|_| _ = index.step(|slot| hash_of(slot.loc())));
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

    /// A key that comes from an overflow line because a pass empties its own is found throughout.
    /// Fails if the pass does not tell that slots move.
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

    /// A key remembered while its group splits is remembered in the half that is its own now.
    #[test]
    fn a_split_forgets_no_key() {
        // At home in the new half.
        let key = (0..).find(|loc| hash_of(*loc) & 1 == 1).expect("every other");
        let hash = hash_of(key);
        model(2, move || {
            let index = Index::new(1024, 0, Remembered::Probation).expect("small");
            index.grant(8192);
            let index = Arc::new(index);
            (LINES_MIN..LINES_MAX).for_each(|_| _ = index.step(|slot| hash_of(slot.loc())));
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.step(|slot| hash_of(slot.loc())))
            };
            index.lock(hash).remember(Queue::Probation);
            let stepped = grower.join().expect("steps");
            assert!(index.remembers(hash));
            assert!(stepped != super::super::grow::Step::NeedsMemory);
            assert!(index.lock(hash).recall().is_some() && !index.remembers(hash));
        });
    }

    /// Two words that are always written the same, under the slot of `loc`.
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

        /// As `Local::rewrite`; each version writes its number.
        fn rewrite(&self) {
            let locked = self.index.lock(hash_of(self.loc));
            let at = locked.find_loc(self.loc).expect("there");
            let version = at.slot().ver() + 1;
            locked.rewrite(
                at,
                |slot| slot.rewritten(0, 0),
                || self.words.iter().for_each(|word| word.store(version, Ordering::Relaxed)),
            );
        }

        /// As `Local::get`, once.
        fn read(&self) -> Option<u64> {
            let found = self.index.find(hash_of(self.loc), |slot| slot.loc() == self.loc);
            let found = found.expect("there throughout");
            let copy: Vec<_> = self.words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            if !found.is_unchanged() {
                return None;
            }
            found.bump(|| true);
            assert_eq!(copy, [found.slot.ver(); 2], "torn, or another version's");
            Some(found.slot.ver())
        }
    }

    /// What is copied is the version that the slot named, whole, or is known not to be. Fails
    /// without either fence, without `busy`, or without the look at the slot afterwards.
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

    /// The same when the slot moves between two rewritings.
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
            let line =
                || item.index.lock(hash_of(spilled)).find_loc(spilled).expect("there").line();
            assert_eq!(line(), None);
            let mut locked = item.index.lock(hash_of(gone));
            let at = locked.find_loc(gone).expect("there");
            locked.remove(at);
            drop(locked);
            assert!(line().is_some(), "it moved");
            item.rewrite();
            reader.join().expect("reads");
            assert_eq!(item.read(), Some(2));
        });
    }

    /// Of two writers of one key each finds it or not, and one slot is left.
    #[test]
    fn writers_of_a_key_exclude_each_other() {
        model(3, || {
            let index = small();
            let put = |index: &Index| {
                let mut locked = index.lock(hash_of(5));
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
}
