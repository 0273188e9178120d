//! Tests of the controller. The agents are shell scripts that send the messages of the test.
//!
//! Where: tests of `agents`. Invariant: no process outlives its test.

use super::*;
use crate::measure::watch::Usage;
use crate::run::flags;
use crate::target::{self, Family};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A time that is longer than any step takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scripts(Vec<PathBuf>);

impl Drop for Scripts {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn line(message: &FromAgent) -> String {
    format!("printf '%s\\n' '{}'", serde_json::to_string(message).unwrap())
}

/// Starts one agent for each item of `all`. On `Go`, the agent sends the item's messages; to `Ask`,
/// it answers with the item's servers. To all other orders it answers as a real agent does.
fn gathered(all: &[(&[FromAgent], &[&str])]) -> (Scripts, Agents, Servers) {
    let targets =
        ["127.0.0.1:1", "127.0.0.1:2"].map(|name| target::parse(name, Family::Any).unwrap());
    let found = AgentFacts {
        infos: vec![Default::default(); targets.len()],
        targets: targets.to_vec(),
        protocol: crate::wire::Protocol::Text,
        machine: Default::default(),
        host: String::new(),
    };
    let found = line(&FromAgent::Found(Box::new(found)));
    let hello = line(&FromAgent::Hello(env!("CARGO_PKG_VERSION").to_owned()));
    let mut plan = flags::plan(false).unwrap();
    let mut scripts = Scripts(Vec::new());
    for (at_go, silent) in all {
        let at_go: String = at_go.iter().map(|one| line(one) + "; ").collect();
        let silent = silent.iter().map(|name| (*name).to_owned()).collect();
        let [ready, silent, ended] =
            [FromAgent::Ready, FromAgent::Silent(silent), FromAgent::Ended(None)]
                .map(|message| line(&message));
        let script = format!(
            "{hello}
             while read -r order; do case $order in
                 *Task*) {found} ;; *Start*) {ready} ;; *Go*) {at_go} ;;
                 *Ask*) {silent} ;; *End*) {ended} ;;
             esac; done"
        );
        let name = std::thread::current().name().unwrap_or_default().replace(':', "-");
        let name = format!("{name}-{}-{}", std::process::id(), scripts.0.len());
        scripts.0.push(std::env::temp_dir().join(name));
        let path = scripts.0.last().unwrap();
        fs::write(path, script).unwrap();
        plan.agents.push(format!("sh {}", path.display()));
    }
    plan.threads = u32::try_from(all.len()).unwrap();
    let (agents, servers) = Agents::gather(&plan, &AtomicBool::new(false)).unwrap();
    (scripts, agents, servers)
}

#[test]
fn an_epoch_told_twice_stands_for_no_other_agents() {
    let epoch = || FromAgent::Epoch {
        epoch: 0,
        tally: Box::default(),
        busiest: 0.0,
        usage: Box::<Usage>::default(),
        seconds: 1.0,
    };
    let (_scripts, agents, _) = gathered(&[(&[epoch(), epoch()], &[]), (&[], &[])]);
    let pace = Pace::Closed { connections: 2, depth: 1 };
    agents.start((Mode::Traffic, pace), false, &AtomicBool::new(false));
    let hands = &agents;
    assert_eq!(WorkerGroup::next(&hands, PATIENCE).unwrap().part.unwrap().agent, 0);
    assert!(WorkerGroup::next(&hands, PATIENCE).is_none() && hands.is_over());
    let why = agents.failed().unwrap().to_string();
    assert!(
        why.starts_with("agent 1 (sh /") && why.contains("the counts of interval 0 twice"),
        "{why}"
    );
}

#[test]
fn who_is_silent_is_as_agents_see_it() {
    let (one, two) = ("127.0.0.1:1", "127.0.0.1:2");
    for (first, second, told) in [
        (&[two][..], &[][..], "127.0.0.1:2 (for agent 1)"),
        (&[one], &[one], "127.0.0.1:1"),
        (&[], &[], "127.0.0.1:1, 127.0.0.1:2"),
    ] {
        let (_scripts, agents, servers) = gathered(&[(&[], first), (&[], second)]);
        let silent = agents.silent(&servers, &AtomicBool::new(false));
        assert_eq!(servers.named(&silent), told);
    }
}

#[test]
fn what_an_agent_says_waits_with_it_until_it_is_looked_at() {
    const LINES: usize = 50;
    let (sender, arrivals) = arrival_channel();
    let (reader, mut writer) = io::pipe().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    // The line is longer than a pipe's buffer.
    let line = format!("\"Ready\"{}\n", " ".repeat(200_000));
    let writing = std::thread::spawn(move || {
        for _ in 0..LINES {
            writer.write_all(line.as_bytes()).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let reading = std::thread::spawn(move || listen(Lines::new(reader, PATIENCE), 0, &sender));
    for taken in 1..=LINES {
        arrivals.recv().unwrap().2.unwrap();
        (0..100).for_each(|_| std::thread::yield_now());
        let written = written.load(Ordering::Relaxed);
        assert!(written <= taken + 2, "{written} lines are written, but only {taken} received");
    }
    assert_eq!(arrivals.recv().unwrap().2.unwrap_err(), "");
    writing.join().unwrap();
    reading.join().unwrap();
}

/// A text that sets a terminal's title, rings its bell, turns text red, and clears the screen (C1).
const HARM: &str = "\u{1b}]0;mine\u{7} \u{1b}[31mred \u{9b}2J";
const HARMLESS: &str = "\\u{1b}]0;mine\\u{7} \\u{1b}[31mred \\u{9b}2J";

#[test]
fn what_an_agent_says_controls_no_terminal() {
    let mut passed_on = Vec::new();
    let kept = copy_words(format!("{HARM}\r\n\n").as_bytes(), Some(3), &mut passed_on);
    assert_eq!(String::from_utf8(passed_on).unwrap(), format!("agent 3: {HARMLESS}\n"));
    assert_eq!(kept, HARMLESS);

    for said in [FromAgent::Refused(HARM.to_owned()), FromAgent::Ended(Some(HARM.to_owned()))] {
        let (_scripts, agents, _) = gathered(&[(&[said], &[])]);
        let pace = Pace::Closed { connections: 1, depth: 1 };
        agents.start((Mode::Traffic, pace), false, &AtomicBool::new(false));
        agents.wait(&AtomicBool::new(false), |agent| agent.traffic.failed.is_none());
        let why = agents.failed().unwrap().to_string();
        assert!(why.contains(HARMLESS) && !why.contains(char::is_control), "{why:?}");
    }

    let (_scripts, agents, servers) = gathered(&[(&[], &[HARM])]);
    let silent = agents.silent(&servers, &AtomicBool::new(false));
    assert!(!servers.named(&silent).contains(char::is_control));
}
