//! Tests of the arena without a store: chunks are taken, held, chained and given back.
//!
//! Invariant: after a test has given its chunks back, the audit finds no fault.

#![allow(clippy::unwrap_used, reason = "a test")]

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
        assert_eq!((arena.chunks(), arena.ring_chunks()), (ring + value, ring));
        assert_eq!(arena.value_bytes(), value as usize * 2048);
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
        // SAFETY: this test has taken the chunk.
        unsafe { arena.at(chunk).write_bytes(7, 2048) };
    }
    assert!(arena.hold(chunks[1]));
    assert_eq!(arena.release(chunks[0]), 1, "the other two are still being sent");
    let read = |chunk: u32, at: usize| {
        // SAFETY: no other thread writes to the chunk, because only this test uses the arena.
        unsafe { arena.at(chunk).add(at).read() }
    };
    assert_eq!((read(chunks[1], 0), read(chunks[2], 2047)), (7, 7));
    assert!(!arena.hold(chunks[0]), "the chunk is free");
    assert_eq!(arena.release(chunks[1]), 2);
    if cfg!(debug_assertions) {
        let all = chunks.iter().all(|&chunk| read(chunk, 2047) == OVERWRITTEN);
        assert!(all, "a freed chunk is overwritten");
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
        (at(3 * 4096), "a free chunk's first byte"),
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
        // SAFETY: only this test uses the chunk.
        unsafe { memory.frame_at(chunk).add(offset).write_bytes(number, bytes) };
        value.extend(std::iter::repeat_n(number, bytes));
        chunks.push(chunk);
    }
    chunks.windows(2).for_each(|two| memory.chain(two[0], two[1]));
    for step in [1, 976, 1472, 2049, usize::MAX] {
        // SAFETY: only this test uses the chain.
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

/// Writes `text` to a chunk, as if a ring had received it, and returns the bytes in the chunk.
fn received(arena: &Arena, chunk: u32, offset: usize, text: &[u8]) -> &'static [u8] {
    // SAFETY: only the calling test uses the arena. The test reads the returned bytes only while
    // the arena exists, and only before it writes to the chunk again or recycles the chunk.
    unsafe {
        let at = arena.at(chunk).add(offset);
        at.copy_from(text.as_ptr(), text.len());
        std::slice::from_raw_parts(at, text.len())
    }
}

fn keeping(ring_chunks: u32, value_chunks: u32) -> Arc<Arena> {
    Arc::new(Arena::new(ring_chunks, value_chunks, 2048).unwrap().keeping(true))
}

#[test]
fn what_is_kept_stays_where_it_was_received_and_the_ring_gets_another_chunk() {
    let arena = keeping(2, 3);
    let mut ring = vec![0, 1];
    let mut all = Vec::new();
    for number in 1..=3_u8 {
        let chunk = ring.remove(0);
        let text = vec![number; 100 * usize::from(number)];
        let shown = received(&arena, chunk, 300, &text);
        let kept = arena.keep(shown).expect("a free chunk");
        assert!(kept.as_ptr() == shown.as_ptr(), "the bytes stay in place");
        assert!(arena.keep(shown).is_none() && arena.keep(&shown[7..]).is_none(), "kept already");
        let next = arena.recycle(chunk);
        assert!(next != chunk && !ring.contains(&next));
        assert_eq!(arena.value_chunk_of(arena.at(next)), None, "a ring's");
        ring.push(next);
        all.push((kept, text));
    }
    assert_eq!(arena.free(), 0);
    let chunk = ring[0];
    let shown = received(&arena, chunk, 0, b"no chunk is free");
    assert!(arena.keep(shown).is_none());
    assert_eq!(arena.recycle(chunk), chunk);
    for &chunk in &ring {
        let _ = received(&arena, chunk, 0, &[9; 2048]);
    }
    assert!(all.iter().all(|(kept, text)| kept[..] == text[..]));
    all.remove(1);
    assert_eq!((arena.free(), faults(&arena, &[0, 2])), (1, vec![]));
    all.clear();
    assert_eq!((arena.free(), faults(&arena, &[])), (3, vec![]));
}

