//! One run: fills the servers with items, sends requests, measures, and reports.
//!
//! Where: `main` calls `run` or `capacity::run` with the plan from the command line.
//! Invariant: all measurements before a failure or Ctrl-C are reported. At the end, the stored
//! items are removed unless `--keep` is given, and items that stay on a server are reported.
//! Source: the KV-Cache paper, section 6.1: populate, let the server settle, make six reports.

pub mod agents;
pub mod capacity;
pub mod compare;
mod context;
mod course;
mod crowd;
mod error;
pub(crate) mod flags;
mod items;
mod judge;
pub(crate) mod live;
mod on_demand;
pub(crate) mod plan;
pub(crate) mod prepare;
mod record;
mod servers;
mod stall;
mod task;
pub mod text;
mod unstored;
mod workers;

pub use error::RunError;
pub use judge::{GONE, SILENT, exit};
pub use plan::Plan;

use crate::drive::Pace;
use crate::measure::verdict::Severity;
use crate::measure::watch::Watch;
use crate::result::{RunResult, remarks};
use crate::words::whole;
use crate::workload::Workload;
use context::RunContext;
use crowd::Crowd;
use judge::{changed_servers, judged};
use live::Live;
use prepare::{prepare_context, watch};
use servers::Servers;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `plan` from the first connection to the last report. Fails if nothing could be measured.
pub fn run(plan: &Plan) -> Result<RunResult, RunError> {
    let context = prepare_context(plan)?;
    let live = Live::new(plan);
    let watch = watch(plan, &context);
    items::announce(plan, &context);
    let done = fill_and_drive(plan, &context, (&watch, &live));
    live.done();
    let left_behind = items::clean_up(plan, &context, &live);
    if done.is_err() {
        left_behind.iter().for_each(|message| live::tell(plan, message));
    }
    let (not_stored, course) = done?;
    let mut done =
        RunResult { left_behind, ..judged(plan, record::manifest(plan, &context), course) };
    if context.agents.is_none() {
        done.verdict.remarks.extend(remarks::remarks(&done.manifest, done.merged.as_ref()));
    }
    if let Some(message) = not_stored {
        let sentence = format!("before the traffic, {message}. Gets of these keys can miss");
        done.verdict.add("not-populated", Severity::Warning, sentence);
    }
    Ok(done)
}

/// Sets the number of keys so that keys and values take the share `--fill` of the servers' memory.
/// Fails if a server does not answer, or does not report how much memory it may use.
pub fn set_keys_by_share(plan: &mut Plan) -> Result<(), RunError> {
    let Some(share) = plan.fill_share else { return Ok(()) };
    let servers = Servers::find(&plan.targets, plan.family(), plan.protocol, None)?;
    let bytes = share * servers.limit_bytes()? as f64;
    set_keys(&mut plan.workload, bytes).map_err(|why| RunError::Failed(format!("--fill: {why}")))
}

/// Sets the number of keys, at least 1, so that keys and values take `bytes`.
fn set_keys(workload: &mut Workload, bytes: f64) -> Result<(), String> {
    let key_bytes = workload.items_bytes() / workload.keys() as f64;
    let keys = whole((bytes / key_bytes).max(1.0));
    workload
        .set("keys", &keys.to_string())
        .and_then(|()| workload.check())
        .map_err(|error| error.to_string())?;
    match workload.keys() == keys {
        true => Ok(()),
        false => {
            Err("a key file or a trace determines the number of keys: leave out --fill".to_owned())
        }
    }
}

/// Returns a description of the keys that could not be stored, and the measurements.
fn fill_and_drive(
    plan: &Plan,
    context: &RunContext,
    (watch, live): (&Watch, &Live),
) -> Result<(Option<String>, course::TrafficResult), RunError> {
    let not_stored =
        if plan.populate { course::populate(plan, context, (watch, live))? } else { None };
    live.driving(None);
    let mut crowd = Crowd::connect(plan.crowd, &context.servers.targets, &context.stop)?;
    let over = AtomicBool::new(false);
    let course = std::thread::scope(|scope| {
        scope.spawn(|| crowd.creep(&over));
        let course = course::drive(plan, context, pace(plan), (watch, live));
        over.store(true, Ordering::Relaxed); // the flag orders no other memory
        course
    });
    // After a failure too, `leave` must remove the crowd's item from the server.
    let (turned_out, course) = (crowd.leave(), course?);
    let gone = changed_servers(context).into_iter().chain(turned_out).collect();
    Ok((not_stored, course::TrafficResult { gone, ..course }))
}

fn pace(plan: &Plan) -> Pace {
    let connections = plan.connections;
    match plan.rate_per_s {
        Some(rate_per_s) => {
            Pace::Open { rate_per_s, connections, outstanding_max: plan.outstanding_max }
        }
        None => Pace::Closed { connections, depth: plan.depth },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_memory_sets_the_number_of_keys_unless_a_file_lists_them() {
        let mut workload = Workload::preset("uniform").unwrap();
        // A key has 32 bytes, and a value 128.
        for (bytes, keys) in [(1600.0, 10), (0.1, 1)] {
            set_keys(&mut workload, bytes).unwrap();
            assert_eq!(workload.keys(), keys);
        }
        assert!(set_keys(&mut workload, 1e30).is_err());
        let path = std::env::temp_dir().join(format!("kvblaster-fill-{}", std::process::id()));
        std::fs::write(&path, "one\nother\n").unwrap();
        workload.set("key-file", path.to_str().unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = set_keys(&mut workload, 1600.0).unwrap_err();
        assert!(told.starts_with("a key file or a trace determines the number of keys"), "{told}");
    }
}
