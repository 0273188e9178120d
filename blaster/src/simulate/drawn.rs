//! A trace that is drawn from a workload, for users without a recorded trace.
//!
//! Where: in place of a trace's file, with `simulate --workload`.
//! Invariant: the same workload, seed and number of requests give the same trace, and its requests
//! are those of a run with one thread.

use crate::workload::{Stream, Verb, Workload, WorkloadError, WorkloadRequest};
use simulate::trace::{REQUESTS_MAX, Trace};
use std::sync::Arc;

/// The maximum number of keys, whose numbers are u32.
pub(crate) const KEYS_MAX: u64 = u32::MAX as u64;

/// Draws `requests` requests and keeps the keys of gets only, because the simulated cache stores
/// every missing key itself. Fails if there are no gets, too many gets, or too many keys.
pub(crate) fn trace(
    name: &str,
    workload: &Workload,
    (requests, seed): (u64, u64),
) -> Result<Trace, WorkloadError> {
    let wrong = |why: String| WorkloadError(format!("--workload {name}: {why}"));
    if workload.keys() > KEYS_MAX {
        let why = format!("the workload has more than {KEYS_MAX} keys; give fewer with --keys");
        return Err(wrong(why));
    }
    let mut stream = Stream::new(&Arc::new(workload.clone()), seed, 0, 1);
    let (mut request, mut keys) = (WorkloadRequest::default(), Vec::new());
    for _ in 0..requests {
        // A workload that replays a trace may end.
        if !stream.next(&mut request) {
            break;
        }
        if request.verb == Verb::Get {
            keys.extend(request.keys.iter().filter_map(|key| u32::try_from(*key).ok()));
        }
        if keys.len() > REQUESTS_MAX {
            let why = format!("the gets ask for more than {REQUESTS_MAX} keys; lower --requests");
            return Err(wrong(why));
        }
    }
    if keys.is_empty() {
        return Err(wrong(format!("none of {requests} requests is a get")));
    }
    Ok(Trace::new(name, keys))
}
