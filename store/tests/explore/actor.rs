//! One column that follows a script, and the state that all columns of a schedule share.
//!
//! Where: one `Actor` per thread of a schedule; another `Actor`, the keeper, runs before and after
//! these threads.
//! Invariant: each operation on a key is recorded with the moments at which it began and ended.
//! Source: none.

use crate::linear::Call;
use crate::register::Event;
use crate::ring::Ring;
use crate::script::{
    APART_SECONDS_MAX, Act, Cas, FRAME_BYTES, KeyAct, Look, PutAct, SEGMENT_BYTES, START, Script,
};
use crate::verbs::ask::{ask, framed, seen, whole};
use crate::verbs::request::{Answer, Reply, Request, Seen};
use memory::short::{ShortText, Surround};
use memory::sync::plain_access;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use store::{
    AppendedPart, Body, Column, Draft, Head, HeadResult, LookupResult, Pinned, Put, StoreError,
    Value, Verb,
};

/// Bytes of the longest value that the ring receives. Longer values do not use the ring.
const RECEIVED_BYTES_MAX: usize = 1700;

pub(crate) struct World {
    pub(crate) script: Script,
    pub(crate) moment: AtomicU64,
    /// Each call with its lane and its key; a call without a key concerns all keys. Each column has
    /// a lane, then comes the keeper's lane, and the last lanes are for evictions.
    pub(crate) calls: Mutex<Vec<(usize, Option<usize>, Call)>>,
    pub(crate) clocks: Vec<AtomicU32>,
    pub(crate) latest: Mutex<Vec<(u64, u32)>>,
    pub(crate) seen: Vec<AtomicU64>,
    /// Number of values generated so far. It is part of each value, so that all values differ.
    pub(crate) made: AtomicU64,
    pub(crate) wrong: Mutex<Vec<String>>,
    pub(crate) refused: AtomicU32,
    /// Number of filler keys (without a history) that were set before the columns began.
    pub(crate) filled: AtomicU32,
}

pub(crate) fn name(key: usize) -> Vec<u8> {
    let mut name = format!("key{key}").into_bytes();
    name.resize(name.len() + key * 7, b'-');
    name
}

pub(crate) fn fill_name(key: u32) -> Vec<u8> {
    format!("fill{key}").into_bytes()
}

fn fill_value(key: u32, bytes: usize) -> Vec<u8> {
    fill_name(key).iter().cycle().take(bytes).copied().collect()
}

impl World {
    pub(crate) fn new(script: Script) -> Self {
        let number = AtomicU64::new;
        let clock = |behind| AtomicU32::new(START - behind);
        Self {
            moment: number(0),
            calls: Mutex::default(),
            clocks: script.behind.iter().map(clock).collect(),
            latest: Mutex::default(),
            seen: (0..script.keys).map(|_| number(0)).collect(),
            script,
            made: number(0),
            wrong: Mutex::default(),
            refused: AtomicU32::new(0),
            filled: AtomicU32::new(0),
        }
    }

    pub(crate) fn moment(&self) -> u64 {
        self.moment.fetch_add(1, SeqCst)
    }

    pub(crate) fn note(&self, lane: usize, key: Option<usize>, call: Call) {
        self.calls.lock().unwrap().push((lane, key, call));
    }

    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// Generates a value: `act.number` in decimal or, if `None`, bytes that no other value has.
    fn value(&self, act: &PutAct) -> Vec<u8> {
        let made = self.made.fetch_add(1, SeqCst);
        let bytes = usize::try_from(act.bytes).unwrap();
        match act.number {
            Some(number) => number.to_string().into_bytes(),
            None => format!("v{made}.").bytes().cycle().take(bytes).collect(),
        }
    }

    fn cas(&self, key: usize, cas: Cas) -> u64 {
        let seen = self.seen[key].load(SeqCst);
        match cas {
            Cas::None => 0,
            Cas::Seen => seen,
            Cas::Off(by) => seen.saturating_add_signed(by),
        }
    }

    fn see(&self, key: usize, cas: u64) {
        self.seen[key].store(cas, SeqCst);
    }
}

pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) column: Column,
    pub(crate) lane: usize,
    pub(crate) now: u32,
    pub(crate) pins: Vec<(Vec<u8>, Pinned)>,
    pub(crate) ring: Option<Ring>,
}

