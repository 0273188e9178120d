//! Runs the transcripts in this folder. A transcript lists the bytes that a client sends, and the
//! bytes that the client must receive.
//!
//! Where: client side, over TCP, UDP and AF_XDP.
//! Invariant: a transcript lists every byte of the replies; after the last reply nothing is sent.
//! Source: each transcript was first run against memcached 1.6.45, as
//! `memcached_answers_as_written` does with the installed memcached. `README.md` defines the
//! format.
//!
//! - `TRANSCRIPT=name`: runs only the transcripts whose names contain `name`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod frames;
mod in_memory;
#[path = "../live/mod.rs"]
mod live;
mod relay;
mod script;

use columns::settings::Migrate;
use frames::FrameLine;
use live::frame::{Frame, NOOP, REPLY, REQUEST};
use live::{SILENCE, Server, Stop, Wire, show};
use relay::Relay;
use script::{Piece, Script, Step, Values, When};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::PATIENCE;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");

const OF_CONNECTIONS: [(&str, &str); 12] = [
    ("binary_half_closed", "a message has no end that a client could send"),
    ("binary_header", "which protocol is spoken is told from each message"),
    ("binary_pieces", "a request that is not in one message is dropped"),
    ("capitals", "what begins with a capital letter is taken for an answer, and dropped"),
    ("connections", "there are none to be counted"),
    ("detail", "a list of prefixes takes several turns of a connection"),
    ("dumps", "a dump takes several turns of a connection"),
    ("half_closed", "a message has no end that a client could send"),
    ("large_values", "a reply over udp_reply_max is refused"),
    ("multiget_long", "a message asks for no more keys than a turn looks up"),
    ("protocol_flag", "a message of the other protocol is no end for those behind it"),
    ("watch", "a message has no client who could go on reading"),
];

const OF_A_PROCESS: [(&str, &str); 2] = [
    ("connections", "stats conns tells the addresses of listeners"),
    ("shutdown", "the process of the test would end"),
];

const OF_THE_KERNEL: [(&str, &str); 1] =
    [("memlimit", "memory cannot become less than packets take")];

const OF_LOOPBACK: [(&str, &str); 2] =
    [("connections", "stats conns tells addresses"), ("watch", "a connection tells its address")];

#[test]
fn the_server_answers_as_written() {
    run_all(None, &|flags| Some(Server::under_test(flags)), None);
}

#[test]
fn the_server_answers_as_written_though_connections_move_after_each_turn() {
    let start = |flags: &[&str]| Some(Server::migrating_each_turn(&[&["-t", "3"], flags].concat()));
    run_all(None, &start, None);
}

/// The server's streams travel in memory, without descriptors, in small records, and are held until
/// they are acknowledged.
#[test]
fn the_server_answers_as_written_over_streams_in_memory() {
    over_streams_in_memory("1", Migrate::Never);
}

#[test]
fn the_server_answers_as_written_though_streams_in_memory_move_after_each_turn() {
    over_streams_in_memory("3", Migrate::AtEachTurn);
}

fn over_streams_in_memory(columns: &str, migrate: Migrate) {
    let start = |flags: &[&str]| {
        let relay = Relay::start(&[&["-t", columns], flags].concat(), migrate);
        Some(Server::within_this_process(relay.address, relay))
    };
    run_all_but(None, &start, &OF_A_PROCESS, false);
}

#[test]
fn the_server_answers_messages_as_written() {
    if !live::messages::keep_megabytes(&UdpSocket::bind("127.0.0.1:0").unwrap()) {
        return testing::skip("no privilege for a socket's buffer of four megabytes");
    }
    run_all(None, &by_messages, Some(&OF_CONNECTIONS));
}

/// Permits operators' commands over UDP, which some transcripts contain.
const OBEYS: &[&str] = &["-o", "udp_admin"];

fn by_messages(flags: &[&str]) -> Option<Server> {
    Some(Server::under_test(&[&["-U", "-1"], OBEYS, flags].concat()))
}

