//! Tests of the index alone: `loc` stands for an item's key, and the key's hash is made from `loc`.

#![allow(unsafe_code, reason = "makes locations that name no items")]

use super::locked::Full;
use super::slot::Slot;
use super::*;
use crate::policy::Queue;

fn hash_of(loc: u64) -> u64 {
    let mixed = (loc + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

fn moment<'v>() -> Moment<'v> {
    // SAFETY: the locations name no items, and no test reads an item.
    unsafe { Moment::new() }
}

fn has(index: &Index, loc: u64) -> bool {
    index.find(moment(), hash_of(loc), |at| at.offset() == loc).is_some()
}

fn insert(index: &Index, loc: u64) -> Result<(), Full> {
    let hash = hash_of(loc);
    index.lock(moment(), hash).insert(Slot::new(hash, loc))
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

    /// Counts the slots in home lines, in other lines and in overflow lines. Checks that no slot is
    /// elsewhere or stored twice, and that the bit of a slot's home line is set in the group's word
    /// if the slot is not in its home line.
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
        index.step(moment(), |loc| hash_of(loc.offset()))
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
        let mut locked = index.lock(moment(), hash_of(loc));
        let found = locked.find_loc(loc);
        found.inspect(|found| locked.remove(found.at())).is_some()
    }

    #[test]
    fn what_was_found_without_a_lock_is_taken_under_it_while_it_names_the_same_item() {
        let index = Index::new(8 << 20, 16, GhostScope::None).expect("address space");
        for loc in [0, 7] {
            insert(&index, loc).expect("room");
            let found = index.likely(moment(), hash_of(loc)).expect("there");
            found.bump(|| true);
            let mut locked = index.lock(moment(), hash_of(loc));
            let at = locked.revalidate(&found).expect("a use changes nothing").at();
            locked.remove(at);
            assert!(locked.revalidate(&found).is_none(), "{loc} has left");
            locked.set(at, Slot::new(hash_of(loc), loc + 100));
            assert!(locked.revalidate(&found).is_none(), "another item of the key");
        }
    }

    #[test]
    fn it_grows_line_by_line_and_keeps_every_item() {
        let index = Index::new(8 << 20, 16, GhostScope::None).expect("address space");
        index.grant(4 << 20);
        let (mut lines, count) = (index.home_slots() / 8, 60_000);
        for loc in 0..count {
            insert(&index, loc).expect("room");
            index.count(1);
            if index.wants_to_grow() {
                assert_eq!(index.step(moment(), |loc| hash_of(loc.offset())), Step::Done);
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

    #[test]
    fn it_contracts_as_it_grew_and_keeps_every_item() {
        let index = Index::new(8 << 20, 16, GhostScope::Both).expect("address space");
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
            // Free overflow lines are counted: the index never gives them back.
            assert!(index.bytes() < start + most / 8, "{start}, {most}, {}", index.bytes());
            assert_eq!(index.step_back(), Step::NotNow, "it is as at the start");
        }
    }

    #[test]
    fn any_order_of_everything_keeps_every_item_and_no_other() {
        for seed in 1..40 {
            let index = Index::new(1 << 20, 16, GhostScope::None).expect("address space");
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

    /// 150 keys with the same home line fill other lines and overflow lines too.
    #[test]
    fn keys_that_crowd_are_all_found_and_let_go() {
        let index = Index::new(1 << 20, 8, GhostScope::None).expect("address space");
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
        let index = Index::new(32 << 20, 128, GhostScope::None).expect("address space");
        index.grant(30 << 20);
        fill(&index, 0..140_000);
        let before = index.bytes();
        let churn = |oldest| remove(&index, oldest) && insert(&index, oldest + 140_000).is_ok();
        assert!((0..420_000).all(churn) && index.bytes() < before + before / 20);
    }

    #[test]
    fn churn_at_full_load_stays_within_its_memory() {
        let index = Index::new(1 << 20, 128, GhostScope::None).expect("address space");
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
        assert!(home * 10 > (home + other + overflown) * 7, "{home}, {other}, {overflown}");
    }

    #[test]
    fn without_memory_an_insert_is_refused_and_nothing_lost() {
        let index = Index::new(1 << 20, 8, GhostScope::None).expect("address space");
        // `has_line` becomes true once the memory for one overflow line is granted.
        let index_with_a_line = Index::new(1 << 20, 8, GhostScope::None).expect("address space");
        let missing = index_with_a_line.bytes() + 64 - index_with_a_line.granted_bytes();
        assert!(!index_with_a_line.has_line());
        index_with_a_line.grant(missing);
        assert!(index_with_a_line.has_line());
        let mut there = HashSet::new();
        for loc in 0..1000 {
            if insert(&index, loc).is_ok() {
                there.insert(loc);
            }
        }
        assert!(there.len() >= 32 && there.len() <= 64);
        assert_eq!(index.step(moment(), |loc| hash_of(loc.offset())), Step::NeedsMemory);
        assert!((0..1000).all(|loc| has(&index, loc) == there.contains(&loc)));
    }

    #[test]
    fn growth_forgets_nothing() {
        let index = Index::new(8 << 20, 8, GhostScope::Probation).expect("address space");
        let plain = Index::new(8 << 20, 8, GhostScope::None).expect("address space").bytes();
        assert_eq!(index.bytes(), plain + ghost::WORDS * 8, "its memory is counted");
        index.grant(4 << 20);
        let count = 60_000;
        // There are few keys, so no word of the ghost has to forget a key.
        let gone = count..count + 12;
        gone.clone().for_each(|loc| index.lock(moment(), hash_of(loc)).remember(Queue::Probation));
        for loc in 0..count {
            insert(&index, loc).expect("room");
            index.count(1);
            if index.wants_to_grow() {
                assert_eq!(index.step(moment(), |loc| hash_of(loc.offset())), Step::Done);
            }
        }
        assert!(gone.clone().all(|loc| index.remembers(hash_of(loc))));
        assert!(gone.clone().all(|loc| index.lock(moment(), hash_of(loc)).recall().is_some()));
        assert!(!gone.clone().any(|loc| index.remembers(hash_of(loc))));
        let known = (0..count).filter(|loc| index.remembers(hash_of(*loc))).count();
        // Each group has a copy of the twelve tags, so some other keys seem to be remembered too.
        assert!(known < 130, "{known} that were never remembered");
    }

    fn thirds() -> Marks {
        let mut marks = Marks::new(1024, 10);
        (0..1024).step_by(3).for_each(|segment| marks.set(segment, true));
        marks
    }

    fn in_thirds(loc: u64) -> bool {
        (loc >> 10).is_multiple_of(3)
    }

    #[test]
    fn a_pass_empties_what_is_dead_and_nothing_else_while_the_index_grows() {
        for grows in [false, true] {
            let index = Index::new(8 << 20, 16, GhostScope::None).expect("address space");
            index.grant(4 << 20);
            fill(&index, 0..60_000);
            let (marks, mut next, mut more) = (thirds(), Some(0), 60_000);
            let kept = |loc: u64| loc.is_multiple_of(1000);
            assert!(index.begin_pass() && index.is_passing());
            let before = index.home_lines();
            while let Some(group) = next {
                let passed =
                    index.pass(moment(), group, 100, &marks, |found| !kept(found.slot().loc()));
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

    #[test]
    fn a_pass_leaves_overflow_lines_full_but_for_the_first() {
        let home = |loc: &u64| hash_of(*loc) >> 61 == 3;
        for (gone, of) in [(1, 20), (1, 2), (5, 6), (1, 1)] {
            let index = Index::new(1 << 20, 8, GhostScope::None).expect("address space");
            index.grant(1 << 18);
            let crowd: Vec<u64> = (0..).filter(home).take(150).collect();
            crowd.iter().for_each(|loc| insert(&index, *loc).expect("room"));
            let (mut marks, mut dead) = (Marks::new(1, 40), 0);
            marks.set(0, true);
            let passed = index.pass(moment(), 0, 1, &marks, |_| {
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
        let index = Index::new(8 << 20, 8, GhostScope::None).expect("address space");
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
mod under_loom;
