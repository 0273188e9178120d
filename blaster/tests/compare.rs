//! Tests of `kvblaster compare` as a user runs it. The servers that it starts are null servers.
//!
//! Where: tests of the whole program. Invariant: no assertion depends on the machine's speed. On
//! any machine, a server that waits 200 ms before each answer is slower than one without delay.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::launch::{self, Server};
use blaster::reflect;
use blaster::result::RunResult;
use blaster::target::Place;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use testing::{KillOnDrop, is_alive, skip};

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");
const SHORT: &str = "--keys 100 --no-populate -n 16 --schedule 1h+1x1h --timeout 60s --rounds 8";

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
    assert!(out.contains("\nHits: B and A differ by less than 0.1 percentage"), "{out}{err}");
    let read = |letter: &str| RunResult::read(&folder.0.join(letter)).unwrap();
    let [first, second] = ["A", "B"].map(read);
    assert_eq!((first.reports.len(), second.reports.len()), (8, 8));
    assert_eq!(first.manifest.label, "A kvblaster reflect");
    // Within a round both servers get the same requests.
    let sent = |one: &RunResult| one.reports[0].tally.sent_bytes;
    assert_eq!(sent(&first), sent(&second));
    let kept = fs::read_to_string(folder.0.join("comparison.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let mean = kept["figures"].as_array().unwrap().iter();
    let mean = mean.clone().find(|row| row["figure"] == "mean response time").unwrap();
    assert_eq!(mean["against"][0]["finding"], "differs", "{mean}");
    let again = texts(&compare(&words, &starts).output().unwrap());
    assert!(again[1].contains("already holds a result"), "{again:?}");
}

#[test]
fn what_comes_near_a_null_servers_rate_is_marked_as_bound_by_the_generator() {
    let starts = ["", "--delay 5ms"].map(|more| null("127.0.0.1:{port}", more));
    // Any server answers more than 0.001 and fewer than 1,000 million requests a second.
    for (reflected, is_bound) in [("0.001", true), ("1000m", false)] {
        let words = format!("-q --json {SHORT} --reflected {reflected}");
        let [out, err] = texts(&compare(&words, &starts).output().unwrap());
        let done: Value = serde_json::from_str(&out).expect(&err);
        for server in done["servers"].as_array().unwrap() {
            let mut remarks = server["verdict"]["remarks"].as_array().unwrap().iter();
            let is_marked = remarks.any(|one| one["rule"] == "generator-bound");
            assert_eq!(is_marked, is_bound, "{server}");
            let headroom = server["merged"]["headroom"].as_f64().unwrap();
            assert_eq!(headroom < 1.2, is_bound, "{headroom}");
        }
        let against = &done["figures"][0]["against"][0];
        assert!(!is_bound || against["is_bound"] == true, "{against}");
    }
    let words = format!("-q {SHORT} --reflected 0.001");
    let [out, err] = texts(&compare(&words, &starts).output().unwrap());
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("INVALID: B: generator-bound: against a null server, which does"),
        "{out}{err}"
    );
    assert!(flat.contains("kvblaster was the limit"), "{out}{err}");
}

#[test]
fn a_server_that_cannot_start_is_told_and_the_others_go() {
    let starts = [null("127.0.0.1:{port}", ""), "echo {port} is >&2 cursed".to_owned()];
    let output = compare(SHORT, &starts).output().unwrap();
    let [_, err] = texts(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("ended before it answered") && err.contains("is cursed"), "{err}");
}

fn start(words: &str, cpus: &[usize]) -> Server {
    launch::start(&launch::shell(words), cpus).expect("a server")
}

#[test]
fn words_before_the_program_are_its_environment() {
    let server = start(&format!("KVB_ONE='a b' KVB_2=$$ {}", null("unix:{socket}", "")), &[]);
    let all = fs::read_to_string(format!("/proc/{}/environ", server.pid())).unwrap();
    for one in ["KVB_ONE=a b", &format!("KVB_2={}", server.pid())] {
        assert!(all.split('\0').any(|other| other == one), "{one}: {all}");
    }
}

