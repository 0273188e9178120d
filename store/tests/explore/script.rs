//! The operations of one schedule's columns, drawn from its seed.
//!
//! Where: drawn before a schedule begins, and printed when the schedule fails.
//! Invariant: a script depends on its seed and its kind alone.

use crate::verbs::ask::Form;
use crate::verbs::request::Request;
use store::policy::Eviction;
use store::{Delta, MetaDelete, MetaGet, MetaStep, Put, Verb, Vivify};
use testing::Random;

/// The clock's second at the start: near 256, so that times differ in more than their lowest byte.
pub(crate) const START: u32 = 253;
pub(crate) const APART_SECONDS_MAX: u32 = 2;
/// Bytes of a segment, and of a frame, in the explored stores.
pub(crate) const SEGMENT_BYTES: usize = 4 << 10;
pub(crate) const FRAME_BYTES: u64 = 512;
pub(crate) const KEYS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is room for everything.
    Roomy,
    /// Memory is full: the store must free room for each new item.
    Tight,
    /// Like `Tight`, but the memory limit goes up and down.
    Limits,
    /// The index grows and contracts; there is room.
    Index,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cas {
    None,
    /// The key's CAS unique that was seen last.
    Seen,
    /// The key's CAS unique that was seen last, plus this number.
    Off(i64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    Plain,
    /// Holds the value for a while, and checks that it does not change.
    Held,
    Into,
    Template,
}

#[derive(Debug)]
pub(crate) struct PutAct {
    /// The request; its CAS unique is filled in.
    pub(crate) put: Put<'static>,
    pub(crate) cas: Cas,
    pub(crate) bytes: u64,
    /// The number to store as the value; `None` stores a text of `bytes` bytes.
    pub(crate) number: Option<u64>,
    /// True if the value arrives in pieces, through a draft.
    pub(crate) draft: bool,
}

#[derive(Debug)]
pub(crate) enum KeyAct {
    Get(Look),
    Put(PutAct),
    /// Any other request; its CAS unique is filled in.
    Ask(Request, Form, Cas),
}

#[derive(Debug)]
pub(crate) enum Act {
    Key(usize, KeyAct),
    /// Holds the frames of a key's value until `Unpin`.
    Pin(usize),
    Unpin,
    /// Flushes all keys in this number of seconds; `None` flushes all keys now.
    Flush(Option<u32>),
    CallOff,
    Tick,
    Quiesce,
    Maintain(u32),
    Sleep,
    /// Limits the memory to this number of segments.
    Limit(usize),
    /// Sets filler keys: the first key, the number of keys, and the bytes of each value.
    Fill(u32, u32, usize),
    Clear(u32, u32),
    Peek(u32),
    /// Gives filler keys an exptime: the first key, the number of keys, and the exptime.
    Extend(u32, u32, u32),
}

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) kind: Kind,
    pub(crate) eviction: Option<Eviction>,
    pub(crate) cas: bool,
    pub(crate) segments: usize,
    pub(crate) keys: usize,
    /// The filler keys that are set first: their maximum number, and their values' maximum length.
    pub(crate) fill: (u32, usize),
    /// One filler key in this number has a large value, and one filler key in `fill_timed` expires.
    pub(crate) fill_large: u64,
    pub(crate) fill_timed: u64,
    /// After one in this number of filler sets, a random filler key is deleted.
    pub(crate) fill_holes: u64,
    /// The first operation on each checked key, done while the filler keys are set.
    pub(crate) first: Vec<KeyAct>,
    /// For each column, the seconds by which its clock starts behind `START`.
    pub(crate) behind: Vec<u32>,
    pub(crate) acts: Vec<Vec<Act>>,
    /// True if clients choose some of the CAS uniques.
    pub(crate) own_cas: bool,
    /// The arena, if there is one: its number of chunks, the minimum bytes of a value in it, and
    /// true if values stay where they were received.
    pub(crate) arena: Option<(u32, usize, bool)>,
    pub(crate) seed: u64,
}

struct Mix {
    flush: bool,
    timed: bool,
    large: bool,
    meta: bool,
    own_cas: bool,
    limits: bool,
    /// True if most operations set later exptimes while background work walks the segments.
    prolongs: bool,
    /// The length of all values, if all values have the same length.
    fixed: Option<u64>,
    fill: u64,
    fill_keys: u32,
    fill_bytes: usize,
    keys: usize,
    segments: usize,
    has_arena: bool,
}

