//! The ghost: remembers which keys were evicted recently. A word has six tags of ten bits; a tag is
//! for a key. If the policy remembers evictions from both queues, each queue has three of the tags.
//!
//! Where: the engine uses this ghost as the store uses `index::ghost`. Invariant: a word holds the
//! youngest tags of each queue. The store has 10 words for 8 to 15 index lines; the engine chooses
//! the number of words.

use store::policy::{GhostScope, Queue};

const TAG_BITS: u32 = 10;
const TAGS: u32 = 6;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

pub(super) struct Ghost {
    words: Vec<u64>,
    /// Number of a word's tags for keys that left probation; the higher tags are for main.
    probation_tags: u32,
}

impl Ghost {
    /// Makes a ghost with room for about `keys` keys.
    pub(super) fn new(keys: f64, remembered: GhostScope) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and the words are bounded by memory"
        )]
        let words = (keys / f64::from(TAGS)).round().max(1.0) as usize;
        let probation_tags = if remembered == GhostScope::Both { TAGS / 2 } else { TAGS };
        Ghost { words: vec![0; words], probation_tags }
    }

    pub(super) fn push(&mut self, queue: Queue, hash: u64) {
        let (at, tags) = self.part(queue);
        let mask = (1 << (tags * TAG_BITS)) - 1;
        let word = self.word(hash);
        let pushed = (*word >> at << TAG_BITS | tag(hash)) & mask;
        *word = *word & !(mask << at) | pushed << at;
    }

    /// If the ghost remembers the key, forgets the key and returns the queue that the key left.
    pub(super) fn take(&mut self, hash: u64) -> Option<Queue> {
        for queue in [Queue::Probation, Queue::Main] {
            let (at, tags) = self.part(queue);
            let mask = (1 << (tags * TAG_BITS)) - 1;
            let word = self.word(hash);
            let held = *word >> at & mask;
            let found = (0..tags).find(|at| held >> (at * TAG_BITS) & TAG_MASK == tag(hash));
            if let Some(found) = found.map(|at| at * TAG_BITS) {
                let younger = held & ((1 << found) - 1);
                let left = held >> (found + TAG_BITS) << found | younger;
                *word = *word & !(mask << at) | left << at;
                return Some(queue);
            }
        }
        None
    }

    /// Returns the first bit of a queue's tags in a word, and the number of tags.
    fn part(&self, queue: Queue) -> (u32, u32) {
        match queue {
            Queue::Probation => (0, self.probation_tags),
            Queue::Main => (self.probation_tags * TAG_BITS, TAGS - self.probation_tags),
        }
    }

    fn word(&mut self, hash: u64) -> &mut u64 {
        let words = self.words.len() as u64;
        let at = ((hash >> 32) * words) >> 32;
        &mut self.words[usize::try_from(at).unwrap_or(0)]
    }
}

fn tag(hash: u64) -> u64 {
    (hash & TAG_MASK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_remembers_the_three_youngest_of_each_queue_and_each_once() {
        let mut ghost = Ghost::new(6.0, GhostScope::Both);
        (1..=4).for_each(|hash| ghost.push(Queue::Probation, hash));
        (11..=14).for_each(|hash| ghost.push(Queue::Main, hash));
        assert_eq!((ghost.take(1), ghost.take(11)), (None, None), "the oldest of four");
        assert_eq!((ghost.take(3), ghost.take(3)), (Some(Queue::Probation), None));
        assert_eq!(ghost.take(13), Some(Queue::Main));
        ghost.push(Queue::Main, 15);
        assert!([2, 4].iter().all(|hash| ghost.take(*hash) == Some(Queue::Probation)));
        assert!([12, 14, 15].iter().all(|hash| ghost.take(*hash) == Some(Queue::Main)));
        assert_eq!(ghost.words, [0]);
    }

    #[test]
    fn without_main_the_word_is_probations() {
        let mut ghost = Ghost::new(6.0, GhostScope::Probation);
        (1..=7).for_each(|hash| ghost.push(Queue::Probation, hash));
        assert_eq!(ghost.take(1), None, "the oldest of seven");
        assert!((2..=7).all(|hash| ghost.take(hash) == Some(Queue::Probation)));
    }
}
