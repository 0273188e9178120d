//! Errands: commands whose answer takes several turns.
//!
//! Where: the executor puts an errand into `Context::errand`. The connection does one step of the
//! errand in each turn, and executes the next request after the last step.
//! Invariant: a step does a bounded amount of work and appends a bounded number of reply bytes. The
//! next step waits until all reply bytes are sent. A slow client delays only its own errand.
//! Source: memcached 1.6.45 `conn_watch`, the state of a connection to which other threads write.

pub(crate) mod census;
pub(crate) mod conns;
pub(crate) mod detail;
pub(crate) mod dump;
pub(crate) mod place;

use columns::executor::Progress;
use columns::out::Out;

use crate::execute::{Context, STEP_BYTES};
use crate::shared::watch::WatchGuard;
use census::Census;
use conns::Conns;
use detail::Detail;
use dump::Dump;

/// A command whose answer takes several turns.
#[derive(Debug)]
pub struct Errand(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Dump(Dump),
    Census(Census),
    Detail(Detail),
    Conns(Conns),
    /// Sends events as they happen, until the client closes the connection.
    Watch(WatchGuard),
}

impl columns::executor::Errand<Context> for Errand {
    fn ends_with_input(&self) -> bool {
        matches!(self.0, Kind::Watch(_))
    }

    fn state(&self) -> &'static str {
        match &self.0 {
            Kind::Dump(_) | Kind::Watch(_) => "conn_watch",
            Kind::Census(_) | Kind::Detail(_) | Kind::Conns(_) => "conn_parse_cmd",
        }
    }

    fn step(&mut self, context: &mut Context, out: &mut Out) -> Progress {
        let before = out.buf.len();
        let Context { store, shared, clock, column, .. } = context;
        let mut items = 0;
        let progress = match &mut self.0 {
            Kind::Dump(dump) => dump.step(store, clock, &mut items, &mut out.buf),
            Kind::Census(census) => {
                census.step(store, (clock, &shared.prefixes), &mut items, &mut out.buf)
            }
            Kind::Detail(detail) => detail.step(clock, &shared.prefixes, &mut out.buf),
            Kind::Conns(conns) => conns.step(&shared.columns, *column, &mut out.buf),
            Kind::Watch(guard) => {
                out.buf.extend_from_slice(&guard.take_lines());
                Progress::Idle
            }
        };
        context.work(items + 1 + (out.buf.len() - before) / STEP_BYTES);
        progress
    }
}
