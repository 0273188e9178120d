//! Distributions of popularity: how often each key is requested.
//!
//! Where: `stream` draws the keys of each request with `KeySampler`.
//! Invariant: each drawn key is below the number of keys. The population's seed shuffles the keys
//! over the ranks, so popular keys are not neighbours. If there is a key file, the number of a
//! key's line is the key's rank.
//! Source: the KV-Cache paper, section 5.2.2 and table 2 (power law over buckets);
//! memtier_benchmark (Gaussian); see `zipf` for Zipf.

use super::alias::{Alias, WEIGHTS_MAX};
use super::files::Files;
use super::grammar::{form, number};
use super::histogram::Histogram;
use super::limits::WorkloadError;
use super::random::{Shuffle, below, seed_for, usage};
use super::zipf::Zipf;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The forms of popularity, for `--help`.
pub(crate) const GRAMMAR: &str = "\
uniform                        all keys are requested equally often
zipf:S                         the n-th most popular key is requested in proportion to 1/n^S;
                               S is 0 to 10
power-law:ALPHA,FROM[,BUCKETS[,GROUPS]]
                               the keys are divided into GROUPS equal groups (default 1), which
                               are requested equally often; each group is divided into BUCKETS
                               equal buckets (default 10000), and the range of x from FROM to 1
                               into BUCKETS equal intervals, one for each bucket; a bucket is
                               requested in proportion to the integral of ALPHA x^(ALPHA-1) over
                               its interval; the keys of a bucket are requested equally often; the
                               KV-Cache paper has power-law:0.01,0.001,10000,4
gaussian[:DEVIATION[,MIDDLE]]  normal distribution over the key numbers, with mean MIDDLE (default
                               0.5) and standard deviation DEVIATION (default 1/6), both as
                               fractions (at most 1) of the number of keys
sequential                     the keys in the order of their numbers; each of N threads requests
                               every N-th key
file:PATH                      a histogram: one VALUE WEIGHT (or VALUE,WEIGHT) per line; the keys
                               are divided equally among the lines, and the keys of a line together
                               are requested in proportion to its WEIGHT; VALUE gives the order of
                               the lines: the first keys of a key-file belong to the least VALUE
";

const BUCKETS: u64 = 10_000;
const GROUPS_MAX: u64 = 1024;
/// The maximum number of buckets of all groups together.
const ALL_BUCKETS_MAX: u64 = 1 << 23;
const EXPONENT_MAX: f64 = 10.0;
/// The default standard deviation, as a fraction of the range (the default of memtier_benchmark).
const DEVIATION: f64 = 1.0 / 6.0;
/// After this number of draws outside the range, a key is drawn uniformly. This is very rare,
/// because even at the greatest standard deviation a third of all draws is inside the range.
const TRIES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Popularity {
    Uniform,
    Zipf(f64),
    PowerLaw { alpha: f64, from: f64, buckets: u64, groups: u64 },
    Gaussian { deviation: f64, middle: f64 },
    Sequential,
    File(PathBuf, Arc<Histogram>),
}

impl Popularity {
    pub(crate) fn parse(text: &str, files: &Files<'_>) -> Result<Popularity, WorkloadError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let wrong =
            |why: &str| WorkloadError(format!("popularity: {text}: {why}{}", form(GRAMMAR, kind)));
        if kind == "file" {
            let path = files.path(rest);
            let histogram = Histogram::read(files, &path, "popularity")?;
            histogram.within(f64::MIN, f64::MAX, false).map_err(|error| {
                WorkloadError(format!("popularity: {}: {error}", path.display()))
            })?;
            return Ok(Popularity::File(path, Arc::new(histogram)));
        }
        let numbers = rest.split(',').filter(|part| !part.is_empty()).map(number);
        let numbers: Option<Vec<f64>> = numbers.collect();
        let numbers = numbers.ok_or_else(|| wrong("numbers are expected after the colon"))?;
        match (kind, numbers.as_slice()) {
            ("uniform", &[]) => Ok(Popularity::Uniform),
            ("sequential", &[]) => Ok(Popularity::Sequential),
            ("zipf", &[s]) if (0.0..=EXPONENT_MAX).contains(&s) => Ok(Popularity::Zipf(s)),
            ("zipf", &[_]) => Err(wrong("S must be 0 to 10")),
            ("gaussian", &[] | &[_] | &[_, _]) => {
                let deviation = numbers.first().copied().unwrap_or(DEVIATION);
                let middle = numbers.get(1).copied().unwrap_or(0.5);
                if !(1e-9..=1.0).contains(&deviation) || !(0.0..=1.0).contains(&middle) {
                    return Err(wrong("DEVIATION must be 1e-9 to 1, and MIDDLE must be 0 to 1"));
                }
                Ok(Popularity::Gaussian { deviation, middle })
            }
            ("power-law", &[alpha, from, ..]) if numbers.len() <= 4 => {
                let count = |at, default, max: u64| match numbers.get(at) {
                    None => Some(default),
                    Some(count) => (1..=max).find(|whole| *whole as f64 == *count),
                };
                let buckets = count(2, BUCKETS, WEIGHTS_MAX as u64);
                let groups = count(3, 1, GROUPS_MAX);
                match (buckets, groups) {
                    (Some(buckets), Some(groups))
                        if buckets * groups <= ALL_BUCKETS_MAX
                            && (1e-6..=100.0).contains(&alpha)
                            && (1e-12..=0.999).contains(&from) =>
                    {
                        Ok(Popularity::PowerLaw { alpha, from, buckets, groups })
                    }
                    _ => Err(wrong(
                        "ALPHA must be 1e-6 to 100, FROM must be 1e-12 to 0.999, BUCKETS must be a \
                         whole number up to 1048576, GROUPS must be a whole number up to 1024, and \
                         BUCKETS times GROUPS must be at most 2^23",
                    )),
                }
            }
            ("uniform" | "sequential" | "zipf" | "gaussian" | "power-law", _) => {
                Err(wrong("wrong count of numbers"))
            }
            _ => Err(wrong("no such distribution of keys")),
        }
    }