#[test]
fn a_server_whose_port_another_one_has_is_told() {
    let name = format!("kvblaster-port-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    fs::create_dir(&folder.0).unwrap();
    let path = folder.0.join("port");
    let words = format!("cd {} && echo {{port}} > new && mv new port", folder.0.display());
    let words = launch::shell(&format!("sh -c '{words} && exec sleep 1000'"));
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| launch::start(&words, &[]));
        let port = loop {
            match fs::read_to_string(&path) {
                Ok(port) => break port,
                Err(_) => std::thread::yield_now(),
            }
        };
        let place = Place::Tcp(format!("127.0.0.1:{}", port.trim()).parse().unwrap());
        let _other =
            reflect::serve(&reflect::Plan { places: vec![place], ..Default::default() }).unwrap();
        let why = starting.join().unwrap().unwrap_err().to_string();
        let told = format!(
            "another process ({}) answers at the server's address 127.0.0.1:{}: stop that",
            std::process::id(),
            port.trim()
        );
        assert!(why.contains(&told), "{why}");
    });
}

#[test]
fn redis_is_started_on_a_socket_as_on_a_port() {
    if Command::new("redis-server").arg("-v").output().is_err() {
        return skip("redis-server is not installed");
    }
    let redis = "redis-server --save '' --port ";
    let starts = ["0 --unixsocket {socket}", "{port}"].map(|place| format!("{redis}{place}"));
    let [out, err] = texts(&compare(&format!("-q {SHORT} --rounds 1"), &starts).output().unwrap());
    assert!(
        out.contains("A  redis://unix:/") && out.contains("B  redis://127.0.0.1:"),
        "{out}{err}"
    );
}

#[test]
fn a_server_that_may_run_elsewhere_has_no_cpus_of_its_own() {
    let own = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    let [cpu, _, ..] = cpus[..] else { return skip("one CPU") };
    let [free, pinned] = [&[][..], &[cpu]].map(|cpus| start(&null("unix:{socket}", ""), cpus));
    for (other, status) in [(&free, 3), (&pinned, 0)] {
        let words = format!("-q {SHORT} --rounds 1 --server-cpus {cpu}");
        let words = format!("{words} {} {}", pinned.target, other.target);
        let output = compare(&words, &[]).output().unwrap();
        let [_, err] = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{err}");
        let told = format!(
            "{}: process {} may also run on CPUs outside --server-cpus",
            other.target,
            other.pid()
        );
        assert_eq!(err.contains(&told), status == 3, "{err}");
    }
}

#[test]
fn rounds_before_one_in_which_a_server_ends_are_told_with_its_last_words() {
    let delay = format!("{}3us", std::process::id());
    let dying = format!(
        "sh -c \"echo farewell; exec {}\"",
        null("127.0.0.1:{port}", &format!("--delay {delay}"))
    );
    let words = format!("{SHORT} --rounds 1000");
    let mut kvblaster = compare(&words, &[null("127.0.0.1:{port}", ""), dying]);
    let mut kvblaster = KillOnDrop::spawn(kvblaster.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = process_of(&delay, &mut kvblaster);
    let mut said = BufReader::new(kvblaster.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("round 1 of 1000, server B: ")));
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    said.for_each(drop);
    let output = kvblaster.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(flat.contains("Medians of ") && flat.contains("Mean response time: "), "{out}");
    let why = "the comparison ended before its last round: B (127.0.0.1:";
    assert!(flat.contains(why) && flat.contains("(signal: 9 (SIGKILL))"), "{out}");
    assert!(flat.contains("its output: farewell"), "{out}");
}

#[test]
fn a_server_stands_still_goes_on_and_goes_with_its_owner() {
    let server = start(&null("unix:{socket}", ""), &[]);
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
    assert!(!is_alive(pid) && !Path::new(&path).exists());
}

/// Waits until a process has this word on its command line. Fails if `kvblaster` ends first.
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
    // Each server's process is found by its delay, which no other process has as an argument.
    let delays = [1, 2].map(|nth| format!("{}{nth}us", std::process::id()));
    // When kvblaster dies, the kernel sends SIGHUP to the process groups of stopped servers.
    // `nohup` makes the servers ignore SIGHUP, so the test shows that something else ends them.
    let null = |delay: &String| null("127.0.0.1:{port}", &format!("--delay {delay}"));
    let start = |delay: &String| format!("nohup {}", null(delay));
    let words = "-q --no-populate --schedule 1h+1x1h";
    let mut kvblaster = compare(words, &delays.each_ref().map(start));
    let mut kvblaster = KillOnDrop::spawn(kvblaster.stdout(Stdio::null()).stderr(Stdio::null()));
    let pids = delays.each_ref().map(|delay| process_of(delay, &mut kvblaster));
    kvblaster.kill().unwrap();
    kvblaster.wait().unwrap();
    while pids.iter().any(|pid| is_alive(*pid)) {
        std::thread::yield_now();
    }
}