#[test]
fn the_server_answers_messages_past_the_kernel_as_written() {
    messages_past_the_kernel_as_written(&|flags| Server::past_the_kernel(&[OBEYS, flags].concat()));
}

/// Runs the transcripts that can run over UDP. Runs none if AF_XDP is not permitted here.
fn messages_past_the_kernel_as_written(start: &impl Fn(&[&str]) -> Option<Server>) {
    let Some(server) = start(&[]) else { return };
    drop(server);
    let left_out = [&OF_CONNECTIONS[..], &OF_THE_KERNEL].concat();
    run_all(None, start, Some(&left_out));
}

/// Starts a server that stores each value, however short, in the arena as one piece.
fn with_values_beside_packets(flags: &[&str]) -> Option<Server> {
    let all = [flags, &["-o", "udp_admin,zero_copy=send,zero_copy_min=1"]].concat();
    Server::past_the_kernel(&all)
}

/// Like `with_values_beside_packets`, but a value stays in the chunks of its packets.
fn with_values_in_packets(flags: &[&str]) -> Option<Server> {
    let all = [flags, &["-o", "udp_admin,zero_copy=full,zero_copy_min=1"]].concat();
    Server::past_the_kernel(&all)
}

#[test]
fn the_server_answers_messages_as_written_where_values_lie_beside_packets() {
    messages_past_the_kernel_as_written(&with_values_beside_packets);
}

#[test]
fn the_server_answers_messages_as_written_where_values_stay_in_packets() {
    messages_past_the_kernel_as_written(&with_values_in_packets);
}

/// Like `with_values_in_packets`, but with a zero-copy driver, which turns `-o zero_copy` off.
fn with_a_driver_that_does_not_copy(flags: &[&str]) -> Option<Server> {
    let all = [flags, &["-o", "udp_admin,zero_copy=full,zero_copy_min=1"]].concat();
    Server::past_a_kernel_without("copies", &all)
}

#[test]
fn the_server_answers_messages_as_written_where_the_driver_does_not_copy() {
    messages_past_the_kernel_as_written(&with_a_driver_that_does_not_copy);
}

#[test]
fn the_server_answers_as_written_where_values_lie_beside_packets() {
    let Some(server) = with_values_beside_packets(&[]) else { return };
    drop(server);
    let left_out = [&OF_LOOPBACK[..], &OF_THE_KERNEL].concat();
    run_all_but(None, &with_values_beside_packets, &left_out, false);
}

#[test]
fn what_is_left_to_connections_and_to_the_kernel_is_known_by_name() {
    let names: Vec<String> = transcripts().iter().map(|path| name(path)).collect();
    for (left_out, why) in OF_CONNECTIONS.iter().chain(&OF_THE_KERNEL) {
        assert!(names.iter().any(|name| name == left_out), "no transcript {left_out}");
        // The run must fail. Wait only half a second for an answer that does not come.
        let times = Times { patience: Duration::from_millis(500), silence: SILENCE };
        let script = Script::parse(left_out, &text(left_out), None);
        let past = |flags: &[&str]| Server::past_the_kernel(flags);
        let outcome = match OF_THE_KERNEL.iter().any(|(name, _)| name == left_out) {
            true if past(&[]).is_none() => return,
            true => run(&script, &past, times, true),
            false => run(&script, &by_messages, times, true),
        };
        assert!(outcome.is_err(), "{left_out} passes over UDP too, and was left out: {why}");
    }
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(FOLDER).join(name).with_extension("txt")).unwrap()
}

#[test]
fn memcached_answers_as_written() {
    let Some(rival) = Server::memcached(&[]) else { return };
    let version = rival.version();
    run_all(Some(&version), &Server::memcached, None);
}

#[test]
fn each_command_has_a_transcript() {
    let texts = all_texts();
    // The forms of a request are `> get k` and, with the name of a connection, `a> get k`.
    let requests: Vec<&str> = texts
        .lines()
        .filter_map(|line| line.split_once("> "))
        .filter(|(by, _)| by.len() < 2)
        .map(|(_, request)| request)
        .collect();
    let sent = |name: &str| requests.iter().any(|request| request.split(' ').next() == Some(name));
    let names = protocol::command::COMMANDS.iter().map(|command| command.name);
    let without: Vec<&str> = names.filter(|name| !sent(name)).collect();
    assert!(without.is_empty(), "no transcript sends {without:?}");
}

