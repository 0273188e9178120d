//! The width of the index (its number of lines), and the choice of a hash's two lines.
//!
//! Where: the first step of every lookup and of every change.
//! Invariant: the address of a hash follows from the hash and the width. A key's two lines follow
//! from the address and the tag. So a slot can be moved without reading its key, except by a split.
//! Source: linear hashing (Litwin, 1980), with groups of 8 to 15 lines as buckets, so that memory
//! never doubles at once; two lines for each key: d-left hashing (Broder and Mitzenmacher, 2001).

use super::slot::TAG_BITS;
use super::word::index;

/// Minimum and maximum number of lines of a group. A group that would get more lines is split.
pub(super) const LINES_MIN: u64 = LEAST as u64;
pub(super) const LINES_MAX: u64 = MOST as u64;
const LEAST: usize = 8;
const MOST: usize = 15;

/// The tags are divided into this number of parts. All tags of a part have the same home line.
const PARTS: usize = 256;
/// The home line of each part: one row for groups of 8 lines, one row for groups of 9 lines, and so
/// on up to 15. When a group gets a line, a tag's home line changes only to the new line.
static HOMES: [[u8; PARTS]; 8] = homes();

/// The width of the index: `2^groups_log` groups of `lines` lines. The first `stepped` groups have
/// one line more; instead of a group of 16 lines, there are two groups of 8 lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    pub(super) groups_log: u32,
    pub(super) lines: u64,
    pub(super) stepped: u64,
}

impl Width {
    /// The width of an index with `lines` lines, but at least `LINES_MIN` lines.
    pub(super) fn of_lines(lines: u64) -> Self {
        let total = lines.max(LINES_MIN);
        let groups_log = (total / LINES_MIN).ilog2();
        let lines = total >> groups_log;
        Self { groups_log, lines, stepped: total - (lines << groups_log) }
    }

    pub(super) fn unpack(word: u64) -> Self {
        let groups_log = u32::from(word.to_le_bytes()[0]);
        Self { groups_log, lines: (word >> 8) & 0xff, stepped: word >> 16 }
    }

    pub(super) fn pack(self) -> u64 {
        u64::from(self.groups_log) | (self.lines << 8) | (self.stepped << 16)
    }

    pub(super) fn total_lines(self) -> u64 {
        (self.lines << self.groups_log) + self.stepped
    }

    pub(super) fn total_groups(self) -> u64 {
        (1 << self.groups_log) + if self.lines == LINES_MAX { self.stepped } else { 0 }
    }

    /// The width after one more step of growth, which adds a line to the next group.
    pub(super) fn wider(mut self) -> Self {
        self.stepped += 1;
        if self.stepped == 1 << self.groups_log {
            self.stepped = 0;
            self.lines += 1;
            if self.lines > LINES_MAX {
                self.lines = LINES_MIN;
                self.groups_log += 1;
            }
        }
        self
    }

    /// The width without the line that was added last: the inverse of `wider`.
    pub(super) fn narrower(mut self) -> Self {
        if self.stepped == 0 {
            if self.lines == LINES_MIN {
                self.lines = LINES_MAX + 1;
                self.groups_log -= 1;
            }
            self.lines -= 1;
            self.stepped = 1 << self.groups_log;
        }
        self.stepped -= 1;
        self
    }

    #[inline]
    pub(super) fn address(self, hash: u64) -> Address {
        let group_of = |groups_log: u32| hash & ((1 << groups_log) - 1);
        let group = group_of(self.groups_log);
        // A sum, since a branch would be mispredicted: groups of both sizes come at random.
        let lines = self.lines + u64::from(group < self.stepped);
        if lines > LINES_MAX {
            let groups_log = self.groups_log + 1;
            return Address { group: group_of(groups_log), groups_log, lines: LINES_MIN };
        }
        Address { group, groups_log: self.groups_log, lines }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) group: u64,
    pub(super) groups_log: u32,
    pub(super) lines: u64,
}

impl Address {
    #[inline]
    pub(super) fn home(self, tag: u64) -> u64 {
        self.homes().home(tag)
    }

    #[inline]
    pub(super) fn other(self, tag: u64) -> u64 {
        self.homes().other(tag)
    }

    #[inline]
    pub(super) fn homes(self) -> Homes {
        Homes::of(self.lines)
    }

    /// The position of a group's line among all lines. Plane n has line n of each group, and plane
    /// follows plane, so that a line added to the index comes after all other lines.
    #[inline]
    pub(super) fn line(self, home: u64) -> usize {
        index((home << self.groups_log) + self.group)
    }

