//! `kvblaster run` and `capacity` as a user starts them, against the null server.
//!
//! Where: outside of everything. Invariant: exit status and words are what scripts and people go
//! by; no figure is asserted that a slow machine could change.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::reflect::{self, Running};
use blaster::target::Place;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn server() -> (Running, String) {
    let place = Place::Tcp("127.0.0.1:0".parse().unwrap());
    let plan = reflect::Plan { places: vec![place], value_bytes: 64, ..Default::default() };
    let running = reflect::serve(&plan).expect("a port");
    let Place::Tcp(address) = running.addresses()[0].clone() else { panic!("not TCP") };
    (running, address.to_string())
}

fn kvblaster(words: &str, target: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvblaster"));
    command.args(words.split_whitespace()).arg(target);
    command
}

fn output(words: &str, target: &str) -> (Output, String, String) {
    let output = kvblaster(words, target).output().expect("kvblaster starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn a_run_tells_what_the_server_did() {
    let (_running, target) = server();
    for protocol in ["text", "meta", "binary", "resp"] {
        let words = format!("run -q --keys 1000 --schedule 0s+2x50ms -P {protocol}");
        let (output, out, err) = output(&words, &target);
        assert!(output.status.success(), "{protocol}: {out}{err}");
        for word in ["workload mix-b", "get response", "set service", "hits", "generator"] {
            assert!(out.contains(word), "{protocol}, {word}: {out}");
        }
    }
}

#[test]
fn an_open_loop_offers_what_was_asked_for() {
    let (_running, target) = server();
    let words = "run -q --keys 1000 -r 2000 -t 2 -c 4 --schedule 0s+1x200ms -a rate>1";
    let (output, out, err) = output(words, &target);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("open loop, 2000 requests/s due"), "{out}");
    assert!(out.contains("rate>1 is met"), "{out}");
}

#[test]
fn what_is_asserted_sets_the_exit_status() {
    let (_running, target) = server();
    let run = "run -q --no-populate --keys 1000 --schedule 0s+1x50ms";
    let (held, out, _) = output(&format!("{run} -a errors<1%"), &target);
    assert_eq!(held.status.code(), Some(0), "{out}");
    let (failed, out, _) = output(&format!("{run} -a errors<1% -a p99<1ns"), &target);
    assert_eq!(failed.status.code(), Some(1), "{out}");
    assert!(out.contains("p99<1ns is not met"), "{out}");
}

#[test]
fn so_many_requests_and_no_more() {
    let (running, target) = server();
    let words = "run -q --no-populate --keys 1000 -n 500 -t 2 --schedule 0s+1x1h";
    let (output, out, err) = output(words, &target);
    assert!(output.status.success(), "{out}{err}");
    let answers = running.counts().answers.load(std::sync::atomic::Ordering::Relaxed);
    // One more: it is asked for its version.
    assert_eq!(answers, 501);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let (running, target) = server();
    let mut child = kvblaster("run -q --no-populate --schedule 0s+1000x1h", &target)
        .stdout(Stdio::piped())
        .spawn()
        .expect("kvblaster starts");
    while running.counts().answers.load(std::sync::atomic::Ordering::Relaxed) < 100 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let lines: Vec<_> =
        BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let out = lines.join("\n");
    assert!(out.contains("get response") && out.contains("stopped by Ctrl-C"), "{out}");
}

#[test]
fn a_search_finds_a_capacity() {
    let (_running, target) = server();
    let words = "capacity -q --keys 100 --schedule 0s+1x50ms --start 500 --precision 0.5 \
                 --votes 1 --repeats 1 --highest 1000 --populate-once -O p50<10s";
    let (output, out, err) = output(words, &target);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("Cap_p50"), "{out}");
}

#[test]
fn where_nobody_listens_it_says_so() {
    // A port that was free a moment ago.
    let target =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap().to_string();
    let (output, _, err) = output("run -q", &target);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains(&target) && err.contains("is a server running there?"), "{err}");
}

#[test]
fn what_was_not_stored_before_the_traffic_is_told() {
    let place = Place::Udp("127.0.0.1:0".parse().unwrap());
    let faults = reflect::Faults { drop_every: 7, ..Default::default() };
    let plan = reflect::Plan { places: vec![place], faults, ..Default::default() };
    let running = reflect::serve(&plan).expect("a port");
    let Place::Udp(address) = running.addresses()[0].clone() else { panic!("not UDP") };
    let words = "run -q --keys 200 --schedule 0s+1x50ms --timeout 50ms";
    let (output, out, err) = output(words, &format!("udp://{address}"));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("keys could not be stored before the traffic"), "{out}");
}

#[test]
fn one_run_speaks_one_protocol() {
    let (_running, target) = server();
    let (output, _, err) = output(&format!("run -q redis://{target}"), &target);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("one protocol"), "{err}");
}
