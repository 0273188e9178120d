//! The operations of the model test, and their distribution.

use crate::verbs::ask::Form;
use crate::verbs::request::{Bytes, Request};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use store::{Delta, MetaDelete, MetaGet, MetaStep, Put, Verb, Vivify};

/// Number of keys: small, so that many operations share a key.
pub(crate) const KEYS: usize = 6;
/// Number of columns. One thread uses all of them in turn.
pub(crate) const COLUMNS: usize = 3;

/// Times in drawn requests: never, always in the past, and the second of the operation itself.
/// Higher numbers are later seconds.
pub(crate) const NEVER: u32 = 0;
const PAST: u32 = 1;
pub(crate) const NOW: u32 = 2;

/// The second that a drawn time means in an operation at `now`.
pub(crate) fn second(drawn: u32, now: u32) -> u32 {
    if drawn < NOW { drawn } else { now + drawn - NOW }
}

/// A CAS unique, relative to the item's CAS unique.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cas {
    None,
    Same,
    Lower(u64),
    Higher(u64),
}

impl Cas {
    /// Returns the number of this CAS unique, if the item's CAS unique is `cas`.
    pub(crate) fn of(self, cas: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Same => cas,
            Self::Lower(by) => cas.saturating_sub(by),
            Self::Higher(by) => cas.saturating_add(by),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Val {
    Text(&'static str),
    Number(u64),
    Letters(usize),
    /// Letters that fill this number of frames, plus or minus a few bytes.
    Frames(usize, i8),
    /// A number, padded with spaces to this number of frames, plus or minus a few bytes.
    Padded(u64, usize, i8),
}

#[derive(Debug)]
pub(crate) struct KeyOp {
    /// The request. Its times are drawn times (see `second`), and `cas` and `val` are filled in.
    pub(crate) request: Request,
    pub(crate) form: Form,
    pub(crate) cas: Cas,
    pub(crate) val: Val,
    /// The length of the pieces in which a draft is filled; `None` uses no draft.
    pub(crate) draft: Option<usize>,
}

impl KeyOp {
    pub(crate) fn get() -> Self {
        Self::new(Request::get(&[]), Form::Classic)
    }

    pub(crate) fn set(val: Val, exptime: u32) -> Self {
        let put = Put { exptime, ..Put::new(Verb::Set, b"") };
        Self { val, ..Self::new(Request::Put(put, Bytes::default()), Form::Meta) }
    }

    fn new(request: Request, form: Form) -> Self {
        Self { request, form, cas: Cas::None, val: Val::Text(""), draft: None }
    }
}

#[derive(Debug)]
pub(crate) enum Op {
    Key(usize, KeyOp),
    /// Flushes in this many seconds; `None` flushes now, -2 a second ago. -1 calls the flush off.
    Flush(Option<i8>),
    Tick(u32),
    Use(usize),
    Sleep(usize),
    Maintain(u8),
    /// Sets other keys: the number of keys, and the number of bytes of each value.
    Fill(u16, u16),
    /// Holds the frames of a key's value until `Unpin` or the end of the run.
    Pin(usize),
    Unpin,
    /// Sets the memory limit to this number of tenths of the first limit.
    Limit(u8),
    Settle,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawSettings {
    /// Values are shorter than this number of bytes.
    pub(crate) large: usize,
    /// True if many other keys are set, so that shared keys are evicted.
    pub(crate) fills: bool,
    /// The lowest accepted limit, in tenths of the first limit; `None` leaves the limit unchanged.
    pub(crate) limits_from: Option<u8>,
}

fn exp() -> BoxedStrategy<u32> {
    prop_oneof![
        4 => Just(NEVER),
        1 => Just(PAST),
        3 => NOW..NOW + 40,
        1 => NOW + 100..NOW + 100_000,
    ]
    .boxed()
}

fn cas() -> BoxedStrategy<Cas> {
    prop_oneof![
        2 => Just(Cas::None),
        4 => Just(Cas::Same),
        2 => (1..200_u64).prop_map(Cas::Lower),
        1 => (1..200_u64).prop_map(Cas::Higher),
    ]
    .boxed()
}

fn seldom_cas() -> BoxedStrategy<Cas> {
    prop_oneof![4 => Just(Cas::None), 1 => cas()].boxed()
}

/// Draws the CAS unique for meta flag `E`: usually none, else a small number or any number.
fn cas_in() -> BoxedStrategy<Option<u64>> {
    prop_oneof![
        8 => Just(None),
        1 => (1..2000_u64).prop_map(Some),
        1 => any::<u64>().prop_map(|cas| Some(cas.max(1))),
    ]
    .boxed()
}

fn val(large: usize) -> BoxedStrategy<Val> {
    let texts = ["", "0", "7", "99 ", "99999999999999999999", "12 x", "x12", " 5", "-3"];
    prop_oneof![
        2 => (0..texts.len()).prop_map(move |at| Val::Text(texts[at])),
        2 => prop_oneof![0..200_u64, any::<u64>(), Just(u64::MAX), Just(9999)]
            .prop_map(Val::Number),
        3 => (0..300_usize).prop_map(Val::Letters),
        1 => (4090..4100_usize).prop_map(Val::Letters),
        2 => (0..20_000_usize).prop_map(Val::Letters),
        1 => (0..large).prop_map(Val::Letters),
        2 => (1..4_usize, -2..3_i8).prop_map(|(frames, more)| Val::Frames(frames, more)),
        1 => (any::<u64>(), 1..4_usize, -2..3_i8)
            .prop_map(|(number, frames, more)| Val::Padded(number, frames, more)),
    ]
    .boxed()
}

fn verb() -> BoxedStrategy<Verb> {
    prop_oneof![
        8 => Just(Verb::Set),
        2 => Just(Verb::Add),
        2 => Just(Verb::Replace),
        2 => Just(Verb::Append),
        2 => Just(Verb::Prepend),
        1 => Just(Verb::AppendVivify),
        1 => Just(Verb::PrependVivify),
        4 => Just(Verb::Cas),
    ]
    .boxed()
}

fn flags() -> BoxedStrategy<u32> {
    prop_oneof![2 => Just(0), 1 => any::<u32>()].boxed()
}

fn put(large: usize) -> BoxedStrategy<KeyOp> {
    let draft = prop_oneof![3 => Just(None), 1 => (1..9000_usize).prop_map(Some)];
    (verb(), val(large), flags(), exp(), cas(), cas_in(), any::<bool>(), any::<bool>(), draft)
        .prop_map(|(verb, val, client_flags, exptime, cas, cas_in, stale, key_binary, draft)| {
            let cas = match verb {
                Verb::Cas => cas,
                Verb::Set | Verb::Add | Verb::Replace => Cas::None,
                _ if stale => cas,
                _ => Cas::None,
            };
            let stale = stale && verb == Verb::Cas;
            let put =
                Put { client_flags, exptime, cas_in, stale, key_binary, ..Put::new(verb, b"") };
            let request = Request::Put(put, Bytes::default());
            KeyOp { cas, val, draft, ..KeyOp::new(request, Form::Meta) }
        })
        .boxed()
}

fn delta() -> BoxedStrategy<KeyOp> {
    let by = prop_oneof![0..20_u64, any::<u64>()];
    let vivify = (any::<u64>(), exp()).prop_map(|(initial, exptime)| Vivify { initial, exptime });
    let vivify = prop_oneof![2 => Just(None), 1 => vivify.prop_map(Some)];
    let touch = prop_oneof![3 => Just(None), 1 => exp().prop_map(Some)];
    (any::<bool>(), by, seldom_cas(), cas_in(), vivify, touch)
        .prop_map(|(incr, delta, cas, cas_in, vivify, exptime)| {
            let request =
                Request::Delta(Delta { key: b"", incr, delta, cas: 0, cas_in, vivify, exptime });
            KeyOp { cas, ..KeyOp::new(request, Form::Meta) }
        })
        .boxed()
}

fn meta_get() -> BoxedStrategy<KeyOp> {
    let steps = (exp(), exp(), NOW..NOW + 60).prop_map(|(touch, vivify, recache)| {
        [MetaStep::Touch(touch), MetaStep::Vivify(vivify), MetaStep::Recache(recache)]
    });
    let steps = (steps.prop_map(Vec::from).prop_shuffle(), 0..4_usize);
    let steps = steps.prop_map(|(steps, count)| steps.into_iter().take(count).collect());
    (steps, any::<bool>(), any::<bool>(), any::<bool>(), cas_in())
        .prop_map(|(steps, bump, win, key_binary, cas_in)| {
            let get = MetaGet { key: b"", key_binary, cas_in, bump, win, steps: &[] };
            KeyOp::new(Request::Get(get, steps), Form::Meta)
        })
        .boxed()
}

fn meta_delete() -> BoxedStrategy<KeyOp> {
    let cas = prop_oneof![2 => Just(None), 1 => cas().prop_map(Some)];
    let exp = prop_oneof![1 => Just(None), 1 => exp().prop_map(Some)];
    (cas, cas_in(), any::<bool>(), exp, any::<bool>(), flags())
        .prop_map(|(cas, cas_in, stale, exptime, remove_value, client_flags)| {
            let delete = MetaDelete {
                key: b"",
                cas: cas.map(|_| 0),
                cas_in,
                stale,
                exptime,
                remove_value,
                client_flags,
            };
            let cas = cas.unwrap_or(Cas::None);
            KeyOp { cas, ..KeyOp::new(Request::Delete(delete), Form::Meta) }
        })
        .boxed()
}

fn key_op(large: usize) -> BoxedStrategy<KeyOp> {
    let touch = |exptime| Request::get(&[MetaStep::Touch(exptime)]);
    prop_oneof![
        8 => put(large),
        4 => Just(()).prop_map(|()| KeyOp::get()),
        1 => exp().prop_map(move |exptime| KeyOp::new(touch(exptime), Form::Classic)),
        2 => exp().prop_map(move |exptime| KeyOp::new(touch(exptime), Form::Touch)),
        3 => delta(),
        4 => meta_get(),
        3 => meta_delete(),
        1 => Just(()).prop_map(|()| KeyOp::new(Request::delete(), Form::Classic)),
    ]
    .boxed()
}

/// Draws a change of the limit, in tenths of the first limit; 0 and 161 are out of bounds.
fn limit(from: u8) -> BoxedStrategy<Op> {
    prop_oneof![
        6 => from..=20,
        2 => Just(10),
        1 => Just(160),
        1 => prop_oneof![Just(0), Just(161_u8)],
    ]
    .prop_map(Op::Limit)
    .boxed()
}

pub(crate) fn op(DrawSettings { large, fills, limits_from }: DrawSettings) -> BoxedStrategy<Op> {
    let flush = prop_oneof![Just(None), (-2..20_i8).prop_map(Some)];
    let ticks = prop_oneof![4 => 1..5_u32, 1 => 5..200_u32, 1 => 200..10_000_u32];
    let fill = (1..400_u16, prop_oneof![0..20_u16, 0..3000_u16]);
    let others = prop_oneof![
        40 => (0..KEYS, key_op(large)).prop_map(|(key, op)| Op::Key(key, op)),
        1 => flush.prop_map(Op::Flush),
        3 => ticks.prop_map(Op::Tick),
        3 => (0..COLUMNS).prop_map(Op::Use),
        1 => (0..COLUMNS).prop_map(Op::Sleep),
        2 => any::<u8>().prop_map(Op::Maintain),
        if fills { 6 } else { 1 } => fill.prop_map(|(count, len)| Op::Fill(count, len)),
        1 => (0..KEYS).prop_map(Op::Pin),
        1 => Just(()).prop_map(|()| Op::Unpin),
    ];
    match limits_from {
        None => others.boxed(),
        Some(from) => {
            let settle = Just(()).prop_map(|()| Op::Settle);
            prop_oneof![24 => others, 1 => limit(from), 1 => settle].boxed()
        }
    }
}
