//! The ghost: remembers which keys were evicted recently, with ten bits for each key.
//!
//! Where: each group of the index has `WORDS` words of the ghost. An eviction that the policy wants
//! to remember adds a tag; the key's next insertion removes the tag. Some policies have no ghost.
//! Invariant: a word changes only under its group's lock; a lookup without the lock gives a hint.
//! The ghost mistakes about 0.6 % of other keys for remembered keys, and forgets some keys. Such an
//! error makes the policy decide wrongly, but loses no item.
//! Source: S3-FIFO's ghost queue (Yang et al., SOSP 2023), as a FIFO of tags in each word.
//!
//! ```text
//!   word, u64:   - 4 | oldest of main:10 | .. | youngest | oldest of probation:10 | .. | youngest
//! ```
//! A word has places for six tags, three for each queue. If the policy remembers only keys that
//! left probation, all six places are for these keys. An empty place is 0.
//!
//! Every group has `WORDS` words, whatever its number of lines. If the words belonged to lines,
//! tags would have to move when a group gets more lines; but a tag does not show in which line its
//! key is. When a group splits, each new group gets a copy of the words, so growth forgets nothing;
//! in each copy, newer tags push out the tags of keys that are now in the other group. A group of 8
//! lines has room for 0.9 tags per item, a group of 15 lines for half a tag; the ghost takes 1.2 to
//! 0.7 bytes per item. When two groups merge, each word keeps the younger half of the tags of two
//! words. No word is written before the first eviction is remembered.

use super::word::index;
use crate::policy::{GhostScope, Queue};
use memory::sync::{AtomicBool, Ordering};
use memory::words::Words;
use std::io;

pub(super) const WORDS: usize = 10;
const TAG_BITS: u32 = 10;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const TAGS: u32 = 6;
const ALL_MASK: u64 = (1 << (TAG_BITS * TAGS)) - 1;
/// In `LOWEST` the lowest bit of each tag is set; in `HIGHEST`, the highest bit of each tag.
const LOWEST: u64 = 0x0004_0100_4010_0401;
const HIGHEST: u64 = LOWEST << (TAG_BITS - 1);
/// The position of the ghost's tag in the hash: just below the bits of a slot's tag.
const TAG_AT: u32 = 64 - super::slot::TAG_BITS - TAG_BITS;

#[derive(Debug)]
pub(super) struct Ghost {
    words: Option<Words>,
    remembered: GhostScope,
    /// True once a key was remembered. Until then all words are zero and take no memory.
    is_used: AtomicBool,
    /// The number of a word's low bits that hold tags of keys that left probation. The higher bits
    /// hold tags of keys that left the main queue.
    probation_bits: u32,
}

/// The tags of a word, by the queue that their keys left.
#[derive(Clone, Copy)]
struct Tags {
    probation: u64,
    main: u64,
}

