//! What a request came to, as data: no protocol's words stand here.
//!
//! Where: the executor hands an `Outcome` to the request's `Form`, which has each protocol say it.
//! Invariant: one outcome is one answer in every protocol, and needs nothing but the request's form
//! to be said. Answers that show a value, a number or a statistic have functions of their own.
//! Source: memcached 1.6.45, whatever it answers.

/// What a request came to, where there is no value to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is stored and has this CAS unique.
    Stored(u64),
    /// The item is deleted.
    Deleted,
    /// The item has its new exptime.
    Touched,
    /// The command is carried out; it has no more to tell.
    Done,
    /// A no-operation is answered, and with it everything before it.
    Noop,
    /// The client ends the connection.
    Quit,
    /// All keys of a retrieval line are answered.
    KeysEnd,
    /// All statistics are shown.
    StatsEnd,
    /// The counters start from zero again.
    StatsReset,
    /// The command is not carried out.
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
    /// The value to count with is no number.
    NonNumeric,
    /// The item would be larger than `-I` allows.
    TooLarge,
    /// There is no room for a value.
    NoMemory,
    /// There is no room for a number that grew, or for what `md x` leaves.
    NoMemoryDelta,
    /// There is no room for the number that arithmetic starts with.
    NoMemoryVivify,
    /// There is no room for a request's own bytes; the connection ends.
    NoMemoryRequest,
    /// The value was not followed by its line end.
    BadChunk,
    /// An exptime is no number.
    BadExptime,
    /// What to count by is no number.
    BadDelta,
    /// A request does not have its command's form.
    BadFormat,
    /// A retrieval line has a key over 250 bytes.
    KeyTooLong,
    /// There is no such command, or none with such words.
    UnknownCommand,
    /// What came first is no request of memcached's, but one of RESP; the connection ends.
    Resp,
    /// As many connections are open as `-c` allows.
    TooManyConnections,
    /// The reply would be longer than one over UDP may be.
    ReplyTooLong,
    /// A request in several datagrams is longer than one may be.
    MessageTooLong,
    /// The requests before this one were all that one message may ask for.
    MessageSpent,
    /// The answer takes several turns, which a message does not have.
    ConnectionOnly,
    /// Operators are not obeyed over datagrams.
    OperatorOnly,
    /// `flush_all` is switched off (`-F`).
    FlushOff,
    /// There are no such statistics.
    StatsUnknown,
    /// `stats detail` is switched off (`-X`).
    StatsDetailOff,
    /// The prefixes of `stats detail dump` are more than one binary answer may hold.
    StatsDetailTooLong,
    /// `stats detail` does not know how.
    StatsDetailUsage,
    /// `stats cachedump` is switched off (`-X`).
    StatsCachedumpOff,
    /// `stats cachedump` lacks words.
    StatsCachedumpWords,
    /// `stats cachedump` is asked for a slab class that cannot be.
    StatsCachedumpClass,
    /// A meta flag has an unknown letter.
    FlagInvalid,
    /// A meta flag is there twice.
    FlagDuplicate,
    /// `ma` says so of all that is wrong with its flags.
    FlagArithmetic,
    /// There are too many meta flags.
    FlagsTooLong,
    /// What stands for a meta flag's number is no number.
    FlagToken,
    /// The key of a request with meta flag `b` is not base64.
    KeyEncoding,
    /// Meta flag `O` is over 32 bytes.
    OpaqueTooLong,
    /// `ms` has no mode of this letter (`M`).
    ModeSet,
    /// `ma` has no mode of this letter (`M`).
    ModeArithmetic,
    /// What `ma` is to start with (`J`) is no number.
    BadInitial,
    /// What `ma` is to count by (`D`) is no number.
    BadMetaDelta,
    /// `shutdown` is switched off.
    ShutdownOff,
    /// `shutdown` knows no such way.
    ShutdownMode,
    /// `watch` is switched off.
    WatchOff,
    /// As many connections watch as may.
    WatchTooMany,
    /// Slabs are not reassigned here.
    SlabsOff,
    /// There are no such slab classes to reassign.
    SlabsClass,
    /// The slab class to reassign from has none to spare.
    SlabsNoSpare,
    /// Slabs are reassigned to the class that has them.
    SlabsSame,
    /// The window of `slabs automove` is too short or too long.
    AutomoveWindow,
    /// `lru tune` gives two parts more than all may have.
    LruPercent,
    /// `lru tune` has a factor that is not above 0.
    LruFactor,
    /// The crawler is switched off.
    CrawlerOff,
    /// As many dumps are under way as may be.
    CrawlerBusy,
    /// There is no such slab class to crawl.
    CrawlerClass,
    /// No slab class is to be crawled.
    CrawlerIdle,
    /// The crawler cannot crawl what it is asked to.
    CrawlerUnable,
    /// `lru_crawler metadump` is switched off (`-X`).
    MetadumpOff,
    /// `lru_crawler mgdump` is switched off (`-X`).
    MgdumpOff,
    /// The crawler cannot be started.
    CrawlerStart,
    /// The crawler's pause would be too long.
    CrawlerSleep,
    /// The limit of memory would be too small.
    LimitTooSmall,
    /// The limit of memory is so large that it was meant in bytes, and is in megabytes.
    LimitInBytes,
    /// The store cannot have this limit of memory.
    LimitOutOfBounds,
}
