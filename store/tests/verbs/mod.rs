//! One model of the verbs, for all tests that compare the store with a model.
//!
//! Where: `model` compares the store with the model in one thread, `explore` in several threads.
//! Invariant: only this folder knows the effect of a request on an item. A test decides which items
//! have expired or may be gone.

pub(crate) mod ask;
pub(crate) mod model;
pub(crate) mod outcome;
pub(crate) mod request;
