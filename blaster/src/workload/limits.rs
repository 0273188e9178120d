//! The limits of a workload, and the error of a workload that exceeds them.
//!
//! Where: used by all settings. Invariant: each setting checks its limit before a run.

/// The maximum number of keys of a workload.
pub const KEYS_MAX: u64 = 1 << 40;
/// The maximum number of keys of one multiget.
pub const BATCH_MAX: u32 = 1024;
/// The maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: u32 = 1 << 27;
/// The maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest time to live, in seconds: 30 days. memcached interprets a larger number as a Unix time.
pub const EXPTIME_S_MAX: u32 = 60 * 60 * 24 * 30;

/// The reason why a workload cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

impl WorkloadError {
    /// The error of the setting `name` if no table can be made for its value `text`.
    pub(super) fn no_table(name: &str, text: &str) -> WorkloadError {
        let why = "all weights of the resulting distribution are 0 or too large";
        WorkloadError(format!("{name}: {text}: {why}"))
    }
}
