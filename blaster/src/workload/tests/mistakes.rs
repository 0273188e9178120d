//! Tests with random settings: every accepted workload can be used to draw requests.
//!
//! Where: unit tests of `workload`.
//! Invariant: see `tests`. In addition, no text that a user can write causes a panic, a hang or
//! unbounded use of memory when the text is parsed or when requests are drawn.

use super::super::random::{below, hash};
use super::super::settings::SETTINGS;
use super::super::{
    BATCH_MAX, EXPTIME_S_MAX, Files, Names, Stream, VALUE_BYTES_MAX, Verb, Workload,
    WorkloadRequest, file,
};
use std::sync::Arc;

/// The words from which the test makes random values of settings.
const WORDS: &str = "uniform zipf: gaussian gaussian: sequential power-law: pareto: gev: \
    exponential: exponential facebook facebook: etc etc-as-printed list: fixed fixed: file: \
    trace uniform: get set delete append = , , , - : 0 1 2 0.5 0.001 10 64 250 1000 1e6 1e300 nan \
    inf run connection agent oldest drawn";
const WORKLOADS: u64 = 400;
const SETTINGS_EACH: u64 = 12;
/// The maximum size of a value that the test writes; longer values would only take more time.
const VALUE_BYTES_MADE: u32 = 1 << 16;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 += 1;
        usize::try_from(below(hash(77, self.0), end as u64)).unwrap()
    }
}

fn random_workload(numbers: &mut Numbers) -> (Workload, u64) {
    let (mut workload, mut accepted) = (Workload::default(), 0);
    for _ in 0..SETTINGS_EACH {
        let name = SETTINGS[numbers.below(SETTINGS.len())].name;
        let words: Vec<&str> = WORDS.split_whitespace().chain([" "]).collect();
        let words = (0..=numbers.below(9)).map(|_| words[numbers.below(words.len())]);
        let value: String = words.collect();
        let before = workload.to_toml();
        match workload.set(name, &value) {
            Ok(()) => accepted += 1,
            Err(error) => {
                assert!(error.0.starts_with(name), "{name} {value}: {error}");
                assert_eq!(workload.to_toml(), before, "{name} {value}");
            }
        }
    }
    (workload, accepted)
}

#[test]
fn whatever_is_accepted_can_be_driven() {
    let (mut numbers, mut accepted) = (Numbers(0), 0);
    for _ in 0..WORKLOADS {
        let (workload, count) = random_workload(&mut numbers);
        accepted += count;
        let text = workload.to_toml();
        if workload.check().is_err() {
            assert!(file::parse(&text, &Files::here("")).is_err(), "{text}");
            continue;
        }
        let again = file::parse(&text, &Files::here("")).unwrap_or_else(|error| {
            panic!("{error:?}:\n{text}");
        });
        assert_eq!(again.to_toml(), text);
        drive(&Arc::new(workload), &text);
    }
    // If few settings were accepted, the test would have tested little.
    assert!(accepted > WORKLOADS / 2, "{accepted} settings were accepted");
}

fn drive(workload: &Arc<Workload>, text: &str) {
    let names = Names::new(workload);
    let (mut key, mut value, mut request) = (Vec::new(), Vec::new(), WorkloadRequest::default());
    for thread in 0..2 {
        let mut stream = Stream::new(workload, 1, thread, 2);
        for _ in 0..50 {
            assert!(stream.next(&mut request), "{text}");
            let count = request.keys.len();
            assert!(count >= 1 && count <= BATCH_MAX as usize, "{request:?}:\n{text}");
            assert!(count == 1 || request.verb == Verb::Get, "{request:?}:\n{text}");
            assert!(request.keys.iter().all(|key| *key < workload.keys()), "{request:?}:\n{text}");
            assert!(
                request.value_bytes <= VALUE_BYTES_MAX && request.exptime_s <= EXPTIME_S_MAX,
                "{text}"
            );
            let gap_ns = [f64::NAN, 0.0, 1e4].map(|mean_ns| stream.gap_ns(mean_ns));
            assert!(gap_ns.iter().all(|gap_ns| *gap_ns < 1 << 60), "{gap_ns:?}:\n{text}");
            key.clear();
            names.key(request.keys[0], &mut key);
            assert!((1..=250).contains(&key.len()), "{key:?}:\n{text}");
            let bytes = names.value_bytes(request.keys[0]);
            if bytes <= VALUE_BYTES_MADE && names.verifies() {
                value.clear();
                names.value(request.keys[0], bytes, &mut value);
                assert!(names.verify(request.keys[0], &value) || value.is_empty(), "{text}");
            }
        }
    }
}