#[test]
fn each_binary_command_has_a_transcript() {
    let texts = all_texts();
    // The forms of a request are `>> get key=k`, `>+ get key=k` and `>> *50 get key=k`. The name of
    // a connection may precede each: `a>> get`.
    let lines = texts.lines().map(|line| line.trim_start_matches(|one: char| one.is_lowercase()));
    let requests = lines.filter_map(|line| line.strip_prefix(">> ").or(line.strip_prefix(">+ ")));
    let sent: Vec<&str> = requests
        .filter_map(|request| request.split(' ').find(|word| !word.starts_with('*')))
        .collect();
    let is_sent = |code: u8| {
        let mut names = live::frame::OPCODES.iter().filter(|(_, known)| *known == code);
        sent.contains(&format!("{code:#04x}").as_str())
            || names.any(|(name, _)| sent.contains(name))
    };
    let rows = protocol::binary::opcode::OPCODES.iter();
    let without: Vec<&str> = rows.filter(|row| !is_sent(row.code)).map(|row| row.name).collect();
    assert!(without.is_empty(), "no transcript sends {without:?}");
}

fn all_texts() -> String {
    transcripts().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn a_wrong_transcript_is_found() {
    let wrong = [
        ("> get k\n< EN\n", 2),
        ("> get k\n", 1),
        ("> get k\n< END\n< END\n", 3),
        ("> version\n! closed\n", 2),
        ("> quit\n! waits\n", 2),
        ("> set k 0 0 1\n> x\n< STORED\n> gets k\n< VALUE k 0 1 {cas a}\n< y\n< END\n", 6),
        (
            "> set k 0 100 1\n> x\n< STORED\n> lru_crawler metadump all\n\
          < key=k exp={now+200} la={*} cas={*} fetch=no cls=1 size={*} flags=0 \\n\\\n< END\n",
            5,
        ),
        (">> get key=k\n<< get status=2 value=Not found\n", 2),
        (">> get key=k\n<< get status=1 value=Not fount\n", 2),
        (">> get key=k\n<< getq status=1 value=Not found\n", 2),
        (">> get key=k opaque=1\n<< get status=1 value=Not found\n", 2),
        (">> set key=k value=x\n<< set\n", 2),
        (">> noop\n<< noop cas={cas a}\n", 2),
        (">> getq key=k\n<< getq status=1 value=Not found\n", 2),
        (">> get key=k\n>> noop\n<< get status=1 value=Not found\n", 3),
        (">> incr key=n initial=5\n<< incr cas={cas a} number=4\n", 2),
        (
            ">> set key=k flags=1 value=x\n<< set cas={cas a}\n>> get key=k\n\
          << get cas={cas a} value=x\n",
            4,
        ),
        (">> stat\n<+ stat key=nosuch value={*}\n", 2),
    ];
    let start = |flags: &[&str]| Some(Server::under_test(flags));
    // Some scripts wait for a time limit, so all scripts run at the same time.
    let times = Times { patience: Duration::from_secs(10), silence: Duration::from_secs(10) };
    std::thread::scope(|scope| {
        for (text, line) in wrong {
            scope.spawn(move || {
                let script = Script::parse("wrong", text, None);
                let error = run(&script, &start, times, false).unwrap_err();
                assert!(error.starts_with(&format!("wrong:{line}: ")), "{text}: {error}");
            });
        }
    });
}

#[derive(Clone, Copy)]
struct Times {
    patience: Duration,
    /// The wait for an answer that must not come. A shorter wait finds fewer faults, but never
    /// fails a correct server.
    silence: Duration,
}

/// Runs all transcripts over TCP. If `left_out` is set, runs all but those in `left_out` over UDP.
fn run_all(
    program: Option<&str>,
    start: &impl Fn(&[&str]) -> Option<Server>,
    left_out: Option<&[(&str, &str)]>,
) {
    run_all_but(program, start, left_out.unwrap_or_default(), left_out.is_some());
}

fn run_all_but(
    program: Option<&str>,
    start: &impl Fn(&[&str]) -> Option<Server>,
    left_out: &[(&str, &str)],
    by_messages: bool,
) {
    let wanted = std::env::var("TRANSCRIPT").unwrap_or_default();
    let mut errors = Vec::new();
    let mut count = 0;
    for path in transcripts() {
        let name = name(&path);
        let script = Script::parse(&name, &text(&name), program);
        let is_left_out = left_out.iter().any(|(one, _)| *one == name);
        if !name.contains(&wanted) || script.steps.is_empty() || is_left_out {
            continue;
        }
        count += 1;
        let times = Times { patience: PATIENCE, silence: SILENCE };
        errors.extend(run(&script, start, times, by_messages).err());
    }
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    assert!(count > 0, "no transcript ran");
}

fn transcripts() -> Vec<PathBuf> {
    let files = Path::new(FOLDER).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "txt")).collect();
    paths.sort();
    paths
}

