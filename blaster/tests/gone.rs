//! Tests of how kvblaster reports servers that end under load or are restarted.
//!
//! Where: tests of the whole program. Invariant: requests that were due and never answered count as
//! failed and as late in all figures, and the exit status shows the failure.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::launch;
use blaster::result::RunResult;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use testing::KillOnDrop;

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_server_that_is_killed_is_told_and_what_it_did_not_answer_counts() {
    let folder = std::env::temp_dir().join(format!("kvblaster-gone-{}", std::process::id()));
    for signal in [Signal::KILL, Signal::TERM] {
        let null = format!("'{KVBLASTER}' reflect 127.0.0.1:{{port}}");
        let server = launch::start(&launch::shell(&null), &[]).expect("a server");
        // The second and third report are longer than the timeout, so requests time out in both.
        let words = "run --no-populate --keys 1000 -r 500 --timeout 300ms --schedule 0s+3x1s \
                     -a errors<1% -a rate>1 -a late<100% -o";
        let mut command = Command::new(KVBLASTER);
        command.args(words.split_whitespace()).arg(&folder).arg(&server.target);
        let mut child = KillOnDrop::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(told.any(|line| line.starts_with("report 1 of 3: ")));
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        told.for_each(drop);
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{out}");
        let words = flat(&out);
        for said in [
            &format!("INVALID: {} went away: ", server.target)[..],
            "so it did not keep up",
            "errors<1% is not met",
            "rate>1 is met",
            " attempts to connect failed",
            "were never sent, because no connection accepted them",
        ] {
            assert!(words.contains(said), "{said}: {out}");
        }
        for false_reason in ["the generator made only", "it kept up", "waits for something other"] {
            assert!(!words.contains(false_reason), "{false_reason}: {out}");
        }
        let done = RunResult::read(&folder).unwrap();
        let merged = done.merged.unwrap();
        let (total, offered) = (merged.tally.total(), merged.tally.offered);
        assert_eq!(total.sent, total.answered + total.timeouts, "{out}");
        // Each due request was sent or counted as unsent, except perhaps the last due request.
        let ended = total.sent + total.unsent;
        assert!(total.unsent > 300 && offered.abs_diff(ended) <= 1, "{offered} {ended}: {out}");
        assert!(offered > 1300, "{offered}: {out}");
        assert!(total.late_or_lost() >= total.unsent && total.failed() >= total.unsent, "{out}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Starts a fake server without items. The server answers the first `stats` with the first text,
/// and each later `stats` with the second text. Returns the server's address.
fn saying(statistics: [&'static str; 2]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let answer = match line.split(' ').next() {
                        Some("version") => "VERSION 1\r\n",
                        Some("stats") => {
                            let nth = ASKED.fetch_add(1, Ordering::Relaxed).min(1);
                            statistics[usize::try_from(nth).unwrap()]
                        }
                        _ => "END\r\n",
                    };
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_came_back_as_another_process_is_told() {
    let target = saying(["STAT pid 7\r\nEND\r\n", "STAT pid 8\r\nEND\r\n"]);
    let words = "run -q --no-populate --mix get=1 --keys 100 -n 50 --schedule 1h+1x1h";
    let output =
        Command::new(KVBLASTER).args(words.split_whitespace()).arg(&target).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{out}");
    let told = format!("INVALID: {target} was restarted: its process id changed from 7 to 8");
    assert!(flat(&out).contains(&told), "{out}");
}
