//! Tests of balancing with simulated columns, connections and clock.
//!
//! Where: `Balance` alone, without sockets and threads.
//! Invariant: in every test, no connection moves again within `MIGRATION_REST_MS`.

use super::*;
use crate::limits::MIGRATION_REST_MS;
use testing::Random;

/// A connection whose requests need `wants` thousandths of a core.
#[derive(Clone, Copy, Debug)]
struct Client {
    wants: u64,
    column: usize,
    rests_until_ms: u64,
    moved: u32,
}

struct Machine {
    columns: Vec<Balance>,
    clients: Vec<Client>,
    now_ms: u64,
    moves: Vec<Move>,
}

impl Machine {
    /// Makes a server. `clients` gives, for each client, its column and its `wants`.
    fn new(columns: usize, clients: impl IntoIterator<Item = (usize, u64)>) -> Machine {
        let loads = Loads::new(columns);
        let client = |(column, wants)| Client { wants, column, rests_until_ms: 0, moved: 0 };
        Machine {
            columns: (0..columns).map(|own| Balance::new(Arc::clone(&loads), own)).collect(),
            clients: clients.into_iter().map(client).collect(),
            now_ms: 0,
            moves: Vec::new(),
        }
    }

    fn wanted(&self, column: usize) -> u64 {
        self.clients.iter().filter(|it| it.column == column).map(|it| it.wants).sum()
    }

    /// Returns how many thousandths of a core a client gets. In a saturated column, all clients get
    /// the same fraction of the thousandths that they want.
    fn got(&self, client: &Client) -> u64 {
        client.wants * 1000 / self.wanted(client.column).max(u64::from(LOAD_MAX))
    }

    fn period(&mut self) -> usize {
        self.now_ms += MIGRATION_PERIOD_MS;
        // Both sums are computed before any client moves.
        let got: Vec<u64> = self.clients.iter().map(|it| self.got(it)).collect();
        let wanted: Vec<u64> = (0..self.columns.len()).map(|it| self.wanted(it)).collect();
        let before = self.clients.clone();
        for (own, wanted) in wanted.into_iter().enumerate() {
            let load = u32::try_from(wanted).unwrap_or(LOAD_MAX).min(LOAD_MAX);
            if load == 0 || self.columns[own].end_period(self.now_ms, load) != Verdict::Give {
                continue; // an idle column sleeps
            }
            let mine = before.iter().enumerate().filter(|(_, it)| it.column == own);
            let connections = mine.map(|(token, it)| Connection {
                token: token as u64,
                work: got[token] * 1000,
                may_go: it.rests_until_ms <= self.now_ms,
            });
            let told = |to: usize| self.columns[own].loads.of_taker(to, self.now_ms);
            let told: Vec<Option<u32>> = (0..self.columns.len()).map(told).collect();
            let mut moves = Vec::new();
            self.columns[own].plan(self.now_ms, connections, &mut moves);
            check(own, &moves, &told, &got);
            self.moves.append(&mut moves);
        }
        for Move { token, to } in &self.moves {
            let client = &mut self.clients[usize::try_from(*token).unwrap()];
            assert!(client.rests_until_ms <= self.now_ms);
            client.column = *to;
            client.rests_until_ms = self.now_ms + MIGRATION_REST_MS;
            client.moved += 1;
            self.columns[*to].note_taken();
        }
        std::mem::take(&mut self.moves).len()
    }

    fn seconds(&mut self, seconds: usize) -> usize {
        (0..2 * seconds).map(|_| self.period()).sum()
    }

    fn loads(&self) -> Vec<u64> {
        (0..self.columns.len()).map(|it| self.wanted(it)).collect()
    }
}

/// Checks the moves of column `own` against the published loads and the measured costs: afterwards
/// no column has as much load as `own` had before, and the loads differ less than before.
fn check(own: usize, moves: &[Move], told: &[Option<u32>], got: &[u64]) {
    let (mut after, mut before) = (vec![0; told.len()], vec![0; told.len()]);
    for (column, told) in told.iter().enumerate() {
        before[column] = told.map_or(0, u64::from);
    }
    before[own] = LOAD_MAX.into();
    after.clone_from(&before);
    for it in moves {
        let work = got[usize::try_from(it.token).unwrap()];
        after[it.to] += work;
        after[own] -= work;
    }
    let squares = |loads: &[u64]| loads.iter().map(|load| load * load).sum::<u64>();
    let is_better = after.iter().max() < before.iter().max() && squares(&after) < squares(&before);
    assert!(moves.is_empty() || is_better, "{before:?} became {after:?}: {moves:?}");
}

#[test]
fn what_one_column_has_is_spread_over_all_at_once_and_then_stays() {
    for columns in [2, 3, 16] {
        let clients = 20 * columns as u64;
        // All clients together want nine tenths of the capacity of all columns.
        let mut machine = Machine::new(columns, (0..clients).map(|_| (0, 45)));
        assert_eq!(machine.period(), 0, "one period says nothing");
        machine.period();
        let expected = vec![900; columns];
        assert_eq!(machine.loads(), expected);
        assert_eq!(machine.seconds(60), 0);
    }
}

