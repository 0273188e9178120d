//! Reads the words of operators' commands the way memcached does, including its mistakes.
//!
//! Where: the executor calls `read` for a `Request::Operator`. The parser does not call `read`,
//! because the errors of a command depend on the features that are switched on.
//! Invariant: the result depends on one command's words alone, not on any state. `read` checks a
//! setting that has no effect in this server as memcached does, and returns `Control::Nothing`.
//! Source: memcached 1.6.45 `process_slabs_command`, `process_lru_command`,
//! `process_lru_crawler_command`, `process_memlimit_command`, `process_shutdown_command`,
//! `process_extstore_command`, `process_watch_command`.

use crate::command::Operator;
use crate::number;
use crate::outcome::Refusal;
use crate::request::Args;

const SLEEP_US_MAX: u32 = 1_000_000;

/// Number of slab classes that memcached has.
pub const SLAB_CLASSES: u32 = 64;

const FRACTION_BYTES_MAX: usize = 31;

/// Shortest and longest window of `slabs automove`, in seconds.
const WINDOW_MIN: u32 = 3;
const WINDOW_MAX: u32 = 1800;

/// Largest sum of the two percentages that `lru tune` sets.
const LRU_PERCENT_MAX: u32 = 80;

/// Settings of external storage that take a whole number.
const STORAGE_NUMBERS: [&[u8]; 8] = [
    b"item_size",
    b"item_age",
    b"low_ttl",
    b"recache_rate",
    b"compact_under",
    b"drop_under",
    b"max_sleep",
    b"drop_unread",
];

/// The action that an operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Nothing: the setting has no effect in this server.
    Nothing,
    /// Sets the memory limit, in megabytes.
    LimitMemory(u32),
    /// Allows the crawler to run if true, or forbids the crawler if false.
    Crawler(bool),
    /// Removes expired items; `None` if the command names a class that cannot exist.
    Crawl(Option<Classes>),
    /// Lists all items; `None` if the command names a class that cannot exist.
    Dump(Listing, Option<Classes>),
    /// Moves a page from one slab class to another; `None` if the words are not numbers.
    Reassign(Option<(i32, i32)>),
    /// Stops the server; `None` if the way to stop is unknown.
    Shutdown(Option<Shutdown>),
    /// Sends events to this connection.
    Watch(Streams),
}

/// The form in which a dump shows an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The item's metadata (`metadump`).
    Metadata,
    /// A request for the item (`mgdump`).
    Requests,
}

/// The items that a command applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classes {
    /// All items, class by class.
    All,
    /// All items, in the order of the hash table.
    Hash,
    /// The items of the listed slab classes. True if the list has class 1, which has all items.
    Listed(bool),
}

/// The way in which a server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Immediately.
    Now,
    /// Gracefully, as on the signal USR1.
    Gracefully,
}

/// Kinds of events, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams(pub u32);

impl Streams {
    /// Every command that a connection sends.
    pub const RAWCMDS: Streams = Streams(1);
    /// Items evicted to make room.
    pub const EVICTIONS: Streams = Streams(1 << 1);
    /// Lookups.
    pub const FETCHERS: Streams = Streams(1 << 2);
    /// Values stored.
    pub const MUTATIONS: Streams = Streams(1 << 3);
    /// Events of the server itself.
    pub const SYSEVENTS: Streams = Streams(1 << 4);
    /// Connections opened and closed.
    pub const CONNEVENTS: Streams = Streams(1 << 5);
    /// Events of proxies, which this server never has.
    pub const PROXY: Streams = Streams(1 << 6);
    /// Items deleted.
    pub const DELETIONS: Streams = Streams(1 << 7);

    /// Returns the kinds in `self` or `other`.
    #[must_use]
    pub fn with(self, other: Streams) -> Streams {
        Streams(self.0 | other.0)
    }

    /// Returns the kinds in `self` that are not in `other`.
    #[must_use]
    pub fn without(self, other: Streams) -> Streams {
        Streams(self.0 & !other.0)
    }

    /// True if `self` and `other` have a kind in common.
    #[inline]
    #[must_use]
    pub fn intersects(self, other: Streams) -> bool {
        self.0 & other.0 != 0
    }
}

/// Names that can be watched, in the order in which memcached compares a given prefix with them.
const WATCHABLE: [(&[u8], Streams); 10] = [
    (b"rawcmds", Streams::RAWCMDS),
    (b"evictions", Streams::EVICTIONS),
    (b"fetchers", Streams::FETCHERS),
    (b"mutations", Streams::MUTATIONS),
    (b"sysevents", Streams::SYSEVENTS),
    (b"connevents", Streams::CONNEVENTS),
    (b"proxyreqs", Streams::PROXY),
    (b"proxyevents", Streams::PROXY),
    (b"proxyuser", Streams::PROXY),
    (b"deletions", Streams::DELETIONS),
];

/// Returns the action that `operator` requests with `args`. Fails if the words are wrong.
/// The caller checks if the feature is switched on.
pub fn read(operator: Operator, args: Args<'_>) -> Result<Control, Refusal> {
    match operator {
        Operator::CacheMemlimit => {
            unsigned(args, 0).map(Control::LimitMemory).ok_or(Refusal::UnknownCommand)
        }
        Operator::LruCrawler => lru_crawler(args),
        Operator::Lru => lru(args),
        Operator::Slabs => slabs(args),
        Operator::Shutdown => Ok(Control::Shutdown(match (args.count(), args.token(0)) {
            (0, _) => Some(Shutdown::Now),
            (1, Some(b"graceful")) => Some(Shutdown::Gracefully),
            _ => None,
        })),
        Operator::Extstore if is_storage_setting(args) => Ok(Control::Nothing),
        Operator::Extstore => Err(Refusal::UnknownCommand),
        Operator::Watch => watch(args),
    }
}

