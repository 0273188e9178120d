//! The ghost: which keys were evicted of late, ten bits of each.
//!
//! Where: beside each group of the index; an eviction that is to be remembered puts a tag in, the
//! key's next insertion takes it out. There is none where the policy does not ask for it.
//! Invariant: words change only under the lock of their group. A lookup without it is a hint. What
//! is remembered wrongly (about 0.6 % of unknown keys) or forgotten costs a decision, never an
//! item.
//! Source: S3-FIFO's ghost queue (Yang et al., SOSP 2023), as a FIFO of tags in each word.
//!
//! ```text
//!   word, u64:   - 4 | oldest tag:10 | ... | youngest tag:10        six of them; 0: none
//! ```
//! A group has `WORDS` of them however many lines it has: the word of a key stays the same while
//! the group widens line by line, though a ghost could not say which of two lines a tag belongs to.
//! When a group splits, both halves begin with a copy: each is asked for its own keys only, and the
//! other's tags grow old. So growth forgets nothing. With 8 to 15 lines of 8.4 items a group, that
//! is room for as many keys as there are items, down to half as many, for 1.3 to 0.7 bytes an item.

use super::index;
use memory::sync::Ordering;
use memory::words::Words;
use std::io;

/// Words of a group.
pub(super) const WORDS: usize = 11;
const TAG_BITS: u32 = 10;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const TAGS: u32 = 6;
const ALL_MASK: u64 = (1 << (TAG_BITS * TAGS)) - 1;
/// A one in each tag's lowest bit, and in its highest.
const LOWEST: u64 = 0x0004_0100_4010_0401;
const HIGHEST: u64 = LOWEST << (TAG_BITS - 1);
/// The tag is cut from the hash below the bits that make a slot's tag.
const TAG_AT: u32 = 64 - super::slot::TAG_BITS - TAG_BITS;

/// The words of all groups.
#[derive(Debug)]
pub(super) struct Ghost(Option<Words>);

impl Ghost {
    /// For at most so many groups.
    pub(super) fn new(wanted: bool, groups: usize) -> io::Result<Self> {
        Ok(Self(if wanted { Some(Words::new(groups * WORDS)?) } else { None }))
    }

    /// Bytes it takes for so many groups.
    pub(super) fn bytes(&self, groups: u64) -> usize {
        if self.0.is_some() { index(groups) * WORDS * 8 } else { 0 }
    }

    /// Is the key of `hash` remembered? A hint, without the lock.
    pub(super) fn knows(&self, group: usize, hash: u64) -> bool {
        let Some(words) = &self.0 else { return false };
        let word = words.word(at(group, hash)).load(Ordering::Relaxed); // a hint
        find(word, tag(hash)).is_some()
    }

    /// Remembers the key of `hash`, and forgets the oldest one for it. Under the group's lock.
    pub(super) fn push(&self, group: usize, hash: u64) {
        let Some(words) = &self.0 else { return };
        let word = words.word(at(group, hash));
        // Relaxed: changed only under the lock, which orders it.
        let (_, others) = without(word.load(Ordering::Relaxed), tag(hash));
        word.store(((others << TAG_BITS) | tag(hash)) & ALL_MASK, Ordering::Relaxed);
    }

    /// Forgets the key of `hash`; false if it was not remembered. Under the group's lock.
    pub(super) fn take(&self, group: usize, hash: u64) -> bool {
        let Some(words) = &self.0 else { return false };
        let word = words.word(at(group, hash));
        // Relaxed: as in `push`.
        let (was_there, others) = without(word.load(Ordering::Relaxed), tag(hash));
        if was_there {
            word.store(others, Ordering::Relaxed);
        }
        was_there
    }

    /// `to` remembers what `from` does. Under the locks of both.
    pub(super) fn copy(&self, from: usize, to: usize) {
        let Some(words) = &self.0 else { return };
        for word in 0..WORDS {
            // Relaxed: as in `push`.
            let tags = words.word(from * WORDS + word).load(Ordering::Relaxed);
            words.word(to * WORDS + word).store(tags, Ordering::Relaxed);
        }
    }
}

