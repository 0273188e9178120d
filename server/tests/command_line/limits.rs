//! Limits of the process and of memory, and settings that take effect.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::process::Signal;

use testing::await_some;

use crate::running::{self, HYPOSTYLE, Running, VERSION_REPLY, ended, is_root, text};

/// Returns the soft and the hard limit from the row `name` of `/proc/PID/limits`.
fn limit(running: &Running, name: &str) -> [u64; 2] {
    let limits = running.proc("limits");
    let row = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let mut words = row.split_whitespace().map(|word| match word {
        "unlimited" => u64::MAX,
        word => word.parse().unwrap(),
    });
    [words.next().unwrap(), words.next().unwrap()]
}

/// Starts the server under `ulimit LIMIT`, without the right to raise a hard limit.
fn limited(limit: &str, arguments: &[&str]) -> Command {
    let drop = match is_root() {
        true => "setpriv --reuid 65534 --clear-groups --inh-caps=-all",
        false => "",
    };
    let script = format!("ulimit {limit} && exec {drop} \"$@\"");
    let mut command = running::launch(&["sh", "-c", &script, "sh"], HYPOSTYLE);
    command.args(["-l", "127.0.0.1", "-p", "-1"]).args(arguments);
    command
}

#[test]
fn open_files_are_raised_to_what_the_connections_need() {
    let mut running = Running::of(limited("-Sn 256", &["-c", "2000"]));
    let [soft, hard] = limit(&running, "Max open files");
    assert!((2000..=hard).contains(&soft), "{soft} of {hard}");
    assert_eq!(running.stop(Signal::TERM).0, 0);
}

