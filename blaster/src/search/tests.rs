//! Searches against servers whose capacities are known.
//!
//! Where: unit tests of `search`.
//! Invariant: everything is computed from fixed seeds, so a test always has the same result.

use super::bracket::Limit;
use super::curve::Point;
use super::simulated::{SLOW_S, Simulated};
use super::{Capacity, SearchPlan, SearchResult, search};

const MS: f64 = 1e-3;

fn aim() -> SearchPlan {
    crate::run::flags::plan(true).unwrap().capacity.unwrap().aim
}

fn found(aim: &SearchPlan, server: &mut Simulated) -> SearchResult {
    let mut told = 0;
    let found = search(aim, server, |_, _| told += 1).unwrap();
    assert_eq!(found.curve.len(), told);
    found
}

fn rate(capacity: &Capacity) -> f64 {
    capacity.rate_per_s.unwrap_or_else(|| panic!("{capacity:?}"))
}

/// Returns a server's exact capacities: the rates at which the mean, p99 and p99.9 reach 1 ms.
fn known(server: &Simulated) -> [f64; 3] {
    [
        server.capacity(MS, Simulated::mean_s),
        server.capacity(MS, |server, rate| server.quantile_s(rate, 0.99)),
        server.capacity(MS, |server, rate| server.quantile_s(rate, 0.999)),
    ]
}

#[test]
fn all_capacities_of_a_quiet_server_are_found_in_one_search() {
    let mut server = Simulated::new(20.0, 1);
    let known = known(&server);
    let found = found(&aim(), &mut server);
    assert!(found.is_complete);
    for (capacity, known) in found.capacities.iter().zip(known) {
        let rate = rate(capacity);
        assert!((0.975..=1.001).contains(&(rate / known)), "{capacity:?} for {known}");
        assert_eq!(capacity.limit, Limit::Server);
        let (low, high) = capacity.interval_per_s.unwrap();
        assert!(low <= rate && rate <= high, "{capacity:?}");
        assert_eq!(capacity.rounds_per_s.len(), 5);
    }
    // The objective that no response is late is harder to meet than the objective for the p99.9.
    let max = rate(&found.capacities[3]);
    assert!(max < rate(&found.capacities[2]) && max > 0.5 * known[2], "{max}");
    assert!(found.curve.len() < 200, "{} trials", found.curve.len());
}

#[test]
fn noise_is_averaged_and_shows_in_the_interval() {
    for seed in 0..5 {
        let mut server = Simulated::new(20.0, seed);
        let known = known(&server);
        server.noise = 1.3;
        let found = found(&aim(), &mut server);
        // The mean reaches 1 ms only near full load, where a small change of the rate outweighs the
        // noise. The p99.9 is proportional to the wait, so noise changes the p99.9's capacity more.
        for (at, within) in [(0, 0.03), (1, 0.1), (2, 0.15)] {
            let capacity = &found.capacities[at];
            let off = rate(capacity) / known[at] - 1.0;
            assert!(off.abs() < within, "seed {seed}: {capacity:?} for {}", known[at]);
            let (low, high) = capacity.interval_per_s.unwrap();
            assert!(low < high && high / low < 1.5, "seed {seed}: {capacity:?}");
        }
    }
}

#[test]
fn a_stall_now_and_then_is_outvoted() {
    // The lowest capacity that three searches find, relative to the exact capacity.
    let worst = |votes| {
        let off = (0..3).map(|seed| {
            let mut server = Simulated::new(20.0, seed);
            let known = known(&server)[2];
            server.stalls = 0.1;
            let found = found(&SearchPlan { votes, trials_max: 3000, ..aim() }, &mut server);
            rate(&found.capacities[2]) / known
        });
        off.fold(f64::INFINITY, f64::min)
    };
    let (one, nine) = (worst(1), worst(9));
    assert!(one < 0.97, "a single vote was not misled: {one}");
    assert!((0.98..=1.001).contains(&nine), "{nine}");
}

#[test]
fn a_server_that_always_stalls_has_no_capacity_for_the_tail() {
    let mut server = Simulated::new(20.0, 1);
    server.stalls = 1.0;
    let found = found(&aim(), &mut server);
    let limits: Vec<Limit> = found.capacities.iter().map(|capacity| capacity.limit).collect();
    assert_eq!(limits[2..], [Limit::LowestRate; 2], "{limits:?}");
    assert_eq!(found.capacities[3].rate_per_s, None);
}