fn watch(args: Args<'_>) -> Result<Control, Refusal> {
    if args.count() == 0 {
        return Ok(Control::Watch(Streams::FETCHERS));
    }
    let mut streams = Streams::default();
    for token in args.tokens() {
        let known = WATCHABLE.iter().find(|(name, _)| name.starts_with(token));
        streams = streams.with(known.ok_or(Refusal::UnknownCommand)?.1);
    }
    Ok(Control::Watch(streams))
}

/// True if the first token is a prefix of `name`: memcached accepts abbreviated words.
fn begins(args: Args<'_>, name: &[u8]) -> bool {
    args.token(0).is_some_and(|token| name.starts_with(token))
}

fn unsigned(args: Args<'_>, at: usize) -> Option<u32> {
    args.token(at).and_then(number::strict_u32)
}

fn signed(args: Args<'_>, at: usize) -> Option<i32> {
    args.token(at).and_then(number::strict_i32)
}

/// Reads a number that may have a fraction. Unlike memcached, refuses infinity, NaN and hex.
fn fraction(args: Args<'_>, at: usize) -> Option<f64> {
    let text = args.token(at).filter(|text| text.len() <= FRACTION_BYTES_MAX)?;
    std::str::from_utf8(text).ok()?.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// True if `args` are a setting of external storage and a value that memcached would accept.
fn is_storage_setting(args: Args<'_>) -> bool {
    if args.count() > 2 && begins(args, b"free_memchunks") {
        return unsigned(args, 1).is_some_and(|class| class < SLAB_CLASSES)
            && unsigned(args, 2).is_some();
    }
    if STORAGE_NUMBERS.iter().any(|name| begins(args, name)) {
        return unsigned(args, 1).is_some();
    }
    begins(args, b"max_frag") && fraction(args, 1).is_some()
}

fn lru_crawler(args: Args<'_>) -> Result<Control, Refusal> {
    match args.count() {
        2 if begins(args, b"crawl") => Ok(Control::Crawl(classes(args))),
        2 if begins(args, b"metadump") => Ok(Control::Dump(Listing::Metadata, classes(args))),
        2 if begins(args, b"mgdump") => Ok(Control::Dump(Listing::Requests, classes(args))),
        2 if begins(args, b"tocrawl") => {
            unsigned(args, 1).map(|_| Control::Nothing).ok_or(Refusal::BadFormat)
        }
        2 if begins(args, b"sleep") => match unsigned(args, 1) {
            None => Err(Refusal::BadFormat),
            Some(pause_us) if pause_us > SLEEP_US_MAX => Err(Refusal::CrawlerSleep),
            Some(_) => Ok(Control::Nothing),
        },
        1 if begins(args, b"enable") => Ok(Control::Crawler(true)),
        1 if begins(args, b"disable") => Ok(Control::Crawler(false)),
        _ => Err(Refusal::UnknownCommand),
    }
}

/// Returns the classes that the second word names; `None` if one of them cannot exist.
fn classes(args: Args<'_>) -> Option<Classes> {
    let word = args.token(1)?;
    match word {
        b"all" => return Some(Classes::All),
        b"hash" => return Some(Classes::Hash),
        _ => {}
    }
    let mut first = false;
    for number in word.split(|&byte| byte == b',').filter(|number| !number.is_empty()) {
        let class = number::strict_u32(number).filter(|class| (1..SLAB_CLASSES).contains(class))?;
        first |= class == 1;
    }
    Some(Classes::Listed(first))
}

fn lru(args: Args<'_>) -> Result<Control, Refusal> {
    if args.count() >= 5 && begins(args, b"tune") {
        let tuned = (unsigned(args, 1), unsigned(args, 2), fraction(args, 3), fraction(args, 4));
        let (Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)) = tuned else {
            return Err(Refusal::UnknownCommand);
        };
        return match (hot.wrapping_add(warm), hot_factor.min(warm_factor)) {
            (percent, _) if percent > LRU_PERCENT_MAX => Err(Refusal::LruPercent),
            (_, factor) if factor <= 0.0 => Err(Refusal::LruFactor),
            _ => Ok(Control::Nothing),
        };
    }
    let is_known = args.count() >= 2
        && ((begins(args, b"mode") && matches!(args.token(1), Some(b"flat" | b"segmented")))
            || (begins(args, b"temp_ttl") && signed(args, 1).is_some()));
    if is_known { Ok(Control::Nothing) } else { Err(Refusal::UnknownCommand) }
}

fn slabs(args: Args<'_>) -> Result<Control, Refusal> {
    if args.count() == 3 && begins(args, b"reassign") {
        return Ok(Control::Reassign(signed(args, 1).zip(signed(args, 2))));
    }
    if args.count() < 2 || !begins(args, b"automove") {
        return Err(Refusal::UnknownCommand);
    }
    let what = args.token(1).unwrap_or_default();
    let is_part = b"ratio".starts_with(what) || b"freeratio".starts_with(what);
    let refusal = match unsigned(args, 1) {
        _ if is_part && args.count() > 2 && fraction(args, 2).is_some() => None,
        _ if is_part => Some(Refusal::UnknownCommand),
        _ if b"window".starts_with(what) => match unsigned(args, 2) {
            None => Some(Refusal::BadFormat),
            Some(WINDOW_MIN..=WINDOW_MAX) => None,
            Some(_) => Some(Refusal::AutomoveWindow),
        },
        None => Some(Refusal::BadFormat),
        Some(0..=2) => None,
        Some(_) => Some(Refusal::UnknownCommand),
    };
    refusal.map_or(Ok(Control::Nothing), Err)
}
