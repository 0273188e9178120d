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

use crate::execute::{Context, STEP_BYTES};
use crate::out::Out;
use crate::watch::WatchGuard;
use census::Census;
use conns::Conns;
use detail::Detail;
use dump::Dump;

#[derive(Debug)]
pub(crate) enum Errand {
    Dump(Dump),
    Census(Census),
    Detail(Detail),
    Conns(Conns),
    /// Sends events as they happen, until the client closes the connection.
    Watch(WatchGuard),
}

/// The result of a step of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    /// The errand has no work now. The column tries the errand again a little later.
    Idle,
    Done,
    /// The errand cannot continue. The column closes the errand's connection, to show the client
    /// that the answer is incomplete.
    Ended,
}

impl Errand {
    /// True if the errand ends when its client closes the sending side of its connection.
    pub(crate) fn ends_with_input(&self) -> bool {
        matches!(self, Errand::Watch(_))
    }

    pub(crate) fn state(&self) -> &'static str {
        match self {
            Errand::Dump(_) | Errand::Watch(_) => "conn_watch",
            Errand::Census(_) | Errand::Detail(_) | Errand::Conns(_) => "conn_parse_cmd",
        }
    }

    pub(crate) fn step(&mut self, context: &mut Context, out: &mut Out) -> Progress {
        let before = out.buf.len();
        let progress = match self {
            Errand::Dump(dump) => dump.step(context, &mut out.buf),
            Errand::Census(census) => census.step(context, &mut out.buf),
            Errand::Detail(detail) => detail.step(context, &mut out.buf),
            Errand::Conns(conns) => conns.step(context, &mut out.buf),
            Errand::Watch(guard) => {
                out.buf.extend_from_slice(&guard.take_lines());
                Progress::Idle
            }
        };
        context.work(1 + (out.buf.len() - before) / STEP_BYTES);
        progress
    }
}
