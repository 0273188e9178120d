//! `make test` ends with a line that counts passed and failed tests, and fails if a test failed.
//!
//! Where: the script that `make test` runs, with commands that print like cargo.
//! Invariant: every failure is reported, even if the command that failed has printed nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Output of cargo and of a passing test program, without the lines that the script ignores.
const PASSES: &str = "   Compiling hypostyle v0.1.0
     Running unittests src/lib.rs (target/debug/deps/store-488f838af48fe10b)

running 2 tests
test a ... ok
test b ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.46s
   Doc-tests store

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

/// Output of a failing test program, one of whose tests prints lines like a list of failed tests.
const FAILS: &str = "     Running tests/run.rs (target/debug/deps/run-a421150e0994be33)

running 3 tests
test kept ... ok
test lost::twice ... FAILED
test lost::once ... FAILED

failures:

---- lost::once stdout ----
thread 'lost::once' panicked at store/tests/run.rs:1:
failures:
    kept

failures:
    lost::once
    lost::twice

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.46s
error: 1 target failed:
    `-p store --test run`
";

/// Coloured output, as from cargo with `CARGO_TERM_COLOR=always`.
const SKIPS: &str = "\x1b[1m\x1b[92m     Running\x1b[0m tests/servers.rs (deps/servers-a421)
SKIPPED one: no peer
SKIPPED one: no peer
SKIPPED two: no peer

test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.46s
";

const DIES: &str = "     Running tests/run.rs (target/debug/deps/run-a421150e0994be33)

running 3 tests
test kept ... ok
error: test failed, to rerun pass `-p store --test run`
     Running tests/next.rs (target/debug/deps/next-a421150e0994be33)

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.46s
";

const FUZZES: &str = "fuzzing binary for 20 s (log: target/fuzz-binary.log)
Done 4100 runs in 21 second(s)
fuzzing text for 20 s (log: target/fuzz-text.log)
";

/// Runs the script on commands that print these texts and exit with these statuses. Returns the
/// script's last line and its exit status.
fn outcome(commands: &[(&str, i32)]) -> (String, Option<i32>) {
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/together"));
    for (at, (text, status)) in commands.iter().enumerate() {
        script.env(format!("SAID_{at}"), text);
        script.arg(format!("printf %s \"$SAID_{at}\" >&2; exit {status}"));
    }
    let output = script.output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let all: String = commands.iter().map(|(text, _)| *text).collect();
    let last = out.strip_prefix(&all).unwrap();
    assert_eq!(last.matches('\n').count(), 1, "{last}");
    (last.trim_end().to_owned(), output.status.code())
}

#[test]
fn what_passed_and_what_was_skipped_is_counted_over_all_commands() {
    let (line, status) = outcome(&[(PASSES, 0), (SKIPS, 0), (PASSES, 0)]);
    assert_eq!(line, "5 tests passed, 2 skipped, none failed");
    assert_eq!(status, Some(0));
}

#[test]
fn what_failed_is_named_and_what_comes_after_it_still_runs() {
    let (line, status) = outcome(&[(FAILS, 101), (PASSES, 0), (FUZZES, 2)]);
    let failed = "tests/run.rs lost::once; tests/run.rs lost::twice; fuzz text ended early";
    assert_eq!(line, format!("4 tests passed, 3 failed: {failed}"));
    assert_eq!(status, Some(1));
}

#[test]
fn a_test_program_that_dies_is_named() {
    let (line, status) = outcome(&[(DIES, 101)]);
    assert_eq!(line, "1 tests passed, 1 failed: tests/run.rs ended early");
    assert_eq!(status, Some(1));
}

#[test]
fn a_command_that_fails_or_tests_nothing_without_a_word_is_named() {
    for (text, status, why) in [
        ("error[E0425]: cannot find value\n", 101, "(exit status 101)"),
        (PASSES, 7, "(exit status 7)"),
        ("\x1b[1m     Running\x1b[0m tests/a.rs (deps/a-1)\n", 1, "tests/a.rs ended early"),
        ("", 0, "(ran no test)"),
    ] {
        let (line, code) = outcome(&[(text, status)]);
        assert!(line.contains("1 failed: ") && line.ends_with(why), "{line}");
        assert_eq!(code, Some(1));
    }
}
