//! Tests of runs with several agents, which are processes that send requests to the null server.
//!
//! Where: tests of the whole program. Invariant: no assertion depends on the machine's speed. No
//! process outlives its test.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::measure::{Tally, Times};
use blaster::reflect::{self, RunningServer};
use blaster::result::RunResult;
use blaster::target::Place;
use blaster::workload::Verb;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testing::{KillOnDrop, is_alive, skip};

const KVBLASTER: &str = env!("CARGO_BIN_EXE_kvblaster");
/// A test fails if an agent does not end within this time.
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> (RunningServer, String) {
    let place = Place::Tcp("127.0.0.1:0".parse().unwrap());
    let plan = reflect::Plan { places: vec![place], ..Default::default() };
    let running = reflect::serve(&plan).expect("a port");
    let Place::Tcp(address) = running.addresses()[0].clone() else { panic!("not TCP") };
    (running, address.to_string())
}

fn plain() -> String {
    format!("{KVBLASTER} agent")
}

fn kvblaster(words: &str, agents: &[&str], target: &str) -> Command {
    let mut command = Command::new(KVBLASTER);
    command.args(words.split_whitespace());
    for agent in agents {
        command.args(["--agent", agent]);
    }
    command.arg(target);
    command
}

fn output(words: &str, agents: &[&str], target: &str) -> (Output, String, String) {
    let output = kvblaster(words, agents, target).output().expect("kvblaster starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

fn result(words: &str, agents: &[&str], target: &str) -> RunResult {
    let (_, out, err) = output(words, agents, target);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn agents_do_together_what_one_process_does_and_their_parts_add_up() {
    let (running, target) = server();
    let words = "run -q --json --keys 1001 -n 1001 -t 3 --schedule 1h+1x1h --timeout 60s";
    let done = result(words, &[&plain(), &plain()], &target);
    let whole = done.merged.unwrap().tally;
    let mut sum = Tally::new(0);
    for part in &done.agents {
        sum.merge(&part.merged.as_ref().unwrap().tally);
        assert!(part.lost.is_none() && part.round_trip_ns > Some(0) && part.machine.cpus > 0);
        assert!(part.merged.as_ref().unwrap().usage.client.is_some());
    }
    let times = |tally: &Tally| -> [Times; 2] {
        let total = tally.total();
        [total.response_ns, total.service_ns]
    };
    assert_eq!(times(&sum), times(&whole));
    assert_eq!((sum, whole.total().answered), (whole.clone(), 1001));
    let shares: Vec<_> = done.agents.iter().map(|one| (one.threads, one.connections)).collect();
    assert_eq!(shares, [(1, 6), (2, 10)]);
    // kvblaster stores 1,001 keys, sends 1,001 requests, and deletes 1,001 keys. Each of the two
    // agents asks for version and statistics twice: before the run and after it.
    let answers = || running.counts().answers.swap(0, Ordering::Relaxed);
    assert_eq!(answers(), 1001 + 1001 + 1001 + 4 + 4);
    let alone = result(words, &[], &target).merged.unwrap().tally;
    // The server was empty before the run, so a single process clears it with one flush. Ten more
    // requests ask for the server's state.
    assert_eq!(answers(), 1001 + 1001 + 1 + 5 * 2);
    for verb in [Verb::Get, Verb::Set] {
        let asked = |tally: &Tally| (tally.verb(verb).sent, tally.verb(verb).keys);
        assert_eq!(asked(&alone), asked(&whole), "{verb:?}");
    }
}

#[test]
fn the_text_has_a_line_for_each_agent() {
    let (_running, target) = server();
    let words = "run --keys 100 -r 1000 -n 100 --schedule 1h+1x1h";
    let speaks = format!("HOME=/ sh -c 'echo Welcome to $HOME >&2; exec {}'", plain());
    let agents = [&*plain(), &speaks];
    let (_, _, err) = output(words, &agents, &target);
    assert!(err.contains("\nagent 2: Welcome to /\n") || err.starts_with("agent 2: "), "{err}");
    let (output, out, err) = output(&format!("{words} -q"), &agents, &target);
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(err, "", "it was to be quiet");
    for nth in ["    1       1 ", "    2       1 "] {
        let is_it = |line: &str| line.starts_with(nth) && line.contains(&plain());
        assert_eq!(out.lines().filter(|line| is_it(line)).count(), 1, "{out}");
    }
}

#[test]
fn a_search_for_capacity_uses_them() {
    let (_running, target) = server();
    let words = "capacity -q --json --keys 100 -n 50 --schedule 1h+1x1h --first 500 --highest 1000 \
                 --precision 0.5 --votes 1 --repeats 1 --populate-once -O p50<10s";
    let done = result(words, &[&plain(), &plain()], &target);
    let found = done.search.unwrap();
    assert!(found.is_complete && found.capacities[0].name == "p50", "{found:?}");
    let sent = |part: &blaster::result::AgentPart| {
        part.merged.as_ref().map(|merged| merged.tally.total().sent)
    };
    let each = Some(25 * done.reports.len() as u64);
    assert_eq!(done.agents.iter().map(sent).collect::<Vec<_>>(), [each, each]);
}

#[test]
fn a_search_whose_agent_dies_while_it_warms_keeps_what_it_found() {
    let (_running, target) = server();
    let pids = Pids::new("warms");
    let words = "capacity --keys 100 --first 500 --populate-once --warm 2s --schedule 0s+1x10ms \
                 -O p50<10s";
    // A warm-up takes 2 s, so the agent is killed in the warm-up of the second trial.
    let (child, said) = told(words, &pids, &target, ("/s due ", 1));
    kill_process(pids.get(1), Signal::KILL).unwrap();
    let said: Vec<String> = said.collect();
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(1), "{out}{said:?}");
    assert!(flat.contains("Cap_p50 (p50<10s): "), "{out}{said:?}");
    assert!(flat.contains("the search ended early: ") && flat.contains("agent 2 (sh -c"), "{out}");
}

#[test]
fn an_agent_whose_threads_fail_is_told_of_at_once() {
    let (_running, target) = server();
    // The limit on open files is too low for the agent's 32 connections.
    let poor = format!("sh -c 'ulimit -n 30; exec {}'", plain());
    let words = "run -q --no-populate -c 64 --schedule 1h+1x1h";
    let (output, out, _) = output(words, &[&plain(), &poor], &target);
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(flat.contains("the run ended before the end of its schedule: agent 2 (sh -c"), "{out}");
}

struct Pids(Vec<PathBuf>);

impl Pids {
    fn new(name: &str) -> Pids {
        let path = |nth| format!("kvblaster-{name}-{nth}-{}", std::process::id());
        Pids((0..2).map(|nth| std::env::temp_dir().join(path(nth))).collect())
    }

    fn agents(&self) -> [String; 2] {
        let agent = |path: &str| format!("sh -c 'echo $$ > {path}; exec {}'", plain());
        [0, 1].map(|nth| agent(&self.0[nth].display().to_string()))
    }

    fn get(&self, nth: usize) -> Pid {
        let text = fs::read_to_string(&self.0[nth]).expect("an agent that has started");
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    fn await_end(&self) {
        let ends = Instant::now() + PATIENCE;
        for nth in 0..self.0.len() {
            let pid = self.get(nth);
            let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
            while is_alive(pid) {
                assert!(Instant::now() < ends, "agent {nth} lives");
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn started(words: &str, pids: &Pids, target: &str) -> KillOnDrop {
    let mut command = kvblaster(words, &pids.agents().each_ref().map(String::as_str), target);
    KillOnDrop::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Starts kvblaster, and waits until `lines` lines of stderr contain `what`. Also returns an
/// iterator over the later lines.
fn told(
    words: &str,
    pids: &Pids,
    target: &str,
    (what, lines): (&str, usize),
) -> (KillOnDrop, impl Iterator<Item = String>) {
    let mut child = started(words, pids, target);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told = said.by_ref().filter(|line| line.contains(what)).take(lines).count();
    assert_eq!(told, lines);
    (child, said)
}

fn running(
    pids: &Pids,
    target: &str,
    reports: usize,
) -> (KillOnDrop, impl Iterator<Item = String>) {
    told("run --keys 100 --schedule 0s+1000x250ms", pids, target, ("report ", reports))
}

#[test]
fn an_agent_that_dies_is_named_and_what_was_whole_counts() {
    let (_running, target) = server();
    let pids = Pids::new("dies");
    let (child, said) = running(&pids, &target, 2);
    kill_process(pids.get(1), Signal::KILL).unwrap();
    // Reads stderr to its end, because kvblaster would block on a full pipe.
    said.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("agent 2 (sh -c") && flat.contains("the agent ended, signal: 9"),
        "{out}"
    );
    assert!(flat.contains("an agent was lost during a report"), "{out}");
    assert!(flat.contains("(lost)") && !flat.contains("Nothing was measured"), "{out}");
    pids.await_end();
}

#[test]
fn when_nothing_is_whole_that_an_agent_did_the_result_is_not_to_be_trusted() {
    let (running, target) = server();
    let pids = Pids::new("early");
    let mut child = started("run -q --no-populate --schedule 0s+1x1h", &pids, &target);
    while running.counts().answers.load(Ordering::Relaxed) < 1000 {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        std::thread::yield_now();
    }
    kill_process(pids.get(0), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let is_told = out.contains("The result is invalid") && out.contains("INVALID: the figures of");
    assert!(is_told, "{out}");
}

#[test]
fn agents_end_with_their_controller_and_ctrl_c_keeps_what_was_measured() {
    for signal in [Signal::KILL, Signal::INT] {
        let (_running, target) = server();
        let pids = Pids::new(if signal == Signal::INT { "int" } else { "kill" });
        let (child, said) = running(&pids, &target, 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        said.for_each(drop);
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(out.contains("stopped by Ctrl-C"), signal == Signal::INT, "{out}");
        pids.await_end();
    }
}

#[test]
fn an_agent_that_says_nothing_is_named_soon_and_given_up_then() {
    let (_running, target) = server();
    let (output, out, err) = output("run", &[&plain(), "sleep 1000"], &target);
    assert_eq!((output.status.code(), out.as_str()), (Some(3), ""), "{err}");
    let named = "agent 2 (sleep 1000) has sent nothing for 2 s; kvblaster waits for at most 10 s\n";
    assert!(err.starts_with(named), "{err}");
    let given_up = "kvblaster: agent 2 (sleep 1000): no message arrived for 10s";
    assert!(err.contains(given_up), "{err}");
}

#[test]
fn what_is_no_agent_is_told_with_its_own_words() {
    let (running, target) = server();
    let told = [
        ("echo Welcome to b", "this line is not a message of kvblaster: Welcome to b"),
        ("cat /dev/zero", "a message is longer than 4194304 bytes"),
        (
            "echo '{\"Hello\":\"0.0.9\"}'",
            "the agent's version is 0.0.9, but the version of this kvblaster is 0.",
        ),
        ("true", "the agent ended, exit status: 0"),
        ("sh -c 'echo no route >&2; exit 7'", "exit status: 7; its last output: no route"),
        ("/no/such/program", "exit status: 127; its last output: "),
        (&format!("{KVBLASTER} agent --cpus 4095"), "kvblaster may not run on CPU 4095"),
    ];
    for (agent, why) in told {
        let (output, out, err) = output("run -q", &[&plain(), agent], &target);
        assert_eq!((output.status.code(), out.as_str()), (Some(3), ""), "{agent}: {err}");
        let name = format!("kvblaster: agent 2 ({agent}): ");
        assert!(err.contains(&name) && err.contains(why), "{agent}: {err}");
    }
    let answers = running.counts().answers.load(Ordering::Relaxed);
    assert!(answers <= 4, "{answers}: nothing was to be driven");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("kvblaster-agents-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn agents_without_the_files_of_the_workload_do_what_one_process_with_them_does() {
    let (_running, target) = server();
    let folder = Folder::new("files");
    // The shell of each agent removes the files first, so that no agent can open the files.
    let without = format!("sh -c 'cd /; rm -f {}/*; exec {}'", folder.0.display(), plain());
    let names: String = (0..100).map(|line| format!("user:{line}\n")).collect();
    let trace: String = (0..300).map(|n| format!("{n},k{},1,{},1,set,0\n", n % 7, n % 5)).collect();
    for (settings, md5s) in [
        ("--value-size file:sizes --popularity file:sizes --key-size file:sizes", 3),
        ("--key-file names --popularity file:sizes", 2),
        ("--trace trace.csv", 1),
        ("-w mine.toml", 1),
    ] {
        let words = format!(
            "run -q --json --keys 100 -n 300 -t 3 --mix get=1,set=1 --schedule 1h+1x1h \
             --timeout 60s {settings}"
        );
        let result = |agents: &[&str]| -> RunResult {
            let mine = "value-size = \"file:sizes\"\n";
            let files = [("sizes", "10 1\n20 2\n30 5\n"), ("names", &names), ("trace.csv", &trace)];
            for (name, text) in files.into_iter().chain([("mine.toml", mine)]) {
                fs::write(folder.0.join(name), text).unwrap();
            }
            let mut command = kvblaster(&words, agents, &target);
            let output = command.current_dir(&folder.0).output().expect("kvblaster starts");
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
                panic!("{settings}: {error}: {}", String::from_utf8_lossy(&output.stderr))
            })
        };
        let (alone, together) = (result(&[]), result(&[&without, &without]));
        assert!(!folder.0.join("sizes").exists(), "no agent has removed the files");
        assert_eq!(alone.manifest.workload_toml, together.manifest.workload_toml);
        assert_eq!(alone.manifest.workload_toml.matches("md5").count(), md5s, "{settings}");
        let requested = |done: &RunResult| {
            let tally = &done.merged.as_ref().unwrap().tally;
            let verbs =
                [Verb::Get, Verb::Set].map(|verb| (tally.verb(verb).sent, tally.verb(verb).keys));
            (verbs, tally.sent_bytes)
        };
        assert_eq!(requested(&alone), requested(&together), "{settings}");
    }
}

#[test]
fn files_that_are_too_long_for_agents_are_named_before_an_agent_starts() {
    let folder = Folder::new("long");
    let (marker, bytes) = (folder.0.join("started"), (33 << 20) + 6);
    for name in ["keys", "values"] {
        fs::write(folder.0.join(name), format!("10 1\n#{}", "-".repeat(33 << 20))).unwrap();
    }
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (keys, values) = (path("keys"), path("values"));
    let agent = format!("sh -c 'touch {}; exec {}'", marker.display(), plain());
    let words = format!("run -q --key-size file:{keys} --value-size file:{values}");
    let (output, _, err) = output(&words, &[&agent], "127.0.0.1:9");
    assert_eq!(output.status.code(), Some(3), "{err}");
    let told = format!("value-size: {values}: the file has {bytes} bytes; with --agent, all files");
    assert!(err.contains(&told) && err.contains(" at most 67108864 bytes"), "{err}");
    assert!(!marker.exists(), "an agent was started");
}

/// The keys of the gets, of the sets, and of the deletes that arrived on one connection.
type Requested = [Vec<u64>; 3];

/// Answers one connection as an empty memcached would. Returns the requested keys.
fn answered(stream: &TcpStream) -> Requested {
    let (mut source, mut line, mut requested) =
        (BufReader::new(stream), String::new(), Requested::default());
    while source.read_line(&mut line).is_ok_and(|read| read > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, answer) = match words[0] {
            "get" => (Some(0), "END\r\n"),
            "set" => (Some(1), "STORED\r\n"),
            "delete" => (Some(2), "DELETED\r\n"),
            "version" => (None, "VERSION 1\r\n"),
            _ => (None, "END\r\n"),
        };
        if let Some(verb) = verb {
            requested[verb].push(words[1].parse().unwrap());
        }
        if verb == Some(1) {
            let bytes = words[4].parse::<usize>().unwrap() + 2;
            source.read_exact(&mut vec![0; bytes]).unwrap();
        }
        if (&*stream).write_all(answer.as_bytes()).is_err() {
            break;
        }
        line.clear();
    }
    requested
}

#[test]
fn each_agent_fills_requests_and_clears_keys_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_over = AtomicBool::new(false);
    let words = "run -q -w uniform --keys 41 --key-size 2 --keys-per agent --mix get=1 -t 3 -c 6 \
                 -n 3000 --schedule 1h+1x1h --timeout 60s";
    let all: Vec<Requested> = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let streams = listener.incoming().map(Result::unwrap);
            let streams = streams.take_while(|_| !is_over.load(Ordering::Relaxed));
            let threads: Vec<_> =
                streams.map(|stream| scope.spawn(move || answered(&stream))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (output, out, err) = output(words, &[&plain(), &plain()], &address.to_string());
        is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address).unwrap());
        assert!(output.status.success(), "{out}{err}");
        accepting.join().unwrap()
    });
    for (verb, name) in ["get", "set", "delete"].into_iter().enumerate() {
        let each: Vec<_> =
            all.iter().map(|one| &one[verb]).filter(|keys| !keys.is_empty()).collect();
        let mut connections = 0;
        for own in [0..20, 20..41] {
            let is_own = |keys: &&&Vec<u64>| keys.iter().all(|key| own.contains(key));
            let of_agent: Vec<_> = each.iter().filter(is_own).collect();
            connections += of_agent.len();
            let mut keys: Vec<u64> =
                of_agent.into_iter().flat_map(|keys| (*keys).clone()).collect();
            keys.sort_unstable();
            if name == "get" {
                keys.dedup();
            }
            assert!(keys.iter().copied().eq(own.clone()), "{name}: {keys:?}");
        }
        assert_eq!(connections, each.len(), "{name}, keys of both agents: {each:?}");
    }
}

/// A shell script that makes network namespaces for two hosts, linked to the server's namespace.
/// The namespaces vanish when the shell ends.
const NETWORKS: &str = r#"
set -e
mount -t tmpfs none /run
mkdir /run/netns
for host in a b; do
  ip netns add $host
  ip link add to-$host type veth peer name eth0 netns $host
done
ip addr add 10.9.1.1/24 dev to-a
ip addr add 10.9.2.1/24 dev to-b
ip -n a addr add 10.9.1.2/24 dev eth0
ip -n b addr add 10.9.2.2/24 dev eth0
for host in a b; do
  ip link set to-$host up
  ip -n $host link set eth0 up
  ip -n $host route add default via 10.9.$([ $host = a ] && echo 1 || echo 2).1
done
echo ready
"#;

#[test]
fn two_agents_in_networks_of_their_own_drive_one_server_at_the_sum_of_their_rates() {
    let script = format!(
        "{NETWORKS}
         {KVBLASTER} reflect 10.9.1.1:7777 > /run/listens &
         until grep -q answering /run/listens; do :; done
         {KVBLASTER} run -q --json --keys 1000 -r 2000 -n 2000 --schedule 1h+1x1h --timeout 60s \
           --agent 'nsenter --net=/run/netns/a {KVBLASTER} agent' \
           --agent 'nsenter --net=/run/netns/b {KVBLASTER} agent' 10.9.1.1:7777"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-c", &script])
        .output();
    let output = match output {
        Ok(output) if output.stdout.starts_with(b"ready\n") => output,
        other => return skip(&format!("no networks of our own: {other:?}")),
    };
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let done: RunResult = serde_json::from_slice(&out[b"ready\n".len()..])
        .unwrap_or_else(|error| panic!("{error}: {}{err}", String::from_utf8_lossy(&out)));
    let parts: Vec<_> = done.agents.iter().map(|part| part.merged.as_ref().unwrap()).collect();
    let answered: Vec<_> = parts.iter().map(|part| part.tally.total().answered).collect();
    assert_eq!(answered, [1000, 1000]);
    let asked: Vec<_> = parts.iter().map(|part| part.asked_per_s).collect();
    let whole = done.merged.as_ref().unwrap();
    assert_eq!((asked, whole.asked_per_s), (vec![Some(1000.0); 2], Some(2000.0)));
    // At 2,000 requests/s, 2,000 requests take 1 s. Random gaps change this time by a few percent.
    assert!(whole.seconds > 0.8, "{}", whole.seconds);
    // `to-b` is an interface in the server's namespace. The agents run in other namespaces.
    let nics = |part: &blaster::result::AgentPart| {
        part.machine.nics.iter().map(|nic| nic.name.clone()).collect::<Vec<_>>()
    };
    assert!(done.agents.iter().all(|part| !nics(part).contains(&"to-b".to_owned())));
}
