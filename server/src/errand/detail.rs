//! `stats detail dump`: lists the counts of requests by key prefix.
//!
//! Where: an errand. In the text protocol the answer is lines; in the binary protocol it is one
//! value, preceded by its length.
//! Invariant: a step formats the prefixes of a few shelves (parts of the table), or sends
//! `DUMP_STEP_BYTES` of the value. A value has at most `DETAIL_VALUE_BYTES_MAX` bytes, and its
//! errand holds a `Place`, so that few values are made at a time.
//! Source: memcached 1.6.45 `stats_prefix_dump`.

use columns::executor::Progress;
use protocol::text::list;
use protocol::{Form, Refusal};

use super::place::Place;
use crate::clock::Clock;
use crate::limits::{DETAIL_VALUE_BYTES_MAX, DUMP_STEP_BYTES};
use crate::shared::prefixes::Prefixes;

#[derive(Debug)]
pub(crate) struct Detail {
    shelf: usize,
    value: Option<Value>,
}

/// A list that is sent as one value.
#[derive(Debug)]
struct Value {
    place: Place,
    form: Form,
    /// The lines that are already formatted. After the last line, the whole answer.
    bytes: Vec<u8>,
    /// Bytes of the answer that have been sent; `None` until the answer is complete.
    sent: Option<usize>,
}

impl Detail {
    /// Begins a list of lines, which are sent as soon as they are formatted.
    pub(crate) fn of_lines() -> Detail {
        Detail { shelf: 0, value: None }
    }

    /// Begins a list that is sent as one value, in the form `form`.
    pub(crate) fn of_value(place: Place, form: Form) -> Detail {
        let value = Value { place, form, bytes: Vec::new(), sent: None };
        Detail { shelf: 0, value: Some(value) }
    }

    pub(super) fn step(
        &mut self,
        clock: &Clock,
        prefixes: &Prefixes,
        out: &mut Vec<u8>,
    ) -> Progress {
        let Some(value) = &mut self.value else {
            let end = out.len() + DUMP_STEP_BYTES;
            return show(prefixes, &mut self.shelf, out, end);
        };
        if !value.place.keep(clock.now) {
            return Progress::Ended;
        }
        match value.sent {
            None => value.gather(prefixes, &mut self.shelf, out),
            Some(sent) => value.send(sent, out),
        }
    }
}

impl Value {
    /// Formats the prefixes of some shelves. Refuses a list that is longer than a value may be.
    fn gather(&mut self, prefixes: &Prefixes, shelf: &mut usize, out: &mut Vec<u8>) -> Progress {
        let end = self.bytes.len() + DUMP_STEP_BYTES;
        let progress = show(prefixes, shelf, &mut self.bytes, end);
        if self.bytes.len() > DETAIL_VALUE_BYTES_MAX {
            self.form.refuse(Refusal::StatsDetailTooLong, out);
            return Progress::Done;
        }
        if progress == Progress::Done {
            let mut answer = Vec::with_capacity(self.bytes.len() + DUMP_STEP_BYTES);
            let lines = String::from_utf8_lossy(&self.bytes);
            let form = self.form;
            form.stats(&mut answer, |out| form.stat("detailed", format_args!("{lines}"), out));
            self.bytes = answer;
            self.sent = Some(0);
        }
        Progress::More
    }

    fn send(&mut self, sent: usize, out: &mut Vec<u8>) -> Progress {
        let rest = self.bytes.get(sent..).unwrap_or_default();
        let now = rest.get(..DUMP_STEP_BYTES).unwrap_or(rest);
        out.extend_from_slice(now);
        self.sent = Some(sent + now.len());
        if now.len() == rest.len() { Progress::Done } else { Progress::More }
    }
}

/// Appends the prefixes of shelves from `shelf` on, until `out` has `end` bytes.
fn show(prefixes: &Prefixes, shelf: &mut usize, out: &mut Vec<u8>, end: usize) -> Progress {
    while out.len() < end {
        let show = |prefix: &[u8], asked: &list::PrefixCounts| list::prefix(prefix, asked, out);
        if !prefixes.show(*shelf, show) {
            list::end(false, out);
            return Progress::Done;
        }
        *shelf += 1;
    }
    Progress::More
}
