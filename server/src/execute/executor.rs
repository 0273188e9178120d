//! The store's executor as a column uses it.
//!
//! Where: columns call these functions; `execute` does the work.
//! Invariant: the executor's clock and the store's clock show the same second.

use std::net::SocketAddr;

use columns::executor::{Executor, NextStep, Origin};
use columns::out::Out;
use protocol::text::operator::Streams;
use protocol::{Answer, Get, Meta, Request};
use store::{Column, Draft, PrefetchedHash};

use super::{Context, get, meta, note};
use crate::clock::START;
use crate::errand::Errand;
use crate::shared::sampled::SAMPLED;
use crate::shared::watch::DETAIL;

impl Executor for Context {
    type Errand = Errand;

    #[inline(always)]
    fn store(&self) -> Option<&Column> {
        Some(&self.store)
    }

    #[inline(always)]
    fn store_mut(&mut self) -> Option<&mut Column> {
        Some(&mut self.store)
    }

    #[inline]
    fn begin_loop(&mut self, since_ms: u64) {
        self.look_who_watches();
        if self.sampler.begin_loop(since_ms) {
            self.noted.watched = self.noted.watched.with(SAMPLED);
        }
    }

    #[inline]
    fn set_now(&mut self, seconds: u32) {
        let seconds = seconds.saturating_add(START);
        if seconds != self.clock.now {
            self.clock.now = seconds;
            self.store.set_now(seconds);
        }
    }

    #[inline]
    fn end_loop(&mut self) -> bool {
        self.store.quiesce();
        let is_left = self.store.maintain();
        if self.store.looks()
            && let Some(populator) = &self.populator
        {
            populator.wake_if_wanted(&self.store);
        }
        self.tell_events();
        is_left
    }

    #[inline]
    fn offline(&mut self) {
        self.store.offline();
    }

    #[inline]
    fn online(&mut self) {
        self.store.online();
    }

    /// Notes a connection's descriptor only if any client watches events.
    #[inline(always)]
    fn begin_input(&mut self, from: Origin, may_wait: bool) {
        self.may_wait = may_wait;
        self.by_datagram = from == Origin::Datagram;
        if let Origin::Connection(descriptor) = from
            && self.noted.watched != Streams::default()
        {
            self.noted.descriptor = descriptor;
        }
    }

    #[inline(always)]
    fn prefetch(&self, key: &[u8]) -> Option<PrefetchedHash> {
        Some(self.store.prefetch(key))
    }

    #[inline(always)]
    fn prefetch_item(&self, hash: PrefetchedHash) {
        self.store.prefetch_item(hash);
    }

    #[inline(always)]
    fn execute(
        &mut self,
        request: &Request<'_>,
        hash: Option<PrefetchedHash>,
        out: &mut Out,
    ) -> NextStep {
        super::execute_hashed(self, request, hash, out)
    }

    #[inline(always)]
    fn execute_get(&mut self, request: &Get<'_>, out: &mut Out) -> NextStep {
        get::get(self, request, None, out)
    }

    #[inline(always)]
    fn execute_meta_get(&mut self, request: &Meta<'_>, out: &mut Out) -> NextStep {
        meta::get_value(self, request.key, None, out)
    }

    fn begin_value(&mut self, request: &Request<'_>, value_bytes: u32) -> Result<(), Answer> {
        super::begin(self, request, value_bytes)
    }

    fn execute_with_draft(
        &mut self,
        header_and_tail: (&[u8], &[u8]),
        draft: &mut Draft,
        out: &mut Out,
    ) -> NextStep {
        super::execute_with_draft(self, header_and_tail, draft, out)
    }

    fn give_up(&mut self, header: &[u8]) -> Answer {
        super::give_up(self, header)
    }

    #[inline]
    fn take_errand(&mut self) -> Option<Box<Errand>> {
        self.errand.take()
    }

    fn note_connection(
        &mut self,
        peer: impl FnOnce() -> Option<SocketAddr>,
        descriptor: i32,
        reason: Option<&str>,
    ) {
        let Context { shared, counters, noted, .. } = self;
        if noted.watched.intersects(Streams::CONNEVENTS) {
            noted.connection((&shared.watch, counters), (peer(), descriptor), reason);
        }
    }
}

impl Context {
    /// Gives the events that a loop has noted to the connections that watch.
    #[inline]
    pub(crate) fn tell_events(&mut self) {
        #[cfg(debug_assertions)]
        self.shared.note_steps(std::mem::take(&mut self.steps));
        if self.noted.watched != Streams::default() {
            self.tell_watchers();
        }
    }

    #[cold]
    fn tell_watchers(&mut self) {
        if self.noted.watched.intersects(Streams::EVICTIONS.with(DETAIL)) {
            note::evictions(self);
        }
        if self.noted.has_lines() {
            self.noted.tell(&self.shared.watch, &self.counters);
        }
    }
}
