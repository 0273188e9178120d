//! Tests of runs on servers that already hold items, and of the items that remain after a run.
//!
//! Where: tests of the whole program against real servers.
//! Invariant: kvblaster deletes only the items that it has stored, unless the user orders
//! otherwise.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod programs;

use blaster::launch::{self, Server};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use testing::{KillOnDrop, skip};

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");
/// Number of items that the test stores, without kvblaster.
const STRANGE: u64 = 50;
const SHORT: &str = "--keys 100 -n 50 --schedule 1h+1x1h --timeout 60s";

/// True if the text reports an empty server. The second text is about memcached: memcached counts
/// flushed items until a client reads them, so kvblaster deletes each key.
fn is_gone(text: &str) -> bool {
    text.contains("was empty before the run, and was flushed")
        || text.contains("was cleared of the 100 keys of this workload; it reports 0 items")
}

/// Starts each kind of server that is installed. Returns the targets and the servers.
fn servers() -> Vec<(String, Server)> {
    let hypostyle = programs::hypostyle_program().display().to_string();
    let memcached = programs::memcached_program().into_string().unwrap();
    let as_root = programs::as_root().join(" ");
    let mut all = vec![format!("'{hypostyle}' -m 64 -l 127.0.0.1 -p {{port}} -U 0")];
    for (program, words) in [
        (memcached.as_str(), format!("{memcached} {as_root} -l 127.0.0.1 -p {{port}} -U 0")),
        ("redis-server", "redis-server --port {port} --save ''".to_owned()),
    ] {
        match Command::new(program).arg("--version").output() {
            Ok(_) => all.push(words),
            Err(_) => skip(&format!("{program} is not there")),
        }
    }
    let started = all.into_iter().map(|words| {
        let server = launch::start(&launch::shell(&words), &[]).expect("a server");
        (server.target.clone(), server)
    });
    started.collect()
}

fn answer(server: &Server, question: &str, end: &str) -> String {
    let place = server.target.trim_start_matches("redis://");
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let (mut answer, mut part) = (String::new(), [0; 4096]);
    while !answer.ends_with(end) {
        let bytes = stream.read(&mut part).unwrap();
        assert!(bytes > 0, "{answer}");
        answer.push_str(std::str::from_utf8(&part[..bytes]).unwrap());
    }
    answer
}

fn store(target: &str, server: &Server) {
    let is_redis = target.starts_with("redis");
    for nth in 0..STRANGE {
        let [set, end] = match is_redis {
            true => [format!("SET other{nth} x\r\n"), "+OK\r\n".to_owned()],
            false => [format!("set other{nth} 0 0 1\r\nx\r\n"), "STORED\r\n".to_owned()],
        };
        answer(server, &set, &end);
    }
}

/// Returns how many of the `keys` keys `prefix0`, `prefix1` and so on the server has.
fn found(target: &str, server: &Server, prefix: &str, keys: u64) -> u64 {
    let is_redis = target.starts_with("redis");
    let is_there = |nth: &u64| match is_redis {
        true => answer(server, &format!("EXISTS {prefix}{nth}\r\n"), "\r\n").starts_with(":1"),
        false => answer(server, &format!("get {prefix}{nth}\r\n"), "END\r\n").starts_with("VALUE"),
    };
    (0..keys).filter(is_there).count() as u64
}

fn items(target: &str, server: &Server) -> u64 {
    let text = match target.starts_with("redis") {
        true => answer(server, "DBSIZE\r\n", "\r\n"),
        false => answer(server, "stats\r\n", "END\r\n"),
    };
    let line = text.lines().find(|line| line.contains("curr_items") || line.starts_with(':'));
    line.unwrap().rsplit([' ', ':']).next().unwrap().parse().unwrap()
}

fn kvblaster(words: &str, targets: &[&str]) -> (Output, String) {
    let mut command = Command::new(KVBLASTER);
    let output = command.args(words.split_whitespace()).args(targets).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    (output, text)
}

