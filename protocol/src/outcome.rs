//! The result of a request, before a protocol formats it.
//!
//! Where: the executor gives an `Outcome` to the request's `Form`, whose protocol writes it.
//! Invariant: each outcome has one answer in every protocol, and writing the answer needs only the
//! request's form. Answers that show a value, a number or a statistic have functions of their own.
//! Source: the answers of memcached 1.6.45.

/// The result of a request that shows no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is stored and has this CAS unique.
    Stored(u64),
    /// The item is deleted.
    Deleted,
    /// The item has its new exptime.
    Touched,
    /// The command is carried out, and its answer shows nothing else.
    Done,
    /// A no-operation. Its answer also shows that all requests before it are answered.
    Noop,
    /// The client ends the connection.
    Quit,
    /// All keys of a retrieval line are answered.
    KeysEnd,
    /// All statistics are shown.
    StatsEnd,
    /// The counters start from zero again.
    StatsReset,
    /// The command was not carried out.
    Refused(Refusal),
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The verb's condition does not hold.
    NotStored,
    /// The item has another CAS unique.
    Exists,
    /// There is no such key.
    NotFound,
    /// The value to increment or decrement is not a number.
    NonNumeric,
    /// The item would be larger than `-I` allows.
    TooLarge,
    /// There is no room for a value.
    NoMemory,
    /// There is no room for a number with more digits, or for the empty item that `md x` leaves.
    NoMemoryDelta,
    /// There is no room for the initial number of an increment or decrement.
    NoMemoryVivify,
    /// There is no room for the bytes of a request; the connection closes.
    NoMemoryRequest,
    /// No line end follows the value.
    BadChunk,
    /// An exptime is not a number.
    BadExptime,
    /// The delta of `incr` or `decr` is not a number.
    BadDelta,
    /// A request does not have its command's form.
    BadFormat,
    /// A retrieval line has a key over 250 bytes.
    KeyTooLong,
    /// There is no such command, or the command does not accept these words.
    UnknownCommand,
    /// The connection's first byte begins a request in RESP; the connection closes.
    Resp,
    /// The number of open connections has reached `-c`.
    TooManyConnections,
    /// The reply would be longer than a reply over UDP may be.
    ReplyTooLong,
    /// A request in several datagrams is longer than such a request may be.
    MessageTooLong,
    /// The requests before this one have used up the limit of requests and keys for one message.
    MessageSpent,
    /// The answer takes several turns, and a message over UDP gets only one.
    ConnectionOnly,
    /// Commands for operators are not accepted in datagrams (without `-o udp_admin`).
    OperatorOnly,
    /// `flush_all` is switched off (`-F`).
    FlushOff,
    /// There are no such statistics.
    StatsUnknown,
    /// `stats detail` is switched off (`-X`).
    StatsDetailOff,
    /// The prefixes of `stats detail dump` do not fit into one binary answer.
    StatsDetailTooLong,
    /// `stats detail` has an unknown argument.
    StatsDetailUsage,
    /// `stats cachedump` is switched off (`-X`).
    StatsCachedumpOff,
    /// `stats cachedump` has too few arguments.
    StatsCachedumpWords,
    /// `stats cachedump` names a slab class that memcached could not have.
    StatsCachedumpClass,
    /// A meta flag has an unknown letter.
    FlagInvalid,
    /// A meta flag occurs twice.
    FlagDuplicate,
    /// The flags of `ma` are wrong; `ma` gives this answer to every mistake in them.
    FlagArithmetic,
    /// There are too many meta flags.
    FlagsTooLong,
    /// The token of a meta flag that takes a number is not a number.
    FlagToken,
    /// The key of a request with meta flag `b` is not valid base64.
    KeyEncoding,
    /// The opaque token of meta flag `O` is longer than 32 bytes.
    OpaqueTooLong,
    /// The letter of flag `M` names no mode of `ms`.
    ModeSet,
    /// The letter of flag `M` names no mode of `ma`.
    ModeArithmetic,
    /// The initial number of `ma` (`J`) is not a number.
    BadInitial,
    /// The delta of `ma` (`D`) is not a number.
    BadMetaDelta,
    /// `shutdown` is switched off.
    ShutdownOff,
    /// `shutdown` has an unknown argument.
    ShutdownMode,
    /// `watch` is switched off.
    WatchOff,
    /// The number of watching connections has reached its maximum.
    WatchTooMany,
    /// Slabs are not reassigned here.
    SlabsOff,
    /// The slab classes to reassign between do not exist.
    SlabsClass,
    /// The slab class to reassign from has no page to spare.
    SlabsNoSpare,
    /// The slab classes to reassign between are the same.
    SlabsSame,
    /// The window of `slabs automove` is too short or too long.
    AutomoveWindow,
    /// The sum of the two percentages of `lru tune` is too large.
    LruPercent,
    /// `lru tune` has a factor that is not above 0.
    LruFactor,
    /// The crawler is switched off.
    CrawlerOff,
    /// The number of dumps under way has reached its maximum.
    CrawlerBusy,
    /// There is no such slab class to crawl.
    CrawlerClass,
    /// The arguments name no slab class to crawl.
    CrawlerIdle,
    /// The crawler cannot carry out the request.
    CrawlerUnable,
    /// `lru_crawler metadump` is switched off (`-X`).
    MetadumpOff,
    /// `lru_crawler mgdump` is switched off (`-X`).
    MgdumpOff,
    /// The crawler cannot be started.
    CrawlerStart,
    /// The crawler's pause would be too long.
    CrawlerSleep,
    /// The memory limit would be too small.
    LimitTooSmall,
    /// The memory limit is so large that it was probably meant in bytes; its unit is megabytes.
    LimitInBytes,
    /// The store cannot have this memory limit.
    LimitOutOfBounds,
}
