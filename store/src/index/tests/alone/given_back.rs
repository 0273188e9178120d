//! Tests that the index gives memory back to the system, with pages of several sizes.
//!
//! Where: one column, after most items were removed.
//! Invariant: no memory is given back that a column may still read or that is still in use.

#![allow(unsafe_code, reason = "a column that reads nothing")]

use super::*;

#[test]
fn memory_goes_back_when_all_columns_have_passed_and_not_before() {
    give_memory_back(16 << 10);
    #[cfg(debug_assertions)]
    for page_bytes in [16 << 10, 64 << 10] {
        memory::map::plant_page_bytes(page_bytes);
        give_memory_back(page_bytes);
    }
}

fn give_memory_back(lump: usize) {
    let index = Index::new(8 << 20, 1, GhostScope::Probation).expect("address space");
    index.grant(2 << 20);
    let quiescence = Quiescence::new(1);
    fill(&index, 0..60_000);
    (0..59_000).for_each(|loc| assert!(remove(&index, loc)));
    index.count(-59_000);
    while index.wants_to_shrink() {
        assert_eq!(index.step_back(), Step::Done);
    }
    assert!(index.has_to_spare(lump));
    let give_back = |index: &Index| index.give_back(lump, &quiescence, || true);
    // SAFETY: nothing that the column has read is used later.
    let pass = || unsafe { quiescence.pass(0) };
    pass();
    for _ in 0..3 {
        assert!(!give_back(&index), "the column may still look");
    }
    pass();
    // The index grows meanwhile, and must keep the memory that it now uses.
    assert_eq!(step(&index), Step::Done);
    assert!(!give_back(&index));
    pass();
    let mut lumps = 0;
    while give_back(&index) {
        lumps += 1;
    }
    assert!(lumps * lump > 20 * (16 << 10), "{lumps}");
    // Memory that was given back reads as zero, so the group words in it have no versions.
    let page_words = index.groups.page_bytes() / 8;
    let left = super::index(index.width().total_groups()).next_multiple_of(page_words);
    let zero = |at: usize| index.groups.word(at).load(Ordering::Relaxed) == 0;
    assert!((left..index.groups.len()).all(zero));
    assert!(!index.has_to_spare(lump) && index.granted_bytes() > index.bytes());
    assert_eq!(count_checked(&index).iter().sum::<usize>(), 1000);
    index.grant(2 << 20);
    fill(&index, 0..59_000);
    assert!((0..60_000).all(|loc| has(&index, loc)));
}
