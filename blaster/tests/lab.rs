//! Every experiment of `kvblaster lab` at its smallest scale, against real servers; and the lab's
//! promises: what cannot be measured is told, data are kept and continued, and Ctrl-C loses little.
//!
//! Where: tests of the whole program, with Hypostyle, memcached and Redis.
//! Invariant: no assertion depends on the machine's speed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the lab finds the other servers itself")]
mod programs;

use blaster::lab::library;
use blaster::lab::record::Record;
use programs::hypostyle_program;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testing::skip;

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("kvblaster-lab-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab(words: &str, folder: &Path) -> Command {
    let mut command = Command::new(KVBLASTER);
    command.arg("lab").args(words.split_whitespace()).arg("-o").arg(folder);
    command.env("HYPOSTYLE", hypostyle_program());
    command
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn has_redis() -> bool {
    let found = Command::new("redis-server").arg("--version").output().is_ok();
    if !found {
        skip("no redis-server (make peers)");
    }
    found
}

/// An experiment of three servers, which only differ by names, at two points.
fn small(folder: &Path) {
    let text = r#"
title = "Two equal servers, and one that is not installed"
source = "own"
place = "a test"
did = "Nothing."
found = ["Two equal servers are equal."]
figures = [{ y = "requests/s" }]
servers = [
    { name = "one", program = "reflect" },
    { name = "other", program = "reflect", way = "unix" },
    { name = "absent", program = "bag-lru", needs = ["bag-lru"] },
]

[drive]
flags = "-w uniform --keys 100 -c {at}"

[[axes]]
name = "connections"
points = [{ at = 1, scale = "quick" }, { at = 2, scale = "quick" }, { at = 4, server_cpus = 4096 }]

[[claims]]
says = "one is the other"
figure = "requests/s"
of = "one"
to = "other"
at_least = 0.9
"#;
    fs::write(folder.join("small.toml"), text).unwrap();
}

#[test]
fn every_experiment_runs_against_real_servers() {
    if !has_redis() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip("no privilege to make network namespaces");
    }
    let folder = Folder::new("all");
    let output = lab("run --smoke --all --quiet", &folder.0).output().unwrap();
    let [out, err] = texts(&output);
    let experiments = library::all(None).unwrap();
    for experiment in &experiments {
        let record = Record::read(&folder.0, &experiment.name).unwrap().unwrap();
        let failed: Vec<_> = record.missing.iter().filter(|one| one.is_failure).collect();
        assert!(failed.is_empty(), "{}: {failed:?}", experiment.name);
        assert!(!record.rows.is_empty() || !record.missing.is_empty(), "{}", experiment.name);
        for figure in experiment.figures.iter().filter(|_| !record.rows.is_empty()) {
            let has = record.rows.iter().any(|row| row.figures.contains_key(&figure.y));
            assert!(has, "{}: nobody measured {}", experiment.name, figure.y);
        }
    }
    assert!(output.status.success(), "{out}{err}");
}

#[test]
fn data_are_kept_and_continued_and_absent_servers_are_told() {
    let folder = Folder::new("resume");
    small(&folder.0);
    let words = format!("run --smoke small --experiments {}", folder.0.display());
    let [out, err] = texts(&lab(&words, &folder.0).output().unwrap());
    assert_eq!(out, "4 measurements\n", "{err}");
    assert!(err.contains("small, round 1 of 1, connections 2, other: requests/s "), "{err}");
    let record = Record::read(&folder.0, "small").unwrap().unwrap();
    let whys: Vec<&str> = record.missing.iter().map(|one| one.why.as_str()).collect();
    assert!(whys.iter().any(|why| why.contains("BAG_LRU names no path")), "{whys:?}");
    assert!(record.lacks(&[], "absent") && !record.lacks(&["1".to_owned()], "one"));
    let again = lab(&words, &folder.0).output().unwrap();
    let [_, err] = texts(&again);
    assert!(!again.status.success() && err.contains("give --resume"), "{err}");
    let more = format!("{words} --resume --rounds 2");
    let [out, err] = texts(&lab(&more, &folder.0).output().unwrap());
    assert_eq!(out, "4 measurements\n", "{err}");
    let record = Record::read(&folder.0, "small").unwrap().unwrap();
    assert_eq!((record.rows.len(), record.rounds), (8, 2));
    let [_, err] = texts(
        &lab(&format!("{} --resume", words.replace("smoke", "quick")), &folder.0).output().unwrap(),
    );
    assert!(err.contains("are of scale"), "{err}");
}

#[test]
fn ctrl_c_keeps_the_measurements_that_are_finished() {
    let folder = Folder::new("stop");
    small(&folder.0);
    let words = format!("run --quick small --rounds 1000 --experiments {}", folder.0.display());
    let mut command = lab(&words, &folder.0);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_measured = lines.by_ref().any(|line| line.starts_with("small, round 1"));
    assert!(is_measured);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let [out, _] = texts(&output);
    assert!(out.ends_with("stopped: --resume continues\n"), "{out}");
    assert_eq!(output.status.code(), Some(1));
    let record = Record::read(&folder.0, "small").unwrap().unwrap();
    assert!(!record.rows.is_empty() && record.rows.len() < 4000);
}

#[test]
fn a_wrong_experiment_is_refused_with_its_fault() {
    let folder = Folder::new("wrong");
    small(&folder.0);
    let right = fs::read_to_string(folder.0.join("small.toml")).unwrap();
    let rows = [
        ("requests/s", "requests per s", "no such figure; there are requests/s; keys/s"),
        ("-c {at}", "-c {count}", "{count} has no value"),
        ("of = \"one\"", "of = \"nobody\"", "nobody is no server"),
        ("of = \"one\"", "of = \"one @ 7\"", "7 is no point of the axes"),
        ("at_least", "at_last", "unknown field `at_last`"),
        ("name = \"other\"", "name = \"one\"", "one is named twice"),
    ];
    for (from, to, why) in rows {
        fs::write(folder.0.join("small.toml"), right.replace(from, to)).unwrap();
        let words = format!("run --smoke small --experiments {}", folder.0.display());
        let output = lab(&words, &folder.0).output().unwrap();
        let [_, err] = texts(&output);
        assert!(err.contains(why) && !output.status.success(), "{to}: {err}");
    }
}
