//! The ghost: which keys were evicted of late, six tags of ten bits to a word.
//!
//! Where: in the engine, as the store's `index::ghost`. Invariant: a word holds its six youngest
//! tags. The store has 11 words to a group of 8 to 15 lines; here there are as many as asked for.

const TAG_BITS: u32 = 10;
const TAGS: u32 = 6;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const WORD_MASK: u64 = (1 << (TAG_BITS * TAGS)) - 1;

/// Tags of keys.
pub(super) struct Ghost {
    words: Vec<u64>,
}

impl Ghost {
    /// Room for about so many keys.
    pub(super) fn new(keys: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and the words are bounded by memory"
        )]
        let words = (keys / f64::from(TAGS)).round().max(1.0) as usize;
        Ghost { words: vec![0; words] }
    }

    pub(super) fn push(&mut self, hash: u64) {
        let word = self.word(hash);
        *word = (*word << TAG_BITS | tag(hash)) & WORD_MASK;
    }

    /// Whether the key was known; it is not any more.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let word = self.word(hash);
        let found = (0..TAGS).find(|at| *word >> (at * TAG_BITS) & TAG_MASK == tag(hash));
        let Some(at) = found.map(|at| at * TAG_BITS) else { return false };
        let younger = *word & ((1 << at) - 1);
        *word = *word >> (at + TAG_BITS) << at | younger;
        true
    }

    fn word(&mut self, hash: u64) -> &mut u64 {
        let words = self.words.len() as u64;
        let at = ((hash >> 32) * words) >> 32;
        &mut self.words[usize::try_from(at).unwrap_or(0)]
    }
}

/// Ten bits of the hash; 0 is none.
fn tag(hash: u64) -> u64 {
    (hash & TAG_MASK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_remembers_its_six_youngest_and_each_once() {
        let mut ghost = Ghost::new(6.0);
        (1..=7).for_each(|hash| ghost.push(hash));
        assert!(!ghost.take(1), "the oldest of seven");
        assert!(ghost.take(4) && !ghost.take(4));
        ghost.push(8);
        assert!([2, 3, 5, 6, 7, 8].iter().all(|hash| ghost.take(*hash)));
        assert_eq!(ghost.words, [0]);
    }
}
