//! Tests that each experiment of `kvblaster lab` runs at its smallest scale against real servers,
//! that the lab reports what cannot be measured, keeps its data and continues them, and loses at
//! most one measurement on Ctrl-C.
//!
//! Where: tests of the whole program, with Hypostyle, memcached and Redis.
//! Invariant: no assertion depends on the machine's speed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

#[expect(dead_code, reason = "the lab finds the other servers itself")]
mod programs;

use blaster::lab::figures::quantile_of;
use blaster::lab::library;
use blaster::lab::record::{Record, Row};
use programs::hypostyle_program;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testing::{KillOnDrop, skip};

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");

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

/// Writes an experiment with two null servers and a server that is not installed. One of its three
/// points needs more CPUs than a machine has.
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
        let is_silent = |row: &Row| row.figures.get("requests/s") == Some(&0.0);
        for server in record.rows.iter().map(|row| &row.server) {
            let mut rows = record.rows.iter().filter(|row| row.server == *server);
            assert!(!rows.all(is_silent), "{}: {server} never answers", experiment.name);
        }
        // A short measurement has too few answers for a percentile.
        let is_told = |name: &str| !record.rows.is_empty() && quantile_of(name).is_none();
        for figure in experiment.figures.iter().filter(|figure| is_told(&figure.y)) {
            let has = record.rows.iter().any(|row| row.figures.contains_key(&figure.y));
            assert!(has, "{}: nobody measured {}", experiment.name, figure.y);
        }
    }
    assert!(output.status.success(), "{out}{err}");
}

#[test]
fn the_results_in_the_documents_follow_from_their_data() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    for pages in [results.join("quick"), results] {
        let (data, made) = (pages.join("data"), Folder::new("results"));
        let mut report = Command::new(KVBLASTER);
        report.args(["lab", "report", "-o", "-", "--markdown"]).args([&made.0, &data]);
        let output = report.output().unwrap();
        assert!(output.status.success(), "{:?}", texts(&output));
        let files = |folder: &Path| -> BTreeMap<_, _> {
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let files = files.filter(|path| path.is_file());
            files
                .map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap()))
                .collect()
        };
        let (kept, made) = (files(&pages), files(&made.0));
        let differ: Vec<_> =
            made.iter().filter(|(name, text)| kept.get(*name) != Some(text)).collect();
        let names: Vec<_> = differ.iter().map(|(name, _)| name).collect();
        let pages = pages.display();
        assert!(
            names.is_empty() && kept.len() == made.len() && made.len() > 2,
            "{names:?}: run kvblaster lab report {pages}/data -o - --markdown {pages} >/dev/null"
        );
    }
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
    assert!(whys.iter().any(|why| why.contains("BAG_LRU does not name its")), "{whys:?}");
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
    assert!(err.contains("were measured with the scale smoke; add"), "{err}");
    let path = Record::path(&folder.0, "small");
    let other = fs::read_to_string(&path).unwrap();
    fs::write(&path, other.replace(&record.kvblaster, "0.0.0")).unwrap();
    let [_, err] = texts(&lab(&more, &folder.0).output().unwrap());
    assert!(err.contains("were measured with kvblaster 0.0.0; add"), "{err}");
}

#[test]
fn reasons_without_measurements_are_no_data_and_the_command_repeats_the_flags() {
    let folder = Folder::new("empty");
    small(&folder.0);
    let path = folder.0.join("small.toml");
    let text = fs::read_to_string(&path).unwrap();
    let none = text.replace("needs = [\"bag-lru\"] },", "},").replace("\"reflect\"", "\"bag-lru\"");
    let words = format!("run --smoke small --rounds 2 --experiments {}", folder.0.display());
    for (text, measured) in [(none, "0 measurements\n"), (text, "8 measurements\n")] {
        fs::write(&path, text).unwrap();
        let [out, err] = texts(&lab(&words, &folder.0).output().unwrap());
        assert_eq!(out, measured, "{err}");
        let is_told = err.contains("small: not measured here: the environment variable BAG_LRU");
        assert_eq!(is_told, measured == "0 measurements\n", "{err}");
    }
    let record = Record::read(&folder.0, "small").unwrap().unwrap();
    let experiments = folder.0.display();
    let command = format!("kvblaster lab run small --smoke --rounds 2 --experiments {experiments}");
    assert_eq!(record.command, command);
}