impl Actor {
    pub(crate) fn set_now(&mut self, now: u32) {
        let began = self.world.moment();
        self.world.latest.lock().unwrap().push((began, now));
        self.world.clocks[self.lane].store(now, SeqCst);
        self.column.set_now(now);
        self.now = now;
        self.note(None, began, Event::Tick);
    }

    fn note(&self, key: Option<usize>, began: u64, event: Event) {
        let call = Call { began, ended: self.world.moment(), now: self.now, event };
        self.world.note(self.lane, key, call);
    }

    pub(crate) fn act(&mut self, act: &Act) {
        match act {
            Act::Key(key, act) => self.on_key(*key, act),
            Act::Pin(key) => {
                let hit = self.column.get(&name(*key));
                if let Some(Value::Frames(pinned, _)) = hit.map(|hit| hit.value) {
                    self.pins.push((framed(&pinned), pinned));
                }
            }
            Act::Unpin => self.unpin(),
            Act::Flush(seconds) => {
                let at = seconds.map(|seconds| self.now + seconds);
                let began = self.world.moment();
                self.column.flush(at);
                self.note(None, began, Event::Flush(at));
            }
            Act::CallOff => {
                let began = self.world.moment();
                self.column.flush(Some(0));
                self.note(None, began, Event::Flush(Some(0)));
            }
            Act::Tick => {
                let slowest = self.world.clocks.iter().map(|clock| clock.load(SeqCst)).min();
                if self.now < slowest.unwrap_or(0) + APART_SECONDS_MAX {
                    self.set_now(self.now + 1);
                }
            }
            Act::Quiesce => self.column.quiesce(),
            Act::Maintain(times) => _ = (0..*times).all(|_| self.column.maintain()),
            Act::Sleep => {
                self.column.offline();
                plain_access(std::ptr::null(), 0, false);
                self.column.online();
            }
            Act::Limit(segments) => {
                let changed = self.column.limit_memory(segments * SEGMENT_BYTES);
                if changed.is_err() {
                    self.world.wrong(format!("a limit of {segments} segments: {changed:?}"));
                }
            }
            Act::Fill(first, count, bytes) => {
                (0..*count).for_each(|more| _ = self.fill(first + more, *bytes, 0));
            }
            Act::Extend(first, count, exptime) => {
                let touch = |key| _ = self.column.touch(&fill_name(key), *exptime);
                (0..*count).map(|more| first + more).for_each(touch);
            }
            Act::Clear(first, count) => {
                (0..*count).for_each(|more| _ = self.column.delete(&fill_name(first + more)));
            }
            Act::Peek(key) => {
                let hit = self.column.get(&fill_name(*key)).map(|hit| whole(&hit.value));
                if hit.as_ref().is_some_and(|value| *value != fill_value(*key, value.len())) {
                    self.world.wrong(format!("fill{key} has {hit:?}"));
                }
            }
        }
    }

    pub(crate) fn unpin(&mut self) {
        for (value, pinned) in std::mem::take(&mut self.pins) {
            if framed(&pinned) != value {
                self.world.wrong(format!("lane {}: held frames have changed", self.lane));
            }
        }
    }

    /// Sets a filler key, which has no recorded history. Returns false if there is no room.
    pub(crate) fn fill(&mut self, key: u32, bytes: usize, exptime: u32) -> bool {
        let (name, value) = (fill_name(key), fill_value(key, bytes));
        let put = Put { exptime, ..Put::new(Verb::Set, &name) };
        let result = self.column.put(&put, Body::Bytes(&value));
        if result.is_err() {
            self.world.refused.fetch_add(1, SeqCst);
        }
        result.is_ok()
    }

    pub(crate) fn on_key(&mut self, key: usize, act: &KeyAct) {
        let began = self.world.moment();
        let (request, reply) = match act {
            KeyAct::Get(look) => {
                let answer = self.get(key, *look).map_or(Answer::Miss, Answer::Hit);
                (Request::get(&[]), Ok(answer))
            }
            KeyAct::Put(act) => self.put(key, act),
            KeyAct::Ask(request, form, cas) => {
                let request = request.with(self.world.cas(key, *cas), Vec::new().into(), |at| at);
                let reply = ask(&mut self.column, &name(key), (&request, *form), &[]);
                (request, reply)
            }
        };
        match &reply {
            Ok(answer) if !matches!(act, KeyAct::Ask(..)) => {
                answer.cas().into_iter().for_each(|cas| self.world.see(key, cas));
            }
            Ok(_) => {}
            Err(_) => _ = self.world.refused.fetch_add(1, SeqCst),
        }
        self.note(Some(key), began, Event::Asked(request, reply));
    }

