//! Repeats a request while the store has no room yet, like a column between two loops.
//!
//! Invariant: a repeated request changed nothing before; and it is not repeated for ever.

use store::{Column, Refused};

/// Most repetitions. Others pass a quiescent point every few operations, so a request that is still
/// told `Later` shows that somebody hangs.
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
