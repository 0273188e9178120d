//! Tests of segments under loom, which explores the interleavings of the tests' threads.
//!
//! Where: run by `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-memory --lib`.
//! Invariant: the tests run the shipped source.

use super::*;
use crate::sync::AtomicBool;
use loom::{sync::Arc, thread};

struct Shared {
    segments: Segments,
    quiescence: Quiescence,
    owned: [AtomicBool; 3],
}

impl Shared {
    fn new(segments: u32) -> Arc<Self> {
        let owned = std::array::from_fn(|_| AtomicBool::new(false));
        let segments = Segments::new(segments, segments).expect("no address space is needed");
        Arc::new(Self { segments, quiescence: Quiescence::new(0), owned })
    }

    fn own(&self, segment: u32) {
        let owned = self.owned[segment as usize].swap(true, Ordering::Relaxed);
        assert!(!owned, "segment {segment} handed out twice");
    }

    fn disown(&self, segment: u32) {
        self.owned[segment as usize].store(false, Ordering::Relaxed);
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn twice(work: fn(&Shared)) {
    model(move || {
        let shared = Shared::new(2);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || work(&shared))
        };
        work(&shared);
        other.join().expect("works");
        shared.segments.reclaim(&shared.quiescence, |_| ());
        while shared.segments.restore(2, |_| ()) {}
        assert_eq!((shared.segments.free(), shared.segments.limbo()), (2, 0));
        let taken = [shared.segments.take(0), shared.segments.take(0)];
        assert!(taken == [Some(0), Some(1)] || taken == [Some(1), Some(0)], "{taken:?}");
    });
}

#[test]
fn a_segment_is_handed_out_once() {
    twice(|shared| {
        for _ in 0..2 {
            let Some(segment) = shared.segments.take(0) else { continue };
            shared.own(segment);
            shared.disown(segment);
            shared.segments.give(segment);
        }
    });
}

/// A pop stalls while another thread takes the first and the second segment of the list and gives
/// the first segment back. The stalled pop must not make the second segment the head.
#[test]
fn a_stalled_take_gives_out_nothing_that_is_taken() {
    model(|| {
        let shared = Shared::new(3);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let taken = (shared.segments.take(0), shared.segments.take(0));
                let (Some(first), Some(second)) = taken else { return };
                shared.own(second);
                shared.segments.give(first);
            })
        };
        let ours = shared.segments.take(0).expect("one of three");
        shared.own(ours);
        other.join().expect("takes and gives");
        shared.own(shared.segments.take(0).expect("the third"));
    });
}

#[test]
fn what_is_retired_is_freed_once() {
    twice(|shared| {
        let Some(segment) = shared.segments.take(0) else { return };
        shared.own(segment);
        shared.disown(segment);
        shared.segments.retire(segment, &shared.quiescence);
        shared.segments.reclaim(&shared.quiescence, |segment| {
            shared.own(segment);
            shared.disown(segment);
        });
    });
}

#[test]
fn what_is_withheld_comes_back_once() {
    twice(|shared| {
        if let Some(segment) = shared.segments.take(0) {
            shared.own(segment);
            shared.disown(segment);
            shared.segments.withhold(segment);
        }
        while shared.segments.restore(2, |_| ()) {}
    });
}

#[test]
fn no_more_come_back_than_may_be() {
    twice(|shared| {
        let segment = shared.segments.take(0).expect("one for each");
        shared.segments.withhold(segment);
        shared.segments.restore(1, |_| ());
        assert!(shared.segments.free() <= 1, "two columns restored a segment, one was lacking");
    });
}

#[test]
fn the_last_kept_segment_is_taken_by_nobody() {
    twice(|shared| {
        if let Some(segment) = shared.segments.take(1) {
            shared.own(segment);
            assert!(shared.segments.free() <= 1, "one taken, one kept");
            shared.disown(segment);
            shared.segments.give(segment);
        }
    });
}

/// A touch lowers an item's exptime while a walk searches for the earliest exptime. In every
/// interleaving, the segment's earliest exptime must not be later than the item's exptime.
#[test]
fn a_touch_during_a_walk_is_not_forgotten() {
    loom::model(|| {
        let shared = Arc::new((Segment::new(), AtomicU32::new(90)));
        shared.0.open(Opening::default());
        shared.0.link(10, 90, false);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (segment, exptime) = (&shared.0, &shared.1);
                segment.raise_exp(20);
                exptime.store(20, Ordering::Relaxed);
                segment.shorten_exp(20);
            })
        };
        let (segment, exptime) = (&shared.0, &shared.1);
        assert!(segment.reset_min_exp() <= 90);
        segment.lower_min_exp(exptime.load(Ordering::Relaxed));
        other.join().expect("touches");
        assert_eq!(segment.min_exp(), 20);
    });
}

#[test]
fn a_segment_is_sealed_once_and_drainable_when_all_is_committed() {
    loom::model(|| {
        let segment = Arc::new(Segment::new());
        segment.open(Opening::default());
        let append = |segment: &Segment| {
            let mut sealed = 0;
            for bytes in [40, 40] {
                match segment.reserve(bytes, 64) {
                    Reservation::At(_) => {
                        assert!(!segment.drainable(), "a reservation is not committed");
                        segment.commit(bytes);
                    }
                    Reservation::Sealed => sealed += 1,
                    Reservation::Full => {}
                }
            }
            sealed
        };
        let other = {
            let segment = Arc::clone(&segment);
            thread::spawn(move || append(&segment))
        };
        let sealed = append(&segment) + other.join().expect("appends");
        assert_eq!(sealed, 1);
        assert!(segment.drainable() && segment.end() == 40);
    });
}
