//! A workload: the keys, sizes, verbs and gaps of the traffic, without its rate and targets.
//!
//! Where: a workload is made before a run, and the driving threads draw requests from it.
//! Invariant: a setting that would make a later step fail, or use unbounded time or memory, is
//! refused here. The error names the setting.
//! Source: the KV-Cache paper, section 5.2.2 and table 2.

mod alias;
mod curve;
mod draw;
mod file;
mod files;
mod gaps;
mod grammar;
pub(crate) mod help;
mod histogram;
mod key_file;
mod law;
mod limits;
mod mix;
mod names;
mod popularity;
pub(crate) mod presets;
mod random;
pub(crate) mod replay;
mod request;
pub(crate) mod settings;
mod stream;
mod traffic;
mod zipf;

pub(crate) use files::{Files, SentFiles};
pub use limits::{
    BATCH_MAX, EXPTIME_S_MAX, KEY_BYTES_MAX, KEYS_MAX, VALUE_BYTES_MAX, WorkloadError,
};
pub use names::Names;
pub(crate) use names::{DIGITS_MAX, Pattern};
pub use request::{VERBS, Verb, WorkloadRequest};
pub use stream::Stream;
pub use traffic::Workload;

#[cfg(test)]
mod tests;