#[test]
fn a_second_mode_costs_the_mean_a_little_and_the_tail_everything() {
    // One request in two hundred takes 5 ms longer, which adds 25 µs to the mean response time.
    let mut server = Simulated::new(20.0, 1);
    let known = server.capacity(MS - 0.005 * SLOW_S, Simulated::mean_s);
    // 0.5 % of the requests are slow, so the p99 of all requests is below 1 ms if the quantile
    // `beyond` of all fast requests is below 1 ms.
    let beyond = 1.0 - 0.005 / 0.995;
    let tail = server.capacity(MS, |server, rate| server.quantile_s(rate, beyond));
    server.slow = 0.005;
    let found = found(&aim(), &mut server);
    let [avg, p99, p999, max] = &found.capacities[..] else { panic!("{found:?}") };
    assert!((0.975..=1.001).contains(&(rate(avg) / known)), "{avg:?} for {known}");
    assert!((0.95..=1.03).contains(&(rate(p99) / tail)), "{p99:?} for {tail}");
    assert_eq!([p999.limit, max.limit], [Limit::LowestRate; 2]);
    assert_eq!((p999.rate_per_s, max.rate_per_s), (None, None));
    assert!(found.is_complete, "not in {} trials", found.curve.len());
    assert_eq!(max.interval_per_s, Some((0.0, 0.0)), "{max:?}");
}

#[test]
fn where_higher_rates_hold_again_an_edge_is_found_that_holds() {
    // All objectives are met up to 15,000/s, and again from 22,000/s up to the capacity.
    let known = known(&Simulated::new(20.0, 1));
    for start_per_s in [10_000.0, 5_000.0, 30_000.0, 18_000.0] {
        let mut server = Simulated { dip: (15_000.0, 22_000.0), ..Simulated::new(20.0, 1) };
        let found = found(&SearchPlan { start_per_s, ..aim() }, &mut server);
        assert!(found.is_complete);
        for (capacity, known) in found.capacities.iter().zip(known) {
            let rate = rate(capacity);
            let is_edge = (0.97..=1.001).contains(&(rate / 15_000.0));
            let is_capacity = (0.97..=1.001).contains(&(rate / known));
            assert!(is_edge || is_capacity, "from {start_per_s}: {capacity:?}, not {known}");
            assert_eq!(capacity.limit, Limit::Server);
        }
    }
}

#[test]
fn intervals_hold_the_truth_about_as_often_as_they_say() {
    // Noise of 10 % in the waits spreads the found capacities around the exact capacity.
    let (mut held, mut widths) = (0, 0.0);
    let mut aim = SearchPlan { rounds: 8, trials_max: 3000, ..aim() };
    aim.goals.retain(|goal| goal.name == "p999");
    for seed in 0..12 {
        let mut server = Simulated::new(20.0, 100 + seed);
        let known = known(&server)[2];
        server.noise = 1.1;
        let found = found(&SearchPlan { seed, ..aim.clone() }, &mut server);
        let (low, high) = found.capacities[0].interval_per_s.unwrap();
        // The exact capacity is up to 2 % (the precision) above the rate that passed.
        held += u32::from(low <= known && known <= high * 1.02);
        widths += (high - low) / known / 12.0;
    }
    assert!(held >= 9, "{held} of 12 hold the truth");
    assert!(widths < 0.1, "intervals of {widths} of the capacity tell nothing");
}

#[test]
fn a_generator_that_is_too_slow_is_named_and_not_the_server() {
    let mut server = Simulated::new(20.0, 1);
    server.client_per_s = 30_000.0;
    let found = found(&aim(), &mut server);
    for capacity in &found.capacities[..2] {
        assert_eq!(capacity.limit, Limit::Generator, "{capacity:?}");
        assert!((0.97..=1.0).contains(&(rate(capacity) / 30_000.0)), "{capacity:?}");
    }
    assert!(found.curve.iter().any(|point| point.client_bound.is_some()));
}

#[test]
fn an_objective_that_holds_though_the_generator_is_late_holds() {
    // At low rates, the lateness is half of the response time.
    let mut server = Simulated::new(20.0, 1);
    server.late.0 = 53e-6;
    let capacity = |quantile| {
        let of = |server: &Simulated, rate| server.quantile_s(rate, quantile);
        server.capacity(MS - server.late.0, of)
    };
    let known =
        [server.capacity(MS - server.late.0, Simulated::mean_s), capacity(0.99), capacity(0.999)];
    let found = found(&aim(), &mut server);
    assert!(found.curve.iter().any(|point| point.client_bound.is_some()));
    for (capacity, known) in found.capacities.iter().zip(known) {
        let rate = rate(capacity);
        assert!((0.975..=1.001).contains(&(rate / known)), "{capacity:?} for {known}");
        assert_eq!(capacity.limit, Limit::Server);
    }
}

#[test]
fn below_a_rate_that_only_the_generator_limited_nothing_is_searched() {
    let mut server = Simulated::new(20.0, 1);
    server.late.0 = 2e-3;
    let found = found(&aim(), &mut server);
    for capacity in &found.capacities {
        assert_eq!((capacity.rate_per_s, capacity.limit), (None, Limit::Generator));
    }
    let lowest = found.curve.iter().map(|point| point.asked_per_s).fold(f64::MAX, f64::min);
    assert!(lowest >= 10_000.0 && found.curve.len() <= 12, "{lowest}, {}", found.curve.len());
}

