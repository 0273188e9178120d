//! Runs one schedule: fills a store, lets columns follow the script, and checks the outcome.
//!
//! Where: called by shuttle for each schedule.
//! Invariant: nothing here depends on time, addresses or chance, so a seed reproduces its run.
//! Source: none.

use crate::actor::{Actor, World, fill_name, name};
use crate::linear::{Call, Verdict, explain};
use crate::register::{Event, Register};
use crate::ring::Ring;
use crate::script::{APART_SECONDS_MAX, KeyAct, Kind, Look, SEGMENT_BYTES, START, Script};
use crate::verbs::model::Rules;
use memory::arena::Arena;
use memory::sync::watched::alone;
use shuttle::thread;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use store::{Config, Start, Store};
use testing::Random;

/// Number of `maintain` calls in a final round after which background work counts as endless.
const MAINTAINED_MAX: usize = 100_000;

pub(crate) struct Outcome {
    pub(crate) wrong: Vec<String>,
    pub(crate) evictions: u64,
    pub(crate) undecided: u64,
}

/// Maximum bytes of an item.
const ITEM_BYTES_MAX: usize = 6 << 10;

pub(crate) fn run(script: Script) -> Outcome {
    let world = Arc::new(World::new(script));
    let script = &world.script;
    let columns = script.acts.len();
    let config = Config {
        memory_bytes: script.segments * SEGMENT_BYTES,
        item_bytes_max: ITEM_BYTES_MAX,
        columns: columns + 1,
        eviction: script.eviction,
        cas: script.cas,
        now: START - APART_SECONDS_MAX,
    };
    let (_, arena_value_bytes_min, keeps) = script.arena.unwrap_or_default();
    let rings = u32::try_from(columns + 1).expect("few");
    let arena = alone(|| {
        script.arena.map(|(chunks, ..)| {
            let made = Arena::new(2 * rings, chunks, 2048).expect("memory");
            Arc::new(made.keeping(keeps))
        })
    });
    let start = || Start { arena: arena.clone(), arena_value_bytes_min, ..Start::default() };
    let store = alone(|| Store::with_start(&config, start())).expect("address space");
    note_evictions(&world);
    let actor = |lane| Actor {
        world: Arc::clone(&world),
        column: store.column(),
        lane,
        now: config.now,
        pins: Vec::new(),
        ring: arena
            .as_ref()
            .filter(|_| keeps)
            .map(|arena| Ring::new(arena, u32::try_from(lane).expect("few"), rings)),
    };
    let mut working: Vec<Actor> = alone(|| (0..columns).map(actor).collect());
    let mut keeper = alone(|| actor(columns));
    alone(|| {
        working.iter_mut().for_each(|actor| actor.column.offline());
        prepare(&mut keeper, &store);
        keeper.column.offline();
    });
    let threads = working.into_iter().map(|actor| thread::spawn(move || work(actor)));
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let undecided = alone(|| look(&mut keeper, &store));
    store::set_eviction_hook(None);
    let wrong = std::mem::take(&mut *world.wrong.lock().unwrap());
    Outcome { wrong, evictions: store.stats().evictions, undecided }
}

fn work(mut actor: Actor) {
    let world = Arc::clone(&actor.world);
    actor.column.online();
    actor.set_now(START - world.script.behind[actor.lane]);
    world.script.acts[actor.lane].iter().for_each(|act| actor.act(act));
    actor.unpin();
}

/// Records evictions as events of the evicted keys, in an extra lane for each column.
fn note_evictions(world: &Arc<World>) {
    let world = Arc::clone(world);
    let keys: Vec<_> = (0..world.script.keys).map(name).collect();
    let begun: Vec<_> = (0..=world.script.acts.len()).map(|_| Cell::new(0)).collect();
    store::set_eviction_hook(Some(Box::new(move |column, key, is_done| {
        let Some(key) = keys.iter().position(|name| *name == key) else { return };
        if !is_done {
            begun[column].set(world.moment());
            return;
        }
        let lane = world.script.acts.len() + 1 + column;
        let (began, ended) = (begun[column].get(), world.moment());
        world.note(lane, Some(key), Call { began, ended, now: 0, event: Event::Evicted });
    })));
}