    /// Returns the path and the histogram of the file from which the popularity comes, if any.
    pub(crate) fn file(&self) -> Option<(&Path, &Histogram)> {
        if let Popularity::File(path, histogram) = self { Some((path, histogram)) } else { None }
    }

    /// Makes a table for each of `parts`, which are ranges of the `keys` keys. A law is applied
    /// within each part. A histogram is applied to all keys: the table of a part has the rows that
    /// overlap the part.
    pub(crate) fn tables(&self, parts: &[Range<u64>], keys: u64) -> Vec<Arc<Table>> {
        if let Some((_, histogram)) = self.file() {
            let weights = histogram.ordered_weights();
            return parts.iter().map(|part| Arc::new(rows_of(&weights, part, keys))).collect();
        }
        // Parts of equal length share one table.
        let mut made: HashMap<u64, Arc<Table>> = HashMap::new();
        let mut table = |keys| {
            let make = || Arc::new(self.table(keys).unwrap_or(Table::Uniform));
            Arc::clone(made.entry(keys).or_insert_with(make))
        };
        parts.iter().map(|part| table(part.end - part.start)).collect()
    }

    pub(crate) fn table(&self, keys: u64) -> Option<Table> {
        match self {
            Popularity::Uniform => Some(Table::Uniform),
            Popularity::Sequential => Some(Table::Sequential),
            Popularity::Zipf(s) => Some(Table::Zipf(Zipf::new(*s, keys)?)),
            Popularity::Gaussian { deviation, middle } => {
                Some(Table::Gaussian { deviation: *deviation, middle: *middle })
            }
            Popularity::PowerLaw { alpha, from, buckets, groups } => {
                let groups = (*groups).min(keys);
                let buckets = (*buckets).min(keys / groups.max(1)).max(1);
                let alias = Alias::new(&power_law(*alpha, *from, buckets))?;
                Some(Table::buckets(alias, buckets, groups, keys))
            }
            Popularity::File(_, histogram) => {
                let weights = histogram.ordered_weights();
                let alias = Alias::new(&weights)?;
                Some(Table::buckets(alias, weights.len() as u64, 1, keys))
            }
        }
    }
}

/// Returns the table of a part: the rows of a histogram over `keys` keys that overlap the part. Row
/// n has the same keys as bucket n of `Table::Buckets`. If all rows of the part have weight 0, its
/// keys are equally popular.
fn rows_of(weights: &[f64], part: &Range<u64>, keys: u64) -> Table {
    let rows = weights.len() as u64;
    // The product is at most 2^40 * 2^20, so it fits a u64.
    let edge = |row: u64| keys * row / rows;
    let (mut there, mut shares) = (Vec::new(), Vec::new());
    for row in part.start * rows / keys.max(1)..rows {
        let (from, to) = (edge(row), edge(row + 1).max(edge(row) + 1));
        if from >= part.end {
            break;
        }
        let within = from.max(part.start)..to.min(part.end).max(part.start);
        let weight = weights.get(usize::try_from(row).unwrap_or(0)).copied().unwrap_or(0.0);
        shares.push(weight * (within.end - within.start) as f64 / (to - from) as f64);
        there.push((within.start - part.start, within.end - part.start));
    }
    Alias::new(&shares).map_or(Table::Uniform, |alias| Table::Rows { alias, rows: there })
}

/// Returns the share of each bucket. The buckets are equal parts of the law's range, `from` to 1.
pub(crate) fn power_law(alpha: f64, from: f64, buckets: u64) -> Vec<f64> {
    let edge = |n: u64| from + (1.0 - from) * n as f64 / buckets as f64;
    let below = |x: f64| (x.powf(alpha) - from.powf(alpha)) / (1.0 - from.powf(alpha));
    (0..buckets).map(|n| (below(edge(n + 1)) - below(edge(n))).max(0.0)).collect()
}

