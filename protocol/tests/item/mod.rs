//! A found item, for tests of answers.
//!
//! Where: the tests of answers include this file, because they have no store.
//! Invariant: each method of the trait returns the field of the same name.
//! Source: none.

use protocol::show::FoundItem;

/// By default, the fields that only some lookups know are `None` or false.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Item {
    pub(crate) client_flags: u32,
    pub(crate) value_bytes: u32,
    pub(crate) cas: u64,
    pub(crate) exptime: Option<u32>,
    pub(crate) touched: Option<u32>,
    pub(crate) vivified: Option<u32>,
    pub(crate) idle_seconds: Option<u32>,
    pub(crate) fetched: Option<bool>,
    pub(crate) stale: bool,
    pub(crate) token_sent: bool,
    pub(crate) won: bool,
}

impl FoundItem for Item {
    fn client_flags(&self) -> u32 {
        self.client_flags
    }
    fn value_bytes(&self) -> u32 {
        self.value_bytes
    }
    fn cas(&self) -> u64 {
        self.cas
    }
    fn exptime(&self) -> Option<u32> {
        self.exptime
    }
    fn touched(&self) -> Option<u32> {
        self.touched
    }
    fn vivified(&self) -> Option<u32> {
        self.vivified
    }
    fn idle_seconds(&self) -> Option<u32> {
        self.idle_seconds
    }
    fn fetched(&self) -> Option<bool> {
        self.fetched
    }
    fn stale(&self) -> bool {
        self.stale
    }
    fn token_sent(&self) -> bool {
        self.token_sent
    }
    fn won(&self) -> Option<bool> {
        Some(self.won)
    }
}
