//! Tests of `kvblaster run` and `capacity` as a user runs them, against the null server.
//!
//! Where: tests of the whole program.
//! Invariant: tests assert the exit status and the words of reports, because scripts and users rely
//! on these, but no figure that depends on the machine's speed. Most runs end after a number of
//! requests, before the first report is complete. Such a run reports all its requests.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::reflect::{self, RunningServer};
use blaster::target::Place;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use testing::KillOnDrop;

/// A timeout within which even a loaded machine answers.
const PATIENCE: &str = "--timeout 60s";

fn server() -> (RunningServer, String) {
    serving_at(Place::Tcp("127.0.0.1:0".parse().unwrap()), reflect::Faults::default())
}

fn udp_server(faults: reflect::Faults) -> (RunningServer, String) {
    serving_at(Place::Udp("127.0.0.1:0".parse().unwrap()), faults)
}

fn serving_at(place: Place, faults: reflect::Faults) -> (RunningServer, String) {
    let plan = reflect::Plan { places: vec![place], value_bytes: 64, faults, ..Default::default() };
    let running = reflect::serve(&plan).expect("a port");
    let target = match &running.addresses()[0] {
        Place::Tcp(address) => address.to_string(),
        Place::Udp(address) => format!("udp://{address}"),
        Place::Xdp(bypass, address) => bypass.target_text(address),
        Place::Unix(path) => panic!("{}", path.display()),
    };
    (running, target)
}

fn answers(running: &RunningServer) -> u64 {
    running.counts().answers.load(Ordering::Relaxed)
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
        let words = format!("run -q --keys 1000 -n 2000 --schedule 1h+1x1h -P {protocol}");
        let (output, out, err) = output(&words, &target);
        assert!(output.status.success(), "{protocol}: {out}{err}");
        for word in
            ["workload mix-b", "  get  ", "  set  ", "hits", "generator", "Half of the answers"]
        {
            assert!(out.contains(word), "{protocol}, {word}: {out}");
        }
    }
}

#[test]
fn an_open_loop_offers_what_was_asked_for() {
    let (_running, target) = server();
    let words = "run -q --keys 1000 -r 2000 -t 2 -c 4 -n 400 --schedule 1h+1x1h -a rate>1";
    let (output, out, err) = output(words, &target);
    assert_eq!(output.status.code(), Some(judged(&out, 0)), "{out}{err}");
    assert!(out.contains("open loop, 2,000 requests/s due"), "{out}");
    assert!(out.contains("rate>1 is met"), "{out}");
}

#[test]
fn requests_over_udp_are_steered_and_what_cannot_be_steered_is_refused() {
    let places = vec![Place::Udp("127.0.0.1:0".parse().unwrap())];
    let plan = reflect::Plan { places, threads: 3, value_bytes: 64, ..Default::default() };
    let running = reflect::serve(&plan).expect("a port");
    let [Place::Udp(address)] = running.addresses() else { panic!("no UDP") };
    let udp = format!("udp://{address}");
    let words =
        format!("run -q --keep --keys 1000 -n 3000 -t 2 -c 4 --schedule 1h+1x1h {PATIENCE}");
    let (steered, out, err) = output(&format!("{words} --steer round-robin --columns 3"), &udp);
    assert!(steered.status.success(), "{out}{err}");
    let reached = running.counts().received().concat();
    // Two threads fill the server, then two threads send requests. Six more datagrams ask for
    // version and statistics: before the run, after the run, and for the number of remaining items.
    let (least, most) = (reached.iter().min().unwrap(), reached.iter().max().unwrap());
    assert!(most - least <= 10 && reached.iter().sum::<u64>() >= 4000, "{reached:?}");
    assert_eq!(running.counts().misrouted.load(Ordering::Relaxed), 0);
    let (_tcp, tcp) = server();
    for (flags, target, told) in [
        ("--steer key --columns 3", tcp.as_str(), "over UDP only (udp://HOST:PORT)"),
        ("--steer key", &udp, "does not report its number of columns over TCP"),
        ("--steer first", &udp, "--steer first works over TCP only (HOST:PORT)"),
        ("--steer first -P binary", &tcp, "in the protocol text or meta"),
        ("--steer first", &tcp, "does not report how many connections"),
        ("--steer ports --columns 65535", &udp, "65535 columns need 65535 ports"),
        ("--steer ports --columns 5", &udp, "fewer connections than columns"),
    ] {
        let (refused, out, err) = output(&format!("{words} {flags}"), target);
        assert!(!refused.status.success() && err.contains(told), "{flags}: {out}{err}");
    }
}

