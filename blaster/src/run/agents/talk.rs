//! The messages between a controller and its agents: JSON, one message per line. An empty line only
//! shows that its sender is alive.
//!
//! ```text
//! agent       Hello          Found              Ready       Gone  State… Epoch…        Ended
//! controller         Task               Start         Go          Epoch…        End
//! ```
//!
//! The contents of a workload's files follow the line of `Task`, byte for byte.
//!
//! Where: over an agent's standard input and output.
//! Invariant: no line is longer than `LINE_BYTES_MAX`, and the files of a message have at most
//! `SENT_BYTES_MAX` bytes in total. Controller and agent each hold at most one message that was
//! read but not handled. At most `ORDERS_MAX` messages of the controller, and `MESSAGES_MAX` of an
//! agent, wait to be written. A sender that is silent for `SILENCE_MAX` counts as gone.

use super::super::task::Task;
use crate::drive::live_counts::LiveSnapshot;
use crate::drive::{Mode, Pace};
use crate::measure::Tally;
use crate::measure::watch::Usage;
use crate::result::machine::Machine;
use crate::target::Target;
use crate::target::version::ServerInfo;
use crate::wire::Protocol;
use crate::workload::SentFiles;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Maximum bytes of a line; a longer line is an error. A full tally takes two million bytes.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of messages that wait for an agent; if more wait, the agent counts as lost.
pub(super) const ORDERS_MAX: usize = 1024;
/// Maximum number of an agent's messages that wait to be written; a further message blocks.
pub(super) const MESSAGES_MAX: usize = 16;
/// Time without a message after which the sender sends an empty line.
const STILL_EVERY: Duration = Duration::from_secs(1);
/// Time without a line after which the sender counts as gone.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Maximum number of characters that an error quotes from an invalid line.
const EXCERPT_CHARS_MAX: usize = 80;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// An agent's share of the work, the workload as TOML, and the files that the workload names.
    Task(Box<Task>, String, SentFiles),
    /// Connect, and wait for `Go`. The pace is that of all agents together.
    Start {
        mode: Mode,
        pace: Pace,
        is_watched: bool,
    },
    Go,
    Epoch(u32),
    /// Send no more requests, and stop once the outstanding requests are answered or given up.
    End,
    /// Report which servers do not answer.
    Ask,
    /// Report which servers went away or were restarted.
    Compare,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromAgent {
    /// The agent's version. This is the agent's first message.
    Hello(String),
    Found(Box<AgentFacts>),
    Refused(String),
    /// All threads have connected, or one of them has failed.
    Ready,
    Gone,
    /// The progress of the work. There is a snapshot only if live counts are displayed.
    State {
        snapshot: Option<LiveSnapshot>,
        is_unheard: bool,
        is_over: bool,
    },
    /// The counts of all the agent's threads in an epoch.
    Epoch {
        epoch: u32,
        tally: Box<Tally>,
        busiest: f64,
        usage: Box<Usage>,
        seconds: f64,
    },
    /// All threads have ended; contains the error if a thread failed.
    Ended(Option<String>),
    Silent(Vec<String>),
    Changed(Vec<String>),
}

pub(crate) trait Message: Serialize + DeserializeOwned {
    /// The files whose contents follow the message's line.
    fn files(&mut self) -> Option<&mut SentFiles> {
        None
    }
}

impl Message for ToAgent {
    fn files(&mut self) -> Option<&mut SentFiles> {
        if let ToAgent::Task(_, _, files) = self { Some(files) } else { None }
    }
}

impl Message for FromAgent {}

/// The facts that an agent reports about its servers and its machine before the traffic.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AgentFacts {
    pub(crate) targets: Vec<Target>,
    pub(crate) infos: Vec<ServerInfo>,
    pub(crate) protocol: Protocol,
    pub(crate) machine: Machine,
    /// The boot id of the agent's host; empty if it cannot be read.
    pub(crate) host: String,
}

/// A reader that fails with `TimedOut` if no bytes arrive within `patience`.
struct Patient<F> {
    from: F,
    patience: Duration,
}

impl<F: AsFd> Read for Patient<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let patience = Timespec::try_from(self.patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(rustix::io::read(&self.from, into)?),
        }
    }
}

pub(crate) struct Lines<F> {
    from: BufReader<Patient<F>>,
}

