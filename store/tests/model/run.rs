//! Does each operation of a run on the store and on the map, and compares the replies.

use crate::limits::Room;
use crate::ops::{COLUMNS, KeyOp, NEVER, NOW, Op, Val, second};
use crate::patient::at_last;
use crate::ring::Ring;
use crate::verbs::ask::{ask, framed};
use crate::verbs::model::Rules;
use crate::verbs::outcome::{Item, Outcome};
use crate::verbs::request::{Answer, Bytes, Reply, Request};
use memory::arena::Arena;
use std::{collections::HashMap, collections::HashSet, fmt::Debug, sync::Arc};
use store::{Body, Column, Config, MetaGet, Pinned, Put, Start, Store, StoreError, Value};

/// Number of other keys. `Op::Fill` sets them in turn.
const FILL_KEYS: u32 = 900;

/// An item that the store should have.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) item: Item,
    /// True if the item may be gone: a flush that hid it was called off, or a set was refused.
    maybe: bool,
    /// The store's count of evictions when the item was last seen.
    evictions: u64,
}

pub(crate) struct Run {
    pub(crate) store: Arc<Store>,
    pub(crate) columns: Vec<Column>,
    asleep: [bool; COLUMNS],
    pub(crate) at: usize,
    pub(crate) rules: Rules,
    frame_bytes: usize,
    pub(crate) evict: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) room: Room,
    pub(crate) items: HashMap<Vec<u8>, Known>,
    flush_at: Option<u32>,
    /// CAS uniques that the store chose and, with bit 63 set, CAS uniques that clients chose.
    uniques: HashSet<u64>,
    pinned: Vec<(Pinned, Bytes)>,
    filled: u32,
    arena: Option<Arc<Arena>>,
    ring: Option<Ring>,
}

impl Run {
    /// Makes a run, with an arena if `chunks` is given (see `check_in`).
    pub(crate) fn new(config: &Config, chunks: Option<(u32, usize, bool)>) -> Self {
        let arena = chunks.map(|(chunks, _, keeps)| {
            Arc::new(Arena::new(3, chunks, 2048).expect("memory").keeping(keeps))
        });
        let arena_value_bytes_min = chunks.map_or(0, |(_, bytes_min, _)| bytes_min);
        let start = Start { arena: arena.clone(), arena_value_bytes_min, ..Start::default() };
        let store = Store::with_start(config, start).expect("address space");
        let columns: Vec<_> = (0..COLUMNS).map(|_| store.column()).collect();
        let rules = Rules {
            now: config.now,
            key_bytes: 0,
            item_bytes_max: config.item_bytes_max,
            has_cas: config.cas,
            knows_uses: true,
        };
        Self {
            store,
            frame_bytes: columns[0].log_value_bytes_max(),
            columns,
            asleep: [false; COLUMNS],
            at: 0,
            rules,
            evict: config.eviction.is_some(),
            memory_bytes: config.memory_bytes,
            room: Room::default(),
            items: HashMap::new(),
            flush_at: None,
            uniques: HashSet::new(),
            pinned: Vec::new(),
            filled: 0,
            ring: arena.as_ref().filter(|arena| arena.keeps()).map(|arena| Ring::new(arena, 0, 1)),
            arena,
        }
    }

    pub(crate) fn step(&mut self, seed: usize, op: &Op) -> Result<(), String> {
        match op {
            Op::Key(key, op) => self.on_key(&key_of(*key), seed, op)?,
            Op::Flush(when) => self.flush(*when),
            Op::Tick(seconds) => self.tick(*seconds),
            Op::Use(column) => self.at = *column,
            Op::Sleep(column) => {
                self.columns[*column].offline();
                self.asleep[*column] = true;
            }
            Op::Maintain(slices) => {
                let column = self.column();
                (0..*slices).any(|_| !column.maintain());
            }
            Op::Fill(count, len) => self.fill(seed, *count, *len)?,
            Op::Pin(key) => self.pin(&key_of(*key))?,
            Op::Unpin => self.unpin()?,
            Op::Limit(tenths) => self.limit(*tenths)?,
            Op::Settle => self.settle()?,
        }
        for (column, asleep) in self.columns.iter_mut().zip(self.asleep) {
            if !asleep {
                column.quiesce();
            }
        }
        self.check_room()
    }

