//! The reason why the store refuses a request.
//!
//! Where: every function that may need room returns it.
//! Invariant: after an error, no item was changed, unless a function's comment says otherwise.

/// The reason why the store refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The item is longer than `-I` allows.
    TooLarge,
    /// There is no room, and none can be made (with `-M`, or while slow readers hold all memory).
    NoMemory,
    /// There is no room yet: other columns hold memory that will be freed, or the request has done
    /// its share of work. Nothing was changed, and a draft may be passed again. The caller tries
    /// again after a quiescent point, and after other work if it has any.
    Later,
}
