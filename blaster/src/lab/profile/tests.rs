//! Tests of the profile, on reports that perf 6.1 wrote of three servers.
//!
//! Where: the reports are in this folder. perf recorded with `-F 997` for 10 s while a server on
//! one CPU answered gets of 9 connections over the loopback interface, on Linux 6.18. The padding
//! of columns is removed. Redis's and Hypostyle's reports have only some of the kernel's lines.
//! Invariant: the shares sum to 1. Less than a tenth of the work is `unmapped` or `other kernel`.
//! Source: memcached 1.6.45, Debian's Redis, and Hypostyle.

use super::*;
use crate::lab::figures;
use rustix::process::kill_process_group;
use std::os::unix::fs::PermissionsExt;

const MEMCACHED: &str = include_str!("memcached.txt");
const REDIS: &str = include_str!("redis.txt");
const HYPOSTYLE: &str = include_str!("hypostyle.txt");
const HYPOSTYLE_LINES: &str = include_str!("hypostyle-lines.txt");

/// The samples of each server. Samples of Hypostyle's program have source lines.
fn recorded() -> [Vec<Sample>; 3] {
    let mut hypostyle = parse(HYPOSTYLE, "");
    hypostyle.retain(|one| one.object != "hypostyle");
    hypostyle.extend(parse(HYPOSTYLE_LINES, "hypostyle"));
    [parse(MEMCACHED, ""), parse(REDIS, ""), hypostyle]
}

fn sample(object: &str, symbol: &str, line: &str) -> Sample {
    let [object, symbol, line] = [object, symbol, line].map(str::to_owned);
    Sample { period: 1, count: 0, object, symbol, line }
}

#[test]
fn a_report_is_read_by_its_header() {
    let all = parse(MEMCACHED, "");
    let expected = Sample { period: 196_589_764, ..sample("memcached", "assoc_find", "") };
    assert!(all.contains(&expected), "{all:?}");
    let lined = parse(HYPOSTYLE_LINES, "hypostyle");
    let first = lined.first().unwrap();
    assert_eq!(first.symbol, "hypostyle::execute::get::look_up");
    assert_eq!(first.line, "/hypostyle/store/src/item/pieces.rs:34");
}

#[test]
fn a_report_of_another_form_has_no_samples() {
    for text in ["", "#", "# Period|Symbol\n", "perf: no data", "1|2", "# Period\n1|[k] a|b"] {
        assert_eq!(parse(text, ""), [], "{text}");
    }
    let text = "# Period|Samples|Shared Object|Symbol\nx|1|[k] a|b\n-1|1|a|b\n5|1|a\n|||||\n\
                7|2|a|[] ] b\n";
    assert_eq!(parse(text, ""), [Sample { period: 7, count: 2, ..sample("a", "[] ] b", "") }]);
}

#[test]
fn shares_sum_to_one_and_few_are_unknown() {
    let rows = Rows::read().unwrap();
    for samples in recorded() {
        let shares = rows.shares(&samples, 0).unwrap();
        let sum: f64 = shares.values().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let unknown = shares["profile: unmapped"] + shares["profile: other kernel"];
        assert!(unknown < 0.1, "{shares:?}");
    }
}

#[test]
fn too_few_samples_of_work_have_no_shares() {
    let rows = Rows::read().unwrap();
    let of = |count, symbol| Sample { count, ..sample("[kernel.kallsyms]", symbol, "") };
    let few = |samples: &[Sample]| match rows.shares(samples, SAMPLES_MIN) {
        Err(error) => error.to_string(),
        Ok(shares) => format!("{} kinds", shares.len()),
    };
    let (idle, work) = (of(5_000, "pv_native_safe_halt"), of(399, "tcp_ack"));
    assert_eq!(
        few(&[idle, work.clone()]),
        "perf took 399 samples, but a profile needs 400; measure longer"
    );
    assert_eq!(few(&[work, of(1, "tcp_poll")]), "17 kinds");
    assert!(rows.shares(&[], 0).is_err(), "without work there are no shares");
}

#[test]
fn every_row_names_recorded_samples_or_says_why_not() {
    let rows = Rows::read().unwrap();
    let plain = [parse(HYPOSTYLE, "")];
    let recorded = recorded();
    let samples: Vec<&Sample> = recorded.iter().chain(&plain).flatten().collect();
    for (nth, row) in rows.rows.iter().enumerate() {
        let is_first =
            |one: &&&Sample| rows.rows.iter().position(|other| other.matches(one)) == Some(nth);
        let is_seen = samples.iter().any(|one| is_first(&one));
        assert_ne!(is_seen, !row.unseen.is_empty(), "row {nth}: {row:?}");
    }
}

#[test]
fn symbols_get_the_category_of_their_work() {
    let rows = Rows::read().unwrap();
    let kernel = "[kernel.kallsyms]";
    for (object, symbol, line, category) in [
        (kernel, "_copy_to_iter", "", "copy"),
        (kernel, "tcp_poll", "", "wait"),
        (kernel, "tcp_ack", "", "TCP/IP stack"),
        (kernel, "do_syscall_64", "", "system call"),
        (kernel, "a_symbol_of_another_kernel", "", "unmapped"),
        ("[veth]", "veth_xmit", "", "driver"),
        ("libc.so.6", "pthread_mutex_lock@@GLIBC_2.2.5", "", "lock"),
        ("memcached", "MurmurHash3_x86_32", "", "hash"),
        ("redis-check-rdb", "dictFind", "", "store"),
        ("redis-check-rdb", "0x000000000013c338", "", "unmapped"),
        ("hypostyle", "hypostyle::a", "/src/protocol/src/text/parse.rs:1", "parse"),
        ("hypostyle", "hypostyle::a", "/src/protocol/src/text/write.rs:1", "reply"),
        ("hypostyle", "hypostyle::a", "??:0", "other server code"),
    ] {
        assert_eq!(rows.category(&sample(object, symbol, line)), category, "{symbol}");
    }
}

#[test]
fn every_category_is_a_figure() {
    let rows = Rows::read().unwrap();
    for row in &rows.rows {
        let name = row.category.as_str();
        let is_figure = |name| figures::named(&format!("{PREFIX}{name}")).is_some();
        assert!(name == IDLE || is_figure(name), "{name}");
        assert!(is_figure(UNMAPPED));
    }
}

#[test]
fn the_folder_and_the_processes_are_gone_after_the_guard() {
    let scratch = Scratch::new().unwrap();
    let (folder, group) = (scratch.folder.clone(), scratch.guard.group);
    let mode = fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "others cannot place links in it");
    fs::write(scratch.data(), "data").unwrap();
    let mut sleeper = scratch.perf(Path::new("sleep")).arg("1000").spawn().unwrap();
    drop(scratch);
    assert!(!folder.exists(), "{}", folder.display());
    assert_eq!(sleeper.wait().unwrap().code(), None, "a signal ended it");
    assert!(kill_process_group(group, Signal::CONT).is_err(), "no process is left");
}

#[test]
fn a_refusal_is_one_sentence() {
    assert_eq!(refused("Error:\nno  such event\n", 2), "Error: no such event");
    let words = refused("Error:\nsee perf_event_paranoid \u{1b}[0m", 2);
    assert!(words.contains("perf_event_paranoid is 2"), "{words}");
    assert!(refused(&"\u{e9}\u{1b}".repeat(1000), 2).len() < 2 * WORDS_CHARS_MAX + 1);
}
