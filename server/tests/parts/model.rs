//! A simple model of the reassembly of requests in several datagrams.
//!
//! Where: tests of `columns/src/datagram/assembly.rs`, and of a server whose datagrams are delayed,
//! duplicated or lost.
//! Invariant: the model shares the server's limits, but none of its code.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use columns::limits::{
    ASSEMBLIES_MAX, ASSEMBLIES_OF_ONE_MAX, MESSAGE_BYTES_MAX, PARTS_MAX, PARTS_WAIT_MS_MAX,
};
use protocol::udp::Header;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Waits,
    Ignored,
    TooLong,
    Whole(Vec<u8>),
}

#[derive(Debug)]
struct Request {
    from: SocketAddr,
    id: u16,
    total: u16,
    since_ms: u64,
    parts: BTreeMap<u16, Vec<u8>>,
    is_refused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Model(Vec<Request>);

impl Model {
    /// Adds a part. Returns the part's outcome, and how many requests were evicted to make room.
    pub(crate) fn add(
        &mut self,
        from: SocketAddr,
        header: Header,
        bytes: &[u8],
        now_ms: u64,
    ) -> (Outcome, u64) {
        let Header { id, number, total, .. } = header;
        if number >= total {
            return (Outcome::Ignored, 0);
        }
        let evicted = if self.is_known(from, id) { 0 } else { self.make_room(from) };
        if !self.is_known(from, id) {
            let parts = BTreeMap::new();
            let request = Request { from, id, total, since_ms: now_ms, parts, is_refused: false };
            self.0.push(request);
        }
        let request = self.0.iter_mut().find(|one| (one.from, one.id) == (from, id)).unwrap();
        if request.total != total || request.is_refused {
            return (Outcome::Ignored, evicted);
        }
        let is_new = !request.parts.contains_key(&number);
        if is_new {
            let all_bytes: usize = request.parts.values().map(Vec::len).sum();
            request.is_refused =
                all_bytes + bytes.len() > MESSAGE_BYTES_MAX || usize::from(total) > PARTS_MAX;
            if request.is_refused {
                return (Outcome::TooLong, evicted);
            }
            request.parts.insert(number, bytes.to_vec());
        }
        if request.parts.len() == usize::from(total) {
            let parts: Vec<Vec<u8>> = request.parts.values().cloned().collect();
            return (Outcome::Whole(parts.concat()), evicted);
        }
        (if is_new { Outcome::Waits } else { Outcome::Ignored }, evicted)
    }

    pub(crate) fn finish(&mut self, from: SocketAddr, id: u16) {
        self.0.retain(|one| (one.from, one.id) != (from, id));
    }

    /// Removes requests that waited too long. Returns how many of these requests were not refused.
    pub(crate) fn drop_late(&mut self, now_ms: u64) -> u64 {
        let is_late = |one: &Request| one.since_ms + PARTS_WAIT_MS_MAX <= now_ms;
        let late = self.0.iter().filter(|one| is_late(one) && !one.is_refused).count();
        self.0.retain(|one| !is_late(one));
        late as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_known(&self, from: SocketAddr, id: u16) -> bool {
        self.0.iter().any(|one| (one.from, one.id) == (from, id))
    }

    fn make_room(&mut self, from: SocketAddr) -> u64 {
        let of_one: Vec<usize> =
            (0..self.0.len()).filter(|at| self.0[*at].from.ip() == from.ip()).collect();
        let oldest = match of_one.len() >= ASSEMBLIES_OF_ONE_MAX {
            true => of_one[0],
            false if self.0.len() >= ASSEMBLIES_MAX => 0,
            false => return 0,
        };
        u64::from(!self.0.remove(oldest).is_refused)
    }
}