impl Script {
    pub(crate) fn draw(kind: Kind, seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let columns = 2 + random.index(3);
        let policies = Eviction::ALL.map(|(_, policy)| Some(policy));
        let eviction = match random.one_in(6) {
            true => None,
            false => random.pick(&policies),
        };
        let segments = match kind {
            Kind::Roomy => 96,
            Kind::Index => 128,
            Kind::Tight | Kind::Limits => 20 + random.index(16),
        };
        let fill = match kind {
            Kind::Roomy => (random.number(40), 30 + random.index(200)),
            Kind::Index => (180 + random.number(400), 10 + random.index(20)),
            Kind::Tight | Kind::Limits => (4000, 80 + random.index(380)),
        };
        let arena = random
            .one_in(3)
            .then(|| (random.pick(&[3, 12, 500]), random.pick(&[1, 40, 600]), random.one_in(2)));
        let mix = Mix {
            flush: random.one_in(3),
            timed: random.below(3) > 0,
            large: random.one_in(3),
            meta: random.one_in(2),
            own_cas: random.one_in(5),
            limits: kind == Kind::Limits,
            prolongs: kind != Kind::Index && random.one_in(4),
            fixed: random.one_in(3).then(|| 8 + random.below(100)),
            fill: random.below(4) * if kind == Kind::Index { 4 } else { 1 },
            fill_keys: fill.0.clamp(8, 300),
            fill_bytes: fill.1,
            keys: 1 + random.index(KEYS_MAX),
            segments,
            has_arena: arena.is_some(),
        };
        let acts = 4 + random.index(20);
        let [large, timed, holes] = [4, 3, 3].map(|one_in| match random.below(3) {
            0 => u64::MAX,
            more => one_in * more,
        });
        Self {
            kind,
            eviction,
            cas: !random.one_in(4),
            segments,
            keys: mix.keys,
            fill,
            fill_large: if mix.large && kind != Kind::Index { large } else { u64::MAX },
            fill_timed: match (mix.prolongs, mix.timed) {
                (true, _) => 1,
                (false, true) => timed,
                (false, false) => u64::MAX,
            },
            fill_holes: holes,
            first: (0..mix.keys).map(|_| KeyAct::Put(mix.put(random))).collect(),
            behind: (0..columns).map(|_| random.number(APART_SECONDS_MAX + 1)).collect(),
            acts: (0..columns).map(|_| (0..acts).map(|_| mix.act(random)).collect()).collect(),
            own_cas: mix.own_cas,
            arena,
            seed,
        }
    }
}

impl Mix {
    fn act(&self, random: &mut Random) -> Act {
        if self.prolongs && random.below(4) > 0 {
            let (first, count) = (random.number(24), 1 + random.number(12));
            return match random.below(4) {
                0 => Act::Fill(first, count, self.fill_bytes),
                1 => Act::Maintain(4),
                _ => Act::Extend(first, count, START + random.pick(&[1, 2, 3, 500])),
            };
        }
        match random.below(40) {
            0..2 => Act::Quiesce,
            2..5 => Act::Maintain(1 + random.number(4)),
            5..7 => Act::Sleep,
            7..9 if self.timed => Act::Tick,
            9 if self.flush => match random.below(4) {
                0 | 1 => Act::Flush(None),
                2 => Act::Flush(Some(random.number(3))),
                _ => Act::CallOff,
            },
            10 if self.large => Act::Pin(random.index(self.keys)),
            11 if self.large => Act::Unpin,
            12..14 if self.limits => {
                let segments = [16, 20, 24, 32, 48, self.segments, self.segments * 2];
                Act::Limit(random.pick(&segments))
            }
            14..20 if random.below(6) < self.fill => {
                let (first, count) = (random.number(self.fill_keys), 1 + random.number(12));
                match random.below(6) {
                    0 => Act::Peek(first),
                    1 => Act::Clear(first, count),
                    2 | 3 if self.timed => Act::Extend(first, count, self.exptime(random)),
                    _ => Act::Fill(first, count, self.fill_bytes),
                }
            }
            _ => Act::Key(random.index(self.keys), self.key_act(random)),
        }
    }

    fn key_act(&self, random: &mut Random) -> KeyAct {
        match random.below(24) {
            0..8 => {
                KeyAct::Get(random.pick(&[Look::Plain, Look::Held, Look::Into, Look::Template]))
            }
            8..15 => KeyAct::Put(self.put(random)),
            15 | 16 => KeyAct::Ask(Request::delete(), Form::Classic, Cas_::None),
            17 => KeyAct::Ask(self.touch(random), Form::Touch, Cas_::None),
            18 => KeyAct::Ask(self.touch(random), Form::Classic, Cas_::None),
            19 | 20 => self.delta(random),
            21 | 22 if self.meta => self.meta(random),
            23 if self.meta => self.mark(random),
            _ => KeyAct::Get(Look::Plain),
        }
    }

