//! An executor without a store: each lookup is a miss, and each value is forgotten.
//!
//! Where: tests of columns, and the bench `storeless`.
//! Invariant: each request gets an answer that its protocol allows. Values that are too long for a
//! receive buffer are refused, because there is no memory for them.

use std::net::SocketAddr;

use protocol::show::Show;
use protocol::{Answer, Get, Meta, Outcome, Refusal, Request, Stats, shown_by};
use store::{Column, Draft, PrefetchedHash};

use crate::executor::{Errand, Executor, NextStep, Origin, Progress};
use crate::out::Out;

/// An executor without a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Storeless;

/// An errand that no request begins.
#[derive(Debug)]
pub(crate) enum NoErrand {}

impl Errand<Storeless> for NoErrand {
    fn step(&mut self, _: &mut Storeless, _: &mut Out) -> Progress {
        match *self {}
    }

    fn ends_with_input(&self) -> bool {
        match *self {}
    }

    fn state(&self) -> &'static str {
        match *self {}
    }
}

impl Executor for Storeless {
    type Errand = NoErrand;

    fn store(&self) -> Option<&Column> {
        None
    }

    fn store_mut(&mut self) -> Option<&mut Column> {
        None
    }

    fn begin_loop(&mut self, _: u64) {}

    fn set_now(&mut self, _: u32) {}

    fn end_loop(&mut self) -> bool {
        false
    }

    fn offline(&mut self) {}

    fn online(&mut self) {}

    fn begin_input(&mut self, _: Origin, _: bool) {}

    fn prefetch(&self, _: &[u8]) -> Option<PrefetchedHash> {
        None
    }

    fn prefetch_item(&self, _: PrefetchedHash) {}

    #[inline]
    fn execute(
        &mut self,
        request: &Request<'_>,
        _: Option<PrefetchedHash>,
        out: &mut Out,
    ) -> NextStep {
        match request {
            Request::Get(get) => self.execute_get(get, out),
            other => answer(other, &mut out.buf),
        }
    }

    #[inline]
    fn execute_get(&mut self, request: &Get<'_>, out: &mut Out) -> NextStep {
        shown_by!(request, show => show.miss(&mut out.buf));
        NextStep::Continue
    }

    fn execute_meta_get(&mut self, request: &Meta<'_>, out: &mut Out) -> NextStep {
        answer(&Request::Meta(*request), &mut out.buf)
    }

    fn begin_value(&mut self, request: &Request<'_>, _: u32) -> Result<(), Answer> {
        Err(request.refused(Refusal::NoMemory))
    }

    fn execute_with_draft(&mut self, _: (&[u8], &[u8]), _: &mut Draft, _: &mut Out) -> NextStep {
        NextStep::Continue
    }

    fn give_up(&mut self, header: &[u8]) -> Answer {
        protocol::refusal_of(header, Refusal::NoMemory)
    }

    fn take_errand(&mut self) -> Option<Box<NoErrand>> {
        None
    }

    fn note_connection(&mut self, _: impl FnOnce() -> Option<SocketAddr>, _: i32, _: Option<&str>) {
    }
}

fn answer(request: &Request<'_>, out: &mut Vec<u8>) -> NextStep {
    let stored = |is_whole| match is_whole {
        true => Outcome::Stored(0),
        false => Outcome::Refused(Refusal::BadChunk),
    };
    let missing = Outcome::Refused(Refusal::NotFound);
    let (outcome, form) = match *request {
        Request::Store(store) => (stored(store.terminated), store.form),
        Request::Delete(delete) => (missing, delete.form),
        Request::Delta(delta) => (missing, delta.form),
        Request::Touch { form, .. } => (missing, form),
        Request::Get(_) | Request::Meta(_) => {
            request.refused(Refusal::NotFound).write(out);
            return NextStep::Continue;
        }
        Request::Noop(form) => {
            form.write_outcome(Outcome::Noop, out);
            return NextStep::Flush;
        }
        Request::FlushAll { form, .. } => (Outcome::Done, form),
        Request::Verbosity { form, .. }
        | Request::Version(form)
        | Request::Stats(Stats { form, .. })
        | Request::Operator { form, .. } => (Outcome::Refused(Refusal::UnknownCommand), form),
        Request::Quit(form) => {
            form.write_outcome(Outcome::Quit, out);
            return NextStep::Close;
        }
        Request::Answer(answer) => {
            answer.write(out);
            return NextStep::Continue;
        }
        Request::LastAnswer(answer) => {
            answer.write(out);
            return NextStep::Close;
        }
    };
    form.write_outcome(outcome, out);
    NextStep::Continue
}
