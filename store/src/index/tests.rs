//! The index alone, its items played by hashes: `loc` is the key, its hash a mix of it.

use super::*;

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
    use super::super::grow::Step;
    use super::*;
    use std::collections::HashSet;

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
                assert_eq!(index.step(|slot| hash_of(slot.loc())), Step::Grown);
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
        assert!(per_item < 10.2, "{per_item} bytes an item");
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
                assert_eq!(index.step(|slot| hash_of(slot.loc())), Step::Grown);
            }
        }
        assert!(gone.clone().all(|loc| index.remembers(hash_of(loc))));
        assert!(gone.clone().all(|loc| index.lock(hash_of(loc)).recall().is_some()));
        assert!(!gone.clone().any(|loc| index.remembers(hash_of(loc))));
        let known = (0..count).filter(|loc| index.remembers(hash_of(*loc))).count();
        // Twelve tags, one in each word or two, which all groups inherit from the first.
        assert!(known < 130, "{known} that were never remembered");
    }

    #[test]
    fn permanent_keys_are_never_missed_while_others_grow_the_index() {
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
            for loc in permanent..100_000 {
                insert(&index, loc).expect("room");
                index.count(1);
                if index.wants_to_grow() {
                    index.step(|slot| hash_of(slot.loc()));
                }
                if loc % 3 == 0 {
                    assert!(remove(&index, loc));
                    index.count(-1);
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

    /// Nine keys of one home line, in `index`: the last one has spilled, so that a lookup looks
    /// twice.
    fn crowd(index: &Index) -> Vec<u64> {
        let home = |loc: &u64| hash_of(*loc) >> 61 == 0;
        let crowd: Vec<u64> = (0..).filter(home).take(9).collect();
        crowd.iter().for_each(|loc| insert(index, *loc).expect("room"));
        crowd
    }

    /// A key that is there throughout is found, whatever a step moves meanwhile. Fails if
    /// `find_validated` does not compare versions; so does the next.
    #[test]
    fn a_step_hides_no_key() {
        model(1, || {
            let index = small();
            let crowd = crowd(&index);
            let grower = {
                let index = Arc::clone(&index);
                thread::spawn(move || index.step(|slot| hash_of(slot.loc())))
            };
            assert!(has(&index, crowd[8]));
            grower.join().expect("steps");
            assert!(crowd.iter().all(|loc| has(&index, *loc)));
        });
    }

    /// The same for a key that comes home because another one goes.
    #[test]
    fn a_removal_hides_no_other_key() {
        model(3, || {
            let index = small();
            let crowd = crowd(&index);
            let (gone, spilled) = (crowd[3], crowd[8]);
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
            if found.is_busy() {
                return None;
            }
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
            let crowd = crowd(&index);
            let item = Item::new(index, crowd[8]);
            let reader = {
                let item = Arc::clone(&item);
                thread::spawn(move || item.read())
            };
            item.rewrite();
            let mut locked = item.index.lock(hash_of(crowd[3]));
            let at = locked.find_loc(crowd[3]).expect("there");
            locked.remove(at);
            drop(locked);
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