#[derive(Clone, Debug)]
pub(crate) enum Table {
    Uniform,
    Sequential,
    Zipf(Zipf),
    Gaussian {
        deviation: f64,
        middle: f64,
    },
    /// `each` is the number of keys per bucket, which saves divisions, or 0 if buckets have
    /// different numbers of keys.
    Buckets {
        alias: Alias,
        buckets: u64,
        groups: u64,
        each: u64,
    },
    /// `rows` has, for each row, the first key and the key after the last key.
    Rows {
        alias: Alias,
        rows: Vec<(u64, u64)>,
    },
}

impl Table {
    fn buckets(alias: Alias, buckets: u64, groups: u64, keys: u64) -> Table {
        let count = buckets * groups;
        let each = if keys.is_multiple_of(count) { keys / count } else { 0 };
        Table::Buckets { alias, buckets, groups, each }
    }
}

/// The state of one thread for drawing keys.
#[derive(Clone, Debug)]
pub(crate) struct KeySampler {
    keys: u64,
    shuffle: Shuffle,
    /// The next key, if keys are drawn in ascending order.
    next: u64,
    step: u64,
}

impl KeySampler {
    /// Returns the state of thread `thread` of `threads`. If `seed` is `None`, keys are not
    /// shuffled.
    pub(crate) fn new(keys: u64, seed: Option<u64>, thread: u32, threads: u32) -> KeySampler {
        let seed = seed.map(|seed| seed_for(seed, usage::SHUFFLE));
        let shuffle = seed.map_or(Shuffle::none(keys), |seed| Shuffle::new(keys, seed));
        let step = u64::from(threads) % keys.max(1);
        KeySampler { keys, shuffle, next: u64::from(thread) % keys.max(1), step }
    }

    #[inline(always)]
    pub(crate) fn draw(&mut self, table: &Table, random: &mut Xoshiro256PlusPlus) -> u64 {
        match table {
            Table::Uniform => below(random.next_u64(), self.keys),
            _ => self.draw_by(table, random),
        }
    }

    #[inline(never)]
    fn draw_by(&mut self, table: &Table, random: &mut Xoshiro256PlusPlus) -> u64 {
        match table {
            Table::Uniform => below(random.next_u64(), self.keys),
            Table::Sequential => {
                let key = self.next;
                self.next = (key + self.step) % self.keys.max(1);
                key
            }
            Table::Zipf(zipf) => self.shuffle.at(zipf.draw(random)),
            Table::Gaussian { deviation, middle } => self.gaussian(*deviation, *middle, random),
            Table::Buckets { alias, buckets, groups, each } => {
                let group = if *groups == 1 { 0 } else { below(random.next_u64(), *groups) };
                let bucket = group * buckets + u64::from(alias.draw(random.next_u64()));
                // If the keys cannot be divided evenly, the sizes of buckets differ by one key. The
                // product is at most 2^40 * 2^23, so it fits a u64.
                let edge = |bucket| self.keys * bucket / (buckets * groups);
                let (from, to) = match each {
                    0 => (edge(bucket), edge(bucket + 1)),
                    _ => (bucket * each, bucket * each + each),
                };
                let rank = from + below(random.next_u64(), (to - from).max(1));
                self.shuffle.at(rank.min(self.keys.saturating_sub(1)))
            }
            Table::Rows { alias, rows } => {
                let row = alias.draw(random.next_u64()) as usize;
                let (from, to) = rows.get(row).copied().unwrap_or((0, self.keys));
                self.shuffle.at(from + below(random.next_u64(), (to - from).max(1)))
            }
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0 and below the number of keys, which is at most 2^40"
    )]
    fn gaussian(&self, deviation: f64, middle: f64, random: &mut Xoshiro256PlusPlus) -> u64 {
        for _ in 0..TRIES_MAX {
            let normal: f64 = StandardNormal.sample(random);
            let place = middle + deviation * normal;
            if (0.0..1.0).contains(&place) {
                return ((place * self.keys as f64) as u64).min(self.keys.saturating_sub(1));
            }
        }
        below(random.next_u64(), self.keys)
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => out.write_str("uniform"),
            Popularity::Sequential => out.write_str("sequential"),
            Popularity::Zipf(s) => write!(out, "zipf:{s}"),
            Popularity::PowerLaw { alpha, from, buckets, groups } => {
                write!(out, "power-law:{alpha},{from},{buckets},{groups}")
            }
            Popularity::Gaussian { deviation, middle } => {
                write!(out, "gaussian:{deviation},{middle}")
            }
            Popularity::File(path, _) => write!(out, "file:{}", path.display()),
        }
    }
}
