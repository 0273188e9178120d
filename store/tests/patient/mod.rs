//! Repeats a request while the store refuses it with `Later`.
//!
//! Invariant: a request refused with `Later` changed nothing; the number of repetitions is bounded.

use store::{Column, Refused};

/// Maximum number of attempts. Other threads pass a quiescent point every few operations, so a
/// request that is still refused with `Later` shows that a thread hangs.
const ASKS_MAX: u32 = 1 << 20;

/// Repeats a request until its answer is not `Later`, with a quiescent point in between.
pub(crate) fn at_last<R>(
    column: &mut Column,
    mut ask: impl FnMut(&mut Column) -> Result<R, Refused>,
) -> Result<R, Refused> {
    for _ in 0..ASKS_MAX {
        match ask(column) {
            Err(Refused::Later) => {
                column.quiesce();
                std::thread::yield_now();
            }
            done => return done,
        }
    }
    Err(Refused::Later)
}
