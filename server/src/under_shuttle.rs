//! Tests of the state that columns share in addition to the store, under random schedules:
//! `stats conns`, dumps of all items, `watch`.
//!
//! Where: `make explore` runs these tests.
//! Invariant: the code under test is the shipped source. In place of a column there is a thread
//! that does only the parts of a column's loop that concern this state.

use std::sync::Arc;

use memory::sync::watched::alone;
use net::Waker;
use protocol::Form;
use protocol::text::event::Item;
use protocol::text::operator::Streams;
use shuttle::thread;
use store::Store;
use testing::Random;
use testing::schedules::{explore_drawn, wakes};

use crate::clock::Clock;
use columns::executor::Progress;
use columns::pages::{Page, Row};

use crate::errand::conns::Conns;
use crate::errand::place::Place;
use crate::execute::Context;
use crate::limits::{DUMP_STALLED_SECONDS, DUMPS_MAX};
use crate::shared::Shared;
use crate::shared::watch::WatchGuard;
use crate::start::settings::Settings;

const SECONDS: u64 = 10;

fn contexts(columns: usize) -> Vec<Context> {
    alone(|| {
        let settings = Settings { memory_bytes: 8 << 20, ..Settings::with_columns(columns) };
        let store = Store::new(&settings.store_config()).unwrap();
        let clock = Clock::new(0);
        let shared = Shared::new(Arc::new(settings), Arc::clone(&store), clock.process_started);
        let context = |counters: &Arc<_>| {
            Context::new(store.column(), Arc::clone(counters), Arc::clone(&shared), clock)
        };
        shared.requests.iter().map(context).collect()
    })
}

/// A column, and its connections that wait for an answer to `stats conns`.
struct Asker {
    context: Context,
    waker: Arc<Waker>,
    pages: usize,
    asks: Vec<(Option<Conns>, Vec<u8>)>,
}

/// Returns the descriptor that stands for page number `page` of `column` in the rows.
fn page_number(column: usize, page: usize) -> i32 {
    i32::try_from(10 * column + page).unwrap()
}

impl Asker {
    fn turn(&mut self) {
        if wakes(&self.waker) == 0 {
            return;
        }
        self.context.look_who_watches();
        for (conns, out) in &mut self.asks {
            if conns.as_mut().is_some_and(|it| {
                it.step(&self.context.shared.columns, self.context.column, out) == Progress::Done
            }) {
                *conns = None;
            }
        }
        self.context.tell_events();
        let (shared, column) = (Arc::clone(&self.context.shared), self.context.column);
        for request in shared.columns.pages.take(column) {
            let row = Row {
                descriptor: page_number(column, request.from()),
                is_udp: false,
                address: "there".to_owned(),
                listens_at: None,
                state: "conn_read",
                idle_seconds: 0,
            };
            let next = Some(request.from() + 1).filter(|next| *next < self.pages);
            shared.columns.pages.answer(&request, Page { rows: vec![row], next });
        }
    }
}

#[test]
fn whoever_asks_is_told_of_all_columns_though_watchers_come_and_go() {
    explore_drawn(SECONDS, |random| {
        let contexts = contexts(2 + random.index(2));
        let shared = Arc::clone(&contexts[0].shared);
        let wakers: Vec<_> = contexts.iter().map(|_| Arc::new(Waker::new().unwrap())).collect();
        shared.columns.pages.set_wakers(&wakers);
        let mut columns: Vec<Asker> = contexts
            .into_iter()
            .zip(&wakers)
            .map(|(context, waker)| {
                let (pages, waker) = (1 + random.index(2), Arc::clone(waker));
                Asker { context, waker, pages, asks: Vec::new() }
            })
            .collect();
        let told: Vec<i32> = columns
            .iter()
            .flat_map(|it| (0..it.pages).map(|page| page_number(it.context.column, page)))
            .collect();
        let watcher = {
            let (shared, times) = (Arc::clone(&shared), random.below(3));
            thread::spawn(move || {
                (0..times).for_each(|_| drop(WatchGuard::take(&shared.watch, Streams::MUTATIONS)));
            })
        };
        let threads: Vec<_> = columns
            .drain(..)
            .map(|mut column| {
                let (asks, turns) = (random.below(4), random.below(10));
                thread::spawn(move || {
                    for _ in 0..asks {
                        let form = Form::LINE;
                        let conns = Conns::begin(
                            &column.context.shared.columns,
                            column.context.column,
                            form,
                        );
                        column.asks.push((Some(conns), Vec::new()));
                        column.turn();
                    }
                    (0..turns).for_each(|_| {
                        column.turn();
                        thread::yield_now();
                    });
                    column
                })
            })
            .collect();
        columns.extend(threads.into_iter().map(|it| it.join().unwrap()));
        watcher.join().unwrap();
        // Runs more loops, because columns may have been woken after their threads ended.
        (0..200).for_each(|_| columns.iter_mut().for_each(Asker::turn));
        for (conns, out) in columns.iter().flat_map(|column| &column.asks) {
            assert!(conns.is_none(), "nobody is woken for an ask or an answer");
            let rows = std::str::from_utf8(out).unwrap().lines();
            let numbers =
                rows.filter_map(|row| row.strip_prefix("STAT ")?.strip_suffix(":addr there"));
            assert_eq!(numbers.map(|it| it.parse().unwrap()).collect::<Vec<i32>>(), told);
        }
        assert_eq!((shared.watch.watched(), shared.watch.watchers()), (Streams::default(), 0));
    });
}

