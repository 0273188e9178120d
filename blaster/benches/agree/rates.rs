//! Checks that kvblaster sends at the requested rate, and that all requests are answered.
//!
//! Where: the part of the bench that runs an open loop, after the comparisons in closed loops.
//! Invariant: the gaps between requests are equal, so the number of requests is not random.

use super::peers::run;
use super::{Settings, servers, started};
use blaster::measure::check::{Loop, check};
use blaster::result::RunResult;
use std::error::Error;
use std::process::Command;

const RATES: [u32; 8] = [1_000, 3_000, 10_000, 30_000, 60_000, 100_000, 150_000, 200_000];
/// If the rate's relative error is larger, the table says that the rate is wrong.
const OFF_MAX: f64 = 0.01;

const ABOUT: &str = "
== Rates: open loop against one memcached thread, 16 connections, equal gaps
Up to the capacity of this server, `answered` should be within 1 % of the requested rate. `due`
should always be within a hundredth of a percent, because requests fall due by a schedule that does
not depend on the server. `late` is the time from when a request was due until it was sent. Above
the capacity of the server, or of the generator on one processor, `answered` is lower, and the
self-check's verdict shows which of the two is the limit.
";

pub(crate) fn measure(settings: Settings) -> Result<(), Box<dyn Error>> {
    let Some(server) = started(servers::memcached(settings.server_cpu)?, "memcached") else {
        return Ok(());
    };
    println!("{ABOUT}");
    println!(
        "{:>9} {:>11} {:>9} {:>11} {:>9} {:>24} {:>18}  verdict",
        "asked/s",
        "due/s",
        "off %",
        "answered/s",
        "off %",
        "late us p50 p99 max",
        "answer us p50 p99"
    );
    for rate in RATES {
        let mut command = Command::new("taskset");
        command.args(["-c", &settings.client_cpu.to_string(), env!("CARGO_BIN_EXE_kvblaster")]);
        let words = format!(
            "run -q --json --keep -w uniform --keys 16000 --key-size 32 --value-size 128 \
             --gap fixed --mix get=9,set=1 -c 16 -r {rate} --schedule 0.3s+1x{}s {}",
            settings.seconds, server.target
        );
        command.args(words.split_whitespace());
        if rate != RATES[0] {
            command.arg("--no-populate");
        }
        let (output, _) = run(&mut command)?;
        row(rate, &serde_json::from_slice(&output.stdout)?)?;
    }
    Ok(())
}

fn row(rate: u32, result: &RunResult) -> Result<(), Box<dyn Error>> {
    let merged = result.merged.as_ref().ok_or("nothing was measured")?;
    let total = merged.tally.total();
    let off = |per_s: f64| per_s / f64::from(rate) - 1.0;
    let (due, answered) = (merged.offered_per_s(), merged.achieved_per_s());
    let us = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let late = &merged.tally.lateness_ns;
    let late = [late.quantile_ns(0.5), late.quantile_ns(0.99), late.max_ns()].map(us).join(" ");
    let times = [0.5, 0.99].map(|quantile| us(total.response_ns.quantile_ns(quantile))).join(" ");
    let verdict = check(merged, Loop::Open);
    let rules: Vec<&str> = verdict.remarks.iter().map(|remark| remark.rule.as_str()).collect();
    println!(
        "{rate:>9} {due:>11.1} {:>9.3} {answered:>11.1} {:>9.3} {late:>24} {times:>18}  {}{}",
        100.0 * off(due),
        100.0 * off(answered),
        if off(answered).abs() <= OFF_MAX { "within 1 %" } else { "NOT within 1 %" },
        if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(" ")) },
    );
    Ok(())
}
