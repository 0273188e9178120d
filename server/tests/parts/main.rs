//! Compares the reassembly of requests in several datagrams with a model.
//!
//! Where: no server. `fuzz/fuzz_targets/datagrams.rs` also runs `script.rs`, on the fuzzer's input.
//! Invariant: the reassembly and the model agree on the outcome of each datagram.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod model;
mod script;

use testing::Random;

#[test]
fn whatever_parts_come_in_whatever_order_a_whole_is_what_was_cut() {
    let mut all = [0; 6];
    for seed in 0..60 {
        let mut random = Random::new(seed);
        // Two of three scripts have few senders or few parts, so that requests become complete.
        let few = u8::try_from(seed % 3).unwrap();
        let bytes: Vec<u8> = (0..1500)
            .flat_map(|_| {
                let [sender, moment, number, total, size, ..] = random.next().to_le_bytes();
                match few {
                    0 => [sender | 1, moment & 0x30, number % 3, total % 100, size % 200],
                    1 => [sender & 0xc7 | 1, moment, number % 6, total, size],
                    _ => [sender & 7, moment, number, total, size],
                }
            })
            .collect();
        let counts = script::run(&bytes);
        let here = [counts.waits, counts.ignored, counts.too_long, counts.wholes];
        let here = here.into_iter().chain([counts.evicted, counts.late]);
        all.iter_mut().zip(here).for_each(|(sum, count)| *sum += count);
    }
    assert!(all.iter().all(|count| *count > 100), "an outcome is too rare: {all:?}");
}
