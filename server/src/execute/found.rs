//! Gives the protocols the properties of a found item, from which they write the answer.
//!
//! Where: after a lookup has found an item, and before the answer is written.
//! Invariant: without the item's lock, a property is returned only if no other column can change it
//! during the lookup.
//! Source: memcached 1.6.45 `process_mget_cmd`.

use protocol::meta::Flags;
use protocol::show::FoundItem;
use store::{Head, Hit, MetaHit};

use crate::clock::Clock;

/// A hit of a lookup that holds no lock.
pub(super) struct UnlockedItem<'a, 's>(pub(super) &'a Head<'s>);

impl FoundItem for UnlockedItem<'_, '_> {
    #[inline(always)]
    fn client_flags(&self) -> u32 {
        self.0.client_flags()
    }
    #[inline(always)]
    fn value_bytes(&self) -> u32 {
        self.0.value_bytes()
    }
    #[inline(always)]
    fn cas(&self) -> u64 {
        self.0.cas()
    }
    #[inline(always)]
    fn key_binary(&self) -> bool {
        self.0.key_binary()
    }
    #[inline(always)]
    fn exptime(&self) -> Option<u32> {
        self.0.exptime()
    }
    #[inline(always)]
    fn idle_seconds(&self) -> Option<u32> {
        self.0.idle_seconds()
    }
    #[inline(always)]
    fn fetched(&self) -> Option<bool> {
        self.0.fetched().then_some(true)
    }
    #[inline(always)]
    fn token_sent(&self) -> bool {
        self.0.token_sent()
    }
    #[inline(always)]
    fn stale(&self) -> bool {
        self.0.stale()
    }
    #[inline(always)]
    fn won(&self) -> Option<bool> {
        // The first client that retrieves a stale item wins; a win is recorded under the lock.
        (!self.0.stale() || self.0.token_sent()).then_some(false)
    }
}

/// An item that `gat` found. Its exptime was set under the item's lock.
pub(super) struct TouchedItem<'a, 's>(pub(super) &'a Hit<'s>);

impl FoundItem for TouchedItem<'_, '_> {
    fn client_flags(&self) -> u32 {
        self.0.client_flags
    }
    fn value_bytes(&self) -> u32 {
        self.0.value_bytes
    }
    fn cas(&self) -> u64 {
        self.0.cas
    }
}

/// An item that a meta command looked up under the item's lock, and the flags that may have changed
/// the item.
pub(super) struct LockedItem<'a> {
    pub(super) hit: &'a MetaHit<'a>,
    pub(super) flags: &'a Flags,
    pub(super) clock: &'a Clock,
}

impl FoundItem for LockedItem<'_> {
    fn client_flags(&self) -> u32 {
        self.hit.hit.client_flags
    }
    fn value_bytes(&self) -> u32 {
        self.hit.hit.value_bytes
    }
    fn cas(&self) -> u64 {
        self.hit.hit.cas
    }
    fn key_binary(&self) -> bool {
        self.hit.key_binary
    }
    fn exptime(&self) -> Option<u32> {
        Some(self.hit.exptime)
    }
    fn touched(&self) -> Option<u32> {
        self.flags.exptime.map(|exptime| self.clock.realtime(exptime))
    }
    fn vivified(&self) -> Option<u32> {
        let exptime = self.flags.vivify.filter(|_| self.hit.vivified);
        exptime.map(|exptime| self.clock.realtime(exptime))
    }
    fn idle_seconds(&self) -> Option<u32> {
        Some(self.hit.idle_seconds)
    }
    fn fetched(&self) -> Option<bool> {
        Some(self.hit.fetched)
    }
    fn token_sent(&self) -> bool {
        self.hit.token_sent
    }
    fn stale(&self) -> bool {
        self.hit.stale
    }
    fn won(&self) -> Option<bool> {
        Some(self.hit.won)
    }
}