    fn put(&self, random: &mut Random) -> PutAct {
        use Verb::{Add, Append, AppendVivify, Cas, Prepend, PrependVivify, Replace, Set};
        let mut verbs = vec![Set, Set, Set, Set, Set, Add, Replace, Cas, Append, Prepend];
        verbs.extend([AppendVivify, PrependVivify]);
        let verb = random.pick(&verbs);
        let extends = matches!(verb, Append | Prepend | AppendVivify | PrependVivify);
        let bytes = match random.below(8) {
            _ if extends => 1 + random.below(if self.large { 300 } else { 30 }),
            0..5 => self.fixed.unwrap_or_else(|| random.below(120)),
            5 => random.below(500),
            _ if self.large => random.below(FRAME_BYTES * 4),
            _ => random.below(60),
        };
        let is_cas = verb == Cas;
        let number = (!extends && random.one_in(3)).then(|| random.pick(&[0, 7, 9, 99, 1 << 40]));
        let client_flags = if random.one_in(3) { random.number(3) } else { 0 };
        let exptime = self.exptime(random);
        let cas = match (is_cas, extends) {
            (true, _) => random.pick(&[Cas_::Seen, Cas_::Seen, Cas_::Off(-1), Cas_::Off(1)]),
            (_, true) if random.one_in(3) => Cas_::Seen,
            _ => Cas_::None,
        };
        let cas_in = self.cas_in(random);
        let stale = is_cas && self.meta && random.one_in(2);
        PutAct {
            put: Put { client_flags, exptime, cas_in, stale, ..Put::new(verb, b"") },
            cas,
            bytes,
            number,
            // A value that arrives in one piece may lie in the arena.
            draft: bytes > FRAME_BYTES && !(self.has_arena && random.one_in(2)),
        }
    }

    fn cas_in(&self, random: &mut Random) -> Option<u64> {
        let given = self.own_cas && random.one_in(2);
        given.then(|| random.pick(&[1, 50, 1000, 1 << 33]))
    }

    fn exptime(&self, random: &mut Random) -> u32 {
        match random.below(4) {
            0 if self.timed => START + 500,
            1 | 2 if self.timed => START + random.number(6) - 1,
            _ => 0,
        }
    }

    fn touch(&self, random: &mut Random) -> Request {
        Request::get(&[MetaStep::Touch(self.exptime(random))])
    }

    fn delta(&self, random: &mut Random) -> KeyAct {
        let incr = random.below(3) > 0;
        let delta = random.pick(&[1, 1, 2, 90]);
        let cas = if random.one_in(4) { Cas_::Seen } else { Cas_::None };
        let vivify = random
            .one_in(2)
            .then(|| Vivify { initial: random.pick(&[0, 5, 99]), exptime: self.exptime(random) });
        let exptime = (self.meta && random.one_in(4)).then(|| self.exptime(random));
        let delta = Delta { key: b"", incr, delta, cas: 0, cas_in: None, vivify, exptime };
        KeyAct::Ask(Request::Delta(delta), Form::Meta, cas)
    }

    fn mark(&self, random: &mut Random) -> KeyAct {
        let cas = random.pick(&[Cas_::None, Cas_::Seen, Cas_::Off(1)]);
        let delete = MetaDelete {
            key: b"",
            cas: (!matches!(cas, Cas_::None)).then_some(0),
            cas_in: None,
            stale: random.one_in(2),
            exptime: random.one_in(2).then(|| self.exptime(random)),
            remove_value: random.one_in(3),
            client_flags: random.number(2),
        };
        KeyAct::Ask(Request::Delete(delete), Form::Meta, cas)
    }

    fn meta(&self, random: &mut Random) -> KeyAct {
        let mut steps = Vec::new();
        if random.one_in(2) {
            steps.push(MetaStep::Touch(self.exptime(random)));
        }
        if random.one_in(2) {
            steps.push(MetaStep::Vivify(self.exptime(random)));
        }
        if random.one_in(2) {
            steps.push(MetaStep::Recache(START + random.number(6)));
        }
        let (win, bump) = (random.below(4) > 0, random.below(4) > 0);
        let get = MetaGet { key: b"", key_binary: false, cas_in: None, bump, win, steps: &[] };
        KeyAct::Ask(Request::Get(get, steps), Form::Meta, Cas_::None)
    }
}

use self::Cas as Cas_;