#[test]
fn what_is_printed_as_json_ends_its_last_line() {
    let (_running, target) = server();
    let run = format!("run -q --json --keys 1000 -n 500 --schedule 1h+1x1h {PATIENCE}");
    let mut size =
        kvblaster("size -q --json -w uniform --keys 1000 -r 1000 --span 1s", "--memory=1");
    for command in [&mut kvblaster(&run, &target), &mut size] {
        let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(out.starts_with('{') && out.ends_with("}\n"), "{out}");
    }
}

/// Returns the expected exit status of a run with assertions: 2 if the machine is too busy for
/// kvblaster, because the result is then invalid.
fn judged(out: &str, status: i32) -> i32 {
    if out.contains("INVALID: ") { 2 } else { status }
}

#[test]
fn what_is_asserted_sets_the_exit_status() {
    let (_running, target) = server();
    let run = format!("run -q --no-populate --keys 1000 -n 500 --schedule 1h+1x1h {PATIENCE}");
    let (held, out, _) = output(&format!("{run} -a errors<1%"), &target);
    assert_eq!(held.status.code(), Some(judged(&out, 0)), "{out}");
    let (failed, out, _) = output(&format!("{run} -a errors<1% -a p99<1ns"), &target);
    assert_eq!(failed.status.code(), Some(judged(&out, 1)), "{out}");
    assert!(out.contains("p99<1ns is not met"), "{out}");
    // `--reflected 1` states a rate of the null server that is below the measured rate, so the
    // generator counts as the limit.
    let bound = format!("{run} --reflected 1");
    for (more, status, told) in [
        ("", 0, "INVALID: generator-bound"),
        (" -a errors<1%", 2, "errors<1% is met"),
        (" -a valid", 2, "FAILED: valid is not met: "),
    ] {
        let (output, out, err) = output(&format!("{bound}{more}"), &target);
        assert_eq!(output.status.code(), Some(status), "{more}: {out}{err}");
        assert!(out.contains(told), "{more}: {out}");
    }
}

#[test]
fn so_many_requests_and_no_more() {
    let (running, target) = server();
    let words =
        format!("run -q --no-populate --keys 1000 -n 500 -t 2 --schedule 1h+1x1h {PATIENCE}");
    let (output, out, err) = output(&words, &target);
    assert!(output.status.success(), "{out}{err}");
    // Four more requests query version and statistics, before and after the run.
    assert_eq!(answers(&running), 504);
}

fn interrupt(child: &Child) {
    signal(child, rustix::process::Signal::INT);
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn ctrl_c_and_sigterm_keep_what_was_measured() {
    for one in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let (running, target) = server();
        let mut command = kvblaster("run -q --no-populate --schedule 0s+1000x1h", &target);
        let mut child = KillOnDrop::spawn(command.stdout(Stdio::piped()));
        while answers(&running) < 100 {
            std::thread::yield_now();
        }
        signal(&child, one);
        let lines: Vec<_> =
            BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let flat = lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("p99.99") && flat.contains("stopped by Ctrl-C or SIGTERM"), "{flat}");
    }
}

