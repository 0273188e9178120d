//! A server of the soak, and the state that its actors share.
//!
//! Where: made by `main`, borrowed by every actor.
//! Invariant: the first fault ends the soak for all actors; every fault is shown.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blaster::launch::Server;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::measure::wire::{Protocol, Wire};
use crate::measure::{Outcome, fail};
use testing::namespace::Namespace;

/// Longest time until a pausing actor notices that the soak is over.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Site<'f> {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    pub(crate) address: String,
    /// Bytes of the arena that are free for values before any value is stored.
    pub(crate) arena_bytes: u64,
    /// The server's namespace, if the server is at the other end of a link.
    pub(crate) far: Option<&'f Namespace>,
    /// True if not all items fit: items may be evicted, flushed or refused.
    pub(crate) loses: bool,
    pub(crate) limits_mb: (u32, u32),
    /// The memory limit from which the bound of resident bytes is computed. If the limit is
    /// lowered, the former limit stays here until the server complies with the lower limit.
    pub(crate) limit_bytes: AtomicU64,
}

impl<'f> Site<'f> {
    /// Returns the same server, addressed over the link to the namespace `far`.
    pub(crate) fn of(self, far: &'f Namespace) -> Outcome<Site<'f>> {
        let port = self.server.target.parse::<SocketAddr>()?.port();
        let mut site = Site { address: format!("{}:{port}", far.v4), far: Some(far), ..self };
        site.arena_bytes = site.stat(&mut site.text()?, "stats memory", "arena_free_bytes")?;
        if site.arena_bytes == 0 {
            return fail(
                "the server has no memory for values that are sent without a copy".to_owned(),
            );
        }
        Ok(site)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Lets the server open only `more` further file descriptors. Returns the former limit.
    pub(crate) fn limit_files(&self, more: u64) -> Outcome<Rlimit> {
        let process = procfs::process::Process::new(i32::try_from(self.server.pid())?)?;
        let maximum = match process.limits()?.max_open_files.hard_limit {
            procfs::process::LimitValue::Value(files) => Some(files),
            procfs::process::LimitValue::Unlimited => None,
        };
        let current = Some(u64::try_from(process.fd_count()?)? + more);
        self.set_files(Rlimit { current, maximum })
    }

    pub(crate) fn set_files(&self, limit: Rlimit) -> Outcome<Rlimit> {
        let pid = i32::try_from(self.server.pid()).ok().and_then(Pid::from_raw);
        Ok(prlimit(pid, Resource::Nofile, limit)?)
    }

    pub(crate) fn text(&self) -> Outcome<Wire> {
        Wire::connect(self.address(), Protocol::Text)
    }

    /// Returns how often a connection has moved to another column. Fails if no connection has moved
    /// on the server whose connections must move after each turn.
    pub(crate) fn moves(&self) -> Outcome<u64> {
        let rows = self.text()?.stats("stats columns")?;
        let taken = rows.iter().filter(|(name, _)| name.ends_with(":migrations_taken"));
        let moves = taken.map(|(_, moves)| moves.parse::<u64>()).sum::<Result<_, _>>()?;
        if moves == 0 && !self.loses {
            return fail(format!("{}: no connection has moved", self.name));
        }
        Ok(moves)
    }

    pub(crate) fn stat(&self, wire: &mut Wire, command: &str, name: &str) -> Outcome<u64> {
        self.number(&wire.stats(command)?, name)
    }

    pub(crate) fn number(&self, rows: &[(String, String)], name: &str) -> Outcome<u64> {
        match rows.iter().find(|(other, _)| other == name).map(|(_, value)| value.parse()) {
            Some(Ok(number)) => Ok(number),
            other => fail(format!("{}: the statistic {name} is {other:?}", self.name)),
        }
    }
}

#[derive(Default)]
pub(crate) struct RunControl {
    over: AtomicBool,
    faults: Mutex<Vec<String>>,
}

impl RunControl {
    pub(crate) fn is_running(&self) -> bool {
        // Relaxed: the flag orders no other memory.
        !self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed); // orders no other memory
    }

    pub(crate) fn fault(&self, what: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.stop();
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn pause(&self, time: Duration) {
        let start = std::time::Instant::now();
        while self.is_running() && start.elapsed() < time {
            std::thread::sleep(LOOK.min(time));
        }
    }
}

/// Number of an actor's actions so far, for the line that is printed each minute.
#[derive(Default)]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed); // the count orders no other memory
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // orders no other memory
    }
}