#[test]
fn where_the_system_allows_too_few_open_files_it_does_not_start() {
    let output = ended(limited("-n 256", &["-c", "2000"]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    assert!(stderr.starts_with("failed to set rlimit for open files."), "{stderr}");
    assert!(stderr.contains("the hard limit is 256"), "{stderr}");
}

#[test]
fn core_files_are_raised_as_far_as_the_system_allows() {
    let of = |arguments: &[&str]| {
        let mut running = Running::of(limited("-Sc 0", arguments));
        let limits = limit(&running, "Max core file size");
        assert_eq!(running.stop(Signal::TERM).0, 0);
        limits
    };
    let [soft, hard] = of(&[]);
    assert_eq!(soft, 0);
    if hard == 0 {
        return testing::skip("no core files are allowed here");
    }
    assert_eq!(of(&["-r"]), [hard, hard]);

    let output = ended(limited("-c 0", &["-r"]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    assert!(stderr.contains("failed to ensure corefile creation"), "{stderr}");
}

/// The kernel does not dump a process that has changed its user, unless the process allows dumps.
#[test]
fn with_core_dumps_a_server_that_gave_up_root_may_dump_and_others_may_not() {
    if !is_root() {
        return testing::skip("only root can become another user");
    }
    for (arguments, may_dump) in [(&["-u", "daemon", "-r"][..], true), (&["-u", "daemon"], false)] {
        let running = Running::on_loopback(arguments);
        // The /proc files of a process that may not be dumped belong to root.
        let owner = fs::metadata(format!("/proc/{}/environ", running.pid())).unwrap().uid();
        assert_eq!(owner != 0, may_dump, "{arguments:?}");
    }
}

fn huge_kilobytes(running: &Running) -> u64 {
    let smaps = running.proc("smaps");
    let sizes = smaps.lines().filter_map(|line| line.strip_prefix("AnonHugePages:"));
    sizes.map(|size| size.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn huge_pages_are_asked_for_and_whether_they_are_given_is_told() {
    let reported = |running: &Running| {
        let memory = running.ask("stats memory\r\n");
        let state = memory.lines().find_map(|line| line.strip_prefix("STAT huge_pages "));
        state.unwrap().trim().to_owned()
    };
    let value = "v".repeat(500_000);
    let fill = |running: &Running| {
        for key in 0..16 {
            let set = format!("set {key} 0 0 500000\r\n{value}\r\n");
            assert_eq!(running.ask(&set), "STORED\r\n");
        }
    };
    let small = Running::on_loopback(&["-m", "64", "-t", "1"]);
    assert_eq!(reported(&small), "off");
    let mut huge = Running::on_loopback(&["-m", "64", "-t", "1", "-L"]);
    let state = reported(&huge);
    fill(&huge);
    let in_use = huge_kilobytes(&huge);
    let stderr = huge.stop(Signal::TERM).1;
    let is_warned = stderr.contains("-L: the system provides no huge pages now");
    match &*state {
        "given" => assert!(in_use >= 4 << 10 && !is_warned, "{in_use} KiB; {stderr}"),
        "refused" => assert!(is_warned, "{stderr}"),
        other => panic!("{other}"),
    }
}

#[test]
fn hashpower_is_the_size_of_the_first_index() {
    let stat = |running: &Running, name: &str| {
        let stats = running.ask("stats\r\n");
        let value = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        value.unwrap().trim().parse::<u64>().unwrap()
    };
    let items = 3 << 13;
    let grown = |arguments: &[&str]| {
        let running = Running::on_loopback(arguments);
        let before = stat(&running, "hash_bytes");
        let sets: String =
            (0..items).map(|key| format!("set {key} 0 0 1 noreply\r\n1\r\n")).collect();
        assert_eq!(running.ask(&(sets + "version\r\n")), VERSION_REPLY);
        assert_eq!(stat(&running, "curr_items"), items);
        [before, stat(&running, "hash_bytes")]
    };
    let [before, after] = grown(&["-t", "1"]);
    assert!(after > 2 * before, "{before} {after}");
    let [before, after] = grown(&["-t", "1", "-o", "hashpower=14"]);
    // Each item takes an index slot of 8 bytes. A few slots are in overflow lines of the index.
    assert!((7 * items..10 * items).contains(&before), "{before}");
    assert!(after < before + before / 8, "{before} {after}");

    let running = Running::on_loopback(&["-m", "64", "-o", "hashpower=32"]);
    let most = stat(&running, "hash_bytes");
    assert!((15 << 20..=16 << 20).contains(&most), "a quarter of -m: {most}");
}

#[test]
fn locked_memory_is_locked_or_said_not_to_be() {
    let mut running = Running::on_loopback(&["-k", "-m", "64"]);
    let status = running.proc("status");
    let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 96 << 10, "{line}: more than the memory in use");
    let (_, stderr) = running.stop(Signal::TERM);
    assert!(kilobytes > 0 || stderr.contains("-k invalid, mlockall() failed"), "{line} {stderr}");
}

#[test]
fn settings_that_were_given_are_in_force() {
    let running = Running::on_loopback(&[
        "-t",
        "2",
        "-m",
        "100",
        "-c",
        "77",
        "-I",
        "2m",
        "-R",
        "5",
        "-C",
        "-F",
        "-M",
        "-b",
        "9",
        "-B",
        "ascii",
        "-vv",
        "-o",
        "no_migrate,steal_rings",
    ]);
    let settings = running.ask("stats settings\r\n");
    for line in [
        "maxbytes 104857600",
        "maxconns 77",
        "tcpport -1",
        "inter 127.0.0.1",
        "verbosity 2",
        "evictions off",
        "num_threads 2",
        "reqs_per_event 5",
        "steal yes",
        // `steal_rings` has no effect without `--xdp`, and is off.
        "steal_rings no",
        "migrate no",
        "cas_enabled no",
        "tcp_backlog 9",
        "binding_protocol ascii",
        "item_size_max 2097152",
        "flush_enabled no",
    ] {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line}: {settings}");
    }
    let general = running.ask("stats\r\n");
    for line in [&*format!("pid {}", running.pid()), "threads 2", "version 1.6.45"] {
        assert!(general.contains(&format!("STAT {line}\r\n")), "{line}: {general}");
    }
    // A thread sets its own name when it begins to run, so the test polls.
    let columns = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("column-")).count()
    };
    await_some("two threads with names of columns", || (columns() == 2).then_some(()));
}

/// Under a limit on address space, the index does not reserve space for its largest possible size.
#[test]
fn half_as_much_again_as_the_memory_is_address_space_enough() {
    for (megabytes, limit_megabytes) in [(64, 135), (1024, 1550)] {
        let script = format!("ulimit -v {} && exec \"$@\"", limit_megabytes << 10);
        let mut command = running::launch(&["sh", "-c", &script, "sh"], HYPOSTYLE);
        command.args(["-l", "127.0.0.1", "-p", "-1", "-t", "1", "-m", &megabytes.to_string()]);
        let running = Running::of(command);
        assert_eq!(running.ask("set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
}