#[test]
fn ctrl_c_ends_a_sizing_with_what_was_found() {
    let ((first, target), (second, next)) = (server(), server());
    let words = "size -q --keys 1000 -r 1000 --span 1s --schedule 0s+1000x1h";
    let mut command = kvblaster(words, &target);
    let mut child = KillOnDrop::spawn(command.arg(&next).stdout(Stdio::piped()));
    while answers(&first) < 1100 {
        std::thread::yield_now();
    }
    interrupt(&child);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(out.contains("/s answered: p50") && out.contains("1 of the servers: Ctrl-C"), "{out}");
    // The second server was not driven. Two requests queried the number of its items.
    assert_eq!(answers(&second), 2, "{out}");
}

#[test]
fn a_server_that_cannot_start_takes_no_other_servers_figures_with_it() {
    let (_running, target) = server();
    let words = "size -q --keys 100 -n 50 -r 1000 --span 1s --schedule 1h+1x1h -O p50<10s -c 1 \
                 --start no-such-program-{port}";
    let (output, out, err) = output(words, &target);
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(out.contains("/s answered: p50") && out.contains("up to at least"), "{out}{err}");
    assert!(out.contains("not measured: ") && out.contains("ended before it"), "{out}{err}");
}

#[test]
fn a_report_is_told_when_it_is_asked_for_and_the_run_goes_on() {
    let (_running, target) = server();
    let folder = std::env::temp_dir().join(format!("kvblaster-asked-{}", std::process::id()));
    let words = format!("run --keys 1000 -r 1000 --schedule 0s+2x1h -o {}", folder.display());
    let mut command = kvblaster(&words, &target);
    let mut child = KillOnDrop::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // Once the server is filled, kvblaster handles SIGUSR1.
    assert!(told.any(|line| line.starts_with("populated ")));
    // Reads from two requested reports: the start in seconds, and the number of sent requests.
    let reports = [(); 2].map(|()| {
        signal(&child, rustix::process::Signal::USR1);
        let head = told.find(|line| line.starts_with("report on demand: ")).expect("a report");
        let all = told.find(|line| line.starts_with("all ")).expect("a line of all types");
        let from = head.split(' ').nth(7).unwrap().parse::<f64>().unwrap();
        (from, all.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
    });
    let [(first_s, first), (second_s, second)] = reports;
    assert!(first_s == 0.0 && second_s >= 0.9 && first > 0 && second > 0, "{reports:?}");
    interrupt(&child);
    told.for_each(drop);
    child.wait().unwrap();
    let asked = std::fs::read_to_string(folder.join("asked.csv")).unwrap();
    let rows: Vec<Vec<&str>> = asked.lines().map(|line| line.split(',').collect()).collect();
    let all = |row: &&Vec<&str>| row[4] == "all";
    let kept: Vec<(&str, &str)> = rows.iter().filter(all).map(|row| (row[1], row[7])).collect();
    assert_eq!(kept, [("1", &first.to_string()[..]), ("2", &second.to_string())], "{asked}");
    // A requested report does not split the scheduled report.
    let result = blaster::result::RunResult::read(&folder).unwrap();
    let sent: u64 = result.reports[0].tally.verbs.iter().map(|verb| verb.sent).sum();
    assert!(result.reports.len() == 1 && sent >= first + second, "{sent} of {reports:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_search_finds_a_capacity() {
    let (_running, target) = server();
    let words = "capacity --keys 100 -n 50 --schedule 1h+1x1h --first 500 --precision 0.5 \
                 --votes 1 --repeats 1 --highest 1000 --populate-once -O p50<10s";
    let (output, out, err) = output(words, &target);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("Cap_p50"), "{out}");
    // Each trial's line gives the expected number of further trials and their expected time.
    let trials: Vec<&str> = err.lines().filter(|line| line.contains("/s due ")).collect();
    let left = |line: &&str| line.contains("; trials left: about ");
    assert!(trials.len() > 1 && trials[..trials.len() - 1].iter().all(left), "{err}");
}

#[test]
fn cpus_that_are_not_there_are_told_before_anything_is_asked() {
    let (running, target) = server();
    for option in ["--cpus 0-4095", "--receive-cpus 4095"] {
        let err = refused(&format!("run {option}"), &target);
        let name = option.split(' ').next().unwrap();
        assert!(err.contains(&format!("{name}: kvblaster may not run on CPU ")), "{err}");
    }
    assert_eq!(answers(&running), 0);
}

#[test]
fn where_nobody_listens_it_says_so() {
    // The port is reserved, so that no other process can listen on it.
    let hold = net::ReservedPort::take("127.0.0.1:0".parse().unwrap()).unwrap();
    let target = hold.address().to_string();
    let (output, _, err) = output("run -q", &target);
    assert_eq!(output.status.code(), Some(3));
    assert!(err.contains(&target) && err.contains("is a server running there?"), "{err}");
}

/// Runs kvblaster, which must end with status 3 and without a report. Returns stderr.
fn refused(words: &str, target: &str) -> String {
    let (output, out, err) = output(words, target);
    assert_eq!((output.status.code(), out.as_str()), (Some(3), ""), "{words}: {err}");
    err
}

#[test]
fn over_udp_too_it_is_told_that_nobody_is_there() {
    // The socket on this port is connected to another address, so the kernel answers datagrams from
    // other senders with "port unreachable".
    let hold = UdpSocket::bind("127.0.0.1:0").unwrap();
    hold.connect("127.0.0.1:9").unwrap();
    let target = format!("udp://{}", hold.local_addr().unwrap());
    let err = refused("run", &target);
    assert!(err.contains(&target) && err.contains("is a server running there?"), "{err}");
}

#[test]
fn servers_that_never_answer_are_told_within_seconds_whether_filled_or_driven() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("udp://{}", silent.local_addr().unwrap());
    for words in ["run --timeout 1s", "run -q --no-populate --schedule 0s+1x1h --timeout 100ms"] {
        let err = refused(words, &target);
        let told = format!("kvblaster: {target}: no answer came for ");
        assert!(
            err.contains(&told) && err.contains("support the protocol text over UDP?"),
            "{words}: {err}"
        );
        let progress = err.contains("\npopulate ") && err.contains(" of 1000000 keys: 0 %");
        assert_eq!(progress, !words.contains("-q"), "{words}: {err}");
    }
}

