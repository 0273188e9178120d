//! `kvblaster compare` as a user starts it, with null servers that it starts itself.
//!
//! Where: outside of everything. Invariant: no figure is asserted that a slow machine could change:
//! a server that waits for 200 ms before each answer is slower than one that does not on any.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::launch::{self, Server};
use blaster::result::RunResult;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");
/// Rounds of few requests.
const SHORT: &str = "--keys 100 --no-populate -n 16 --schedule 1h+1x1h --timeout 60s --rounds 8";

/// The words of a null server.
fn null(place: &str, more: &str) -> String {
    format!("'{KVBLASTER}' reflect {more} {place}")
}

fn compare(words: &str, starts: &[String]) -> Command {
    let mut command = Command::new(KVBLASTER);
    command.arg("compare").args(words.split_whitespace());
    starts.iter().for_each(|start| _ = command.args(["--start", start]));
    command
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_slower_server_is_found_and_its_results_can_be_read() {
    let folder = Folder(std::env::temp_dir().join(format!("kvblaster-cmp-{}", std::process::id())));
    let starts = [null("127.0.0.1:{port}", ""), null("unix:{socket}", "--delay 200ms")];
    let words = format!("-q {SHORT} -o {}", folder.0.display());
    let [out, err] = texts(&compare(&words, &starts).output().unwrap());
    assert!(out.contains("A  127.0.0.1:") && out.contains("B  unix:"), "{out}{err}");
    assert!(out.contains("\nB's mean response time is "), "{out}{err}");
    assert!(out.contains("\nNo difference in hits: 0.000 [0.000, 0.000] points."), "{out}{err}");
    let read = |letter: &str| RunResult::read(&folder.0.join(letter)).unwrap();
    let [first, second] = ["A", "B"].map(read);
    assert_eq!((first.reports.len(), second.reports.len()), (8, 8));
    assert_eq!(first.manifest.label, "A kvblaster reflect");
    // In a round both are asked the same.
    let sent = |one: &RunResult| one.reports[0].tally.sent_bytes;
    assert_eq!(sent(&first), sent(&second));
    let kept = fs::read_to_string(folder.0.join("comparison.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let mean = kept["figures"].as_array().unwrap().iter();
    let mean = mean.clone().find(|row| row["figure"] == "mean response time").unwrap();
    assert_eq!(mean["against"][0]["finding"], "differs", "{mean}");
    let again = texts(&compare(&words, &starts).output().unwrap());
    assert!(again[1].contains("a result is there already"), "{again:?}");
}

#[test]
fn a_server_that_cannot_start_is_told_and_the_others_go() {
    let starts = [null("127.0.0.1:{port}", ""), "echo {port} is >&2 cursed".to_owned()];
    let output = compare(SHORT, &starts).output().unwrap();
    let [_, err] = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("ended before it answered") && err.contains("is cursed"), "{err}");
}

/// Is there a process, other than a dead one whose parent has not looked?
fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn start() -> Server {
    launch::start(&launch::shell(&null("unix:{socket}", "")), &[]).expect("a null server")
}

#[test]
fn a_server_stands_still_goes_on_and_goes_with_its_owner() {
    let server = start();
    assert_eq!(server.version.as_deref(), Some("reflect"));
    let path = server.target.strip_prefix("unix:").unwrap().to_owned();
    let stat = format!("/proc/{}/stat", server.pid());
    let is_stopped = || fs::read_to_string(&stat).unwrap().contains(") T ");
    for stops in [true, false] {
        if stops {
            server.pause().unwrap()
        } else {
            server.resume().unwrap()
        };
        while is_stopped() != stops {
            std::thread::yield_now();
        }
    }
    let pid = server.pid();
    drop(server);
    assert!(!is_there(pid) && !Path::new(&path).exists());
}

/// The process that has a word to itself on its command line, once `kvblaster` has started it.
fn process_of(word: &str, kvblaster: &mut Child) -> u32 {
    let has = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    loop {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
        if let Some(pid) = pids.find(|pid| has(*pid)) {
            return pid;
        }
        assert_eq!(kvblaster.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
}

#[test]
fn no_server_outlives_a_kvblaster_that_is_killed() {
    // Delays by which it is known.
    let delays = [1, 2].map(|nth| format!("{}{nth}us", std::process::id()));
    // The first stands still by then: its group is told to hang up, and this server does not.
    let null = |delay: &String| null("127.0.0.1:{port}", &format!("--delay {delay}"));
    let start = |delay: &String| format!("nohup {}", null(delay));
    let words = "-q --no-populate --schedule 1h+1x1h";
    let mut kvblaster = compare(words, &delays.each_ref().map(start));
    let mut kvblaster = kvblaster.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pids = delays.each_ref().map(|delay| process_of(delay, &mut kvblaster));
    kvblaster.kill().unwrap();
    kvblaster.wait().unwrap();
    while pids.iter().any(|pid| is_there(*pid)) {
        std::thread::yield_now();
    }
}