fn run(
    script: &Script,
    start: &impl Fn(&[&str]) -> Option<Server>,
    times: Times,
    by_messages: bool,
) -> Result<(), String> {
    let mut play = Play::new(times, by_messages);
    let mut last = 0;
    for (line, step) in &script.steps {
        let place = |error: String| format!("{}:{line}: {error}", script.name);
        last = *line;
        if let Step::Start(flags) = step {
            play.finish().map_err(place)?;
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            play.server = start(&flags);
        } else {
            play.step(step).map_err(place)?;
        }
    }
    play.finish().map_err(|error| format!("{}:{last}: {error}", script.name))
}

fn expect_end(expected: Stop, got: Stop, rest: &[u8]) -> Result<(), String> {
    if expected == got && rest.is_empty() {
        return Ok(());
    }
    Err(format!("expected {expected:?}, got {got:?} after {}", show(rest)))
}

struct Play {
    server: Option<Server>,
    wires: BTreeMap<char, Open>,
    values: Values,
    times: Times,
    by_messages: bool,
}

struct Open {
    wire: Wire,
    /// Bytes of binary frames that are sent together with the next write.
    held: Vec<u8>,
    /// True if the first byte sent began a binary frame; `None` before bytes are sent.
    is_binary: Option<bool>,
}