#[test]
fn of_several_servers_the_one_that_never_answers_is_named() {
    let (_running, answering) = udp_server(reflect::Faults::default());
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("udp://{}", silent.local_addr().unwrap());
    let words = format!("run -q --timeout 500ms {answering}");
    let err = refused(&words, &target);
    let told = format!("kvblaster: {target}: kvblaster gave up filling after ");
    assert!(err.contains(&told) && err.contains("not answered in time"), "{err}");
}

/// Starts a server that answers each command with the line that `answer` returns. If `answer`
/// returns `None`, the server does not answer. If it returns an empty line, the server closes the
/// connection and accepts no further connections.
fn serving(answer: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (answer, is_gone) = (Arc::new(answer), Arc::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answer, is_gone) = (Arc::clone(&answer), Arc::clone(&is_gone));
            if is_gone.load(Ordering::Relaxed) {
                return;
            }
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                while let Some(command) = lines.next() {
                    // The second line of a set is its value.
                    if command.starts_with("set ") {
                        lines.next();
                    }
                    let Some(line) = answer(&command) else { continue };
                    if line.is_empty() {
                        is_gone.store(true, Ordering::Relaxed);
                    }
                    if line.is_empty() || (&stream).write_all(line.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn what_cannot_fit_is_told_before_it_is_filled() {
    let target = serving(|command| match command.split(' ').next() {
        Some("set") => Some("STORED\r\n"),
        Some("get") => Some("END\r\n"),
        Some("stats") => Some("STAT limit_maxbytes 1000000\r\nEND\r\n"),
        _ => Some("VERSION 1\r\n"),
    });
    let words = "run -w thesis -n 100 --schedule 1h+1x1h --keys";
    let (output, _, err) = output(&format!("{words} 20k"), &target);
    assert!(output.status.success(), "{err}");
    let told = format!("warning: {target} may use 1.00 MB of memory, but its share of ");
    assert!(err.starts_with(&format!("{told}the keys and values takes 1.60 MB")), "{err}");
    let (_, _, err) = self::output(&format!("{words} 10k"), &target);
    assert!(!err.contains("warning: "), "{err}");
}

#[test]
fn a_server_that_stops_while_it_is_filled_is_told_within_seconds() {
    for ends in [false, true] {
        let left = AtomicI64::new(5000);
        let target = serving(move |command| match command.starts_with("set ") {
            true if left.fetch_sub(1, Ordering::Relaxed) > 0 => Some("STORED\r\n"),
            true => ends.then_some(""),
            false => Some("ERROR\r\n"),
        });
        let err = refused("run -q --timeout 500ms", &target);
        assert!(err.contains(&target) && err.contains("stopped answering while it was"), "{err}");
        assert!(err.contains("of 1,000,000 keys: no answer came for "), "{err}");
    }
}

#[test]
fn what_was_not_stored_before_the_traffic_is_told() {
    // A lost request delays its connection until the timeout, so the server drops only a few.
    let faults = reflect::Faults { drop_every: 50, ..Default::default() };
    let (_running, target) = udp_server(faults);
    let words = "run -q --keys 200 -n 200 --schedule 1h+1x1h --timeout 3s";
    let (output, out, err) = output(words, &target);
    assert!(output.status.success(), "{out}{err}");
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("of 200 keys could not be stored: "), "{out}");
    assert!(flat.contains(" not answered in time. Gets of these keys can miss"), "{out}");
}

#[test]
fn a_server_that_stores_nothing_is_told_with_its_reason_and_what_helps() {
    for (line, kind, help) in [
        ("SERVER_ERROR out of memory storing object\r\n", "out of memory", "more memory"),
        ("SERVER_ERROR object too large for cache\r\n", "too large", "--value-size"),
        ("CLIENT_ERROR unauthenticated\r\n", "not allowed", "log in"),
    ] {
        let words = format!("run -q --keys 100 {PATIENCE}");
        let (output, _, err) = output(&words, &serving(move |_| Some(line)));
        assert_eq!(output.status.code(), Some(3), "{err}");
        let told = format!("100 of 100 keys could not be stored: 100 refused, {kind} (the first ");
        assert!(err.contains(&told) && err.contains(line.trim()), "{err}");
        assert!(err.contains(help), "{err}");
    }
}

#[test]
fn traffic_goes_on_until_the_hit_ratio_has_settled_or_for_so_long() {
    let (_running, target) = server();
    let words = "run --keys 1000 -r 1000 --schedule 0s+1x2s --warm";
    let (output, out, err) = output(&format!("{words} 1h"), &target);
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("the hit ratio has settled after "), "{err}");
    assert!(
        err.contains(": 100.00 % in the last quarter of this time, 100.00 % in the quarter before"),
        "{err}"
    );
    assert!(err.contains("report 1 of 1: ") && !out.contains("had not settled"), "{out}{err}");
    let (_, out, err) = self::output(&format!("{words} 10ms"), &target);
    assert!(out.contains("note: the hit ratio had not settled after "), "{out}{err}");
    let (_, out, err) = self::output(&format!("{words} 1h -n 100"), &target);
    assert!(out.contains("Nothing was measured."), "{out}{err}");
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(": the hit ratio had not settled."), "{out}{err}");
}