#[test]
fn somebody_elses_items_are_not_filled_over_without_being_asked() {
    for (target, server) in servers() {
        store(&target, &server);
        let agent = format!("run {SHORT} -q --agent={KVBLASTER}~agent");
        let words = [
            format!("run {SHORT} -q"),
            agent,
            format!("capacity {SHORT} -q --first 500"),
            format!("size {SHORT} -q -r 1000 --span 1s --memory 1"),
            format!("compare {SHORT} -q --rounds 1 {target}"),
        ];
        for words in words {
            let mut command = Command::new(KVBLASTER);
            command.args(words.split_whitespace().map(|word| word.replace('~', " ")));
            let output = command.arg(&target).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{words}: {text}");
            assert!(text.contains(&format!("{target} holds {STRANGE} items")), "{words}: {text}");
            assert!(text.contains("--force fills the server nevertheless"), "{words}: {text}");
        }
        assert_eq!(found(&target, &server, "other", STRANGE), STRANGE, "{target}");
        let (output, text) = kvblaster(&format!("run {SHORT} --force"), &[&target]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains(&format!("filling {target} with 100 keys (")), "{text}");
        assert!(text.contains("was cleared of the 100 keys of this workload"), "{text}");
        let told =
            format!("it reports {STRANGE} items now, and reported {STRANGE} items before the run");
        assert!(text.contains(&told), "{text}");
        assert_eq!(found(&target, &server, "other", STRANGE), STRANGE, "{target}");
        assert_eq!(items(&target, &server), STRANGE, "{target}");
    }
}

#[test]
fn what_was_stored_is_gone_unless_it_is_kept_and_is_known_as_its_own() {
    for (target, server) in servers() {
        for words in ["run", "capacity --first 500 --votes 1 --repeats 1 --highest 1000 -O p50<10s"]
        {
            let (output, text) = kvblaster(&format!("{words} {SHORT} -q"), &[&target]);
            assert_eq!(output.status.code(), Some(0), "{text}");
            assert!(is_gone(&text), "{text}");
        }
        let (_, text) = kvblaster(&format!("compare {SHORT} --rounds 1 {target}"), &[&target]);
        assert!(is_gone(&text), "{text}");
        assert_eq!(items(&target, &server), 0, "{target}: {text}");
        let began = Instant::now();
        let keep = format!("run {SHORT} --keep --fill-rate 200");
        let (output, text) = kvblaster(&keep, &[&target]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(began.elapsed() > Duration::from_millis(400), "{text}");
        assert!(
            text.contains("at 200 keys a second (set by --fill-rate); the items are kept (--keep)"),
            "{text}"
        );
        assert!(text.contains("still holds the stored items (--keep); it reports"), "{text}");
        assert_eq!(items(&target, &server), 100, "{target}: {text}");
        // The next run accepts items that kvblaster stored before, but no other items.
        let (output, text) = kvblaster(&keep, &[&target]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        store(&target, &server);
        let (output, text) = kvblaster(&keep, &[&target]);
        assert_eq!(output.status.code(), Some(3), "{text}");
    }
}

/// Returns a pseudo-terminal: the test's end and the child's end.
fn terminal() -> [File; 2] {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    [ours.into(), File::options().read(true).write(true).open(name).unwrap()]
}

#[test]
fn at_a_terminal_a_yes_allows_it_and_nothing_else() {
    let (target, server) = servers().swap_remove(0);
    store(&target, &server);
    for (said, status) in [("no\n", 3), ("\n", 3), ("yes\n", 0)] {
        let [mut ours, theirs] = terminal();
        let mut command = Command::new(KVBLASTER);
        command.args(format!("run {SHORT} -q").split(' ')).arg(&target).stdout(Stdio::piped());
        command.stdin(theirs.try_clone().unwrap()).stderr(theirs);
        let child = KillOnDrop::spawn(&mut command);
        // `command` also holds the child's end open, so reading never ends without this `drop`.
        drop(command);
        let (mut seen, mut part, mut is_said) = (String::new(), [0; 4096], false);
        // Reading fails once no process has the other end of the terminal open.
        while let Ok(bytes @ 1..) = ours.read(&mut part) {
            seen.push_str(&String::from_utf8_lossy(&part[..bytes]));
            if !is_said && seen.contains("Fill the server nevertheless? [y/N]") {
                ours.write_all(said.as_bytes()).unwrap();
                is_said = true;
            }
        }
        let output = child.wait_with_output().unwrap();
        assert!(is_said && seen.contains(&format!("holds {STRANGE} items")), "{seen}");
        assert_eq!(output.status.code(), Some(status), "{said:?}: {seen}");
        assert_eq!(found(&target, &server, "other", STRANGE), STRANGE, "{said:?}");
    }
}
