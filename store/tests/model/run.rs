//! Does each operation of a run on the store and on the map, and compares the replies.

use crate::limits::Room;
use crate::map::{Item, Meta, Outcome, Reply, Text, World};
use crate::ops::{COLUMNS, Cas, Exp, KeyOp, MetaGetOp, Op, PutOp, Step, Val};
use crate::patient::at_last;
use crate::ring::Ring;
use memory::arena::Arena;
use std::{collections::HashMap, collections::HashSet, fmt::Debug, rc::Rc, sync::Arc};
use store::{
    Body, Column, Config, DeleteResult, Delta, DeltaResult, Hit, MetaDelete, MetaGet, MetaHit,
    MetaStep, Pinned, Put, PutResult, Start, Store, StoreError, Value, Verb, Vivify,
};

/// Number of other keys. `Op::Fill` sets them in turn.
const FILL_KEYS: u32 = 900;

pub(crate) struct Run {
    pub(crate) store: Arc<Store>,
    pub(crate) columns: Vec<Column>,
    asleep: [bool; COLUMNS],
    pub(crate) at: usize,
    pub(crate) world: World,
    pub(crate) evict: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) room: Room,
    pub(crate) items: HashMap<Vec<u8>, Item>,
    flush_at: Option<u32>,
    /// CAS uniques that the store chose and, with bit 63 set, CAS uniques that clients chose.
    uniques: HashSet<u64>,
    pinned: Vec<(Pinned, Text)>,
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
        let world = World {
            now: config.now,
            frame_bytes: columns[0].log_value_bytes_max(),
            item_bytes_max: config.item_bytes_max,
            cas: config.cas,
        };
        Self {
            store,
            columns,
            asleep: [false; COLUMNS],
            at: 0,
            world,
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
        self.world.now += seconds;
        for at in 0..COLUMNS {
            self.at = at;
            let now = self.world.now;
            self.column().set_now(now);
        }
        if self.flush_at.is_some_and(|at| self.world.now > at) {
            self.items.clear();
            self.flush_at = None;
        }
    }

    fn flush(&mut self, when: Option<i8>) {
        let now = self.world.now;
        let at = match when {
            None => None,
            Some(-2) => Some(now - 1),
            Some(-1) => Some(0),
            Some(seconds) => Some(now + u32::try_from(seconds).unwrap()),
        };
        self.column().flush(at);
        if self.flush_at.take().is_some_and(|at| now >= at) {
            // The items that the flush hid are back, unless a column has accessed and deleted them.
            self.items.values_mut().for_each(|item| item.maybe = true);
        }
        match at {
            Some(at) if at >= now => self.flush_at = Some(at),
            Some(0) => {}
            _ => self.items.clear(),
        }
    }

    fn fill(&mut self, seed: usize, count: u16, len: u16) -> Result<(), String> {
        for i in 0..usize::from(count) {
            let put = PutOp {
                verb: Verb::Set,
                val: Val::Letters(len.into()),
                flags: 0,
                exp: if i % 8 == 7 { Exp::In(30) } else { Exp::Never },
                cas: Cas::None,
                cas_in: None,
                stale: false,
                binary: false,
                draft: None,
            };
            self.on_key(&fill_key(self.filled % FILL_KEYS), seed + i, &KeyOp::Put(put))?;
            self.filled += 1;
            if i % 8 == 0 {
                let other = self.filled.wrapping_mul(31) % FILL_KEYS;
                self.on_key(&fill_key(other), seed, &KeyOp::Get)?;
            }
        }
        Ok(())
    }

    /// Removes the key's item from the map if the item is dead or was evicted.
    fn resolve(&mut self, key: &[u8]) -> Result<(), String> {
        let now = self.world.now;
        let Some(item) = self.items.get(key) else { return Ok(()) };
        let flushed = self.flush_at.is_some_and(|at| now >= at);
        if flushed || (item.exptime != 0 && item.exptime <= now) {
            self.items.remove(key);
            // An item that the probe finds dead is deleted, even if the flush is called off later.
            return match self.probe(key) {
                Some(_) => Err("what is dead was found".into()),
                None => Ok(()),
            };
        }
        let evictions = self.store.stats().evictions;
        let (maybe, evicted) = (item.maybe, item.evictions < evictions);
        if (maybe || evicted) && self.probe(key).is_none() {
            self.items.remove(key);
        } else if let Some(item) = self.items.get_mut(key) {
            (item.maybe, item.evictions) = (false, evictions);
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
        let value = match op {
            KeyOp::Put(put) => self.value(&put.val, seed),
            _ => Text(Rc::default()),
        };
        let cas = match op {
            KeyOp::Put(put) => put.cas,
            KeyOp::Delta(delta) => delta.cas,
            KeyOp::MetaDelete(delete) => delete.cas.unwrap_or(Cas::None),
            _ => Cas::None,
        };
        let cas = cas.of(self.items.get(key).map_or(self.filled.into(), |item| item.cas));
        let before = self.store.stats().evictions;
        let now = self.world.now;
        let (reply, idle_seconds) = match self.ring.take() {
            Some(mut ring) if value.0.len() <= 1700 => {
                let column = self.column();
                let reply = ring.receive(300 + seed % 49, &value.0, |value| {
                    column.reply(key, op, value, cas, now)
                });
                self.ring = Some(ring);
                reply
            }
            ring => {
                self.ring = ring;
                self.column().reply(key, op, &value.0, cas, now)
            }
        };
        let evicted = self.store.stats().evictions > before;
        let old = self.items.get(key).cloned();
        if let Some(idle) = idle_seconds.filter(|_| old.is_some()) {
            self.check_idle(idle, old.as_ref().unwrap())?;
        }
        if !self.evict && self.refused(key, op, &reply) {
            return Ok(());
        }
        let mut outcome = self.world.expect(key, old.as_ref(), op, &value, cas);
        let mut agreed = self.agree(&mut outcome, &reply, old.as_ref());
        if agreed.is_err() && evicted {
            outcome = self.world.expect(key, None, op, &value, cas);
            agreed = self.agree(&mut outcome, &reply, None);
        }
        agreed.map_err(|error| {
            format!("{error}\n  at {now}, cas {cas}, value {value:?}, item {old:?}")
        })?;
        self.adopt(key, outcome)
    }

    fn value(&self, val: &Val, seed: usize) -> Text {
        let letters = |len: usize| {
            (0..len).map(|i| b'a' + u8::try_from((i * 7 + i / 26 + seed * 5) % 26).unwrap())
        };
        Text(Rc::new(match *val {
            Val::Text(text) => text.as_bytes().to_vec(),
            Val::Number(number) => number.to_string().into_bytes(),
            Val::Letters(len) => letters(len).collect(),
            Val::Frames(frames, more) => {
                let len = self.world.frame_bytes * frames;
                letters(len.saturating_add_signed(more.into())).collect()
            }
            Val::Padded(number, frames, more) => {
                let len = self.world.frame_bytes * frames;
                let mut text = number.to_string().into_bytes();
                text.resize(len.saturating_add_signed(more.into()), b' ');
                text
            }
        }))
    }

    /// True if an operation was refused for lack of room, which may happen without eviction. A
    /// refused set may have deleted the item.
    fn refused(&mut self, key: &[u8], op: &KeyOp, reply: &Reply) -> bool {
        let there = self.items.contains_key(key);
        let touches = matches!(op, KeyOp::Gat(_) | KeyOp::Touch(_));
        let steps = matches!(op, KeyOp::MetaGet(get) if !get.steps.is_empty());
        let missed = *reply == Reply::NotFound && ((touches && there) || steps);
        if *reply != Reply::Refused(StoreError::NoMemory) && !missed {
            return false;
        }
        if let Some(item) = self.items.get_mut(key) {
            item.maybe = matches!(op, KeyOp::Put(put) if put.verb == Verb::Set);
        }
        true
    }

    fn check_idle(&self, idle: u32, item: &Item) -> Result<(), String> {
        let truth = self.world.now - item.used;
        let error_max = if truth <= 8192 { 0 } else { 255 };
        match truth > 32_000 || (idle <= truth && idle + error_max >= truth) {
            true => Ok(()),
            false => Err(format!("idle {idle}, not {truth}")),
        }
    }

    /// Puts the CAS unique that the store chose into the outcome, and compares the replies.
    fn agree(
        &mut self,
        outcome: &mut Outcome,
        reply: &Reply,
        old: Option<&Item>,
    ) -> Result<(), String> {
        let theirs = reply.clone().cas_mut().copied();
        if outcome.fresh
            && let Some(cas) = theirs
            && let Some(ours) = outcome.reply.cas_mut()
        {
            *ours = cas;
            self.check_fresh(cas, old)?;
            outcome.item.iter_mut().for_each(|item| item.cas = cas);
        }
        match outcome.reply == *reply {
            true => Ok(()),
            false => Err(format!("replied {reply:?}, not {:?}", outcome.reply)),
        }
    }

    /// Checks that a CAS unique chosen by the store is new, and higher than the unique of `old`.
    fn check_fresh(&self, cas: u64, old: Option<&Item>) -> Result<(), String> {
        let low = old.map_or(0, |old| old.cas);
        // If a client chose the unique of `old`, the store's next unique may be lower.
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
        let old = self.items.get(key).cloned();
        if outcome.fresh && outcome.reply == Reply::Deleted {
            let dead = item.exptime != 0 && item.exptime <= self.world.now;
            match self.probe(key) {
                Some(cas) => {
                    self.check_fresh(cas, old.as_ref())?;
                    item.cas = cas;
                }
                None if dead || self.flush_at.is_some_and(|at| self.world.now >= at) => {}
                None => return Err("marked stale and gone".into()),
            }
        }
        let changed = old.is_none_or(|old| old.cas != item.cas);
        if changed && outcome.fresh {
            self.uniques.insert(item.cas);
        } else if changed {
            // Bit 63 marks a unique that a client chose: the store's next unique may be lower.
            self.uniques.insert(item.cas | 1 << 63);
        }
        item.evictions = self.store.stats().evictions;
        self.items.insert(key.to_vec(), item);
        Ok(())
    }

    fn pin(&mut self, key: &[u8]) -> Result<(), String> {
        self.resolve(key)?;
        let Some(item) = self.items.get_mut(key) else { return Ok(()) };
        (item.fetched, item.used) = (true, self.world.read(item));
        let value = item.value.clone();
        let Some(hit) = self.column().get(key) else { return Err("missed what was there".into()) };
        if let Value::Frames(pinned, _) = hit.value {
            self.pinned.clear();
            self.pinned.push((pinned, value));
        }
        Ok(())
    }

    pub(crate) fn unpin(&mut self) -> Result<(), String> {
        for (pinned, value) in self.pinned.drain(..) {
            let framed: Vec<u8> = pinned.pieces().flatten().copied().collect();
            if framed != value.0[..pinned.bytes()] {
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
            self.on_key(key, 0, &KeyOp::Get)?;
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
        let segment =
            if self.world.frame_bytes == 16 << 10 { 256 << 10 } else { self.world.frame_bytes * 8 };
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

/// A column's operations, with replies in the model's form. Meta get also returns the idle time.
trait Replies {
    fn reply(
        &mut self,
        key: &[u8],
        op: &KeyOp,
        value: &[u8],
        cas: u64,
        now: u32,
    ) -> (Reply, Option<u32>);
    fn put_op(&mut self, key: &[u8], put: &PutOp, value: &[u8], cas: u64, now: u32) -> Reply;
    fn meta_get_op(&mut self, key: &[u8], get: &MetaGetOp, now: u32) -> (Reply, Option<u32>);
}

impl Replies for Column {
    fn reply(
        &mut self,
        key: &[u8],
        op: &KeyOp,
        value: &[u8],
        cas: u64,
        now: u32,
    ) -> (Reply, Option<u32>) {
        let reply = match op {
            KeyOp::Put(put) => self.put_op(key, put, value, cas, now),
            KeyOp::Get => hit(self.get(key)),
            KeyOp::Gat(exp) => {
                let found = at_last(self, |it| Ok(hit(it.get_and_touch(key, exp.at(now))?)));
                found.expect("a hit or a miss")
            }
            KeyOp::Touch(exp) => {
                match at_last(self, |it| it.touch(key, exp.at(now))).expect("done or a miss") {
                    true => Reply::Touched,
                    false => Reply::NotFound,
                }
            }
            KeyOp::Delta(delta) => counted(at_last(self, |it| {
                it.delta(&Delta {
                    key,
                    incr: delta.incr,
                    delta: delta.by,
                    cas,
                    cas_in: delta.cas_in,
                    vivify: delta
                        .vivify
                        .map(|(initial, exp)| Vivify { initial, exptime: exp.at(now) }),
                    exptime: delta.exp.map(|exp| exp.at(now)),
                })
            })),
            KeyOp::MetaGet(get) => return self.meta_get_op(key, get, now),
            KeyOp::MetaDelete(delete) => deleted(at_last(self, |it| {
                it.meta_delete(&MetaDelete {
                    key,
                    cas: delete.cas.map(|_| cas),
                    cas_in: delete.cas_in,
                    stale: delete.stale,
                    exptime: delete.exp.map(|exp| exp.at(now)),
                    remove_value: delete.remove_value,
                    client_flags: delete.flags,
                })
            })),
            KeyOp::Delete => match self.delete(key) {
                true => Reply::Deleted,
                false => Reply::NotFound,
            },
        };
        (reply, None)
    }

    fn put_op(&mut self, key: &[u8], op: &PutOp, value: &[u8], cas: u64, now: u32) -> Reply {
        let put = Put {
            verb: op.verb,
            key,
            key_binary: op.binary,
            client_flags: op.flags,
            exptime: op.exp.at(now),
            cas,
            cas_in: op.cas_in,
            stale: op.stale,
        };
        let Some(piece) = op.draft else {
            return stored(at_last(self, |it| it.put(&put, Body::Bytes(value))));
        };
        let mut draft = self.draft(u32::try_from(value.len()).unwrap());
        while draft.missing_bytes() > 0 {
            let sent = value.len() - draft.missing_bytes();
            if let Err(refused) = at_last(self, |it| draft.space(it).map(|_| ())) {
                return Reply::Refused(refused);
            }
            let mut next = &value[sent..value.len().min(sent + piece)];
            let remaining = next.len();
            match draft.spaces(self, 2 * piece) {
                Ok(spaces) => {
                    for space in spaces {
                        let (now, later) = next.split_at(space.len().min(next.len()));
                        space[..now.len()].copy_from_slice(now);
                        next = later;
                    }
                }
                Err(refused) => return Reply::Refused(refused),
            }
            draft.filled(remaining - next.len());
        }
        stored(at_last(self, |it| it.put(&put, Body::Draft(&mut draft))))
    }

    fn meta_get_op(&mut self, key: &[u8], get: &MetaGetOp, now: u32) -> (Reply, Option<u32>) {
        let steps = get.steps.iter().map(|step| match *step {
            Step::Touch(exp) => MetaStep::Touch(exp.at(now)),
            Step::Vivify(exp) => MetaStep::Vivify(exp.at(now)),
            Step::Recache(seconds) => MetaStep::Recache(now + seconds),
        });
        let steps: Vec<_> = steps.collect();
        let get = MetaGet {
            key,
            key_binary: get.binary,
            cas_in: get.cas_in,
            bump: get.bump,
            win: get.win,
            steps: &steps,
        };
        let found = at_last(self, |it| Ok(it.meta_get(&get)?.map(|hit| meta(key, hit))));
        found.expect("a hit or a miss").unwrap_or((Reply::NotFound, None))
    }
}

fn meta(key: &[u8], hit: MetaHit<'_>) -> (Reply, Option<u32>) {
    let MetaHit { idle_seconds, item_bytes, .. } = hit;
    let value = text(&hit.hit);
    assert!(item_bytes as usize > key.len() + value.0.len());
    let meta = Meta {
        flags: hit.hit.client_flags,
        cas: hit.hit.cas,
        value,
        binary: hit.key_binary,
        exptime: hit.exptime,
        fetched: hit.fetched,
        vivified: hit.vivified,
        stale: hit.stale,
        token_sent: hit.token_sent,
        won: hit.won,
    };
    (Reply::Meta(meta), Some(idle_seconds))
}

fn text(hit: &Hit<'_>) -> Text {
    let mut bytes: Vec<u8> = Vec::new();
    match &hit.value {
        Value::Log(value) => bytes.extend_from_slice(value),
        Value::Frames(pinned, rest) => {
            pinned.pieces().for_each(|piece| bytes.extend_from_slice(piece));
            bytes.extend_from_slice(rest);
        }
    }
    assert_eq!(hit.value_bytes as usize, bytes.len());
    Text(Rc::new(bytes))
}

fn hit(hit: Option<Hit<'_>>) -> Reply {
    let Some(hit) = hit else { return Reply::NotFound };
    Reply::Hit { flags: hit.client_flags, cas: hit.cas, value: text(&hit) }
}

fn stored(stored: Result<PutResult, StoreError>) -> Reply {
    match stored {
        Ok(PutResult::Stored { cas, value_bytes }) => {
            Reply::Stored { cas, value_bytes: value_bytes as usize }
        }
        Ok(PutResult::NotStored) => Reply::NotStored,
        Ok(PutResult::Exists) => Reply::Exists,
        Ok(PutResult::NotFound) => Reply::NotFound,
        Err(refused) => Reply::Refused(refused),
    }
}

fn counted(counted: Result<DeltaResult, StoreError>) -> Reply {
    match counted {
        Ok(DeltaResult::Stored { value, cas, exptime, vivified }) => {
            Reply::Counted { value, cas, exptime, vivified }
        }
        Ok(DeltaResult::NotFound) => Reply::NotFound,
        Ok(DeltaResult::Exists) => Reply::Exists,
        Ok(DeltaResult::NonNumeric) => Reply::NonNumeric,
        Err(refused) => Reply::Refused(refused),
    }
}

fn deleted(deleted: Result<DeleteResult, StoreError>) -> Reply {
    match deleted {
        Ok(DeleteResult::Deleted) => Reply::Deleted,
        Ok(DeleteResult::NotFound) => Reply::NotFound,
        Ok(DeleteResult::Exists) => Reply::Exists,
        Err(refused) => Reply::Refused(refused),
    }
}