#[test]
fn one_run_speaks_one_protocol() {
    let (_running, target) = server();
    let (output, _, err) = output(&format!("run -q redis://{target}"), &target);
    assert_eq!(output.status.code(), Some(3));
    assert!(err.contains("the same protocol"), "{err}");
}

/// Runs a command on a terminal of `columns` columns, and sends SIGINT when all `words` are
/// displayed. Returns the screen at that time, the screen at the end, and stdout.
fn on_a_terminal(command: &mut Command, columns: u16, words: &[&str]) -> [String; 3] {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(name).unwrap();
    command.env("TERM", "xterm").env_remove("NO_COLOR").stdout(Stdio::piped()).stderr(theirs);
    let child = KillOnDrop::spawn(command);
    // Closes the child's end of the terminal in `command` too: otherwise reading never ends.
    command.stderr(Stdio::null());
    let (mut ours, mut part) = (File::from(ours), [0; 4096]);
    let mut terminal = vt100::Parser::new(24.try_into().unwrap(), columns.try_into().unwrap(), 0);
    let shown = |terminal: &vt100::Parser| {
        let rows = terminal.screen().rows(0, columns);
        rows.map(|row| row.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
            .trim_end()
            .to_owned()
    };
    let mut meanwhile = None;
    // Reading fails once no process has the other end of the terminal open.
    while let Ok(bytes @ 1..) = ours.read(&mut part) {
        terminal.process(&part[..bytes]);
        let seen = shown(&terminal);
        if meanwhile.is_none() && words.iter().all(|word| seen.contains(word)) {
            meanwhile = Some(seen);
            interrupt(&child);
        }
    }
    let output = child.wait_with_output().unwrap();
    let seen = shown(&terminal);
    let meanwhile = meanwhile.unwrap_or_else(|| panic!("{columns}: not all of {words:?}: {seen}"));
    [meanwhile, seen, String::from_utf8(output.stdout).unwrap()]
}

#[test]
fn on_a_terminal_it_is_seen_how_a_run_goes_and_nothing_of_that_stays() {
    let (_running, target) = server();
    let names = ["report 1 of 2 [", "requests  due", "response  p50", "answers   ", "CPUs      "];
    for columns in [80, 40] {
        let words = "run --keys 1000 -r 1000 --schedule 0s+2x1h";
        let awaited =
            [&names[..], &["answered", "p99", "failed", " left", "machine idle"]].concat();
        let [meanwhile, in_the_end, out] =
            on_a_terminal(&mut kvblaster(words, &target), columns, &awaited);
        // Each of `names` begins a line. Figures that do not fit are on the next line.
        let begins = |name: &&str| meanwhile.lines().any(|line| line.starts_with(*name));
        assert!(names.iter().all(begins), "{columns}: {meanwhile}");
        // At the end, only the lines about filling are still on the screen.
        let flat = in_the_end.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.starts_with("filling 127.0.0.1:"), "{columns}: {in_the_end}");
        assert!(in_the_end.lines().count() <= 7 && !flat.contains("report 1"), "{in_the_end}");
        assert!(!out.contains('\x1b') && out.contains("get"), "{out}");
    }
}

