//! Tests of the arena: what is taken, held, chained and given back.
//!
//! Where: below the store, without one.
//! Invariant: each test ends with every chunk free, as the audit counts them.
//! Source: none.

use super::*;
use crate::frames::{Memory, Pinned};
use std::collections::BTreeSet;
use std::sync::Arc;

fn faults(arena: &Arena, used: &[u32]) -> Vec<String> {
    let mut faults = Vec::new();
    arena.audit(&used.iter().copied().collect::<BTreeSet<u32>>(), &mut faults);
    faults
}

#[test]
fn value_chunks_are_taken_once_each_and_no_rings_chunk_ever() {
    for (ring, value) in [(0, 1), (1, 0), (3, 200), (63, 1), (64, 64), (65, 63), (130, 70), (0, 0)]
    {
        let arena = Arena::new(ring, value, 2048).unwrap();
        assert_eq!((arena.free(), arena.bytes()), (value, (ring + value) as usize * 2048));
        let taken: BTreeSet<u32> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!(taken, (ring..ring + value).collect(), "{ring} and {value}");
        assert_eq!((arena.free(), arena.take()), (0, None));
        let taken: Vec<u32> = taken.into_iter().collect();
        assert_eq!(faults(&arena, &taken), [""; 0]);
        for chunk in taken.into_iter().rev() {
            assert_eq!(arena.release(chunk), 1);
        }
        assert_eq!((arena.free(), faults(&arena, &[])), (value, vec![]));
    }
}

#[test]
fn what_is_no_arena_is_refused() {
    for (ring, value, bytes) in
        [(1, 1, 1024), (1, 1, 8192), (1 << 30, 1, 2048), (u32::MAX, 9, 4096)]
    {
        let refused = Arena::new(ring, value, bytes).map(|_| ()).expect_err("no arena");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_descriptor_keeps_its_chunk_and_those_behind_it_when_the_value_goes() {
    let arena = Arena::new(2, 3, 2048).unwrap();
    let chunks: Vec<u32> = std::iter::from_fn(|| arena.take()).collect();
    arena.chain(chunks[0], Some(chunks[1]));
    arena.chain(chunks[1], Some(chunks[2]));
    for &chunk in &chunks {
        // SAFETY: the chunk was taken by this test.
        unsafe { arena.at(chunk).write_bytes(7, 2048) };
    }
    assert!(arena.hold(chunks[1]));
    assert_eq!(arena.release(chunks[0]), 1, "the others are still being sent");
    let read = |chunk: u32, at: usize| {
        // SAFETY: nobody writes to the chunk, for this test has all that are in use.
        unsafe { arena.at(chunk).add(at).read() }
    };
    assert_eq!((read(chunks[1], 0), read(chunks[2], 2047)), (7, 7));
    assert!(!arena.hold(chunks[0]), "it is free");
    assert_eq!(arena.release(chunks[1]), 2);
    if cfg!(debug_assertions) {
        let all = chunks.iter().all(|&chunk| read(chunk, 2047) == OVERWRITTEN);
        assert!(all, "a reader of what was given back would see it");
    }
    assert_eq!((arena.free(), faults(&arena, &[])), (3, vec![]));
}

#[test]
fn an_address_is_a_values_while_the_value_is_there() {
    let arena = Arena::new(2, 2, 4096).unwrap();
    let (base, chunk) = (arena.base().as_ptr(), arena.take().unwrap());
    let at = |at: usize| base.wrapping_add(at).cast_const();
    assert_eq!(arena.value_chunk_of(arena.at(chunk)), Some((2, 0)));
    assert_eq!(arena.value_chunk_of(at(3 * 4096 - 1)), Some((2, 4095)));
    for (none, why) in [
        (at(0), "a ring's"),
        (at(2 * 4096 - 1), "a ring's last byte"),
        (at(3 * 4096), "a free one"),
        (at(4 * 4096), "behind the arena"),
        (base.wrapping_sub(1).cast_const(), "before the arena"),
        (std::ptr::null(), "null"),
        (std::ptr::without_provenance(usize::MAX), "the last address"),
    ] {
        assert_eq!(arena.value_chunk_of(none), None, "{why}");
    }
    arena.release(chunk);
    assert_eq!(arena.value_chunk_of(at(2 * 4096)), None);
}

#[test]
fn a_value_is_read_from_where_it_lies_in_its_chunks() {
    let arena = Arc::new(Arena::new(1, 8, 2048).unwrap());
    let memory = Memory::new(1 << 20, 1, 1).expect("address space");
    let memory = Arc::new(memory.with_arena(Some(Arc::clone(&arena))));
    let extents = [(0, 2048), (42, 1472), (2047, 1), (0, 1), (300, 977)];
    let (mut value, mut chunks) = (Vec::new(), Vec::new());
    for (number, (offset, bytes)) in (1..).zip(extents) {
        let (chunk, at) = memory.take_chunk(1).expect("room");
        assert_eq!(at, memory.frame_at(chunk).wrapping_add(VALUE_AT));
        let taken = arena.value_chunk_of(memory.frame_at(chunk)).expect("a value's").0;
        arena.set_extent(taken, offset, bytes);
        assert_eq!(arena.extent(taken), (offset, bytes));
        // SAFETY: this test's own, until it is published.
        unsafe { memory.frame_at(chunk).add(offset).write_bytes(number, bytes) };
        value.extend(std::iter::repeat_n(number, bytes));
        chunks.push(chunk);
    }
    chunks.windows(2).for_each(|two| memory.chain(two[0], two[1]));
    for step in [1, 976, 1472, 2049, usize::MAX] {
        // SAFETY: the chain is this test's own.
        let mut pinned = unsafe { Pinned::hold(&memory, chunks[0], value.len()) }.expect("held");
        let mut read = Vec::new();
        while pinned.bytes_left() > 0 {
            let first = pinned.pieces().next().expect("bytes are left");
            let bytes = first.len().min(step);
            read.extend_from_slice(&first[..bytes]);
            pinned.advance(bytes);
            assert_eq!(pinned.pieces().map(<[u8]>::len).sum::<usize>(), value.len() - read.len());
        }
        assert!(read == value, "by {step}");
    }
    assert_eq!(memory.release(chunks[0]), 5);
    assert_eq!((arena.free(), faults(&arena, &[])), (8, vec![]));
}

#[test]
fn the_audit_finds_chunks_that_are_lost_or_in_two_places() {
    let arena = Arena::new(1, 3, 2048).unwrap();
    let chunk = arena.take().unwrap();
    assert_eq!(faults(&arena, &[]), ["chunk 1 has 1 references and no item, free: false"]);
    assert_eq!(faults(&arena, &[1]), [""; 0]);
    assert_eq!(faults(&arena, &[1, 2]), ["chunk 2 is an item's, and free"]);
    arena.release(chunk);
    assert!(arena.vacant.take_below(1).is_some(), "taken, and begun by nobody");
    assert_eq!(faults(&arena, &[]), ["rings have 2 chunks in place of 1"]);
}
