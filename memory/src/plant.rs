//! Faults planted on purpose, a line or two each, to see that the tests catch them.
//!
//! Where: in a build with `--cfg plant`, which is a test's; the environment variable
//! `HYPOSTYLE_PLANT` names the one that is planted in this process. In any other build `is` says
//! no, and the compiler leaves nothing of it.
//! Invariant: each fault breaks what its line here says, and is caught by the tests named behind
//! it, the soonest first: `KIND CRATE FILE FILTER`, as `tests/plant` reads them.
//! Source: mutation testing (DeMillo, Lipton and Sayward, 1978), with faults chosen by hand.

/// Each with what it breaks, and with the tests to ask first.
macro_rules! faults {
    ($($(#[doc = $breaks:literal])+ $name:ident: $($tests:literal)+,)+) => {
        /// What may be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $breaks])+ $name,)+
        }

        /// All, by name.
        #[cfg(plant)]
        const FAULTS: &[(&str, Fault)] = &[$((stringify!($name), Fault::$name),)+];
    };
}

faults! {
    /// A free list's head keeps its count: a stalled pop takes an old head for the new one.
    FreeTagKept: "loom memory lib segments",
    /// A retired segment is free before all columns have passed a quiescent point.
    LimboNotWaited: "plain store pressure a_hit_in_hand",
    /// One segment more is taken than leaves as many free as are to be kept.
    KeepOffByOne: "plain memory lib limit",
    /// A sealed segment is drained before all that was reserved in it is committed.
    UncommittedDrained: "loom memory lib segments",
    /// Who shortens a life does not wait for its store before he looks what a walk has reset.
    ShortenedUnfenced: "loom memory lib segments",
    /// A column reads on before its quiescent point is announced.
    PassUnfenced: "loom memory lib quiescence",
    /// A chain that has no reference left is held.
    EmptyChainHeld: "plain memory lib frames" "loom memory lib frames",
    /// A frame given back while the segment's hint goes out is forgotten.
    FrameHintLost: "loom memory lib frames",
    /// A lookup that missed does not compare the group's version.
    VersionNotCompared: "loom store lib index::tests::under_loom::a_step_hides",
    /// Nor, when it locks a group or missed, whether the key's address is another by now.
    WidthNotCompared: "loom store lib index::tests::under_loom::a_group",
    /// What was read is not compared with the slot afterwards.
    UnchangedNotAsked: "loom store lib index::tests::under_loom::a_copy",
    /// It is, but may be read after it.
    UnchangedUnfenced: "loom store lib index::tests::under_loom::a_copy",
    /// Rewriting in place does not say that it is under way.
    BusyNotSet: "loom store lib index::tests::under_loom::a_copy",
    /// It goes on at the last version, whose successor is the first.
    LastVersionRewritten: "plain store basics a_working_set",
    /// A group's version stays even while its slots move.
    VersionStaysEven: "loom store lib index::tests::under_loom::a_removal",
    /// A line does not tell that something at home there is elsewhere.
    SpillNotNoted: "plain store lib index",
    /// A chain of overflow lines loses what is behind a line that is given back.
    ChainCut: "plain store lib index",
    /// The overflow lines' free list keeps its count, as `FreeTagKept`.
    OverflowTagKept: "loom store lib index::overflow",
    /// The index's memory beyond its width goes back while columns may read it.
    GivenBackAtOnce: "plain store lib index",
    /// The index contracts under a pass.
    ContractedInPass: "loom store lib index::tests::under_loom::a_pass",
    /// A hit writes the slot even if nothing changes.
    SaturatedWritten: "shuttle store lib shared_writes",
    /// A drain goes on when the lock says that what it took for dead is alive.
    DrainDropsTheLiving: "plain store stress clocks",
    /// A walk ends halfway, and its segment is retired.
    RetiredHalfway: "plain store basics a_working_set",
    /// An item lives one second longer than its exptime.
    ExpiryOneLate: "plain store basics items_expire",
    /// A flush takes what was stored up to the second before.
    FlushOneLate: "plain store basics flushes",
    /// The flush word is read and written in two steps.
    FlushInTwoSteps: "loom store lib flush",
    /// The calendar has a segment due a second late.
    DueOneLate: "plain store lib calendar",
    /// What was noted of a segment while it was walked, and passed over by a look, is forgotten.
    DueUnannounced: "plain store lib calendar",
    /// A segment that a pass has left uncounted is sealed again as any other.
    PassForgotten: "plain store expiry what_dies_together",
    /// A segment is not told that one of its items lives longer than any other.
    LifeNotProlonged: "plain store expiry a_life_prolonged",
    /// What was flushed is moved among what was stored after it.
    FlushedMoved: "plain store lib verdict",
    /// A condition that held before the lock is not asked again under it.
    ConditionNotAskedAgain: "plain store stress sums::under_each_policy::every_acknowledged_cas",
    /// Nor the number that arithmetic began with.
    NumberNotCompared: "shuttle store explore with_room_for",
    /// Nor the value that an extension in frames was made from.
    ExtensionNotCompared: "plain store stress sums::under_each_policy::every_acknowledged_append",
    /// A column goes on with its CAS uniques though the item has a later one.
    CasBlockKept: "plain store stress sums::under_each_policy::every_acknowledged_cas",
    /// The frame whose bytes go into the log stays in the chain.
    RestChained: "plain store basics a_draft",
    /// Frames of a value given up count as arriving for ever.
    InFlightKept: "plain store basics a_pinned",
    /// An item that a lookup finds dead keeps its frames.
    FramesKept: "plain store expiry frames_of",
    /// It stays counted in the index.
    ItemStaysCounted: "plain store contraction what_lookups",
    /// A walk that cannot go on keeps its right to drain.
    TokenKept: "plain store limit large_values",
    /// The ghost is told the wrong queue.
    GhostMisled: "plain store policies who_comes",
}

/// Is this fault planted?
#[cfg(not(plant))]
#[inline(always)]
#[must_use]
pub const fn is(_: Fault) -> bool {
    false
}

/// Is this fault planted?
///
/// # Panics
/// `HYPOSTYLE_PLANT` names none.
#[cfg(plant)]
#[must_use]
pub fn is(fault: Fault) -> bool {
    // The standard library's: which fault is planted is no part of what loom and shuttle explore.
    static PLANTED: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    let planted = || {
        let name = std::env::var("HYPOSTYLE_PLANT").ok()?;
        let known = FAULTS.iter().find(|(known, _)| *known == name);
        assert!(known.is_some(), "HYPOSTYLE_PLANT: there is no fault {name:?}");
        known.map(|(_, fault)| *fault)
    };
    *PLANTED.get_or_init(planted) == Some(fault)
}
