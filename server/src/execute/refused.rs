//! Answers a meta command that is not carried out.
//!
//! Where: called by the files that execute meta commands.
//! Invariant: no flag of a command suppresses its refusal.

use columns::executor::NextStep;
use columns::out::Out;
use protocol::{Meta, Refusal, Request};

pub(super) fn refuse(request: &Meta<'_>, refusal: Refusal, out: &mut Out) -> NextStep {
    Request::Meta(*request).refused(refusal).write(&mut out.buf);
    NextStep::Continue
}