    /// The column in use, online. All other columns are offline, so this column waits for none.
    pub(crate) fn column(&mut self) -> &mut Column {
        for at in (0..COLUMNS).filter(|at| *at != self.at) {
            if !std::mem::replace(&mut self.asleep[at], true) {
                self.columns[at].offline();
            }
        }
        if std::mem::take(&mut self.asleep[self.at]) {
            self.columns[self.at].online();
        }
        &mut self.columns[self.at]
    }

    pub(crate) fn tick(&mut self, seconds: u32) {
        self.rules.now += seconds;
        for at in 0..COLUMNS {
            self.at = at;
            let now = self.rules.now;
            self.column().set_now(now);
        }
        if self.flush_at.is_some_and(|at| self.rules.now > at) {
            self.items.clear();
            self.flush_at = None;
        }
    }

    fn flush(&mut self, when: Option<i8>) {
        let now = self.rules.now;
        let at = match when {
            None => None,
            Some(-2) => Some(now - 1),
            Some(-1) => Some(0),
            Some(seconds) => Some(now + u32::try_from(seconds).unwrap()),
        };
        self.column().flush(at);
        if self.flush_at.take().is_some_and(|at| now >= at) {
            // The items that the flush hid are back, unless a column has accessed and deleted them.
            self.items.values_mut().for_each(|known| known.maybe = true);
        }
        match at {
            Some(at) if at >= now => self.flush_at = Some(at),
            Some(0) => {}
            _ => self.items.clear(),
        }
    }

    fn fill(&mut self, seed: usize, count: u16, len: u16) -> Result<(), String> {
        for i in 0..usize::from(count) {
            let exptime = if i % 8 == 7 { NOW + 30 } else { NEVER };
            let op = KeyOp::set(Val::Letters(len.into()), exptime);
            self.on_key(&fill_key(self.filled % FILL_KEYS), seed + i, &op)?;
            self.filled += 1;
            if i % 8 == 0 {
                let other = self.filled.wrapping_mul(31) % FILL_KEYS;
                self.on_key(&fill_key(other), seed, &KeyOp::get())?;
            }
        }
        Ok(())
    }

    /// Removes the key's item from the map if the item is dead or was evicted.
    fn resolve(&mut self, key: &[u8]) -> Result<(), String> {
        let now = self.rules.now;
        let Some(Known { item, maybe, evictions }) = self.items.get(key) else { return Ok(()) };
        let flushed = self.flush_at.is_some_and(|at| now >= at);
        if flushed || (item.exptime != 0 && item.exptime <= now) {
            self.items.remove(key);
            // An item that the probe finds dead is deleted, even if the flush is called off later.
            return match self.probe(key) {
                Some(_) => Err("what is dead was found".into()),
                None => Ok(()),
            };
        }
        let now_evicted = self.store.stats().evictions;
        if (*maybe || *evictions < now_evicted) && self.probe(key).is_none() {
            self.items.remove(key);
        } else if let Some(known) = self.items.get_mut(key) {
            (known.maybe, known.evictions) = (false, now_evicted);
        }
        Ok(())
    }