#[test]
fn a_generator_that_is_late_for_a_while_does_not_lead_the_search_astray() {
    // The generator is late in the trials numbered `late`. At least three rounds must find the
    // fraction `within` of the exact capacity or more.
    for (late, within) in [(0..3, 0.97), (70..90, 0.5)] {
        let mut server = Simulated::new(20.0, 1);
        let known = known(&server);
        server.late = (5e-3, late.clone());
        let found = found(&aim(), &mut server);
        for (capacity, known) in found.capacities.iter().zip(known) {
            let near = |rate: &&f64| (within..=1.001).contains(&(**rate / known));
            let near = capacity.rounds_per_s.iter().filter(near).count();
            assert!(near >= 3, "{late:?}: {capacity:?} for {known}");
            assert_eq!(near + capacity.rounds_of_none(), 5, "{late:?}: {capacity:?} for {known}");
        }
        let lowest = found.curve.iter().map(|point| point.asked_per_s).fold(f64::MAX, f64::min);
        assert!(lowest >= 10_000.0, "{late:?}: {lowest}");
    }
}

#[test]
fn a_bad_moment_at_a_low_rate_says_nothing_of_a_goal_that_held_far_above() {
    // The objectives `p999` and `max` are never met, so each round soon tries the lowest rate.
    let slow = || Simulated { slow: 0.005, ..Simulated::new(20.0, 1) };
    let quiet = found(&aim(), &mut slow());
    let lowest = |point: &Point| point.asked_per_s < 12.0;
    let high = quiet.curve.iter().position(|point| point.asked_per_s > 30_000.0).unwrap();
    let first = high + quiet.curve[high..].iter().position(lowest).unwrap();
    let mut server = slow();
    let first = u32::try_from(first).unwrap();
    server.late = (5e-3, first..first + 2);
    let disturbed = found(&aim(), &mut server);
    for (quiet, disturbed) in quiet.capacities.iter().zip(&disturbed.capacities).take(2) {
        let (known, rounds) = (rate(quiet), &disturbed.rounds_per_s);
        assert!(rounds.iter().all(|rate| *rate > 0.95 * known), "{disturbed:?} for {known}");
    }
}

#[test]
fn a_server_that_answers_nothing_is_not_the_generators_fault() {
    let found = found(&aim(), &mut Simulated::new(f64::INFINITY, 1));
    let limits: Vec<Limit> = found.capacities.iter().map(|capacity| capacity.limit).collect();
    assert_eq!(limits, [Limit::LowestRate; 4]);
}

#[test]
fn a_server_that_makes_errors_passes_nothing() {
    let mut server = Simulated::new(20.0, 1);
    server.errors = 11;
    let failed = found(&aim(), &mut server);
    assert_eq!(failed.capacities[0].limit, Limit::LowestRate);
}

#[test]
fn few_failures_are_borne_and_do_not_pass_for_none() {
    // Per 10,000 requests, ten requests or one request get an error or no answer.
    for (errors, lost) in [(10, 0), (0, 10), (1, 0), (0, 1)] {
        let mut server = Simulated::new(20.0, 1);
        (server.errors, server.lost) = (errors, lost);
        let found = found(&aim(), &mut server);
        let [avg, .., max] = &found.capacities[..] else { panic!("{found:?}") };
        assert_eq!(avg.limit, Limit::Server, "{errors} errors, {lost} lost");
        let none = (max.rate_per_s, max.limit);
        assert_eq!(none, (None, Limit::LowestRate), "{errors} errors, {lost} lost");
    }
}

#[test]
fn it_ends_when_it_is_stopped_or_out_of_trials() {
    let mut server = Simulated::new(20.0, 1);
    server.trials_max = 25;
    let stopped = found(&aim(), &mut server);
    assert!(!stopped.is_complete && stopped.curve.len() == 25);
    let mut few = aim();
    few.trials_max = 7;
    let mut server = Simulated::new(20.0, 1);
    let ended = found(&few, &mut server);
    assert!(!ended.is_complete && server.trials == 7);
    assert_eq!(ended.capacities[0].limit, Limit::Unknown);
    assert!(ended.capacities[0].rate_per_s > Some(9_999.0), "the rates that passed are reported");
}

#[test]
fn an_aim_out_of_bounds_still_ends() {
    let mut aim = aim();
    (aim.start_per_s, aim.rate_per_s_max) = (f64::NAN, f64::INFINITY);
    (aim.precision, aim.votes, aim.rounds) = (0.0, 0, 0);
    aim.trials_max = 60;
    let mut server = Simulated::new(20.0, 1);
    assert!(found(&aim, &mut server).curve.len() <= 60);
}

#[test]
fn the_curve_says_what_was_met_where() {
    let mut server = Simulated::new(20.0, 1);
    let found = found(&aim(), &mut server);
    let cap = rate(&found.capacities[1]);
    for point in &found.curve {
        let meets = point.met.iter().any(|name| name == "p99");
        let (below, above) = (point.asked_per_s < 0.97 * cap, point.asked_per_s > 1.03 * cap);
        assert!(meets || !below, "{point:?} at {cap}");
        assert!(!meets || !above, "{point:?} at {cap}");
    }
}