#[test]
fn cpus_that_do_not_exist_are_refused_before_the_first_measurement() {
    let folder = Folder::new("cpus");
    small(&folder.0);
    for flag in ["--server-cpus", "--client-cpus"] {
        let words = format!("run --smoke small --experiments {} {flag} 1023", folder.0.display());
        let output = lab(&words, &folder.0).output().unwrap();
        let [_, err] = texts(&output);
        let told = format!("kvblaster: {flag}: kvblaster may not run on CPU 1023");
        assert!(err.starts_with(&told) && !output.status.success(), "{err}");
    }
}

#[test]
fn ctrl_c_keeps_the_measurements_that_are_finished() {
    let folder = Folder::new("stop");
    small(&folder.0);
    let words = format!("run --quick small --rounds 1000 --experiments {}", folder.0.display());
    let mut command = lab(&words, &folder.0);
    let mut child = KillOnDrop::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_measured = lines.by_ref().any(|line| line.starts_with("small, round 1"));
    assert!(is_measured);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let [out, _] = texts(&output);
    assert!(out.ends_with("stopped: --resume continues it\n"), "{out}");
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
        ("requests/s", "requests per s", "no such figure; the figures are requests/s; keys/s"),
        ("-c {at}", "-c {count}", "the placeholder {count} has no value"),
        ("of = \"one\"", "of = \"nobody\"", "nobody is no server"),
        ("of = \"one\"", "of = \"one @ 7\"", "7 is no point of the axes"),
        ("to = \"other\"", "to = \"one\"", "\"one is the other\" compares a server with itself"),
        ("at_least", "at_last", "unknown field `at_last`"),
        ("name = \"other\"", "name = \"one\"", "one is named twice"),
        ("way = \"unix\"", "way = \"unix\", proxy = \"yes\"", "a proxy needs way = \"tcp\""),
        ("way = \"unix\"", "rps = \"0\"", "coalesce_us need a `way` that begins with `link`"),
        ("program = \"reflect\"", "program = \"policy\"", "needs the method `simulate`"),
        ("[drive]\n", "[drive]\nmethod = \"simulate\"\n", "needs the program `policy`"),
    ];
    for (from, to, why) in rows {
        fs::write(folder.0.join("small.toml"), right.replace(from, to)).unwrap();
        let words = format!("run --smoke small --experiments {}", folder.0.display());
        let output = lab(&words, &folder.0).output().unwrap();
        let [_, err] = texts(&output);
        assert!(err.contains(why) && !output.status.success(), "{to}: {err}");
    }
}

/// A shell script that makes a veth pair in place of two cards and a cable. After a complete lab,
/// the script prints `restored` if the interfaces have their earlier state. After a lab that was
/// killed, the script prints `rescued` when the interfaces have their earlier state.
const CARDS: &str = r#"
mount -t sysfs sysfs /sys && ip link set lo up
ip link add near0 type veth peer name far0
ip address add 192.0.2.1/24 dev near0
ip address add 192.0.2.9/24 brd + label far0:1 dev far0
ip address add 2001:db8::1/64 nodad dev far0
ip link set near0 up mtu 1400 && ip link set far0 up
ip route add 198.51.100.0/24 via 192.0.2.7 dev near0 metric 7
echo 1 >/sys/class/net/far0/queues/rx-0/rps_cpus
state() {
    cat /sys/class/net/far0/queues/rx-0/rps_cpus
    for card in near0 far0; do
        ip -o link show dev $card | cut -d ' ' -f 2-
        ip -o address show dev $card scope global | cut -d ' ' -f 2-
        ip route show dev $card
    done
}
before=$(state)
echo "$before"
"$0" lab run --smoke cards "$@" -o "$DATA" --quiet || exit
after=$(state)
[ "$before" = "$after" ] && echo restored || echo "$after"
"$0" lab run --quick cards "$@" -o "$DATA/killed" --rounds 1000 2>"$DATA/log" &
until grep -qs '^cards, round 1' "$DATA/log"; do kill -0 $! || exit; done
kill -9 $!
looks=0
until [ "$before" = "$(state 2>/dev/null)" ]; do
    looks=$((looks + 1))
    [ $looks -lt 5000 ] || { state; exit; }