    /// Looks up a key without changing its item. Returns the CAS unique.
    fn probe(&mut self, key: &[u8]) -> Option<u64> {
        let get =
            MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] };
        self.column().meta_get(&get).expect("no steps").map(|hit| hit.hit.cas)
    }

    fn on_key(&mut self, key: &[u8], seed: usize, op: &KeyOp) -> Result<(), String> {
        self.resolve(key)?;
        let value = self.value(&op.val, seed);
        let old = self.items.get(key).map(|known| known.item.clone());
        let own = old.as_ref().and_then(|old| old.cas).unwrap_or(self.filled.into());
        let now = self.rules.now;
        let request = op.request.with(op.cas.of(own), value.clone(), |drawn| second(drawn, now));
        let before = self.store.stats().evictions;
        let reply = match self.ring.take() {
            Some(mut ring) if value.len() <= 1700 => {
                let column = self.column();
                let reply = ring.receive(300 + seed % 49, &value, |bytes| {
                    answer(column, key, (&request, op), bytes)
                });
                self.ring = Some(ring);
                reply
            }
            ring => {
                self.ring = ring;
                answer(self.column(), key, (&request, op), &value)
            }
        };
        let evicted = self.store.stats().evictions > before;
        if !self.evict && self.refused(key, &request, &reply) {
            return Ok(());
        }
        let mut agreed = self.agree(key, old.as_ref(), &request, &reply);
        if agreed.is_err() && evicted {
            agreed = self.agree(key, None, &request, &reply);
        }
        let outcome = agreed
            .map_err(|error| format!("{error}\n  at {now}, request {request:?}, item {old:?}"))?;
        self.adopt(key, outcome)
    }

    fn value(&self, val: &Val, seed: usize) -> Bytes {
        let letters = |len: usize| {
            (0..len).map(|i| b'a' + u8::try_from((i * 7 + i / 26 + seed * 5) % 26).unwrap())
        };
        Bytes::from(match *val {
            Val::Text(text) => text.as_bytes().to_vec(),
            Val::Number(number) => number.to_string().into_bytes(),
            Val::Letters(len) => letters(len).collect(),
            Val::Frames(frames, more) => {
                let len = self.frame_bytes * frames;
                letters(len.saturating_add_signed(more.into())).collect()
            }
            Val::Padded(number, frames, more) => {
                let len = self.frame_bytes * frames;
                let mut text = number.to_string().into_bytes();
                text.resize(len.saturating_add_signed(more.into()), b' ');
                text
            }
        })
    }

    /// True if an operation was refused for lack of room, which may happen without eviction. A
    /// refused set may have deleted the item.
    fn refused(&mut self, key: &[u8], request: &Request, reply: &Reply) -> bool {
        let is_there = self.items.contains_key(key);
        if *reply == Err(StoreError::Later) || !request.may_lack_room(reply, is_there) {
            return false;
        }
        if let Some(known) = self.items.get_mut(key) {
            known.maybe = request.sets();
        }
        true
    }

    /// Returns the outcome that `reply` shows, and checks the CAS unique that the store chose.
    fn agree(
        &self,
        key: &[u8],
        old: Option<&Item>,
        request: &Request,
        reply: &Reply,
    ) -> Result<Outcome, String> {
        let rules = Rules { key_bytes: key.len(), ..self.rules };
        let mut due = Vec::new();
        for mut outcome in rules.outcomes(old, request) {
            if outcome.agrees(reply) {
                let cas = outcome.item.as_ref().and_then(|item| item.cas);
                if let Some(cas) = cas.filter(|_| outcome.fresh) {
                    self.check_fresh(cas, old.and_then(|old| old.cas))?;
                }
                return Ok(outcome);
            }
            due.push(outcome.reply);
        }
        Err(format!("replied {reply:?}, not {due:?}"))
    }

    /// Checks that a CAS unique chosen by the store is new, and higher than the old item's unique.
    fn check_fresh(&self, cas: u64, old: Option<u64>) -> Result<(), String> {
        let low = old.unwrap_or(0);
        // If a client chose the old item's unique, the store's next unique may be lower.
        let lower = cas <= low && low < 1 << 40 && !self.uniques.contains(&(low | 1 << 63));
        if cas == 0 || self.uniques.contains(&cas) || lower {
            return Err(format!("CAS unique {cas} after {low} is not new"));
        }
        Ok(())
    }

    fn adopt(&mut self, key: &[u8], outcome: Outcome) -> Result<(), String> {
        let Some(mut item) = outcome.item else {
            self.items.remove(key);
            return Ok(());
        };
        let old = self.items.get(key).and_then(|known| known.item.cas);
        if item.cas.is_none() {
            let dead = item.exptime != 0 && item.exptime <= self.rules.now;
            match self.probe(key) {
                Some(cas) => {
                    self.check_fresh(cas, old)?;
                    item.cas = Some(cas);
                }
                None if dead || self.flush_at.is_some_and(|at| self.rules.now >= at) => {}
                None => return Err("marked stale and gone".into()),
            }
        }
        if let Some(cas) = item.cas.filter(|_| item.cas != old) {
            // Bit 63 marks a unique that a client chose: the store's next unique may be lower.
            self.uniques.insert(if outcome.fresh { cas } else { cas | 1 << 63 });
        }
        let evictions = self.store.stats().evictions;
        self.items.insert(key.to_vec(), Known { item, maybe: false, evictions });
        Ok(())
    }

    fn pin(&mut self, key: &[u8]) -> Result<(), String> {
        self.resolve(key)?;
        let Some(known) = self.items.get_mut(key) else { return Ok(()) };
        self.rules.read(&mut known.item);
        let value = known.item.value.clone();
        let Some(hit) = self.column().get(key) else { return Err("missed what was there".into()) };
        if let Value::Frames(pinned, _) = hit.value {
            self.pinned.clear();
            self.pinned.push((pinned, value));
        }
        Ok(())
    }

    pub(crate) fn unpin(&mut self) -> Result<(), String> {
        for (pinned, value) in self.pinned.drain(..) {
            if framed(&pinned) != value[..pinned.bytes()] {
                return Err(format!("pinned bytes changed: {value:?}"));
            }
        }
        Ok(())
    }

    /// Reads all keys, then checks the statistics and the memory in use.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.unpin()?;
        let mut keys: Vec<_> = (0..crate::ops::KEYS).map(key_of).collect();
        keys.extend((0..FILL_KEYS).map(fill_key));
        for key in &keys {
            self.on_key(key, 0, &KeyOp::get())?;
        }
        let stats = self.store.stats();
        same("curr_items", stats.curr_items, self.items.len() as u64)?;
        same("deleted", keys.iter().filter(|key| self.column().delete(key)).count(), {
            self.items.len()
        })?;
        for at in 0..COLUMNS {
            self.at = at;
            while self.column().maintain() {}
            self.columns.iter_mut().for_each(Column::quiesce);
            while self.column().maintain() {}
        }
        let stats = self.store.stats();
        same("items and bytes left", (stats.curr_items, stats.bytes), (0, 0))?;
        self.check_room()?;
        if let Some(arena) = &self.arena {
            same("chunks left", arena.free(), arena.chunks() - arena.ring_chunks())?;
        }
        // A frame is an eighth of its segment, but segments of 256 KiB have frames of 16 KiB.
        let segment = if self.frame_bytes == 16 << 10 { 256 << 10 } else { self.frame_bytes * 8 };
        let hash = usize::try_from(stats.hash_bytes).unwrap();
        // Each column has open segments; those for expiring items take an eighth of the memory.
        let open = segment * (2 + 2 * COLUMNS) + self.memory_bytes / 8;
        let most = hash.next_multiple_of(segment) + open;
        match self.store.used_bytes() <= most {
            true => Ok(()),
            false => Err(format!("{} bytes in use, not {most}", self.store.used_bytes())),
        }
    }
}