#[test]
fn a_place_is_one_holders_and_who_loses_it_is_told() {
    explore_drawn(SECONDS, |random| {
        let contexts = contexts(DUMPS_MAX + 2);
        let shared = Arc::clone(&contexts[0].shared);
        let mut places: Vec<Place> = Vec::new();
        let threads: Vec<_> = contexts
            .into_iter()
            .map(|mut context| {
                let late = random.pick(&[0, DUMP_STALLED_SECONDS, DUMP_STALLED_SECONDS + 1]);
                let (moves, gives_back) = (random.below(2), random.one_in(4));
                thread::spawn(move || {
                    context.clock.now += late;
                    let mut place = context.take_place();
                    (0..moves).for_each(|_| {
                        _ = place.as_mut().map(|it| it.keep(context.clock.now));
                    });
                    // A place that was lost to another holder is not given back.
                    let lost = place.as_mut().is_some_and(|it| !it.keep(context.clock.now));
                    if gives_back && !lost { (None, place) } else { (place, None) }
                })
            })
            .collect();
        let mut back = Vec::new();
        for thread in threads {
            let (kept, given_back) = thread.join().unwrap();
            places.extend(kept);
            back.extend(given_back);
        }
        let mut lost = 0;
        places.iter_mut().chain(&mut back).for_each(|it| lost += usize::from(!it.keep(0)));
        let all = places.len() + back.len();
        assert!(all - lost <= DUMPS_MAX, "{all} were given, and {lost} lost");
        assert_eq!(lost as u64, shared.sums().requests.dumps_stalled, "who loses a place is told");
        assert_eq!(shared.places.any(), all > lost);
        drop((places, back));
        assert!(!shared.places.any());
    });
}

/// Notes events of one column, in several loops. Returns the number of events.
fn note(mut context: Context, mut random: Random) -> u64 {
    let (mut events, loops) = (0, random.below(4));
    for _ in 0..loops {
        context.look_who_watches();
        let some = random.below(3);
        for event in events..events + some {
            let key = format!("c{}-{event:03}", context.column);
            let Context { shared, counters, noted, .. } = &mut context;
            let what = Item::Deleted { command: "delete" };
            noted.item((&shared.watch, counters), Streams::DELETIONS, (key.as_bytes(), 1), what);
        }
        events += some;
        context.tell_events();
    }
    events
}

/// Returns the keys of one column's events in `lines`, in order.
fn keys(lines: &[u8], column: usize) -> Vec<String> {
    let (lines, own) = (std::str::from_utf8(lines).unwrap(), format!("c{column}-"));
    let words = lines.split_whitespace().filter_map(|word| word.strip_prefix("key="));
    words.filter(|key| key.starts_with(&own)).map(str::to_owned).collect()
}

#[test]
fn who_watches_is_told_of_each_event_once_whoever_else_comes_and_goes() {
    explore_drawn(SECONDS, |random| {
        let contexts = contexts(2);
        let shared = Arc::clone(&contexts[0].shared);
        let guard = WatchGuard::take(&shared.watch, Streams::DELETIONS).unwrap();
        let columns: Vec<_> = contexts
            .into_iter()
            .map(|context| {
                let random = Random::new(random.next());
                thread::spawn(move || note(context, random))
            })
            .collect();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let other = WatchGuard::take(&shared.watch, Streams::DELETIONS).unwrap();
                [other.take_lines(), other.take_lines()].concat()
            })
        };
        let mut lines = guard.take_lines();
        let events: Vec<u64> = columns.into_iter().map(|it| it.join().unwrap()).collect();
        let others = other.join().unwrap();
        lines.extend(guard.take_lines());
        for (column, count) in events.into_iter().enumerate() {
            let all: Vec<String> =
                (0..count).map(|event| format!("c{column}-{event:03}")).collect();
            assert_eq!(keys(&lines, column), all);
            let theirs = keys(&others, column);
            assert!(theirs.is_sorted() && theirs.iter().all(|key| all.contains(key)), "{theirs:?}");
        }
        drop(guard);
        assert!(!shared.watch.watched().intersects(Streams::DELETIONS), "nobody watches");
    });
}