#[test]
fn a_burst_moves_nothing_nor_do_bursts_that_alternate() {
    let mut machine = Machine::new(2, (0..10).map(|_| (0, 200)));
    for period in 0..100 {
        machine.clients.iter_mut().for_each(|it| it.wants = if period % 2 == 0 { 200 } else { 80 });
        assert_eq!(machine.period(), 0, "period {period}");
    }
    // No connection moves while both columns are loaded.
    let mut machine = Machine::new(2, (0..20).map(|at| (at % 2, 200)));
    assert_eq!(machine.seconds(60), 0);
    // No connection moves while the column has time to spare.
    let mut machine = Machine::new(2, (0..10).map(|_| (0, 80)));
    assert_eq!(machine.seconds(60), 0);
}

#[test]
fn a_connection_that_is_all_of_the_work_stays() {
    let mut machine = Machine::new(4, [(0, 2000)]);
    assert_eq!(machine.seconds(60), 0);
    // The largest connection stays; all others of its column move, each at most once.
    let small = (0..10).map(|_| (0, 30));
    let mut machine = Machine::new(4, [(0, 2000)].into_iter().chain(small));
    machine.seconds(60);
    assert!(machine.clients.iter().all(|it| it.moved <= 1), "{:?}", machine.clients);
    assert_eq!((machine.clients[0].column, machine.wanted(0)), (0, 2000));
    // One of two connections moves.
    let mut machine = Machine::new(4, [(0, 800), (0, 700)]);
    assert_eq!(machine.seconds(60), 1);
    assert_eq!(machine.wanted(0), 800);
}

#[test]
fn several_saturated_columns_give_to_those_that_are_not_and_one_takes_from_one_at_a_time() {
    let clients = (0..90).map(|at| (at % 3, 50));
    let mut machine = Machine::new(4, clients);
    machine.period();
    let (loads, from) = (machine.loads(), machine.clients.clone());
    assert!(machine.period() > 0, "{loads:?}");
    let moved =
        machine.clients.iter().zip(&from).filter(|(now, before)| now.column != before.column);
    let mut givers: Vec<usize> = moved.map(|(_, before)| before.column).collect();
    givers.dedup();
    assert_eq!(givers.len(), 1, "{givers:?}");
    machine.seconds(10);
    let mut machine = Machine::new(8, (0..120).map(|at| (at % 3, 50)));
    machine.seconds(60);
    let loads = machine.loads();
    assert!(loads.iter().all(|load| *load <= 1000), "{loads:?}");
    assert_eq!(machine.seconds(60), 0);
}

#[test]
fn whatever_clients_want_nobody_goes_back_and_forth_and_all_come_to_rest() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let columns = 2 + random.number(7) as usize;
        let clients = 1 + random.number(100);
        let mut machine = Machine::new(
            columns,
            (0..clients).map(|at| (at as usize % 2, u64::from(random.number(300)))),
        );
        for _ in 0..60 {
            // Every second, about a quarter of the clients changes its load.
            for client in &mut machine.clients {
                if random.number(4) == 0 {
                    client.wants = u64::from(random.number(300));
                }
            }
            machine.seconds(1);
        }
        machine.clients.iter_mut().for_each(|it| it.moved = 0);
        machine.seconds(60);
        let moved = machine.clients.iter().map(|it| it.moved).max();
        assert!(moved <= Some(3), "seed {seed}: {:?}", machine.clients);
        let (before, moves) = (machine.loads(), machine.seconds(60));
        assert_eq!(moves, 0, "seed {seed}: {before:?}, {:?}", machine.loads());
        let (most, least) = (before.iter().max().unwrap(), before.iter().min().unwrap());
        let largest = machine.clients.iter().map(|it| it.wants).max().unwrap();
        let is_even = *most < 900 || *least > 700 || most - least <= 2 * largest.max(200);
        assert!(is_even, "seed {seed}: {before:?}");
    }
}

#[test]
fn only_a_share_of_very_many_connections_is_compared_and_moves_at_a_time() {
    let busy = 3 * MIGRATION_CANDIDATES_MAX;
    let mut balance = Balance::new(Loads::new(2), 0);
    let mut moves = Vec::new();
    let connection = |token: usize| {
        // Connections with higher tokens cost more.
        Connection { token: token as u64, work: token as u64, may_go: true }
    };
    assert_eq!(balance.end_period(500, LOAD_MAX), Verdict::Count);
    assert_eq!(balance.end_period(1000, LOAD_MAX), Verdict::Give);
    balance.plan(1000, (0..busy).map(connection), &mut moves);
    let mut tokens: Vec<u64> = moves.iter().map(|it| it.token).collect();
    tokens.sort_unstable();
    let expected: Vec<u64> = (busy - MIGRATIONS_MAX..busy).map(|it| it as u64).collect();
    assert_eq!(tokens, expected);
    // The other column takes no further connection until its load has been measured again.
    assert_eq!(balance.end_period(1500, LOAD_MAX), Verdict::Even);
    assert_eq!(balance.end_period(2000, LOAD_MAX), Verdict::Count);
}

#[test]
fn who_has_told_nothing_for_two_periods_sleeps_and_takes_from_one_at_a_time() {
    let loads = Loads::new(2);
    Balance::new(Arc::clone(&loads), 1).end_period(1000, LOAD_MAX);
    assert_eq!([2000, 2001].map(|now_ms| loads.of_taker(1, now_ms)), [None, Some(0)]);
    // The same column is claimed twice at the same time; only the first claim succeeds.
    assert_eq!([2001, 2001].map(|now_ms| loads.claim(1, now_ms)), [true, false]);
    assert_eq!([3000, 3001].map(|now_ms| loads.of_taker(1, now_ms)), [None, Some(0)]);
    assert!(loads.claim(1, 3001));
}