    fn get(&mut self, key: usize, look: Look) -> Option<Seen> {
        let name = name(key);
        let hash = self.column.hashed(&name);
        let head_fields = Cell::new((0, 0));
        let mut out = Vec::new();
        let looked = match look {
            Look::Plain | Look::Held => {
                let hit = self.column.get(&name)?;
                let seen = seen(&hit);
                if matches!(look, Look::Held) {
                    (0..20).for_each(|_| plain_access(std::ptr::null(), 0, false));
                    if whole(&hit.value) != *seen.value {
                        self.world.wrong(format!("key {key} has changed in hand"));
                    }
                }
                return Some(seen);
            }
            Look::Into => {
                let head = |out: &mut Vec<u8>, head: &Head<'_>| {
                    head_fields.set((head.client_flags(), head.cas()));
                    out.push(b'<');
                    HeadResult::Value
                };
                self.column.get_into(&name, hash, &mut out, |_| None, head)
            }
            Look::Template => self.column.get_into(
                &name,
                hash,
                &mut out,
                |head| {
                    head_fields.set((head.client_flags(), head.cas()));
                    let first = ShortText::of(b"<");
                    Some(Surround { before: [first, first, first, first], ..Surround::default() })
                },
                |out, head| {
                    head_fields.set((head.client_flags(), head.cas()));
                    out.push(b'<');
                    HeadResult::Value
                },
            ),
        };
        let before = match &looked {
            LookupResult::Hit(AppendedPart::FromTemplate) => 4,
            _ => 1,
        };
        let value = match looked {
            LookupResult::Miss => return None,
            LookupResult::CalledOff => {
                self.world.wrong("a lookup nobody called off was".to_owned());
                return None;
            }
            LookupResult::Hit(AppendedPart::Frames(pinned, tail)) => {
                out.truncate(before);
                whole(&Value::Frames(pinned, tail))
            }
            LookupResult::Hit(AppendedPart::Lasting(_, kept)) => {
                self.column.kept(kept).unwrap_or_default().to_vec()
            }
            LookupResult::Hit(_) => out.split_off(before),
        };
        if out.iter().any(|byte| *byte != b'<') || out.len() != before {
            self.world.wrong(format!("key {key} has {out:?} before it"));
        }
        let (flags, cas) = head_fields.get();
        Some(Seen { value: value.into(), flags, cas, meta: None })
    }

    fn put(&mut self, key: usize, act: &PutAct) -> (Request, Reply) {
        let (name, value) = (name(key), self.world.value(act));
        let cas = self.world.cas(key, act.cas);
        let put = Put { key: &name, cas, ..act.put };
        let result = match self.arrived(act, &value) {
            Some(Ok(mut draft)) => self.column.put(&put, Body::Draft(&mut draft)),
            None => match &mut self.ring {
                Some(ring) if value.len() <= RECEIVED_BYTES_MAX => {
                    ring.receive(300, &value, |value| self.column.put(&put, Body::Bytes(value)))
                }
                _ => self.column.put(&put, Body::Bytes(&value)),
            },
            // When the server discards the rest of a refused value, it deletes the key's item too.
            Some(Err(refused)) => {
                if put.verb == Verb::Set && refused != StoreError::Later {
                    self.column.delete(&name);
                }
                Err(refused)
            }
        };
        let request = Request::Put(Put { cas, ..act.put }, value.into());
        (request, result.map(Answer::Put))
    }

    /// Makes a draft of a value that arrives in pieces. `None` if the value arrives in one piece.
    fn arrived(&mut self, act: &PutAct, value: &[u8]) -> Option<Result<Draft, StoreError>> {
        if !act.draft || (value.len() as u64) <= FRAME_BYTES {
            return None;
        }
        let mut draft = self.column.draft(u32::try_from(value.len()).unwrap());
        let mut left = value;
        while !left.is_empty() {
            let space = match draft.space(&mut self.column) {
                Ok(space) => space,
                Err(refused) => return Some(Err(refused)),
            };
            let bytes = space.len().min(left.len());
            plain_access(space.as_ptr(), bytes, true);
            space[..bytes].copy_from_slice(&left[..bytes]);
            draft.filled(bytes);
            left = &left[bytes..];
        }
        Some(Ok(draft))
    }
}
