//! `-m` bounds resident memory: of the real binary, filled several times over, at rest.
//!
//! Where: the real binary, looked at from outside.
//! Invariant: RSS stays within `-m` and the larger of 3 % and 8 MiB, whatever the items' sizes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use inprocess::{Client, resident_bytes_of};
use live::Server;

const MIB: usize = 1 << 20;

/// Stores `bytes` of values around `value_bytes` long, each under its own key, and waits until the
/// last of them is there.
fn fill(client: &mut Client, bytes: usize, value_bytes: usize) {
    let value = "v".repeat(2 * value_bytes);
    let mut batch = String::new();
    for item in 0..bytes / (value_bytes + 40) {
        let value = &value[..1 + item * 7919 % (2 * value_bytes)];
        batch += &format!("set key-{item:010} 0 0 {} noreply\r\n{value}\r\n", value.len());
        if batch.len() > 64 << 10 {
            client.send(&batch);
            batch.clear();
        }
    }
    client.ask(batch + "version\r\n", "VERSION 1.6.45\r\n");
}

#[test]
fn resident_memory_stays_within_the_limit() {
    // The last column: bytes that must be in use in the end, so that the bound means something.
    for (megabytes, value_bytes, used_bytes) in
        [(8, 3, 6 * MIB), (8, 5000, 7 * MIB), (64, 100, 56 * MIB), (64, 60_000, 56 * MIB)]
    {
        let server = Server::under_test(&["-t", "2", "-m", &megabytes.to_string()]);
        let mut client = Client::to(server.address());
        fill(&mut client, 3 * megabytes * MIB, value_bytes);
        drop(client);
        let limit = megabytes * MIB;
        let beside = (limit * 3 / 100).max(8 * MIB);
        let resident = resident_bytes_of(&server.pid().to_string());
        let what = format!("-m {megabytes}, values of {value_bytes}: {resident} bytes resident");
        assert!(resident <= limit + beside, "{what}");
        assert!(resident >= used_bytes, "{what}");
    }
}
