//! Tests of `Statuses` under thread schedules that are drawn at random.
//!
//! Where: `make explore` runs these tests.
//! Invariant: the code under test is the shipped source.

use super::tests::{columns, input};
use super::*;
use shuttle::thread;
use testing::schedules::explore_drawn;
use testing::schedules::wakes;

const SECONDS: u64 = 10;

#[test]
fn each_sleeper_that_is_taken_for_awake_is_woken_once() {
    explore_drawn(SECONDS, |random| {
        let mut all = columns(4);
        let mut sleepers = all.split_off(2);
        let statuses = Arc::clone(&sleepers[0].statuses);
        let busy: Vec<_> = all
            .into_iter()
            .map(|mut column| {
                let (loops, step_ns) = (1 + random.below(5), random.pick(&[1, STEAL_WAKE_NS]));
                thread::spawn(move || {
                    (0..loops).for_each(|at| column.note_loop(input(64), || at * step_ns));
                    (column.own, column.word != 0)
                })
            })
            .collect();
        sleepers.iter_mut().for_each(|sleeper| sleeper.sleeps(true));
        let victim = sleepers[0].victim();
        let behind: Vec<_> = busy.into_iter().map(|it| it.join().unwrap()).collect();
        let is_behind = |victim: Victim| behind.contains(&(victim.column, true));
        assert!(victim.is_none_or(is_behind), "{victim:?}");
        let last = sleepers[0].victim();
        assert_eq!(last.is_some(), behind.iter().any(|(_, is_behind)| *is_behind));
        assert!(last.is_none_or(|it| is_behind(it) && it.socket == 1), "{last:?}");
        for sleeper in &sleepers {
            let status = &statuses.0[sleeper.own];
            let is_asleep = status.is_asleep.load(Ordering::Relaxed); // no other thread runs
            assert_eq!(wakes(&status.waker), u64::from(!is_asleep), "column {}", sleeper.own);
        }
    });
}
