//! Repeats a request while the store refuses it with `Later`.
//!
//! Invariant: a request refused with `Later` changed nothing; the number of repetitions is bounded.

use store::{Column, StoreError};

/// Maximum number of attempts. Other threads pass a quiescent point every few operations, so this
/// number of refusals shows that a thread hangs.
const ASKS_MAX: u32 = 1 << 20;

pub(crate) fn at_last<R>(
    column: &mut Column,
    mut ask: impl FnMut(&mut Column) -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    for _ in 0..ASKS_MAX {
        match ask(column) {
            Err(StoreError::Later) => {
                column.quiesce();
                std::thread::yield_now();
            }
            done => return done,
        }
    }
    Err(StoreError::Later)
}
