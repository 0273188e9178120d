//! Counts all items by their sizes, or by the prefixes of their keys.
//!
//! Where: the errand of `stats sizes` and `stats prefixes`. Items are counted only on demand.
//! Invariant: a count holds a `Place`, so that few counts run at a time. The count's memory is
//! bounded by `PREFIXES_TOLD_MAX` prefixes, or by the number of rows that `row_of` distinguishes.
//! Source: memcached 1.6.45 `item_stats_sizes`.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::vec;

use columns::executor::Progress;
use protocol::text::list::escaped;
use protocol::{Form, Outcome};
use store::{Column, DumpEntry, DumpPlace};

use super::place::Place;
use crate::clock::Clock;
use crate::limits::{
    CENSUS_STEP_ITEMS, DUMP_STEP_BYTES, DUMP_STEP_GROUPS, PREFIXES_TOLD_MAX, SIZES_FINE_BYTES,
};
use crate::shared::prefixes::Prefixes;

/// Width in bytes of the range of sizes that one row covers; the same as in memcached.
const ROW_BYTES: u64 = 32;

/// Width in bytes of the range of sizes that one row above `SIZES_FINE_BYTES` covers.
const COARSE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Census {
    form: Form,
    place: Place,
    at: Option<DumpPlace>,
    counted: Tally,
    /// The rows that are not written yet. Filled when all items are counted.
    rows: vec::IntoIter<Row>,
}

#[derive(Debug)]
enum Row {
    Size(u64, u64),
    Prefix(Box<[u8]>, Usage),
    Sum(&'static str, Usage),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    items: u64,
    bytes: u64,
}

#[derive(Debug)]
enum Tally {
    /// Number of items in each row of `stats sizes`.
    Sizes(BTreeMap<u64, u64>),
    /// Items and bytes: of `each` prefix; of the prefixes for which there is no room (`others`);
    /// and of keys without a prefix (`without`).
    Prefixes { each: HashMap<Box<[u8]>, Usage>, others: Usage, without: Usage },
}

impl Census {
    pub(crate) fn of_sizes(place: Place, form: Form) -> Census {
        Census::of(place, form, Tally::Sizes(BTreeMap::new()))
    }

    pub(crate) fn of_prefixes(place: Place, form: Form) -> Census {
        let (others, without) = (Usage::default(), Usage::default());
        let counted = Tally::Prefixes { each: HashMap::new(), others, without };
        Census::of(place, form, counted)
    }

    fn of(place: Place, form: Form, counted: Tally) -> Census {
        let rows = Vec::new().into_iter();
        Census { form, place, at: Some(DumpPlace::default()), counted, rows }
    }

    /// Counts the items of some groups of the index; after the last group, writes some rows. Adds
    /// the number of examined items and rows to `examined`.
    pub(super) fn step(
        &mut self,
        store: &mut Column,
        (clock, prefixes): (&Clock, &Prefixes),
        examined: &mut usize,
        out: &mut Vec<u8>,
    ) -> Progress {
        if !self.place.keep(clock.now) {
            return Progress::Ended;
        }
        if let Some(mut at) = self.at {
            for _ in 0..DUMP_STEP_GROUPS {
                if *examined >= CENSUS_STEP_ITEMS {
                    break;
                }
                let counted = &mut self.counted;
                let next = store.dump(at, |item| {
                    *examined += 1;
                    counted.count(item, prefixes);
                });
                let Some(next) = next else {
                    self.at = None;
                    self.rows = self.counted.take_rows().into_iter();
                    *examined += self.rows.len();
                    return Progress::More;
                };
                at = next;
            }
            self.at = Some(at);
            return Progress::More;
        }
        let end = out.len() + DUMP_STEP_BYTES;
        for row in &mut self.rows {
            row.write(self.form, prefixes, out);
            if out.len() >= end {
                return Progress::More;
            }
        }
        self.form.write_outcome(Outcome::StatsEnd, out);
        Progress::Done
    }
}

/// Returns the row of `stats sizes` that counts items of `bytes` bytes.
fn row_of(bytes: u64) -> u64 {
    let row_bytes = if bytes <= SIZES_FINE_BYTES { ROW_BYTES } else { COARSE_BYTES };
    bytes.next_multiple_of(row_bytes)
}

impl Tally {
    fn count(&mut self, item: &DumpEntry<'_>, prefixes: &Prefixes) {
        match self {
            Tally::Sizes(sizes) => *sizes.entry(row_of(item.item_bytes)).or_default() += 1,
            Tally::Prefixes { each, others, without } => {
                let taken = match prefixes.of(item.key) {
                    None => without,
                    Some(prefix) if each.contains_key(prefix) || each.len() < PREFIXES_TOLD_MAX => {
                        each.entry(prefix.into()).or_default()
                    }
                    Some(_) => others,
                };
                taken.items += 1;
                taken.bytes += item.item_bytes;
            }
        }
    }

    /// Returns the rows. The prefixes with the most bytes come first.
    fn take_rows(&mut self) -> Vec<Row> {
        let (each, sums) = match self {
            Tally::Sizes(sizes) => {
                return sizes.iter().map(|(row, items)| Row::Size(*row, *items)).collect();
            }
            Tally::Prefixes { each, others, without } => {
                (mem::take(each), [Row::Sum("others", *others), Row::Sum("without", *without)])
            }
        };
        let mut all: Vec<_> = each.into_iter().collect();
        all.sort_unstable_by(|one, other| {
            other.1.bytes.cmp(&one.1.bytes).then_with(|| one.0.cmp(&other.0))
        });
        let rows = all.into_iter().map(|(prefix, taken)| Row::Prefix(prefix, taken));
        rows.chain(sums).collect()
    }
}

impl Row {
    /// Appends the row's lines. Shows 0 evictions for a prefix if evictions are not counted.
    fn write(&self, form: Form, prefixes: &Prefixes, out: &mut Vec<u8>) {
        let mut line = |name: &str, number: u64| form.stat(name, format_args!("{number}"), out);
        match self {
            Row::Size(row, items) => line(&row.to_string(), *items),
            Row::Prefix(prefix, taken) => {
                let name = escaped(prefix);
                line(&format!("prefixes:{name}:items"), taken.items);
                line(&format!("prefixes:{name}:bytes"), taken.bytes);
                let evictions = prefixes.counts(prefix).evictions;
                line(&format!("prefixes:{name}:evictions"), evictions);
            }
            Row::Sum(name, taken) => {
                line(&format!("{name}:items"), taken.items);
                line(&format!("{name}:bytes"), taken.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_sizes_are_memcacheds_up_to_a_megabyte_and_few_above() {
        assert_eq!([1, 32, 33, 1 << 20].map(row_of), [32, 32, 64, 1 << 20]);
        assert_eq!([(1 << 20) + 1, 2 << 20, 1 << 30].map(row_of), [2 << 20, 2 << 20, 1 << 30]);
    }
}