impl Play {
    fn new(times: Times, by_messages: bool) -> Play {
        let (wires, values) = (BTreeMap::new(), Values::new());
        Play { server: None, wires, values, times, by_messages }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Start(_) => {}
            Step::Send(name, pieces) => {
                let bytes = self.values.fill(pieces);
                self.send(*name, &bytes, When::Now);
            }
            Step::SendFrames(name, lines, when) => {
                let frames = lines.iter().map(|line| line.request(&self.values));
                let bytes = frames.collect::<Vec<_>>().concat();
                self.send(*name, &bytes, *when);
            }
            Step::Expect(name, pieces) => self.expect(*name, pieces)?,
            Step::ExpectFrames(name, lines) => {
                for line in lines {
                    let frame = self.frame(*name, line)?;
                    line.matches(&mut self.values, &frame)?;
                }
            }
            Step::ExpectLater(name, line) => {
                let mut frame = self.frame(*name, line)?;
                while line.is_later(&self.values, &frame) {
                    frame = self.frame(*name, line)?;
                }
                line.matches(&mut self.values, &frame)?;
            }
            // The message must get no further answer, so the next answer must belong to `question`.
            Step::Closed(name) | Step::Waits(name) if self.by_messages => {
                let question = self.question(*name).0;
                let mut wire = self.take(*name);
                let answered = wire.await_later_answer(&question);
                let rest = wire.rest();
                if answered.is_err() || !rest.is_empty() {
                    return Err(format!(
                        "the next message is answered: {answered:?}, {}",
                        show(&rest)
                    ));
                }
            }
            Step::Closed(name) => {
                let mut wire = self.take(*name);
                let stop = wire.ends(self.times.patience);
                expect_end(Stop::Closed, stop, &wire.rest())?;
            }
            Step::Waits(name) => {
                let mut wire = self.take(*name);
                let stop = wire.ends(self.times.silence);
                expect_end(Stop::Silent, stop, &wire.rest())?;
            }
            Step::Shut(_) if self.by_messages => return Err("a message has no end".to_owned()),
            Step::Shut(name) => self.open(*name).wire.shut_sending(),
            Step::Drop(name) => drop(self.take(*name)),
        }
        Ok(())
    }

    fn open(&mut self, name: char) -> &mut Open {
        let (server, by_messages) = (self.server.as_ref().unwrap(), self.by_messages);
        let open = self.wires.entry(name).or_insert_with(|| Open {
            wire: if by_messages { server.send_datagrams() } else { server.connect() },
            held: Vec::new(),
            is_binary: None,
        });
        open.wire.patience = self.times.patience;
        open
    }

    fn send(&mut self, name: char, bytes: &[u8], when: When) {
        let open = self.open(name);
        open.held.extend_from_slice(bytes);
        if when == When::Now {
            let bytes = std::mem::take(&mut open.held);
            open.is_binary = open.is_binary.or(bytes.first().map(|&byte| byte == REQUEST));
            open.wire.send(&bytes);
        }
    }

    fn frame(&mut self, name: char, line: &FrameLine) -> Result<Frame, String> {
        let wire = &mut self.open(name).wire;
        wire.frame()
            .map_err(|stop| format!("expected {line}, got {stop:?} after {}", show(&wire.rest())))
    }

    fn take(&mut self, name: char) -> Wire {
        let open = self.open(name);
        assert!(open.held.is_empty(), "frames were not sent");
        self.wires.remove(&name).unwrap().wire
    }

    fn expect(&mut self, name: char, pieces: &[Piece]) -> Result<(), String> {
        self.open(name);
        let wire = &mut self.wires.get_mut(&name).unwrap().wire;
        let open = pieces.iter().any(|piece| !matches!(piece, Piece::Bytes(_)));
        if open {
            let got = wire.line().map_err(|stop| format!("{stop:?}: {}", show(&wire.rest())))?;
            return self.values.matches(pieces, &got);
        }
        for expected in self.values.fill(pieces).split_inclusive(|&byte| byte == b'\n') {
            let ends = expected.ends_with(b"\n");
            let got = if ends { wire.line() } else { wire.exactly(expected.len()) };
            let got = got.map_err(|stop| {
                format!("expected {}, got {stop:?} after {}", show(expected), show(&wire.rest()))
            })?;
            if got != expected {
                return Err(format!("expected {}, got {}", show(expected), show(&got)));
            }
        }
        Ok(())
    }

    /// Returns a request and its answer. If the answer comes next, no other reply was outstanding.
    fn question(&mut self, name: char) -> (Vec<u8>, Vec<u8>) {
        if self.open(name).is_binary == Some(true) {
            let noop = |magic| Frame { opaque: 77, ..Frame::new(magic, NOOP, &[], &[], &[]) };
            (noop(REQUEST).encode(), noop(REPLY).encode())
        } else {
            (b"mn\r\n".to_vec(), b"MN\r\n".to_vec())
        }
    }

    /// On each open connection, the server must have sent nothing more, and must still answer.
    fn finish(&mut self) -> Result<(), String> {
        for name in self.wires.keys().copied().collect::<Vec<_>>() {
            let (question, answer) = self.question(name);
            let mut wire = self.take(name);
            wire.send(&question);
            let got = wire.exactly(answer.len());
            if got.as_ref() != Ok(&answer) {
                let got = got.map(|bytes| show(&bytes));
                let rest = show(&wire.rest());
                return Err(format!("connection {name:?} is not at its end: {got:?} {rest}"));
            }
        }
        if let Some(server) = &mut self.server {
            assert!(server.is_alive(), "the server died");
            assert_eq!(server.datagrams_by_the_kernel(), 0, "datagrams reached the kernel");
        }
        Ok(())
    }
}