fn same<T: PartialEq + Debug>(what: &str, theirs: T, ours: T) -> Result<(), String> {
    match theirs == ours {
        true => Ok(()),
        false => Err(format!("{what}: {theirs:?}, not {ours:?}")),
    }
}

/// The name of a key. The last key's name has the maximum length, 250 bytes.
fn key_of(key: usize) -> Vec<u8> {
    let mut name = format!("key{key}").into_bytes();
    if key == 5 {
        name.resize(250, b'k');
    }
    name
}

fn fill_key(key: u32) -> Vec<u8> {
    format!("fill{key}").into_bytes()
}

/// Passes a request to a column until the answer is not `Later`.
fn answer(
    column: &mut Column,
    key: &[u8],
    (request, op): (&Request, &KeyOp),
    bytes: &[u8],
) -> Reply {
    match (request, op.draft) {
        (Request::Put(put, _), Some(piece)) => {
            put_draft(column, &Put { key, ..*put }, bytes, piece)
        }
        _ => at_last(column, |it| ask(it, key, (request, op.form), bytes)),
    }
}

/// Stores a value that arrives in pieces of `piece` bytes.
fn put_draft(column: &mut Column, put: &Put<'_>, value: &[u8], piece: usize) -> Reply {
    let mut draft = column.draft(u32::try_from(value.len()).unwrap());
    while draft.missing_bytes() > 0 {
        let sent = value.len() - draft.missing_bytes();
        at_last(column, |it| draft.space(it).map(|_| ()))?;
        let mut next = &value[sent..value.len().min(sent + piece)];
        let remaining = next.len();
        for space in draft.spaces(column, 2 * piece)? {
            let (now, later) = next.split_at(space.len().min(next.len()));
            space[..now.len()].copy_from_slice(now);
            next = later;
        }
        draft.filled(remaining - next.len());
    }
    at_last(column, |it| it.put(put, Body::Draft(&mut draft))).map(Answer::Put)
}