/// Sets the script's filler keys, and meanwhile does the first operation on each checked key.
fn prepare(keeper: &mut Actor, store: &Store) {
    let world = Arc::clone(&keeper.world);
    let script = &world.script;
    let random = &mut Random::new(script.seed ^ 0xf111);
    keeper.column.online();
    let (keys, value_bytes) = script.fill;
    let evictions = || store.stats().evictions > 0;
    let mut first = (0..script.keys).zip(&script.first);
    for key in 0..keys {
        if random.one_in(u64::from(keys.min(60)) / 8 + 1)
            && let Some((key, act)) = first.next()
        {
            keeper.on_key(key, act);
        }
        world.filled.store(key + 1, SeqCst);
        let large = script.fill_large != u64::MAX && random.one_in(script.fill_large);
        let timed = script.fill_timed != u64::MAX && random.one_in(script.fill_timed);
        let bytes = if large { 600 + random.index(2000) } else { value_bytes };
        let exptime = if timed { START + random.number(4) } else { 0 };
        let stored = keeper.fill(key, bytes, exptime);
        if script.fill_holes != u64::MAX && random.one_in(script.fill_holes) {
            keeper.column.delete(&fill_name(random.number(key + 1)));
        }
        if random.one_in(3) {
            let _ = keeper.column.get(&fill_name(random.number(key + 1)));
        }
        keeper.column.quiesce();
        let is_full = matches!(script.kind, Kind::Tight | Kind::Limits)
            && (!stored || (key % 8 == 0 && evictions()));
        if is_full {
            break;
        }
    }
    first.for_each(|(key, act)| keeper.on_key(key, act));
    world.refused.store(0, SeqCst);
}

fn look(keeper: &mut Actor, store: &Store) -> u64 {
    let world = Arc::clone(&keeper.world);
    let faults = |when: &str| {
        for fault in store.audit() {
            world.wrong(format!("audit {when}: {fault}"));
        }
    };
    faults("in the end");
    keeper.column.online();
    let latest = world.clocks.iter().take(world.script.acts.len()).map(|clock| clock.load(SeqCst));
    let latest = latest.max().unwrap_or(START);
    keeper.now = latest;
    keeper.column.set_now(latest);
    for key in 0..world.script.keys {
        keeper.on_key(key, &KeyAct::Get(Look::Plain));
    }
    let undecided = histories(&world);
    let stats = store.stats();
    if world.script.kind == Kind::Roomy || world.script.kind == Kind::Index {
        let refused = world.refused.load(SeqCst);
        if stats.evictions > 0 || refused > 0 {
            world.wrong(format!("{} evicted, {refused} refused with room", stats.evictions));
        }
    }
    (0..world.script.keys).for_each(|key| _ = keeper.column.delete(&name(key)));
    (0..world.filled.load(SeqCst).max(320))
        .for_each(|key| _ = keeper.column.delete(&fill_name(key)));
    keeper.column.set_now(latest + 1);
    for _ in 0..3 {
        keeper.column.quiesce();
        if (0..MAINTAINED_MAX).all(|_| keeper.column.maintain()) {
            world.wrong("background work does not end".to_owned());
        }
    }
    faults("when all is deleted");
    let (stats, usage) = (store.stats(), store.usage());
    let left = [
        ("items", stats.curr_items),
        ("bytes", stats.bytes),
        ("sealed segments", usage.segments_sealed),
        ("segments in limbo", usage.segments_limbo),
        ("segments with frames", usage.segments_frames),
        ("bytes in the arena", usage.arena_bytes),
    ];
    for (what, left) in left {
        if left != 0 {
            world.wrong(format!("{left} {what} are left of nothing"));
        }
    }
    keeper.column.offline();
    undecided
}

/// Compares each key's history with the model. Returns the number of undecided histories.
fn histories(world: &World) -> u64 {
    let script = &world.script;
    let calls = world.calls.lock().unwrap();
    let lanes = 2 * (script.acts.len() + 1);
    let register = |key| Register {
        rules: Rules {
            now: 0,
            key_bytes: name(key).len(),
            item_bytes_max: ITEM_BYTES_MAX,
            has_cas: script.cas,
            knows_uses: false,
        },
        rising_cas: !script.own_cas,
        may_refuse: matches!(script.kind, Kind::Tight | Kind::Limits),
    };
    let latest = world.latest.lock().unwrap();
    let mut undecided = 0;
    for key in 0..script.keys {
        let mut history = vec![Vec::new(); lanes];
        let own = calls.iter().filter(|(_, of, _)| of.is_none_or(|of| of == key));
        own.for_each(|(lane, _, call)| history[*lane].push(call));
        match explain(&history, &latest, register(key)) {
            Verdict::Explained => {}
            Verdict::Undecided => undecided += 1,
            Verdict::Wrong(furthest) => world.wrong(describe(key, &history, &furthest)),
        }
    }
    undecided
}

/// Formats a history that no order explains, with its calls in the order in which they began.
fn describe(key: usize, history: &[Vec<&Call>], furthest: &[usize]) -> String {
    let mut lines = Vec::new();
    for (lane, calls) in history.iter().enumerate() {
        for (at, call) in calls.iter().enumerate() {
            let mark = if at == furthest[lane] { "->" } else { "  " };
            let Call { began, ended, now, event } = call;
            lines.push((
                *began,
                format!("{mark} {began:4}..{ended:4} lane {lane} at {now}: {event:?}"),
            ));
        }
    }
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    format!("no order explains the history of key {key}:\n{}", lines.join("\n"))
}
