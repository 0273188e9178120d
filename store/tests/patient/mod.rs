//! Asking again where the store says that it has no room yet, as a server's column does between two
//! of its loops.
//!
//! Invariant: what is asked again changed nothing; and it is not asked for ever.

use store::{Column, Refused};

/// So often nobody is told to come later unless somebody hangs: others pass a quiescent point every
/// few operations.
const ASKS_MAX: u32 = 1 << 20;

/// Asks until it is not told to come later any more, a quiescent point in between.
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
