//! Tests of one segment's entry, and of the lists of segments.
//!
//! Where: the tests use no store and only one thread; the tests in `under_loom` look for races.
//! Invariant: the tests check every number on which a column bases a decision.

#![allow(unsafe_code, reason = "a column passes its quiescent point")]
#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

#[test]
fn a_segment_is_drainable_with_the_last_commit_after_it_was_sealed() {
    let segments = Segments::new(1, 1).unwrap();
    let segment = segments.get(segments.take(0).unwrap());
    segment.open(Opening { cas_base: 7, epoch: 5, birth: 3, now: 9 });
    assert_eq!((segment.cas_base(), segment.epoch(), segment.birth()), (7, 5, 3));
    assert_eq!((segment.opened(), segment.end()), (9, UNSEALED));
    let reserved = [400, 500].map(|bytes| segment.reserve(bytes, 1000));
    assert_eq!(reserved, [Reservation::At(0), Reservation::At(400)]);
    assert!(!segment.commit(400) && !segment.drainable());
    assert_eq!(segment.reserve(101, 1000), Reservation::Sealed);
    assert_eq!(segment.reserve(1, 1000), Reservation::Full);
    assert_eq!((segment.end(), segment.committed(), segment.reserved()), (900, 400, 1002));
    assert!(!segment.drainable(), "500 bytes are being written");
    assert!(segment.commit(500) && segment.drainable(), "the last commit");
}

#[test]
fn a_full_segment_has_room_for_nothing_but_its_last_byte() {
    let segments = Segments::new(1, 1).unwrap();
    let segment = segments.get(0);
    segment.open(Opening::default());
    assert_eq!(segment.reserve(1000, 1000), Reservation::At(0));
    assert!(!segment.commit(1000), "it is not sealed");
    assert_eq!(segment.reserve(8, 1000), Reservation::Sealed);
    assert!(segment.end() == 1000 && segment.drainable());
}

#[test]
fn exptimes_of_a_segment_are_no_narrower_than_its_items() {
    let segments = Segments::new(1, 1).unwrap();
    let segment = segments.get(0);
    segment.open(Opening::default());
    let range = || (segment.min_exp(), segment.max_exp());
    segment.raise_exp(50);
    assert_eq!(range(), (50, 50));
    for (exptime, due) in [(70, (50, 70)), (60, (50, 70)), (40, (40, 70)), (0, (40, u32::MAX))] {
        segment.raise_exp(exptime);
        assert_eq!(range(), due, "with {exptime}");
    }
    assert_eq!((segment.reset_min_exp(), segment.min_exp()), (40, u32::MAX));
    for (exptime, due) in [(45, 45), (46, 45), (44, 44)] {
        segment.lower_min_exp(exptime);
        assert_eq!(segment.min_exp(), due);
    }
    segment.shorten_exp(30);
    assert_eq!(segment.min_exp(), 30);
    let lowered = [90, 95, 90, 80].map(|due| segment.lower_due(due));
    assert_eq!((lowered, segment.due()), ([true, false, false, true], 80));
    segment.set_due(99);
    assert_eq!(segment.due(), 99);
}

#[test]
fn what_is_linked_and_unlinked_adds_up() {
    let segments = Segments::new(1, 1).unwrap();
    let segment = segments.get(0);
    segment.open(Opening::default());
    segment.link(100, 0, false);
    assert!(!segment.has_frames() && segment.live() == 100 && segment.max_exp() == u32::MAX);
    segment.link(50, 7, true);
    assert!(segment.has_frames() && segment.live() == 150 && segment.min_exp() == 7);
    assert!(!segment.unlink(100) && segment.unlink(50), "only the last unlink returns true");
    segment.link(30, 0, false);
    assert_eq!((segment.unlink_all(), segment.live()), (30, 0));
    segment.unlink(30);
    assert_eq!(segment.miscounted(), -30);
    assert!(!segment.is_uncounted());
    segment.set_uncounted();
    assert!(segment.is_uncounted());
    segment.set_ticket(5);
    segment.set_walked(6);
    assert_eq!((segment.ticket(), segment.walked()), (5, 6));
    segment.open(Opening::default());
    assert!(!segment.has_frames() && !segment.is_uncounted() && segment.live() == 0);
    assert_eq!((segment.min_exp(), segment.max_exp()), (u32::MAX, 0));
    assert_eq!((segment.due(), segment.walked()), (u32::MAX, 0));
}

#[test]
fn a_retired_segment_is_free_when_every_column_has_passed() {
    let (segments, quiescence) = (Segments::new(3, 3).unwrap(), Quiescence::new(1));
    let taken: Vec<u32> = std::iter::from_fn(|| segments.take(0)).collect();
    assert_eq!(taken, [0, 1, 2]);
    let [first, second] = [0, 1].map(|segment| segments.get(segment));
    first.set_state(State::Open);
    assert!(!first.change(State::Sealed, State::Draining) && first.is(State::Open));
    assert!(first.change(State::Open, State::Draining) && first.is(State::Draining));
    first.touch(500);
    first.touch(400);
    assert_eq!(first.touched(), 500);
    second.touch(1);
    second.set_untouched();
    assert_eq!(second.touched(), 0);
    segments.give(1);
    segments.give(0);
    assert_eq!((segments.free(), segments.fresh(), segments.warm()), (2, 1, 1));
    assert_eq!(segments.take(1), Some(0), "a warm one first");
    assert_eq!(segments.take(1), None, "one is kept");
    segments.get(0).open(Opening::default());
    assert_eq!(segments.get(0).reserve(2000, 1000), Reservation::Sealed);
    // SAFETY: no thread has a reference into a segment.
    unsafe { quiescence.pass(0) };
    segments.retire(0, &quiescence);
    assert!(segments.limbo() == 1 && segments.get(0).is(State::Limbo));
    let reclaim = || {
        let mut reclaimed = Vec::new();
        segments.reclaim(&quiescence, |segment| reclaimed.push(segment));
        reclaimed
    };
    assert_eq!(reclaim(), [], "the column may still read it");
    // SAFETY: no thread has a reference into a segment.
    unsafe { quiescence.offline(0) };
    assert_eq!((reclaim(), segments.limbo(), segments.free()), (vec![0], 0, 2));
}
