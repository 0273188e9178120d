//! The work between requests that columns share: tokens, parked walks, harvest and aging.
//!
//! Where: a column's `Room` takes a token for each walk, and parks the walk before it sleeps.
//! Invariant: a walk holds one token from its begin to its end, also while it is parked.
//! Source: none.

use super::drain::Drain;
use crate::shared::Shared;
use crate::upkeep::aging::Aging;
use crate::upkeep::harvest::Harvest;
use memory::sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Chores {
    /// Bit `n` is 1 while a column uses the drain token `n`.
    pub(crate) tokens: CachePadded<AtomicU64>,
    /// Unfinished drains of columns whose threads sleep.
    pub(crate) parked: Mutex<Vec<Drain>>,
    pub(crate) harvest: Harvest,
    pub(crate) expires_unasked: AtomicBool,
    pub(crate) aging: Aging,
}

impl Chores {
    pub(crate) fn new(shared: &Shared) -> Self {
        let memory = shared.memory();
        let segment_log = memory.region.segment_bytes().ilog2();
        Self {
            tokens: CachePadded(AtomicU64::new(0)),
            parked: Mutex::new(Vec::with_capacity(shared.limit.tokens_most as usize)),
            harvest: Harvest::new(memory.segments.count_max(), segment_log),
            expires_unasked: AtomicBool::new(true),
            aging: Aging::new(shared.config.now),
        }
    }

    /// True if memory may become free soon: there are retired segments, walks, a pass through the
    /// index or gathered segments. Relaxed: hints suffice, as an append retries after `Later`.
    pub(crate) fn make_room(&self, shared: &Shared) -> bool {
        shared.memory().segments.limbo() > 0
            || self.tokens.load(Ordering::Relaxed) != 0
            || shared.index.is_passing()
            || !self.harvest.is_empty()
    }

    pub(super) fn take_token(&self, shared: &Shared) -> Option<u32> {
        let free = |taken: u64| {
            let token = (!taken).trailing_zeros();
            (token < shared.tokens_max()).then(|| taken | (1 << token))
        };
        // Acquire pairs with the Release in `give_token`, so the last holder's stores are visible.
        let old = self.tokens.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
        Some((!old).trailing_zeros())
    }

    pub(super) fn give_token(&self, shared: &Shared, token: u32) {
        fence(Ordering::SeqCst); // pairs with the fence in `set_limit`
        if token >= shared.tokens_max() {
            shared.log.seal_outs(token as usize);
        }
        self.tokens.fetch_and(!(1 << token), Ordering::Release); // pairs with `take_token`
    }
}
