//! The Internet checksum.
//!
//! Where: `ipv4` sums the IPv4 header; `udp` sums the pseudo header, the UDP header and the
//! payload. If a packet has several parts, `xdp` sums the parts after the first part.
//! Invariant: words and sums are in memory order, so the machine's byte order does not matter.
//! Source: RFC 1071, section 2; "the sum of 16-bit integers can be computed in either byte order".

use memory::plant::{Fault, is};

/// A sum of two-byte words in ones' complement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at a word's first byte. A zero byte is added after an odd number of
    /// bytes, so only the last addition may have an odd number. The sum has room for 2^32 words.
    #[inline]
    #[must_use]
    pub(super) fn add(self, bytes: &[u8]) -> Sum {
        // The sum has eight bytes, so that one instruction can add several four-byte words.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let sum = words.iter().fold(0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        Sum(self.0 + sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds `bytes`, which follow the first `before_bytes` bytes of a packet.
    #[inline]
    #[must_use]
    pub(crate) fn add_behind(self, before_bytes: usize, bytes: &[u8]) -> Sum {
        if before_bytes.is_multiple_of(2) || is(Fault::OddPieceNotTurned) {
            return self.add(bytes);
        }
        // The bytes begin at a word's second byte, so the two bytes of their sum must be swapped.
        let sum = u16::from_ne_bytes(Sum::default().add(bytes).folded());
        Sum(self.0 + u64::from(sum.swap_bytes()))
    }

    #[inline]
    #[must_use]
    pub(super) fn with(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// Returns the sum as one word, in the byte order of a packet.
    #[inline]
    #[must_use]
    pub(super) fn folded(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > u64::from(u16::MAX) {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 0xffff, by the loop")]
        let word = sum as u16;
        word.to_ne_bytes()
    }

    /// Returns the checksum to be written into a header. The sum of all words is then all ones.
    #[inline]
    #[must_use]
    pub(super) fn checksum(self) -> [u8; 2] {
        self.folded().map(|byte| !byte)
    }

    /// True if the words that were added include a valid checksum.
    #[inline]
    #[must_use]
    pub(super) fn is_right(self) -> bool {
        self.folded() == [0xff; 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sums word by word in network order, by the first method that RFC 1071 describes.
    fn slowly(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let sum = bytes.chunks(2).map(word).fold(0, |sum, word| {
            let sum: u32 = sum + word;
            (sum & 0xffff) + (sum >> 16)
        });
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).folded(), [0xdd, 0xf2]);
        assert_eq!(Sum::default().add(&bytes).checksum(), [0x22, 0x0d]);
        let (left, right) = bytes.split_at(2);
        assert_eq!(Sum::default().add(left).add(right).folded(), [0xdd, 0xf2]);
        assert_eq!(Sum::default().add(&[]).folded(), [0, 0]);
        assert_eq!(Sum::default().add(&[1]).folded(), [1, 0]);
        assert_eq!(Sum::default().add(&[0xff; 65_535]).folded(), [0xff, 0x00]);
    }

    proptest! {
        #[test]
        fn words_of_four_bytes_sum_up_as_words_of_two(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            let expected = slowly(&bytes).to_be_bytes();
            prop_assert_eq!(Sum::default().add(&bytes).folded(), expected);
            let (left, right) = bytes.split_at(cut.index(bytes.len() + 1));
            let sum = Sum::default().add(left).add_behind(left.len(), right);
            prop_assert_eq!(sum.folded(), expected);
            prop_assume!(bytes.len() % 2 == 0);
            let sum = Sum::default().add(&bytes);
            prop_assert!(sum.add(&sum.checksum()).is_right());
        }
    }
}
