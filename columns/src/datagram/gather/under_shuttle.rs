//! Tests of a `Gatherer` under thread schedules that are drawn at random.
//!
//! Where: `make explore` runs these tests.
//! Invariant: the code under test is the shipped source.

use super::*;
use crate::limits::PARTS_WAIT_MS_MAX;
use shuttle::thread;
use std::net::SocketAddr;
use testing::schedules::explore_drawn;

const SECONDS: u64 = 10;
const TOTAL: u16 = 3;

fn text(id: u16, number: u16) -> String {
    format!("{id}-{number} ")
}

/// Receives parts, each given as (request, number). Returns the requests that became whole.
fn receive(gather: &Gatherer, parts: &[(u16, u16)]) -> Vec<(u16, Vec<u8>)> {
    let (mut whole, mut wholes) = (WholeRequest::default(), Vec::new());
    for &(id, number) in parts {
        let whose = RequestId { from: SocketAddr::from(([10, 0, 0, 1], 4000)), id };
        let header = Header { id, number, total: TOTAL, flow: 0 };
        let text = text(id, number);
        let (added, gone) = gather.add(whose, header, (text.as_bytes(), None), 1, &mut whole);
        assert_eq!(gone, 0);
        if added == AddResult::Whole {
            wholes.push((id, whole.bytes().to_vec()));
        }
    }
    wholes
}

#[test]
fn each_request_becomes_whole_once_whoever_receives_its_parts() {
    explore_drawn(SECONDS, |random| {
        let requests = u16::try_from(1 + random.below(3)).unwrap();
        // One part of each request arrives twice.
        let mut parts: Vec<(u16, u16)> =
            (0..requests).flat_map(|id| (0..TOTAL).map(move |number| (id, number))).collect();
        parts.extend((0..requests).map(|id| (id, u16::try_from(random.below(3)).unwrap())));
        random.shuffle(&mut parts);
        let others = parts.split_off(random.index(parts.len() + 1));
        let gather = Arc::new(Gatherer::default());
        let thief = {
            let gather = Arc::clone(&gather);
            thread::spawn(move || receive(&gather, &others))
        };
        let owner = {
            let gather = Arc::clone(&gather);
            thread::spawn(move || {
                let late = if gather.any() { gather.drop_late(1) } else { 0 };
                assert_eq!(late, 0, "nothing has waited");
            })
        };
        let mut wholes = receive(&gather, &parts);
        wholes.extend(thief.join().unwrap());
        owner.join().unwrap();
        wholes.sort_unstable();
        let all = |id: u16| (0..TOTAL).map(|number| text(id, number)).collect::<String>();
        let expected: Vec<_> = (0..requests).map(|id| (id, all(id).into_bytes())).collect();
        assert_eq!(wholes, expected);
        // A part that arrives again after its request was executed begins a new request, which then
        // waits for its other parts.
        assert_eq!(gather.any(), gather.drop_late(1 + PARTS_WAIT_MS_MAX) > 0);
        assert!(!gather.any());
    });
}