impl<F: AsFd> Lines<F> {
    /// The first line must arrive within `patience`, and each later line within `SILENCE_MAX`.
    pub(crate) fn new(from: F, patience: Duration) -> Lines<F> {
        Lines { from: BufReader::new(Patient { from, patience }) }
    }

    /// Returns the next message with its files, or `None` at the end of the input. Fails if no line
    /// arrives in time, a line is invalid, or the files are too long.
    pub(crate) fn next<M: Message>(&mut self) -> Result<Option<M>, String> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            match read {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let patience = self.from.get_ref().patience;
                    return Err(format!("no message arrived for {patience:?}"));
                }
                Err(error) => return Err(error.to_string()),
                Ok(0) => return Ok(None),
                Ok(_) => {}
            }
            self.from.get_mut().patience = SILENCE_MAX;
            if line.len() as u64 == LINE_BYTES_MAX {
                return Err(format!("a message is longer than {LINE_BYTES_MAX} bytes"));
            }
            if line != b"\n" {
                let message = serde_json::from_slice(&line);
                let mut message: M = message.map_err(|_| {
                    format!("this line is not a message of kvblaster: {}", excerpt(&line))
                })?;
                if let Some(files) = message.files() {
                    files.read_contents(&mut self.from)?;
                }
                return Ok(Some(message));
            }
        }
    }
}

pub(crate) fn excerpt(line: &[u8]) -> String {
    harmless(&String::from_utf8_lossy(line), EXCERPT_CHARS_MAX)
}

/// Returns the first `chars_max` characters with control characters escaped, because an agent's
/// text must not control the terminal.
pub(crate) fn harmless(text: &str, chars_max: usize) -> String {
    let mut out = String::new();
    for one in text.trim().chars().take(chars_max) {
        if one.is_control() { out.extend(one.escape_default()) } else { out.push(one) }
    }
    out
}

/// Writes messages until all senders or the reader are gone. Writes an empty line every
/// `STILL_EVERY` without a message.
pub(crate) fn write<M: Message>(messages: &Receiver<M>, mut to: impl Write) {
    loop {
        let message = match messages.recv_timeout(STILL_EVERY) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if write_one(message, &mut to).is_err() {
            return;
        }
    }
}

/// Writes a message with its files; for `None`, writes an empty line.
fn write_one<M: Message>(mut message: Option<M>, to: &mut impl Write) -> io::Result<()> {
    let mut line = message.as_ref().map(serde_json::to_vec).transpose()?.unwrap_or_default();
    line.push(b'\n');
    to.write_all(&line)?;
    if let Some(files) = message.as_mut().and_then(M::files) {
        files.write_contents(to)?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::flags;
    use std::sync::mpsc;

    fn read(bytes: &[u8], patience: Duration) -> (Result<Option<ToAgent>, String>, io::PipeWriter) {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(bytes).unwrap();
        (Lines::new(reader, patience).next(), writer)
    }

    fn long_task() -> String {
        let task = Task::whole(&flags::plan(false).unwrap());
        let files = [serde_json::json!({ "path": "/sizes", "bytes": 67_108_865 })];
        serde_json::json!({ "Task": [task, "", files] }).to_string() + "\n"
    }

    #[test]
    fn what_is_written_is_read_and_silence_is_not_borne() {
        let (reader, writer) = io::pipe().unwrap();
        let (sender, messages) = mpsc::channel();
        let pace = Pace::Open { rate_per_s: f64::NAN, connections: 3, outstanding_max: 4 };
        sender.send(ToAgent::Start { mode: Mode::Traffic, pace, is_watched: false }).unwrap();
        drop(sender);
        let mut lines = Lines::new(reader, SILENCE_MAX);
        write(&messages, writer);
        let Ok(Some(ToAgent::Start { pace, .. })) = lines.next() else { panic!("no start") };
        let Pace::Open { rate_per_s, connections: 3, .. } = pace else { panic!("{pace:?}") };
        assert!(rate_per_s.is_nan() && matches!(lines.next::<ToAgent>(), Ok(None)));
        let patience = Duration::from_millis(10);
        let long = long_task();
        for (bytes, why) in [
            (&b""[..], "no message arrived for 10ms"),
            (b"Welcome\x1b to b\n", "this line is not a message of kvblaster: Welcome\\u{1b} to b"),
            (long.as_bytes(), "the files of the workload have more than 67108864 bytes together"),
        ] {
            let (message, _open) = read(bytes, patience);
            assert_eq!(message.unwrap_err(), why);
        }
    }
}
