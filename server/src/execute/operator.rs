//! Commands for operators: the limit of memory; and those whose features are not there, answered as
//! memcached does where the feature is off, and mistakes as memcached answers mistakes.
//!
//! Where: called by `execute`.
//! Invariant: nothing that does nothing is answered `OK`, but what memcached too would only note
//! for a feature that is off.
//! Source: memcached 1.6.45 `process_slabs_command`, `process_lru_command`,
//! `process_lru_crawler_command`, `process_memlimit_command`, `process_shutdown_command`,
//! `process_extstore_command`, `process_watch_command`.

use protocol::{Args, Operator, answer, number};
use store::OutOfBounds;

use super::{Context, say};
use crate::out::Out;

/// Smallest and largest `cache_memlimit`, in MiB.
const MEMLIMIT_MIN: u32 = 8;
const MEMLIMIT_MAX: u32 = 1_000_000_000;

/// Longest pause of the crawler, in microseconds.
const SLEEP_US_MAX: u32 = 1_000_000;

/// What there is to watch.
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

/// Obeys `operator` with `args`, where it may; the answer.
pub(super) fn answer(context: &mut Context, operator: Operator, args: Args<'_>) -> &'static str {
    match operator {
        Operator::Shutdown => "SERVER_ERROR: shutdown not enabled\r\n",
        Operator::Slabs => slabs(args),
        Operator::CacheMemlimit => cache_memlimit(context, args),
        Operator::LruCrawler => lru_crawler(args),
        Operator::Lru | Operator::Extstore => answer::ERROR,
    }
}

/// `watch`: nobody may.
pub(super) fn watch(args: Args<'_>, out: &mut Out) {
    let known = args.tokens().all(|token| WATCHABLE.iter().any(|name| name.starts_with(token)));
    let refused = "CLIENT_ERROR watch commands not allowed\r\n";
    say(out, if known { refused } else { answer::ERROR });
}

/// As in memcached, the beginning of a word is enough.
fn word(args: Args<'_>, name: &[u8]) -> bool {
    args.token(0).is_some_and(|token| name.starts_with(token))
}

fn slabs(args: Args<'_>) -> &'static str {
    if args.count == 3 && word(args, b"reassign") {
        return "CLIENT_ERROR slab reassignment disabled\r\n";
    }
    answer::ERROR
}

/// Only the limit is set here: the store comes to it by and by.
fn cache_memlimit(context: &mut Context, args: Args<'_>) -> &'static str {
    match args.token(0).and_then(number::strict_u32) {
        None => answer::ERROR,
        Some(megabytes) if megabytes < MEMLIMIT_MIN => {
            "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        }
        Some(megabytes) if megabytes > MEMLIMIT_MAX => {
            "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
        }
        Some(megabytes) => match context.store.limit_memory((megabytes as usize) << 20) {
            Ok(()) => {
                log::info!("maxbytes adjusted to {megabytes}m");
                answer::OK
            }
            Err(OutOfBounds) => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        },
    }
}

fn lru_crawler(args: Args<'_>) -> &'static str {
    let value = args.token(1).and_then(number::strict_u32);
    match args.count {
        2 if [&b"crawl"[..], b"metadump", b"mgdump"].iter().any(|name| word(args, name)) => {
            "CLIENT_ERROR lru crawler disabled\r\n"
        }
        2 if word(args, b"tocrawl") => value.map_or(answer::BAD_FORMAT, |_| answer::OK),
        2 if word(args, b"sleep") => match value {
            None => answer::BAD_FORMAT,
            Some(pause) if pause > SLEEP_US_MAX => {
                "CLIENT_ERROR sleep must be one second or less\r\n"
            }
            Some(_) => answer::OK,
        },
        1 if word(args, b"enable") => "ERROR failed to start lru crawler thread\r\n",
        1 if word(args, b"disable") => answer::OK,
        _ => answer::ERROR,
    }
}