impl Ghost {
    pub(super) fn new(remembered: GhostScope, groups: usize) -> io::Result<Self> {
        let (wanted, probation_tags) = match remembered {
            GhostScope::None => (false, TAGS),
            GhostScope::Probation => (true, TAGS),
            GhostScope::Both => (true, TAGS / 2),
        };
        let words = if wanted { Some(Words::new(groups * WORDS)?) } else { None };
        let is_used = AtomicBool::new(false);
        Ok(Self { words, remembered, is_used, probation_bits: probation_tags * TAG_BITS })
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn words(&self) -> Option<&Words> {
        self.words.as_ref()
    }

    /// Bytes that the ghost takes for `groups` groups once a key is remembered.
    pub(super) fn bytes(&self, groups: u64) -> usize {
        if self.words.is_some() { index(groups) * WORDS * 8 } else { 0 }
    }

    pub(super) fn lock(&self, groups: u64) -> io::Result<()> {
        self.words.as_ref().map_or(Ok(()), |words| words.lock(self.bytes(groups)))
    }

    /// Bytes that the ghost takes for `groups` groups now: 0 before a key is remembered.
    pub(super) fn touched_bytes(&self, groups: u64) -> usize {
        if self.used().is_some() { self.bytes(groups) } else { 0 }
    }

    fn used(&self) -> Option<&Words> {
        // Relaxed: the flag is set under a group's lock before the group's words are written, so a
        // later holder of the lock sees the flag. Without the lock, the flag is a hint.
        self.words.as_ref().filter(|_| self.is_used.load(Ordering::Relaxed))
    }

    /// True if the key of `hash` is remembered. Without the group's lock, the result is a hint.
    pub(super) fn knows(&self, group: usize, hash: u64) -> bool {
        let Some(words) = self.used() else { return false };
        let word = words.word(at(group, hash)).load(Ordering::Relaxed); // only a hint
        find(word, tag(hash)).is_some()
    }

    /// Remembers that the key of `hash` left queue `from`, if the policy wants that. If the queue's
    /// places in the word are full, drops the oldest tag. The group must be locked.
    pub(super) fn push(&self, group: usize, hash: u64, from: Queue) {
        match (self.remembered, from) {
            (GhostScope::None, _) | (GhostScope::Probation, Queue::Main) => return,
            (GhostScope::Probation | GhostScope::Both, _) => {}
        }
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed); // ordered by the group's lock
        }
        self.change(group, hash, |mut tags| {
            let part = match from {
                Queue::Probation => &mut tags.probation,
                Queue::Main => &mut tags.main,
            };
            *part = (*part << TAG_BITS) | tag(hash);
            tags
        });
    }

    /// Forgets the key of `hash`, under the group's lock. Returns the queue that the key had left.
    pub(super) fn take(&self, group: usize, hash: u64) -> Option<Queue> {
        self.knows(group, hash).then(|| self.change(group, hash, |tags| tags)).flatten()
    }

    /// Removes the key's tag, and applies `change` to the word's other tags. Returns the tag's
    /// queue.
    fn change(&self, group: usize, hash: u64, change: impl FnOnce(Tags) -> Tags) -> Option<Queue> {
        let word = self.words.as_ref()?.word(at(group, hash));
        let probation_mask = (1 << self.probation_bits) - 1;
        // Relaxed, here and below: words change only under the group's lock, which orders changes.
        let before = word.load(Ordering::Relaxed);
        let (in_probation, probation) = without(before & probation_mask, tag(hash));
        let (in_main, main) = without(before >> self.probation_bits, tag(hash));
        let Tags { probation, main } = change(Tags { probation, main });
        // The masks drop a queue's oldest tag, if `change` has shifted it out of the queue's bits.
        let after = (probation & probation_mask) | ((main << self.probation_bits) & ALL_MASK);
        word.store(after, Ordering::Relaxed);
        match (in_probation, in_main) {
            (true, _) => Some(Queue::Probation),
            (false, true) => Some(Queue::Main),
            (false, false) => None,
        }
    }

    /// Copies the tags of group `from` to group `to`, under the locks of both groups.
    pub(super) fn copy(&self, from: usize, to: usize) {
        let Some(words) = self.used() else { return };
        for word in 0..WORDS {
            // Relaxed: the locks of both groups order the accesses.
            let tags = words.word(from * WORDS + word).load(Ordering::Relaxed);
            words.word(to * WORDS + word).store(tags, Ordering::Relaxed);
        }
    }

    /// Merges the tags of group `from` into group `to`, under both locks. Each word of `to` keeps
    /// the younger half of its tags, and gets the younger half of the tags of a word of `from`.
    pub(super) fn merge(&self, to: usize, from: usize) {
        let Some(words) = self.used() else { return };
        let split =
            |word: u64| [(word & low_bits(self.probation_bits)), word >> self.probation_bits];
        // If a queue has three places in a word, words with an even number get two tags from `to`
        // and one from `from`; words with an odd number get one from `to` and two from `from`.
        for word in 0..WORDS {
            let at = words.word(to * WORDS + word);
            // Relaxed, here and below: the locks of both groups order the accesses.
            let one = split(at.load(Ordering::Relaxed));
            let other = split(words.word(from * WORDS + word).load(Ordering::Relaxed));
            let both = [0, 1].map(|part| {
                let (first, second) =
                    if word % 2 == 0 { (one[part], other[part]) } else { (other[part], one[part]) };
                let bits = self.part_bits(part);
                let half = bits / TAG_BITS / 2 * TAG_BITS;
                (first & low_bits(bits - half)) | ((second & low_bits(half)) << (bits - half))
            });
            at.store(both[0] | (both[1] << self.probation_bits), Ordering::Relaxed);
        }
    }

    /// Number of bits for a queue's tags in a word: part 0 is probation, part 1 is the main queue.
    fn part_bits(&self, part: usize) -> u32 {
        if part == 0 { self.probation_bits } else { TAG_BITS * TAGS - self.probation_bits }
    }

    /// Returns the memory of groups `from..to` to the system. The index never had more than `to`
    /// groups.
    pub(super) fn give_back_rest(&self, from: usize, to: usize) {
        if let Some(words) = &self.words {
            words.give_back_rest(from * WORDS * 8, to * WORDS * 8);
        }
    }
}