/// The word of a key: by the same bits as its home line, that is, none of those of `tag`.
fn at(group: usize, hash: u64) -> usize {
    group * WORDS + index((super::slot::tag(hash) * WORDS as u64) >> super::slot::TAG_BITS)
}

fn tag(hash: u64) -> u64 {
    ((hash >> TAG_AT) & TAG_MASK).max(1)
}

/// The lowest bit of where `tag` stands in `word`.
fn find(word: u64, tag: u64) -> Option<u32> {
    // Where the tag stands is a zero now; the lowest zero is found exactly.
    let differs = word ^ (tag * LOWEST);
    let zeros = differs.wrapping_sub(LOWEST) & !differs & HIGHEST;
    (zeros != 0).then(|| zeros.trailing_zeros() + 1 - TAG_BITS)
}

/// Was `tag` in `word`, and the word without it.
fn without(word: u64, tag: u64) -> (bool, u64) {
    let Some(at) = find(word, tag) else { return (false, word) };
    let younger = (1 << at) - 1;
    (true, (word & younger) | ((word >> TAG_BITS) & !younger))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A key of word 0 of a group, with a tag of its own.
    fn hash(tag: u64) -> u64 {
        tag << TAG_AT
    }

    #[test]
    fn six_are_remembered_and_the_oldest_is_forgotten() {
        let ghost = Ghost::new(true, 2).expect("address space");
        for key in 1..=7 {
            ghost.push(1, hash(key));
            assert!(ghost.knows(1, hash(key)) && !ghost.knows(0, hash(key)));
        }
        assert!(!ghost.knows(1, hash(1)), "the oldest of seven");
        assert!((2..=7).all(|key| ghost.knows(1, hash(key))));
        assert!(ghost.take(1, hash(4)) && !ghost.take(1, hash(4)));
        // Room for one more now; what is put in again is the youngest, and there once.
        ghost.push(1, hash(2));
        ghost.push(1, hash(8));
        assert!([2, 3, 5, 6, 7, 8].iter().all(|key| ghost.knows(1, hash(*key))));
        [9, 10, 11, 12, 13].iter().for_each(|key| ghost.push(1, hash(*key)));
        assert!(ghost.knows(1, hash(8)) && !ghost.knows(1, hash(2)));
    }

    #[test]
    fn every_tag_in_every_place_is_found_and_no_other() {
        let word = [1, 1023, 512, 511, 2, 1022].iter().fold(0, |word, tag| (word << 10) | tag);
        for (place, there) in (0..).zip([1022, 2, 511, 512, 1023, 1]) {
            assert_eq!(find(word, there), Some(place * 10), "{there}");
        }
        assert!((1..1024).filter(|tag| find(word, *tag).is_some()).count() == 6);
        assert_eq!((1..1024).filter(|tag| find(0, *tag).is_some()).count(), 0);
    }

    #[test]
    fn a_split_forgets_nothing_and_a_store_without_a_ghost_knows_nothing() {
        let ghost = Ghost::new(true, 2).expect("address space");
        let word = |word: u64| ((word << 15) / WORDS as u64 + 1) << 49;
        let keys: Vec<u64> = (0..WORDS as u64).map(|key| word(key) | hash(77)).collect();
        keys.iter().for_each(|key| ghost.push(0, *key));
        ghost.copy(0, 1);
        assert!(keys.iter().all(|key| ghost.take(0, *key) && ghost.knows(1, *key)));
        assert_eq!((ghost.bytes(2), Ghost::new(false, 2).expect("none").bytes(2)), (176, 0));
        let none = Ghost::new(false, 2).expect("none");
        none.push(0, hash(1));
        assert!(!none.knows(0, hash(1)) && !none.take(0, hash(1)));
    }
}
