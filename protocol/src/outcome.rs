//! The result of a request, before a protocol formats it.
//!
//! Where: the executor passes an `Outcome` to the request's `Form`, which writes the answer.
//! Invariant: an outcome and a form determine the answer. Other functions write the answers that
//! show a value, a number or a statistic.
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
    /// The command is carried out, and the answer says nothing else.
    Done,
    /// A no-operation is done. Its answer shows that all earlier requests are answered.
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
    /// `add` found an item, or another storage command found none.
    NotStored,
    /// The item has another CAS unique.
    Exists,
    /// No item has the requested key.
    NotFound,
    /// The value to increment or decrement is not a number.
    NonNumeric,
    /// The item would be larger than `-I` allows.
    TooLarge,
    /// There is no room for a value.
    NoMemory,
    /// There is no room for a longer number, or for the empty item that `md x` leaves.
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
    /// No command has the given name, or the command does not accept the request's words.
    UnknownCommand,
    /// The connection's first byte begins a request in RESP; the connection closes.
    Resp,
    /// The number of open connections has reached `-c`.
    TooManyConnections,
    /// The reply would be longer than a reply over UDP may be.
    ReplyTooLong,
    /// A request in several datagrams is longer than the limit for such requests.
    MessageTooLong,
    /// The earlier requests of a UDP message have used up the message's limit of requests and keys.
    MessageSpent,
    /// The answer needs several rounds of the server's loop, but a UDP message gets only one.
    ConnectionOnly,
    /// Commands for operators are not accepted in datagrams (without `-o udp_admin`).
    OperatorOnly,
    /// `flush_all` is switched off (`-F`).
    FlushOff,
    /// No statistics have the requested name.
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
    /// The server does not reassign slabs.
    SlabsOff,
    /// `slabs reassign` names a slab class that does not exist.
    SlabsClass,
    /// The class from which `slabs reassign` would take a page has no free page.
    SlabsNoSpare,
    /// `slabs reassign` names the same slab class twice.
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
    /// `lru_crawler` names a slab class that does not exist.
    CrawlerClass,
    /// The crawler cannot carry out the request.
    CrawlerUnable,
    /// `lru_crawler metadump` is switched off (`-X`).
    MetadumpOff,
    /// `lru_crawler mgdump` is switched off (`-X`).
    MgdumpOff,
    /// The crawler cannot be started.
    CrawlerStart,
    /// The pause that `lru_crawler sleep` sets is too long.
    CrawlerSleep,
    /// The memory limit that `cache_memlimit` sets is too small.
    LimitTooSmall,
    /// The memory limit is huge: the operator probably gave bytes, but the unit is megabytes.
    LimitInBytes,
    /// The store cannot have this memory limit.
    LimitOutOfBounds,
}
