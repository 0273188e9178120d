//! Fuzzes the assembly of requests from datagrams, with random datagrams, senders and times.
//!
//! Where: `cargo fuzz run --sanitizer none datagrams -- -max_total_time=20`.
//! Invariant: no panic; each datagram has the result that a model predicts; the memory is bounded.
//! Source: the invariants of `columns/src/datagram/assembly.rs`, checked in `server/tests/parts`.
#![no_main]

#[path = "../../server/tests/parts/model.rs"]
mod model;
#[path = "../../server/tests/parts/script.rs"]
mod script;

use libfuzzer_sys::fuzz_target;

/// Returns the first datagrams of 135 requests from nine hosts: more requests than may wait.
fn flood() -> impl Iterator<Item = u8> {
    (0..135).flat_map(|at| [at % 9 * 2 + 1, at / 9 << 4, 0, 2, 1])
}

fuzz_target!(|data: &[u8]| {
    script::run(data);
    script::run(&flood().chain(data.iter().copied()).collect::<Vec<u8>>());
});