#[test]
fn what_is_kept_outlives_its_keeper_while_the_packet_is_read() {
    let arena = keeping(1, 1);
    let shown = received(&arena, 0, 42, b"a request, and its value");
    drop(arena.keep(&shown[19..]).expect("a free chunk"));
    assert_eq!((arena.free(), shown), (0, &b"a request, and its value"[..]));
    // If bytes were kept twice, two `KeptBytes` would share one reference.
    assert!(arena.keep(shown).is_none());
    assert_eq!((arena.recycle(0), arena.free()), (1, 1));
    let shown = received(&arena, 1, 0, b"the next");
    assert!(arena.keep(shown).is_some());
    assert_eq!(arena.recycle(1), 0);
    assert_eq!((arena.free(), faults(&arena, &[])), (1, vec![]));
}

#[test]
fn what_is_kept_becomes_frames_of_a_value() {
    let arena = keeping(3, 8);
    let memory = Memory::new(1 << 20, 1, 1).expect("address space");
    let memory = Arc::new(memory.with_arena(Some(Arc::clone(&arena))));
    let texts: [&[u8]; 3] = [b"set key 0 0 1000 the first", b", the second", b" and the last\r\n"];
    let kept = (0..).zip(texts).map(|(chunk, text)| {
        let shown = received(&arena, chunk, 60 * chunk as usize, text);
        arena.keep(shown).expect("a free chunk")
    });
    let mut kept: Vec<KeptBytes> = kept.collect();
    kept[0].cut(17..26);
    kept[2].cut(0..13);
    assert_eq!([&kept[0][..], &kept[2][..]], [&b"the first"[..], b" and the last"]);
    assert_eq!(arena.recycle(0), 3);
    let frames: Vec<u32> = kept.into_iter().map(|kept| memory.frame_of(kept)).collect();
    frames.windows(2).for_each(|two| memory.chain(two[0], two[1]));
    // SAFETY: only this test uses the chain.
    let pinned = unsafe { Pinned::hold(&memory, frames[0], 34) }.expect("held");
    assert_eq!(pinned.pieces().collect::<Vec<_>>().concat(), b"the first, the second and the last");
    assert_eq!([arena.recycle(1), arena.recycle(2)], [4, 5]);
    assert_eq!((memory.release(frames[0]), arena.free()), (0, 5));
    assert_eq!(pinned.pieces().collect::<Vec<_>>().concat(), b"the first, the second and the last");
    drop(pinned);
    assert_eq!((arena.free(), faults(&arena, &[])), (8, vec![]));
}

#[test]
fn what_is_no_rings_or_may_not_be_is_not_kept() {
    let arena = keeping(1, 2);
    let value = arena.take().unwrap();
    let shown = received(&arena, value, 0, b"a value's already");
    assert!(arena.keep(shown).is_none());
    assert!(arena.keep(b"elsewhere").is_none() && arena.keep(&[]).is_none());
    arena.release(value);
    assert_eq!((arena.free(), faults(&arena, &[])), (2, vec![]));
    let plain = Arc::new(Arena::new(1, 2, 2048).unwrap());
    assert!(plain.keep(received(&plain, 0, 0, b"not here")).is_none());
}

#[test]
#[should_panic(expected = "kept in the memory's own arena")]
fn what_is_kept_elsewhere_is_no_frame() {
    let (one, other) = (keeping(1, 1), keeping(1, 1));
    let memory = Memory::new(1 << 20, 1, 1).expect("address space").with_arena(Some(one));
    let _ = memory.frame_of(other.keep(received(&other, 0, 0, b"?")).expect("a free chunk"));
}

#[test]
fn the_audit_finds_chunks_that_are_lost_or_in_two_places() {
    let arena = Arena::new(1, 3, 2048).unwrap();
    let chunk = arena.take().unwrap();
    assert_eq!(faults(&arena, &[]), ["chunk 1 has 1 references, but no item"]);
    assert_eq!(faults(&arena, &[1]), [""; 0]);
    assert_eq!(faults(&arena, &[1, 2]), ["chunk 2 belongs to an item, but is free"]);
    arena.release(chunk);
    assert!(arena.vacant.take_below(1).is_some(), "a chunk is taken and gets no reference");
    assert_eq!(faults(&arena, &[]), ["rings have 2 chunks instead of 1"]);
}
