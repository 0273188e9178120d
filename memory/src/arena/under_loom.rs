//! Tests of the arena under loom, which explores the interleavings of the tests' threads.
//!
//! Where: run by `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-memory --lib`.
//! Invariant: the tests run the shipped source.

use super::*;
use crate::sync::AtomicU32;
use loom::{sync::Arc, thread};

fn arena(value_chunks: u32) -> Arc<Arena> {
    Arc::new(Arena::new(1, value_chunks, 2048).expect("address space"))
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn draft(arena: &Arena) -> Option<u32> {
    let first = arena.take()?;
    let Some(second) = arena.take() else {
        arena.release(first);
        return None;
    };
    arena.chain(first, Some(second));
    Some(first)
}

#[test]
fn a_reader_with_a_stale_number_frees_nothing_of_the_chunks_next_owner() {
    model(|| {
        let arena = arena(3);
        let head = draft(&arena).expect("room");
        let linked = Arc::new(AtomicU32::new(head));
        let reader = {
            let (arena, linked) = (arena.clone(), linked.clone());
            thread::spawn(move || {
                // A lookup also takes a reference first, and then checks that the item is linked.
                let head = linked.load(Ordering::Acquire);
                if head != NONE && arena.hold(head) {
                    if linked.load(Ordering::Acquire) == head {
                        assert_ne!(arena.chains.next(head), NONE, "a value of two chunks");
                    }
                    arena.release(head);
                }
            })
        };
        linked.store(NONE, Ordering::Release);
        arena.release(head);
        let next = draft(&arena);
        if let Some(next) = next {
            assert_ne!(arena.chains.next(next), NONE, "the draft is whole");
        }
        reader.join().expect("reads");
        if let Some(next) = next {
            assert_eq!((arena.free(), arena.release(next)), (1, 2), "nobody freed the draft's");
        }
        assert_eq!(arena.free(), 3, "all chunks are back");
    });
}

/// A value is dropped while its second chunk is being sent. The second chunk must not be taken
/// before it has been sent.
#[test]
fn a_chunk_that_is_sent_is_nobody_elses_before_its_completion() {
    model(|| {
        let arena = arena(2);
        let head = draft(&arena).expect("room");
        let second = arena.chains.next(head);
        assert!(arena.hold(second), "submitted");
        let is_sent = Arc::new(AtomicU32::new(0));
        let kernel = {
            let (arena, is_sent) = (arena.clone(), is_sent.clone());
            thread::spawn(move || {
                is_sent.store(1, Ordering::Relaxed);
                arena.release(second);
            })
        };
        assert!(arena.release(head) >= 1);
        for taken in [arena.take(), arena.take()].into_iter().flatten() {
            let was_sent = is_sent.load(Ordering::Relaxed) == 1;
            assert!(taken != second || was_sent, "taken while it is being sent");
        }
        kernel.join().expect("completes");
    });
}

/// One thread gives a chunk back while a second thread clears the group's hint. The second thread's
/// next `take` must find the chunk.
#[test]
fn a_chunk_given_back_during_a_look_is_found_by_the_next() {
    model(|| {
        let arena = arena(1);
        let chunk = arena.take().expect("room");
        let other = {
            let arena = arena.clone();
            thread::spawn(move || arena.release(chunk))
        };
        let found = arena.take();
        assert_eq!(other.join().expect("releases"), 1);
        assert_eq!(found.or_else(|| arena.take()), Some(chunk));
    });
}

#[test]
fn a_chunk_is_handed_out_once() {
    model(|| {
        let arena = arena(2);
        let owned = Arc::new([const { 0 }; 3].map(AtomicU32::new));
        let work = |arena: &Arena, owned: &[AtomicU32; 3]| {
            let Some(chunk) = arena.take() else { return };
            let before = owned[chunk as usize].swap(1, Ordering::Relaxed);
            assert_eq!(before, 0, "chunk {chunk} handed out twice");
            owned[chunk as usize].store(0, Ordering::Relaxed);
            arena.release(chunk);
        };
        let other = {
            let (arena, owned) = (arena.clone(), owned.clone());
            thread::spawn(move || work(&arena, &owned))
        };
        work(&arena, &owned);
        other.join().expect("works");
        assert_eq!(arena.free(), 2, "all chunks are back");
        assert!(arena.take().is_some() && arena.take().is_some());
    });
}

/// A value that was kept in its packet's chunk is unlinked while the packet is still being read.
#[test]
fn what_is_kept_is_nobody_elses_before_value_and_packet_have_gone() {
    model(|| {
        let arena = arena(1);
        assert!(arena.keep_in(0, (300, 100)));
        let is_read = Arc::new(AtomicU32::new(0));
        let other = {
            let (arena, is_read) = (arena.clone(), is_read.clone());
            thread::spawn(move || {
                // This thread shortens and publishes the value. Then the value is replaced.
                arena.set_extent(0, 310, 80);
                arena.release(0);
                if let Some(taken) = arena.take() {
                    assert_eq!(taken, 0, "the other chunk is the ring's");
                    assert_eq!(is_read.load(Ordering::Relaxed), 1, "taken while it is being read");
                    arena.release(taken);
                }
            })
        };
        is_read.store(1, Ordering::Relaxed);
        assert_eq!(arena.recycle(0), 1);
        other.join().expect("ends");
        assert_eq!((arena.free(), arena.take()), (1, Some(0)));
    });
}

/// A reader has an outdated number: the chunk went to a ring, which received another value into it.
#[test]
fn a_reader_with_a_stale_number_frees_nothing_that_is_kept() {
    model(|| {
        let arena = arena(2);
        let old = arena.take().expect("room");
        let linked = Arc::new(AtomicU32::new(old));
        let reader = {
            let (arena, linked) = (arena.clone(), linked.clone());
            thread::spawn(move || {
                let old = linked.load(Ordering::Acquire);
                if old != NONE && arena.hold(old) {
                    if linked.load(Ordering::Acquire) == old {
                        assert_eq!(arena.extent(old), (0, 0), "the old value's extent");
                    }
                    arena.release(old);
                }
            })
        };
        linked.store(NONE, Ordering::Release);
        arena.release(old);
        // The ring gets another chunk, and bytes received into that chunk are kept too.
        assert!(arena.keep_in(0, (300, 100)));
        let next = arena.recycle(0);
        let is_kept = arena.keep_in(next, (300, 100));
        reader.join().expect("reads");
        if is_kept {
            assert_eq!(arena.chains.snapshot(next).0, 2);
            assert_ne!(arena.recycle(next), next);
            assert_eq!(arena.release(next), 1);
        }
        assert_eq!((arena.release(0), arena.free()), (1, 2));
    });
}

#[test]
fn what_two_would_keep_one_keeps() {
    model(|| {
        let arena = arena(2);
        let other = {
            let arena = arena.clone();
            thread::spawn(move || arena.keep_in(0, (300, 100)))
        };
        let is_ours = arena.keep_in(0, (400, 100));
        assert_ne!(is_ours, other.join().expect("ends"));
        let given = arena.recycle(0);
        assert!(given != 0 && arena.chains.snapshot(given).0 == 0);
        assert_eq!((arena.release(0), arena.free()), (1, 2));
    });
}