#[test]
fn elsewhere_each_report_is_a_line_without_control_characters() {
    let (_running, target) = server();
    let mut command = kvblaster("run --keys 1000 --schedule 0s+1000x250ms", &target);
    let mut child = KillOnDrop::spawn(command.stderr(Stdio::piped()).stdout(Stdio::null()));
    let mut told = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap) {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        // Lines that are printed only on a slow machine are ignored.
        told.extend(
            Some(line).filter(|line| line.contains("populated") || line.contains("/s answered")),
        );
        if told.len() == 4 {
            interrupt(&child);
        }
    }
    child.wait().unwrap();
    assert!(told[0].starts_with("populated 1000 keys in "), "{told:?}");
    assert!(told.len() > 3 && told[1..].iter().all(|line| line.starts_with("report ")), "{told:?}");
    assert!(told[1..].iter().all(|line| line.contains(" of 1000: ")), "{told:?}");
    let (_, _, err) = output("run -q --keys 1000 -n 500 --schedule 1h+1x1h", &target);
    assert_eq!(err, "");
}

#[test]
fn a_result_is_never_written_over_and_is_told_even_if_it_cannot_be_kept() {
    let (_running, target) = server();
    let folder = std::env::temp_dir().join(format!("kvblaster-out-{}", std::process::id()));
    let words = format!("run -q --keys 1000 -n 500 --schedule 1h+1x1h -o {}", folder.display());
    let (first, out, err) = output(&words, &target);
    assert!(first.status.success(), "{out}{err}");
    let kept = std::fs::read(folder.join("result.json")).unwrap();
    let (second, out, err) = output(&words, &target);
    assert_eq!((second.status.code(), out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains("already holds a result"), "{err}");
    assert_eq!(std::fs::read(folder.join("result.json")).unwrap(), kept);
    std::fs::remove_file(folder.join("result.json")).unwrap();
    // A folder has the name of a file that kvblaster writes late: writing fails, as on a full disk.
    std::fs::remove_file(folder.join("reports.csv")).unwrap();
    std::fs::create_dir(folder.join("reports.csv")).unwrap();
    let (third, out, err) = output(&words, &target);
    assert_eq!(third.status.code(), Some(3), "{out}{err}");
    assert!(out.contains("Half of the answers"), "{out}");
    assert!(err.contains("the result could not be saved") && err.contains("reports.csv"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn where_no_result_can_be_written_it_says_so_at_once() {
    let (running, target) = server();
    let (output, _, err) = output("run -q -o /dev/null/results", &target);
    assert_eq!(output.status.code(), Some(3));
    assert!(err.contains("--out: /dev/null/results: "), "{err}");
    assert_eq!(answers(&running), 0);
}

#[test]
fn a_server_of_another_kind_is_told_as_such() {
    // The server answers each line as memcached answers an unknown command.
    let target = format!("redis://{}", serving(|_| Some("ERROR\r\n")));
    let (output, _, err) = output(&format!("run -q --keys 100 {PATIENCE}"), &target);
    assert_eq!(output.status.code(), Some(3));
    assert!(err.contains("do not follow the protocol resp"), "{err}");
}

#[test]
fn a_wrong_word_says_where_to_look() {
    for (words, hint) in [
        ("run --nosuch", "Try kvblaster run --help."),
        ("capacity -r 5", "Try kvblaster capacity --help."),
        ("nosuch", "Try kvblaster --help."),
    ] {
        let (output, _, err) = output(words, "localhost");
        assert_eq!(output.status.code(), Some(64), "{words}: {err}");
        assert!(err.trim_end().ends_with(hint), "{words}: {err}");
    }
}

#[test]
fn help_manual_and_completions_go_to_stdout() {
    for (words, last, told) in [
        ("run", "--help", "Requests and items:"),
        ("man", "run", ".TH kvblaster-run 1"),
        ("completions", "bash", "complete -F _kvblaster"),
    ] {
        let (output, out, err) = output(words, last);
        assert!(output.status.success() && err.is_empty(), "{words}: {err}");
        assert!(out.contains(told), "{words}: {out}");
    }
}

#[test]
fn a_server_that_goes_away_is_told_and_sets_the_exit_status() {
    let (running, target) = server();
    let mut command = kvblaster("run --no-populate --schedule 0s+1000x250ms", &target);
    let mut child = KillOnDrop::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    // After a report with answers, the server ends, and eight reports without answers follow.
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let is_silent = |line: &String| line.contains(": 0/s answered");
    assert!(told.any(|line| line.starts_with("report ") && !is_silent(&line)));
    drop(running);
    assert_eq!(told.by_ref().filter(is_silent).take(8).count(), 8);
    interrupt(&child);
    // Reads stderr to its end, because kvblaster would block on a full pipe.
    told.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(
        out.contains("INVALID: no request was answered in ")
            && out.contains("the server went away"),
        "{out}"
    );
    assert!(out.contains("next: check first whether the server still runs"), "{out}");
}
