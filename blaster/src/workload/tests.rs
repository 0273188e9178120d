//! Tests of workloads: statistics compared with reference distributions, files, and sequences.
//!
//! Where: unit tests of `workload`.
//! Invariant: each draw has a fixed seed, so a test always has the same result.

mod files;
mod keys;
mod mistakes;
mod names;
mod sequence;
mod sizes;

use super::{Files, Stream, Workload, WorkloadRequest};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

fn made(preset: &str, settings: &[(&str, &str)]) -> Arc<Workload> {
    let mut workload = Workload::preset(preset).unwrap();
    for (name, value) in settings {
        workload.set(name, value).unwrap();
    }
    Arc::new(workload)
}

fn requests(workload: &Arc<Workload>, seed: u64, count: usize) -> Vec<WorkloadRequest> {
    let mut stream = Stream::new(workload, seed, 0, 1);
    let mut request = WorkloadRequest::default();
    (0..count).map_while(|_| stream.next(&mut request).then(|| request.clone())).collect()
}

pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let name = format!("kvblaster-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    pub(super) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the greatest distance between the samples' distribution and the expected distribution
/// (Kolmogorov and Smirnov), times the square root of the number of samples.
fn distance(samples: &mut [f64], share_below: impl Fn(f64) -> f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    let apart = |(n, value): (usize, &f64)| {
        let share = share_below(*value);
        (share - n as f64 / count).abs().max((share - (n as f64 + 1.0) / count).abs())
    };
    samples.iter().enumerate().map(apart).fold(0.0, f64::max) * count.sqrt()
}

/// Returns the `distance` for whole numbers. The distributions are compared at whole numbers only,
/// because both are constant between whole numbers.
fn distance_of_whole(samples: &[u32], share_to: impl Fn(u32) -> f64) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    samples.iter().for_each(|value| *counts.entry(*value).or_insert(0_u64) += 1);
    let (mut seen, mut most) = (0, 0.0_f64);
    for (value, count) in counts {
        seen += count;
        most = most.max((share_to(value) - seen as f64 / samples.len() as f64).abs());
    }
    most * (samples.len() as f64).sqrt()
}

/// The limit of `distance`, which only one correct set of samples in a hundred exceeds.
const DISTANCE_MAX: f64 = 1.63;