fn low_bits(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The word of a key, chosen by the bits of a slot's tag, which are not in the ghost's tag.
fn at(group: usize, hash: u64) -> usize {
    group * WORDS + index((super::slot::tag(hash) * WORDS as u64) >> super::slot::TAG_BITS)
}

fn tag(hash: u64) -> u64 {
    ((hash >> TAG_AT) & TAG_MASK).max(1)
}

fn find(word: u64, tag: u64) -> Option<u32> {
    // A tag equal to `tag` is zero in `differs`. Only the lowest bit of `zeros` is reliable.
    let differs = word ^ (tag * LOWEST);
    let zeros = differs.wrapping_sub(LOWEST) & !differs & HIGHEST;
    (zeros != 0).then(|| zeros.trailing_zeros() + 1 - TAG_BITS)
}

/// Returns true if `tag` was in `word`, and the word without `tag`.
fn without(word: u64, tag: u64) -> (bool, u64) {
    let Some(at) = find(word, tag) else { return (false, word) };
    let younger = (1 << at) - 1;
    (true, (word & younger) | ((word >> TAG_BITS) & !younger))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The hash of a key whose tag is `tag`, in word 0 of its group.
    fn hash(tag: u64) -> u64 {
        tag << TAG_AT
    }

    #[test]
    fn six_are_remembered_and_the_oldest_is_forgotten() {
        let ghost = Ghost::new(GhostScope::Probation, 2).expect("address space");
        for key in 1..=7 {
            ghost.push(1, hash(key), Queue::Probation);
            assert!(ghost.knows(1, hash(key)) && !ghost.knows(0, hash(key)));
        }
        assert!(!ghost.knows(1, hash(1)), "the oldest of seven");
        assert!((2..=7).all(|key| ghost.knows(1, hash(key))));
        assert_eq!(ghost.take(1, hash(4)), Some(Queue::Probation));
        assert_eq!(ghost.take(1, hash(4)), None);
        // This key left the main queue, which `GhostScope::Probation` does not remember.
        ghost.push(1, hash(4), Queue::Main);
        assert!(!ghost.knows(1, hash(4)));
        // One place is free. A key that is pushed again becomes the youngest, and is stored once.
        ghost.push(1, hash(2), Queue::Probation);
        ghost.push(1, hash(8), Queue::Probation);
        assert!([2, 3, 5, 6, 7, 8].iter().all(|key| ghost.knows(1, hash(*key))));
        [9, 10, 11, 12, 13].iter().for_each(|key| ghost.push(1, hash(*key), Queue::Probation));
        assert!(ghost.knows(1, hash(8)) && !ghost.knows(1, hash(2)));
    }

    #[test]
    fn no_word_is_touched_until_something_is_remembered() {
        let ghost = Ghost::new(GhostScope::Both, 4).expect("address space");
        ghost.copy(0, 1);
        ghost.merge(0, 1);
        assert!(!ghost.knows(1, hash(1)) && ghost.take(0, hash(1)).is_none());
        assert_eq!((ghost.touched_bytes(4), ghost.bytes(4)), (0, 320));
        ghost.push(3, hash(1), Queue::Main);
        ghost.copy(3, 2);
        assert_eq!(ghost.take(2, hash(1)), Some(Queue::Main));
        assert_eq!((ghost.touched_bytes(4), ghost.bytes(4)), (320, 320));
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
    fn who_left_which_queue_is_told_and_neither_crowds_the_other_out() {
        let ghost = Ghost::new(GhostScope::Both, 1).expect("address space");
        ghost.push(0, hash(50), Queue::Main);
        (1..=9).for_each(|key| ghost.push(0, hash(key), Queue::Probation));
        let known: Vec<u64> = (1..=50).filter(|key| ghost.knows(0, hash(*key))).collect();
        assert_eq!(known, [7, 8, 9, 50]);
        (51..=53).for_each(|key| ghost.push(0, hash(key), Queue::Main));
        assert!(!ghost.knows(0, hash(50)));
        // A key that left one queue and then the other is remembered once.
        ghost.push(0, hash(8), Queue::Main);
        assert_eq!(ghost.take(0, hash(8)), Some(Queue::Main));
        assert_eq!(ghost.take(0, hash(8)), None);
        assert_eq!(ghost.take(0, hash(9)), Some(Queue::Probation));
        assert_eq!(ghost.take(0, hash(53)), Some(Queue::Main));
        let known: Vec<u64> = (1..=60).filter(|key| ghost.knows(0, hash(*key))).collect();
        assert_eq!(known, [7, 52], "51 made room for 8");
    }

    #[test]
    fn a_split_forgets_nothing_and_a_store_without_a_ghost_knows_nothing() {
        let ghost = Ghost::new(GhostScope::Probation, 2).expect("address space");
        let word = |word: u64| ((word << 15) / WORDS as u64 + 1) << 49;
        let keys: Vec<u64> = (0..WORDS as u64).map(|key| word(key) | hash(77)).collect();
        keys.iter().for_each(|key| ghost.push(0, *key, Queue::Probation));
        ghost.copy(0, 1);
        assert!(keys.iter().all(|key| ghost.take(0, *key).is_some() && ghost.knows(1, *key)));
        assert_eq!(
            (ghost.bytes(2), Ghost::new(GhostScope::None, 2).expect("none").bytes(2)),
            (160, 0)
        );
        let none = Ghost::new(GhostScope::None, 2).expect("none");
        none.push(0, hash(1), Queue::Main);
        assert!(!none.knows(0, hash(1)) && none.take(0, hash(1)).is_none());
    }
}