done
echo rescued
"#;

#[test]
fn cards_are_lent_to_the_lab_and_come_back() {
    if !rustix::process::geteuid().is_root() {
        return skip("no privilege to make network namespaces");
    }
    let folder = Folder::new("cards");
    let text = r#"
title = "A link of two interfaces of this machine"
source = "own"
place = "a test"
did = "Nothing."
found = ["The interfaces come back."]
figures = [{ y = "requests/s" }]
servers = [
    { name = "tcp", program = "reflect", way = "link-tcp", rps = "0" },
    { name = "udp", program = "reflect", way = "link-udp", mtu = "1300" },
    { name = "loopback", program = "reflect" },
    { name = "interrupts", program = "reflect", way = "link-tcp", irq = "all" },
    { name = "coalescing", program = "reflect", way = "link-tcp", coalesce_us = "0" },
    { name = "two wires", program = "reflect", way = "link-tcp", wires = "2" },
]

[drive]
flags = "-w uniform --keys 100"
"#;
    fs::write(folder.0.join("cards.toml"), text).unwrap();
    let path = folder.0.display().to_string();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", CARDS, KVBLASTER]);
    command.args(["--experiments", &path, "--interface", "near0,far0"]);
    command.env("HYPOSTYLE", hypostyle_program()).env("DATA", &path);
    let [out, err] = texts(&command.output().unwrap());
    assert!(out.contains("\nrestored\n") && out.contains("\nrescued\n"), "{out}{err}");
    let record = Record::read(&folder.0, "cards").unwrap().unwrap();
    let command = record.servers.iter().find(|one| one.server == "tcp").unwrap();
    let steered = "> /sys/class/net/far0/queues/rx-0/rps_cpus";
    assert!(command.commands.iter().any(|line| line.ends_with(steered)), "{command:?}");
    assert!(command.driven_by.contains(" 10.77.0.2:"), "{command:?}");
    let why = |server: &str| {
        let missing = record.missing.iter().find(|one| one.server == server);
        missing.map_or("", |one| one.why.as_str())
    };
    assert_eq!([why("tcp"), why("udp"), why("loopback")], ["", "", ""]);
    assert_eq!(why("interrupts"), "--interface: far0 is no hardware network card");
    assert_eq!(why("coalescing"), why("interrupts"));
    assert!(why("two wires").contains("2 pairs of network cards, and --interface gives 1"));
}

#[test]
fn a_wrong_interface_is_refused_before_anything_runs() {
    let folder = Folder::new("interface");
    small(&folder.0);
    let rows = [
        ("lo", "give the names of two network cards: NEAR,FAR"),
        ("absent0,absent1", "there is no interface absent0 (`ip link` lists all interfaces)"),
        ("absent0,absent0", "absent0 is named twice, but a cable joins two different cards"),
        ("lo,absent0", "--interface: lo is no Ethernet interface"),
    ];
    for (cards, why) in rows {
        let words = format!("run --smoke small --experiments {}", folder.0.display());
        let output = lab(&format!("{words} --interface {cards}"), &folder.0).output().unwrap();
        let [_, err] = texts(&output);
        assert!(err.contains(why) && !output.status.success(), "{cards}: {err}");
        assert!(!folder.0.join("small.json").exists(), "{cards}");
    }
}
