//! The state that a column needs to execute requests.
//!
//! Where: `run` makes a column's context; `execute` and the column's errands work with it.
//! Invariant: only the column's own thread uses the context.

use std::sync::Arc;

use protocol::Refusal;
use protocol::text::operator::Streams;
use store::{Column, MetaGet, MetaHit, StoreError};

use crate::clock::Clock;
use crate::errand::Errand;
use crate::errand::dump::{Dump, Lines};
use crate::errand::place::Place;
use crate::limits::EVICTIONS_NOTED_MAX;
use crate::run::ahead::PopulatorHandle;
use crate::shared::Shared;
use crate::shared::requests::Counters;
use crate::shared::sampled::Sampler;
use crate::shared::watch::{DETAIL, NotedEvents};

/// Number of reply bytes that count as one step of work, as one request does.
pub(crate) const STEP_BYTES: usize = 64;

/// The state that a column needs to execute requests.
#[derive(Debug)]
pub struct Context {
    /// The column's access to the store.
    pub store: Column,
    /// The column's own counters.
    pub counters: Arc<Counters>,
    /// The state that all columns share.
    pub shared: Arc<Shared>,
    pub(crate) column: usize,
    /// The column's view of the time, set once per loop.
    pub clock: Clock,
    /// True if a request waits when the store has no room. False if such a request is refused.
    pub may_wait: bool,
    /// True if the requests arrived in datagrams, whose sender may be forged.
    pub(crate) by_datagram: bool,
    /// The errand that the connection continues after this turn.
    pub(crate) errand: Option<Box<Errand>>,
    pub(crate) noted: NotedEvents,
    pub(crate) sampler: Sampler,
    pub(crate) populator: Option<PopulatorHandle>,
    /// Number of steps that this loop has taken, see `work`.
    #[cfg(debug_assertions)]
    pub(super) steps: u64,
}

impl Context {
    /// Makes the context of a column, from its access to the store and its counters.
    #[must_use]
    pub fn new(
        store: Column,
        counters: Arc<Counters>,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Context {
        let own = |column: &Arc<Counters>| Arc::ptr_eq(column, &counters);
        let column = shared.requests.iter().position(own).unwrap_or(0);
        Context {
            store,
            column,
            counters,
            shared,
            clock,
            may_wait: true,
            by_datagram: false,
            errand: None,
            noted: NotedEvents::default(),
            sampler: Sampler::new(column),
            populator: None,
            #[cfg(debug_assertions)]
            steps: 0,
        }
    }

    /// Counts steps of work, for the test that no command exceeds `limits::LOOP_STEPS_MAX`. A step
    /// is a request, a key, an item or entry that is examined, or `STEP_BYTES` bytes of replies.
    #[inline(always)]
    #[cfg_attr(
        not(debug_assertions),
        expect(clippy::unused_self, reason = "counts in debug builds")
    )]
    pub(crate) fn work(&mut self, steps: usize) {
        #[cfg(debug_assertions)]
        {
            self.steps += steps as u64;
        }
        #[cfg(not(debug_assertions))]
        let _ = steps;
    }

    /// Reads which streams of events clients watch. Called at the beginning of each loop.
    #[inline]
    pub(crate) fn look_who_watches(&mut self) {
        // The assignment below also clears a `SAMPLED` bit that is left from an earlier loop.
        let watched = self.shared.watch.watched();
        if watched != self.noted.watched {
            self.store.note_evictions(if watched.intersects(Streams::EVICTIONS.with(DETAIL)) {
                EVICTIONS_NOTED_MAX
            } else {
                0
            });
            self.noted.watched = watched;
        }
    }

    /// Returns a refusal if a request whose answer takes several turns arrived in a datagram.
    pub(crate) fn refuses_errands(&self) -> Option<Refusal> {
        self.by_datagram.then(|| self.refused(Refusal::ConnectionOnly))
    }

    /// Returns a refusal if an operator's command arrived in a datagram and `-o udp_admin` is off.
    pub(crate) fn refuses_operators(&self) -> Option<Refusal> {
        let obeys = !self.by_datagram || self.shared.settings.udp_admin;
        (!obeys).then(|| self.refused(Refusal::OperatorOnly))
    }

    /// Takes a place for an errand that goes through all items. Returns `None` if no place is free.
    pub(crate) fn take_place(&self) -> Option<Place> {
        let (place, ended) = Place::take(&self.shared.places, self.clock.now)?;
        self.counters.dumps_stalled.add(u64::from(ended));
        Some(place)
    }

    /// Begins a dump of all items, or of none if `all` is false. Returns `None` if no place is
    /// free.
    pub(crate) fn begin_dump(&self, lines: Lines, all: bool) -> Option<Dump> {
        let place = self.take_place()?;
        self.counters.dumps.add(1);
        Some(Dump::new(place, lines, all))
    }

    /// Looks the key's item up without counting a use of it.
    pub(super) fn peek(&mut self, key: &[u8]) -> Option<MetaHit<'_>> {
        let key_binary = false;
        let get = MetaGet { key, key_binary, cas_in: None, bump: false, win: false, steps: &[] };
        self.store.meta_get(&get).ok()?
    }

    pub(crate) fn value_bytes(&mut self, key: &[u8]) -> Option<u32> {
        self.peek(key).map(|found| found.hit.value_bytes)
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        self.counters.udp_refused.add(1);
        refusal
    }

    #[inline]
    pub(super) fn waits(&self, refused: StoreError) -> bool {
        self.may_wait && refused == StoreError::Later
    }
}
