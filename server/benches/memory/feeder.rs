//! A connection that stores and looks up items as fast as the server answers, by the text protocol.
//!
//! Where: between this program and a server under test.
//! Invariant: the server has executed all sent requests before a figure is read, because `settle`
//! sends an `mn` and waits for its answer.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use blaster::launch::Server;

use crate::measure::launched::{bytes_to_be_huge, resident_bytes};
use crate::measure::wire::{Protocol, Wire};
use crate::measure::{Outcome, fail};
use crate::sizes::{Mix, VALUE_BYTES_MAX};

const SEND_BYTES: usize = 64 << 10;
/// Time between two readings of a server's memory while the server settles.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// A server's memory counts as settled if it has not changed for this time. In this time an idle
/// server returns the memory that it took in advance. Only huge pages may form later.
pub(crate) const MOMENT: Duration = Duration::from_millis(2500);
/// With fewer bytes in small pages, the program does not wait for more huge pages to form.
const TO_BE_HUGE_MAX: u64 = 8 << 20;
/// Bytes of a bucket of memcached's table. This server's index also takes 8 bytes per item.
const BUCKET_BYTES: u64 = 8;
/// After this time, the program no longer waits for a server to settle.
const SETTLE_MAX: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemFields {
    pub(crate) client_flags: u32,
    pub(crate) exptime: u32,
}

pub(crate) const PLAIN: ItemFields = ItemFields { client_flags: 0, exptime: 0 };

pub(crate) struct Feeder {
    wire: Wire,
    out: Vec<u8>,
    value: Vec<u8>,
}

impl Feeder {
    pub(crate) fn connect(server: &Server) -> Outcome<Feeder> {
        Ok(Feeder {
            wire: Wire::connect(&server.target, Protocol::Text)?,
            out: Vec::with_capacity(2 * SEND_BYTES),
            value: vec![b'v'; VALUE_BYTES_MAX],
        })
    }

    pub(crate) fn set(&mut self, mix: Mix, id: u64, fields: ItemFields) -> Outcome<usize> {
        let value_bytes = mix.value_bytes(id);
        self.out.extend_from_slice(b"set ");
        let key_bytes = mix.key(id, &mut self.out);
        let ItemFields { client_flags, exptime } = fields;
        writeln!(self.out, " {client_flags} {exptime} {value_bytes} noreply\r")?;
        self.out.extend_from_slice(&self.value[..value_bytes]);
        self.out.extend_from_slice(b"\r\n");
        if self.out.len() >= SEND_BYTES {
            self.send()?;
        }
        Ok(key_bytes + value_bytes)
    }

    /// Stores item `id` with `value_bytes` bytes, in quiet mode: the server answers only an error.
    pub(crate) fn meta_set(&mut self, id: u64, value_bytes: usize) -> Outcome<()> {
        let value_bytes_max = self.value.len().max(value_bytes);
        self.value.resize(value_bytes_max, b'v');
        write!(self.out, "ms {id:020} {value_bytes} q\r\n")?;
        self.out.extend_from_slice(&self.value[..value_bytes]);
        self.out.extend_from_slice(b"\r\n");
        if self.out.len() >= SEND_BYTES { self.send() } else { Ok(()) }
    }

    pub(crate) fn line(&mut self, command: &str) -> Outcome<String> {
        self.settle()?;
        self.wire.line(command)
    }

    /// Looks up `ids`, and appends each id that misses to `missing`. With more than a few hundred
    /// `ids`, client and server could block each other: the client sends all before it reads.
    pub(crate) fn get(&mut self, mix: Mix, ids: &[u64], missing: &mut Vec<u64>) -> Outcome<()> {
        for &id in ids {
            self.out.extend_from_slice(b"mg ");
            mix.key(id, &mut self.out);
            self.out.extend_from_slice(b" s\r\n");
        }
        self.send()?;
        let mut answered = 0;
        while answered < ids.len() {
            self.wire.receive()?;
            let mut seen_bytes = 0;
            for line in self.wire.input.split_inclusive(|&byte| byte == b'\n') {
                let [line @ .., b'\r', b'\n'] = line else { break };
                seen_bytes += line.len() + 2;
                let id = ids.get(answered).copied();
                match (line, id) {
                    (b"EN", Some(id)) => missing.push(id),
                    (_, Some(id)) => check(line, mix, id)?,
                    _ => {
                        return fail(format!(
                            "the answer to mg is {}",
                            String::from_utf8_lossy(line)
                        ));
                    }
                }
                answered += 1;
            }
            self.wire.input.drain(..seen_bytes);
        }
        Ok(())
    }

    pub(crate) fn send(&mut self) -> Outcome<()> {
        self.wire.send(&self.out)?;
        self.out.clear();
        Ok(())
    }

    pub(crate) fn settle(&mut self) -> Outcome<()> {
        self.send()?;
        match self.wire.line("mn")?.as_str() {
            "MN" => Ok(()),
            said => fail(format!("the server refused a request: {said:.200}")),
        }
    }

    pub(crate) fn stats(&mut self) -> Outcome<HashMap<String, String>> {
        self.settle()?;
        Ok(self.wire.stats("stats")?.into_iter().collect())
    }

    /// Returns no rows from memcached, which has no `stats memory`.
    pub(crate) fn memory(&mut self) -> Outcome<Vec<(String, u64)>> {
        self.settle()?;
        let rows = self.wire.stats("stats memory")?;
        Ok(rows.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect())
    }

    pub(crate) fn stat(&mut self, name: &str) -> Outcome<u64> {
        let stats = self.stats()?;
        match stats.get(name).map(|value| value.parse::<u64>()) {
            Some(Ok(number)) => Ok(number),
            other => fail(format!("the statistic {name} of stats is {other:?}")),
        }
    }

    /// Waits until the memory of `server` has not changed for `MOMENT`, the hash table has grown
    /// enough for the items, and all huge pages have formed. Waits at most `settle` for huge pages.
    pub(crate) fn resident_bytes(&mut self, server: &Server, settle: Duration) -> Outcome<u64> {
        let start = Instant::now();
        let (mut last, mut since) = (0, start);
        while since.elapsed() < MOMENT && start.elapsed() < SETTLE_MAX {
            let is_expanding = is_to_widen(&self.stats()?);
            let now = resident_bytes(server)?;
            let is_to_grow = start.elapsed() < settle && bytes_to_be_huge(server)? > TO_BE_HUGE_MAX;
            if now != last || is_expanding || is_to_grow {
                (last, since) = (now, Instant::now());
            }
            std::thread::sleep(LOOK);
        }
        Ok(last)
    }
}

/// True if a server is widening its hash table, or will soon widen it. memcached doubles its table
/// at 1.5 items per bucket, but checks the number of items only once a second.
fn is_to_widen(stats: &HashMap<String, String>) -> bool {
    let number = |name| stats.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let buckets = number("hash_bytes") / BUCKET_BYTES;
    number("hash_is_expanding") == 1 || number("curr_items") > buckets * 3 / 2
}

fn check(line: &[u8], mix: Mix, id: u64) -> Outcome<()> {
    let due = format!("HD s{}", mix.value_bytes(id));
    if line == due.as_bytes() {
        return Ok(());
    }
    fail(format!("expected {due:?}, got {:?}", String::from_utf8_lossy(line)))
}
