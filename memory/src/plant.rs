//! Faults that test builds plant in the code on purpose, to check that tests catch the faults.
//!
//! Where: in test builds with `--cfg plant`. The environment variable `HYPOSTYLE_PLANT` names the
//! fault. In other builds `is` always returns false, and the compiler removes the faults.
//! Invariant: each fault has the effect that its comment describes. The tests listed with a fault
//! catch the fault, and the fastest test comes first. The script `tests/plant` plants the faults.
//! It reads the tests in the format `KIND CRATE FILE FILTER`. `tests/sanitize` plants the faults
//! whose tests have the kind `address`, `thread`, `memcheck` or `miri`.
//! Source: mutation testing (DeMillo, Lipton and Sayward, 1978), with faults chosen by hand.

/// Makes `Fault` and `FAULTS` from one list. An entry consists of a comment on the fault's effect,
/// the fault's name, and the tests that catch the fault.
macro_rules! faults {
    ($($(#[doc = $breaks:literal])+ $name:ident: $($tests:literal)+,)+) => {
        /// A fault that may be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $breaks])+ $name,)+
        }

        /// All faults, by name.
        #[cfg(plant)]
        const FAULTS: &[(&str, Fault)] = &[$((stringify!($name), Fault::$name),)+];
    };
}

faults! {
    /// The head of a list of segments does not count changes, so a stalled pop corrupts the list.
    FreeTagKept: "loom memory lib segments",
    /// A retired segment is freed before all columns have passed a quiescent point.
    LimboNotWaited: "plain store pressure a_hit_in_hand",
    /// A segment is taken although fewer than `keep` free segments then remain.
    KeepOffByOne: "plain memory lib limit",
    /// A sealed segment is drained before all bytes reserved in it are committed.
    UncommittedDrained: "loom memory lib segments",
    /// A column that shortens an item's life lowers the segment's earliest exptime without a fence.
    /// A walk may then reset the earliest exptime later and still read the item's old exptime.
    ShortenedUnfenced: "loom memory lib segments",
    /// A column may read memory before other threads see that the column passed a quiescent point.
    PassUnfenced: "loom memory lib quiescence",
    /// A reader gets a reference to a chain that is free, because it has no references.
    EmptyChainHeld: "plain memory lib frames" "loom memory lib frames",
    /// If a frame is given back while its segment's hint is cleared, no column finds the frame.
    FrameHintLost: "loom memory lib frames",
    /// A lookup that found nothing does not check whether the group's version has changed.
    VersionNotCompared: "loom store lib index::tests::under_loom::a_step_hides",
    /// A lookup that found nothing, or that locked a group, does not check whether the index's
    /// width has changed and the key now belongs to another group.
    WidthNotCompared: "loom store lib index::tests::under_loom::a_group",
    /// After reading an item, a reader does not check whether the item's slot has changed.
    UnchangedNotChecked: "loom store lib index::tests::under_loom::a_copy",
    /// A reader checks the slot without a fence, so the item may be read after the check.
    UnchangedUnfenced: "loom store lib index::tests::under_loom::a_copy",
    /// The rewrite of an item in place does not set the busy bit of the item's slot.
    BusyNotSet: "loom store lib index::tests::under_loom::a_copy",
    /// An item is rewritten in place although its slot's version then wraps around.
    LastVersionRewritten: "plain store basics a_working_set",
    /// A group's version is not made odd while the group's slots move.
    VersionStaysEven: "loom store lib index::tests::under_loom::a_removal",
    /// An index line does not note that an item of the line has its slot in another line.
    SpillNotNoted: "plain store lib index",
    /// When an overflow line is given back, the lines that follow it in a chain are lost.
    ChainCut: "plain store lib index",
    /// The head of the free list of overflow lines does not count its changes.
    OverflowTagKept: "loom store lib index::overflow",
    /// The memory of lines beyond the index's width is given back while columns may read it.
    GivenBackAtOnce: "plain store lib index",
    /// The index contracts while a pass goes through the index.
    ContractedInPass: "loom store lib index::tests::under_loom::a_pass",
    /// A hit writes to an item's slot even if the slot's use counter has its maximum.
    SaturatedWritten: "shuttle store lib shared_writes",
    /// A drain drops an item that was dead before the lock was taken, but is alive under the lock.
    DrainDropsLiveItems: "plain store stress clocks",
    /// A segment is retired before the walk through the segment has reached the end.
    RetiredHalfway: "plain store basics a_working_set",
    /// An item lives one second longer than its exptime.
    ExpiryOneLate: "plain store basics items_expire",
    /// A flush takes effect one second late.
    FlushOneLate: "plain store basics flushes",
    /// The flush word is read and written in two steps, not in one atomic step.
    FlushInTwoSteps: "loom store lib log::epoch",
    /// The calendar reports a due segment one second late.
    DueOneLate: "plain store lib calendar",
    /// The calendar forgets a due second that was noted while the segment was claimed.
    DueUnannounced: "plain store lib calendar",
    /// A segment that holds live items after a pass is not marked as uncounted.
    PassForgotten: "plain store expiry what_dies_together",
    /// The latest exptime of a segment is not raised when an item's life is extended.
    LifeNotProlonged: "plain store expiry a_life_prolonged",
    /// A flushed item is moved into a segment of items stored after the flush.
    FlushedMoved: "plain store lib verdict",
    /// A verb's condition is checked before the lock is taken, but not again under the lock.
    ConditionNotRechecked: "plain store stress sums::under_each_policy::every_acknowledged_cas",
    /// `incr` does not check under the lock that the item's number has not changed.
    NumberNotCompared: "shuttle store explore with_room_for",
    /// An `append` to a value in frames does not check under the lock that the value is unchanged.
    ExtensionNotCompared: "plain store stress sums::under_each_policy::every_acknowledged_append",
    /// A column uses its own next CAS unique although the item's CAS unique is higher.
    CasBlockKept: "plain store stress sums::under_each_policy::every_acknowledged_cas",
    /// The last frame of a value stays in the chain although the frame's bytes go into the log.
    RestChained: "plain store basics a_draft",
    /// Frames of a value that was given up stay counted as arriving.
    InFlightKept: "plain store basics a_pinned",
    /// A lookup that finds an item dead does not release the item's frames.
    FramesKept: "plain store expiry frames_of",
    /// A lookup that finds an item dead does not lower the number of items.
    ItemStaysCounted: "plain store contraction what_lookups",
    /// A walk that is given up does not return its token, which is the right to drain.
    TokenKept: "plain store limit large_values",
    /// The ghost, a list of evicted items, records the wrong queue for an item.
    GhostQueueWrong: "plain store policies who_comes",
    /// The processor-specific copy of a value omits the last bytes; the portable copy does not.
    LastPieceNotCopied: "plain store lib whole_and_cut",
    /// The comparison of all tags of a line at once misses the last slot.
    LastSlotNotSeen: "plain store lib at_once_and",
    /// A chunk whose datagram was copied is returned to the kernel twice.
    ChunkReturnedTwice: "plain net lib what_another_column_steals",
    /// While a part of a value is sent in place, no reference keeps the part in memory.
    ValueSentUnheld: "plain net lib a_value_stays" "plain hypostyle network values_in_flight",
    /// A reference to a part of a value is not released after that part was sent.
    SentValueKept: "plain net lib a_value_stays",
    /// A ring receives at once into a chunk in which a value is kept.
    KeptChunkLent: "plain memory lib kept" "plain net lib what_is_kept",
    /// A kept value has only one reference, which the receiver of the value's chunk gives back.
    KeptReleasedEarly: "plain store kept a_draft_that_is_given_up",
    /// An entry is written to a full ring, and overwrites an entry that the kernel has not taken.
    FullRingOverwritten: "plain net lib what_one_end_publishes",
    /// The kernel sees a ring's entry before the entry is written.
    EntryShownEarly: "shuttle net lib under_shuttle::of_an_owner",
    /// The kernel's count of taken entries is accepted although fewer entries were written.
    TakenCountTrusted: "plain net lib counts_that_lie",
    /// The kernel's count of written entries is accepted although it exceeds the ring's size.
    WrittenCountTrusted: "plain net lib counts_that_lie",
    /// A chunk that the kernel names is accepted although it was not lent to the kernel.
    StrayTaken: "plain net lib descriptors_that_name",
    /// The first chunk of a frame is treated as the whole frame.
    HalfFrameTaken: "plain net lib frames_in_pieces",
    /// A driver that ran out of chunks is not woken when it gets chunks again.
    DriverNotWoken: "plain net lib a_driver_that_ran_out",
    /// A single call of receive examines an unlimited number of rejected frames.
    FloodTakenWhole: "plain net lib a_flood_of_what",
    /// The beginning of a frame that is longer than the maximum is returned as if it were whole.
    CutFrameTaken: "plain net lib frames_in_pieces",
    /// The chunk of a rejected frame is neither held nor lent to the kernel again.
    RefusedChunkLost: "plain net lib descriptors_that_name",
    /// The last chunk of a frame in several chunks is neither held nor lent to the kernel again.
    LastPieceLost: "plain net lib of_a_frame_in_several",
    /// The chunks of stolen datagrams are not lent to the kernel again.
    StolenChunksKept: "plain net lib what_another_column_steals",
    /// A kernel that does not report how many entries it took is called only once.
    SilentKernelCalledOnce: "plain net lib a_kernel_that_does_not_tell",
    /// Values' chunks stay held when the socket that sends them is closed.
    SentChunksKeptAtClose: "plain net lib a_port_that_is_closed",
    /// A packet with a wrong UDP checksum is accepted.
    ChecksumNotCompared: "plain net lib a_bit_that_flips",
    /// A UDP checksum that is computed as zero is sent as zero, which means no checksum.
    ZeroSumWritten: "plain net lib a_checksum_that_comes",
    /// A part that begins at an odd offset is added to the checksum as if the offset were even.
    OddPieceNotTurned: "plain net lib words_of_four_bytes",
    /// A fragment of an IPv4 packet is accepted as a whole packet.
    FragmentRead: "plain net lib what_is_not_ours_is_told",
    /// A packet is accepted although its sender and its receiver have the same address.
    SelfAnswered: "plain net lib whom_nobody",
    /// The beginning of a datagram that is longer than its slot is returned as if it were whole.
    CutDatagramShown: "plain net lib what_is_longer",
    /// The destination address of a datagram is not recorded, so the answer may be sent from
    /// another address.
    DestinationNotRecorded: "plain net lib a_socket_at_every_address",
    /// When one datagram is refused, all datagrams after it are dropped.
    RefusedStopsAll: "plain net lib what_the_system_refuses",
    /// Datagrams to several peers are joined into one run, which is sent to the first peer.
    RunOfTwoPeers: "plain net lib letters_of_many_pieces",
    /// The kernel's report that it copied bytes sent by reference is ignored.
    CopyReportIgnored: "plain net lib what_the_kernel_tells",
    /// A column steals from the first column that is behind instead of the busiest column.
    BusiestPassedOver: "plain columns lib the_busiest",
    /// A column that finds nothing to steal keeps looking and never sleeps.
    ThiefNeverRests: "plain columns lib a_thief_that_finds",
    /// A column that is behind wakes another column in each round of its loop.
    WokenTooOften: "plain columns lib a_sleeper",
    /// Two columns wake the same sleeping column.
    WokenByTwo: "shuttle columns lib each_sleeper",
    /// A column that others steal from keeps receiving as much as it can.
    HelpNotNoted: "plain columns lib a_column_receives_few",
    /// The system gets a length that is one byte too large for a piece of a datagram.
    PieceReadBeyond: "address net lib what_is_longer",
    /// A copy by processor-specific instructions continues after the last byte to copy.
    PieceCopiedBeyond: "memcheck store lib read_nothing_beyond",
    /// A copy by atomics of several sizes loads a byte after the last byte to copy.
    PieceLoadedBeyond: "miri store lib read_nothing_beyond",
    /// A counter that other threads read is written without an atomic operation.
    CounterWrittenPlainly: "thread memory lib a_counter",
    /// Several columns give connections to the same column at the same time.
    ClaimedByTwo: "plain columns lib several_saturated",
    /// The last load that a sleeping column reported is treated as the column's present load.
    OldLoadKept: "plain columns lib who_has_told_nothing",
    /// A connection moves to a column although that column then has more load than the old column.
    WholeWorkMoved: "plain columns lib a_connection_that_is_all",
    /// A saturated column gives connections away after one period instead of two.
    BurstMoved: "plain columns lib a_burst_moves",
    /// A value in frames keeps its offset in a reply although the text before the value has grown.
    PinNotMoved: "plain columns lib settled_or_not",
    /// Nobody notices that a value left the log before the value was copied.
    LossNotSeen: "plain columns lib a_value_that_was_settled_too_late",
    /// After a rest of a column, a sampled request counts as several requests instead of one.
    RestCountsMany: "plain hypostyle lib sampled_loops",
    /// Past requests for a key count as much as present requests.
    PastNotHalved: "plain hypostyle lib what_was_hot",
    /// A column looks for work to steal by columns' numbers, not by the distance of their memory.
    FarAsNear: "plain hypostyle lib the_nearest_column",
    /// An exptime of 30 days is treated as a Unix time.
    MonthAbsolute: "plain hypostyle lib exptimes_are_relative",
    /// `stats reset` leaves out a column.
    LastColumnNotReset: "plain hypostyle lib counters_of_all",
    /// The token of a closed connection finds the connection that now uses the same table entry.
    TokenNotCompared: "plain columns lib a_token_finds",
    /// A listener that is not watched for a while is treated as if it were watched.
    RestNotNoted: "plain columns lib a_listener_that_could_not",
    /// A value in frames keeps its offset although a part of the text before the value was sent.
    RestPinnedLater: "plain columns lib bytes_come_out",
    /// A turn may execute as many `stats` commands as cheaper requests.
    StatsCostOne: "plain hypostyle lib a_turn_ends_with_statistics",
    /// `flush_all` also removes items that were stored in the second that it names.
    FlushTakesItsSecond: "plain hypostyle lib flush_all_takes",
    /// Datagrams that a column has stolen from a socket are executed and answered twice.
    StolenTwice: "plain hypostyle stealing what_is_sent",
    /// A complete request is taken out in a second step. If its last datagram arrives again before
    /// that step, another column completes the request too.
    WholeTakenLater: "shuttle columns lib each_request",
    /// A dump or a count continues although another dump or count has replaced it.
    PlaceOfTwo: "shuttle hypostyle lib a_place",
    /// A column answers some requests from other columns, and is not woken for the rest.
    LaterRequestsForgotten: "shuttle hypostyle lib whoever_asks",
    /// A column that sent a request to another column is not woken for the answer.
    RequesterNotWoken: "shuttle hypostyle lib whoever_asks",
    /// When a watcher is added or removed, columns overlook the requests of other columns.
    /// When the last watcher leaves, the watcher's events stay marked as watched.
    SeatStaysWatched: "shuttle hypostyle lib who_watches",
    /// Events that a column has sent to its watchers are sent again.
    EventsSentTwice: "shuttle hypostyle lib who_watches",
}

/// Returns false, because this build plants no faults.
#[cfg(not(plant))]
#[inline(always)]
#[must_use]
pub const fn is(_: Fault) -> bool {
    false
}

/// True if `fault` is planted.
///
/// # Panics
/// The value of `HYPOSTYLE_PLANT` is not the name of a fault.
#[cfg(plant)]
#[must_use]
pub fn is(fault: Fault) -> bool {
    // The `OnceLock` is a standard one, because loom and shuttle need not explore its accesses.
    static PLANTED: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    let planted = || {
        let name = std::env::var("HYPOSTYLE_PLANT").ok()?;
        let known = FAULTS.iter().find(|(known, _)| *known == name);
        assert!(known.is_some(), "HYPOSTYLE_PLANT: there is no fault {name:?}");
        known.map(|(_, fault)| *fault)
    };
    *PLANTED.get_or_init(planted) == Some(fault)
}

/// Writes a number without an atomic operation: the race that `CounterWrittenPlainly` plants.
#[cfg(all(plant, not(any(loom, shuttle))))]
#[allow(unsafe_code, reason = "a race, for a sanitizer to report")]
pub(crate) fn write_plainly(number: &crate::sync::AtomicU64, value: u64) {
    // SAFETY: the pointer is valid and aligned. Concurrent reads are the planted fault.
    unsafe { number.as_ptr().write(value) };
}