    pub(super) fn group(self) -> usize {
        index(self.group)
    }
}

/// The home line and the other line of each tag, in a group with a given number of lines.
#[derive(Clone, Copy)]
pub(super) struct Homes {
    row: &'static [u8; PARTS],
    lines: u64,
}

impl Homes {
    #[inline]
    pub(super) fn of(lines: u64) -> Self {
        Self { row: &HOMES[index(lines % 8)], lines }
    }

    #[inline]
    pub(super) fn home(self, tag: u64) -> u64 {
        u64::from(self.row[index(tag >> (TAG_BITS - PARTS.ilog2())) % PARTS])
    }

    /// The other line of a tag, chosen by the tag's lowest bits. It is never the home line.
    #[inline]
    pub(super) fn other(self, tag: u64) -> u64 {
        let (home, other) = (self.home(tag), u64::from(self.row[index(tag) % PARTS]));
        let next = if home + 1 == self.lines { 0 } else { home + 1 };
        if other == home { next } else { other }
    }
}

/// Eight lines share the parts in order; a further line takes parts from the lines with most parts.
const fn homes() -> [[u8; PARTS]; 8] {
    let mut homes = [[0; PARTS]; 8];
    let mut parts = [0; MOST];
    let mut part = 0;
    while part < PARTS {
        #[expect(clippy::cast_possible_truncation, reason = "below 8")]
        let line = (part / (PARTS / 8)) as u8;
        homes[0][part] = line;
        parts[line as usize] += 1;
        part += 1;
    }
    let mut lines = LEAST + 1;
    while lines <= MOST {
        let mut row = homes[lines - LEAST - 1];
        let (mut taken, mut at) = (0, 0);
        while taken < PARTS / lines {
            // Searches the parts in steps of seven, so that the taken parts are spread.
            let (mut fullest, mut line) = (0, 1);
            while line < lines - 1 {
                if parts[line] > parts[fullest] {
                    fullest = line;
                }
                line += 1;
            }
            while row[at % PARTS] as usize != fullest {
                at += 7;
            }
            #[expect(clippy::cast_possible_truncation, reason = "below 15")]
            let new = (lines - 1) as u8;
            row[at % PARTS] = new;
            parts[fullest] -= 1;
            parts[lines - 1] += 1;
            taken += 1;
        }
        homes[lines - LEAST] = row;
        lines += 1;
    }
    homes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::slot::TAG_MASK;
    use super::*;

    #[test]
    fn a_tag_has_two_lines_and_those_of_a_line_are_spread_over_all_others() {
        for lines in LINES_MIN..=LINES_MAX {
            let mut pairs = std::collections::HashSet::new();
            let mut sums = vec![0; index(lines)];
            for tag in 1..=TAG_MASK {
                let (home, other) = (Homes::of(lines).home(tag), Homes::of(lines).other(tag));
                assert!(home != other && home < lines && other < lines, "{tag} of {lines}");
                pairs.insert((home, other));
                sums[index(home)] += 1;
            }
            assert_eq!(pairs.len() as u64, lines * (lines - 1));
            let [least, most] = [sums.iter().min(), sums.iter().max()].map(Option::unwrap);
            assert!(most - least <= (1 << TAG_BITS) / PARTS + 1, "{lines}: {sums:?}");
        }
    }

    #[test]
    fn a_line_more_takes_from_all_others_and_nothing_else_moves() {
        for lines in LINES_MIN..LINES_MAX {
            let mut from = std::collections::HashSet::new();
            for tag in 1..=TAG_MASK {
                let [before, after] = [lines, lines + 1].map(|lines| Homes::of(lines).home(tag));
                assert!(before == after || after == lines, "{tag}");
                // If the new line is removed, only tags that had this line get another line.
                let [before_other, other] =
                    [lines, lines + 1].map(|lines| Homes::of(lines).other(tag));
                assert!(after == lines || other == lines || other == before_other, "{tag}");
                from.extend((before != after).then_some(before));
            }
            assert!(from.len() as u64 + 1 >= lines, "from all lines but one at most");
        }
    }

    #[test]
    fn narrower_undoes_wider() {
        let mut width = Width { groups_log: 1, lines: LINES_MIN, stepped: 0 };
        for _ in 0..300 {
            let next = width.wider();
            assert_eq!(next.total_lines(), width.total_lines() + 1);
            assert_eq!(next.narrower(), width);
            assert_eq!(Width::unpack(next.pack()), next);
            assert_eq!(Width::of_lines(next.total_lines()), next);
            width = next;
        }
    }
}
