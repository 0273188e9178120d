//! Commands for operators. Most are of features that this server does not have, and are answered as
//! memcached answers them where the feature is switched off; mistakes too as memcached does.
//!
//! Where: called by the line parser.
//! Invariant: a command for a feature that is not there is never answered `OK`, apart from settings
//! of the crawler and of external storage, which memcached too accepts while it has neither.
//! Source: memcached 1.6.45 `process_slabs_command`, `process_lru_command`,
//! `process_lru_crawler_command`, `process_memlimit_command`, `process_shutdown_command`,
//! `process_extstore_command`, `process_watch_command`.

use crate::command::Operator;
use crate::form::{Answer, Form};
use crate::number;
use crate::outcome::{Outcome, Refusal};
use crate::request::{Args, Request};

/// Longest pause of the crawler, in microseconds.
const SLEEP_US_MAX: u32 = 1_000_000;

/// Slab classes of memcached, for a setting that it accepts and ignores.
const SLAB_CLASSES: u32 = 64;

/// Longest number with a fraction.
const FRACTION_BYTES_MAX: usize = 31;

/// Settings of external storage that are whole numbers.
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

/// What can be watched.
const WATCHABLE: [&[u8]; 10] = [
    b"rawcmds",
    b"evictions",
    b"fetchers",
    b"mutations",
    b"sysevents",
    b"connevents",
    b"proxyreqs",
    b"proxyevents",
    b"proxyuser",
    b"deletions",
];

/// What `operator` with `args` asks for.
pub(crate) fn request<'a>(operator: Operator, args: Args<'_>, form: Form) -> Request<'a> {
    let refusal = match operator {
        Operator::CacheMemlimit => match args.token(0).and_then(number::strict_u32) {
            Some(megabytes) => return Request::LimitMemory { megabytes, form },
            None => Refusal::UnknownCommand,
        },
        Operator::LruCrawler => match lru_crawler(args) {
            Ok(()) => return Request::Answer(Answer { form, outcome: Outcome::Done }),
            Err(refusal) => refusal,
        },
        Operator::Slabs if args.count == 3 && begins(args, b"reassign") => Refusal::SlabsOff,
        Operator::Shutdown => Refusal::ShutdownOff,
        Operator::Extstore if is_storage_setting(args) => {
            return Request::Answer(Answer { form, outcome: Outcome::Done });
        }
        Operator::Slabs | Operator::Lru | Operator::Extstore => Refusal::UnknownCommand,
    };
    Request::Answer(form.refused(refusal))
}

/// `watch`, which is refused to every client.
pub(crate) fn watch<'a>(args: Args<'_>) -> Request<'a> {
    let known = args.tokens().all(|token| WATCHABLE.iter().any(|name| name.starts_with(token)));
    let refusal = if known { Refusal::WatchOff } else { Refusal::UnknownCommand };
    Request::Answer(Form::LINE.refused(refusal))
}

/// As in memcached, the beginning of a word is enough.
fn begins(args: Args<'_>, name: &[u8]) -> bool {
    args.token(0).is_some_and(|token| name.starts_with(token))
}

/// Is it a setting of external storage, with a value that memcached would accept? Of its ways to
/// write a number with a fraction, infinity, NaN and hexadecimal are not accepted here.
fn is_storage_setting(args: Args<'_>) -> bool {
    let number = |at| args.token(at).and_then(number::strict_u32);
    if args.count > 2 && begins(args, b"free_memchunks") {
        return number(1).is_some_and(|class| class < SLAB_CLASSES) && number(2).is_some();
    }
    if STORAGE_NUMBERS.iter().any(|name| begins(args, name)) {
        return number(1).is_some();
    }
    let fraction = args.token(1).filter(|text| text.len() <= FRACTION_BYTES_MAX);
    let fraction = fraction.and_then(|text| std::str::from_utf8(text).ok()?.parse::<f64>().ok());
    begins(args, b"max_frag") && fraction.is_some_and(f64::is_finite)
}

fn lru_crawler(args: Args<'_>) -> Result<(), Refusal> {
    let value = args.token(1).and_then(number::strict_u32);
    match args.count {
        2 if [&b"crawl"[..], b"metadump", b"mgdump"].iter().any(|name| begins(args, name)) => {
            Err(Refusal::CrawlerOff)
        }
        2 if begins(args, b"tocrawl") => value.map(|_| ()).ok_or(Refusal::BadFormat),
        2 if begins(args, b"sleep") => match value {
            None => Err(Refusal::BadFormat),
            Some(pause_us) if pause_us > SLEEP_US_MAX => Err(Refusal::CrawlerSleep),
            Some(_) => Ok(()),
        },
        1 if begins(args, b"enable") => Err(Refusal::CrawlerStart),
        1 if begins(args, b"disable") => Ok(()),
        _ => Err(Refusal::UnknownCommand),
    }
}
