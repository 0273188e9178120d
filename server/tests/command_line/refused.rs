//! Options that are refused, and options that are accepted without effect.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::running::{Running, ended, hypostyle, text};

#[test]
fn what_it_does_not_have_is_refused_with_a_word() {
    for (line, word) in [
        ("-S", "no SASL"),
        ("-Y users", "no authentication"),
        ("-Z", "no TLS"),
        ("-e /dev/shm/x", "cannot restart"),
        ("-U 11211 -s /tmp/x", "disables network support"),
        ("-l notls:127.0.0.1", "SSL"),
        ("-l proto[proxy]:127.0.0.1", "proto[ascii]"),
        ("-o ssl_chain_cert=x", "no TLS"),
        ("-o proxy_config=x", "no proxy"),
        ("-o ext_path=/tmp/x:1G", "no external storage"),
        ("-o drop_privileges", "no system call filter"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = ended(hypostyle(&arguments));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{line}: {stderr}");
        assert!(stderr.contains(word) && stderr.contains("refused"), "{line}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{line}");
    }
}

/// Compares the exit status and first words of the message with those of this machine's memcached.
#[test]
fn wrong_values_are_refused_as_memcached_refuses_them() {
    let memcached = std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into());
    if Command::new(&memcached).arg("-V").stdout(Stdio::null()).status().is_err() {
        return testing::skip("no memcached to compare with");
    }
    let lines = "-t 0; -t x; -c 0; -c x; -R 0; -R x; -I 512; -I 40m; -I 1; -m 1; -p 70000; -B foo; \
                 -f 1; -n 0; -q; --nonsense; -l 127.0.0.1:x";
    for line in lines.split("; ") {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ours = ended(hypostyle(&arguments));
        let mut command = Command::new(&memcached);
        command.args(&arguments).args(["-u", "root"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let theirs = ended(command);
        // For a bad port of `-l`, memcached exits with another status, because it notices the error
        // only when it binds the socket. This server notices the error in its command line.
        let status = if line.starts_with("-l") { Some(64) } else { theirs.status.code() };
        assert_eq!(ours.status.code(), status, "{line}");
        let (ours, theirs) = (text(&ours.stderr), text(&theirs.stderr));
        let words = if line == "-q" || line == "--nonsense" { 2 } else { 4 };
        let expected: Vec<&str> = theirs
            .lines()
            .find(|line| !line.starts_with(&*memcached.to_string_lossy()))
            .unwrap()
            .split(' ')
            .take(words)
            .map(|word| word.trim_end_matches(['.', ':']))
            .collect();
        let start = ours.split(' ').take(words).map(|word| word.trim_end_matches(['.', ':', '\n']));
        assert_eq!(start.collect::<Vec<&str>>(), expected, "{line}: {ours} / {theirs}");
    }
}

#[test]
fn options_without_effect_are_reported_once_each() {
    let mut running =
        Running::on_loopback(&["-o", "modern,no_hashexpand", "-o", "modern", "-f", "1.5"]);
    let (status, stderr) = running.stop(Signal::TERM);
    assert_eq!(status, 0, "{stderr}");
    for name in ["-o modern", "-o no_hashexpand", "-f"] {
        let line = format!("{name} has no effect: ");
        assert_eq!(stderr.matches(&line).count(), 1, "{name}: {stderr}");
    }
}
