//! Tests that sending requests and reading answers does not allocate per request.
//!
//! Where: a counting allocator counts the allocations of a `Drive` and of a null server.
//! Invariant: 18,000 more requests make fewer than 180 more allocations. Growing buffers cause some
//! allocations. One allocation per request or batch would fail the test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use blaster::drive::{self, Drive, EndCondition, Pace};
use blaster::measure::Tally;
use blaster::reflect::{self, Plan};
use blaster::target::steer::{Steer, Steering};
use blaster::target::{self, Family, Place};
use blaster::wire::{PROTOCOLS, Protocol};
use blaster::workload::Workload;
use std::num::NonZeroU16;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use testing::allocations::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FEW: u64 = 2000;
const MANY: u64 = 20_000;

/// Sends `requests` requests, all of which are answered. Returns the number of allocations.
fn allocations(drive: &Drive, requests: u64) -> u64 {
    let (sink, tallies) = mpsc::channel();
    let end = EndCondition { requests: Some(requests), ..drive.end.clone() };
    let drive = Drive { end, ..drive.clone() };
    let (taken, _) = allocations::count(|| {
        drive::run(drive, Instant::now(), &AtomicU32::new(0), &sink).unwrap();
    });
    drop(sink);
    let mut all = Tally::default();
    tallies.iter().for_each(|(_, _, tally)| all.merge(&tally));
    assert_eq!((all.total().answered, all.total().failed()), (requests, 0));
    taken
}

fn does_not_allocate(drive: &Drive, what: &str) {
    let (few, many) = (allocations(drive, FEW), allocations(drive, MANY));
    let more = many.saturating_sub(few);
    assert!(more < (MANY - FEW) / 100, "{what}: {few} of {FEW} requests, {many} of {MANY}");
}

fn drive(place: &Place, protocol: Protocol, settings: &[(&str, &str)]) -> Drive {
    let mut workload = Workload::preset("uniform").unwrap();
    for (name, value) in [("keys", "1000")].iter().chain(settings) {
        workload.set(name, value).unwrap();
    }
    let workload = Arc::new(workload);
    let name = match place {
        Place::Udp(address) => format!("udp://{address}"),
        Place::Xdp(bypass, address) => bypass.target_text(address),
        Place::Tcp(address) => address.to_string(),
        Place::Unix(path) => format!("unix:{}", path.display()),
    };
    let targets = Arc::from(vec![target::parse(&name, Family::Any).unwrap()]);
    let end = EndCondition {
        deadline: Some(Instant::now() + Duration::from_secs(300)),
        ..EndCondition::default()
    };
    let pace = Pace::Closed { connections: 2, depth: 8 };
    // Even a loaded machine answers within this time.
    let timeout = Duration::from_secs(60);
    Drive { timeout, end, ..Drive::new(workload, targets, protocol, pace) }
}

#[test]
fn driving_does_not_allocate_per_request() {
    let any = "127.0.0.1:0".parse().unwrap();
    let places = vec![Place::Tcp(any), Place::Udp(any)];
    let null = reflect::serve(&Plan { places, value_bytes: 64, ..Plan::default() }).unwrap();
    // Few requests may be outstanding, because each outstanding request has allocated keys.
    let open = Pace::Open { rate_per_s: 50_000.0, connections: 2, outstanding_max: 16 };
    let workloads: [&[_]; 2] =
        [&[("mix", "get=1"), ("batch", "3")], &[("mix", "get=9,set=1"), ("value-size", "1-100")]];
    for place in null.addresses() {
        for (protocol, settings) in
            PROTOCOLS.iter().flat_map(|&one| workloads.map(|two| (one, two)))
        {
            if protocol == Protocol::Resp && matches!(place, Place::Udp(_)) {
                continue;
            }
            let closed = drive(place, protocol, settings);
            for (pace, apart) in [(closed.pace, None), (open, None), (closed.pace, Some(0))] {
                let what = format!("{} over {place:?}, {pace:?}, {apart:?}", protocol.name());
                let drive = Drive { pace, receive_cpu: apart, ..closed.clone() };
                does_not_allocate(&drive, &format!("{what}, {settings:?}"));
            }
            if matches!(place, Place::Udp(_)) {
                let steering = Steering::new(Steer::Key, &[NonZeroU16::MAX]);
                let steered = Drive { steering, gso: true, ..closed };
                does_not_allocate(&steered, &format!("{}, steered, {settings:?}", protocol.name()));
            }
        }
    }
    null.stop().unwrap();
}
