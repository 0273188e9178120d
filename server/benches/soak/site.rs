//! A server of the soak, and the state that its actors share.
//!
//! Where: made by `main`, lent to every actor.
//! Invariant: the first fault ends the soak for all; every fault is shown.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blaster::launch::Server;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::measure::wire::{Speech, Wire};
use crate::measure::{Outcome, fail};
use testing::namespace::Namespace;

/// Time between two looks at whether the soak is over.
const LOOK: Duration = Duration::from_millis(20);

/// A server under soak.
pub(crate) struct Site<'f> {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    /// The address and port on which it listens.
    pub(crate) address: String,
    /// Bytes of the arena that are free for values, before there are any.
    pub(crate) arena_bytes: u64,
    /// The server's namespace, if it is at the other end of a link.
    pub(crate) far: Option<&'f Namespace>,
    /// True if not everything fits: items are evicted, flushed, and refused.
    pub(crate) loses: bool,
    /// The range of its memory limit, in megabytes.
    pub(crate) limits_mb: (u32, u32),
    /// Most bytes that may be resident: by the present limit, or by the last one until it complies.
    pub(crate) limit_bytes: AtomicU64,
}

impl<'f> Site<'f> {
    /// The same server, reached at its address at the far end of the link.
    pub(crate) fn of(self, far: &'f Namespace) -> Outcome<Site<'f>> {
        let port = self.server.target.parse::<SocketAddr>()?.port();
        let mut site = Site { address: format!("{}:{port}", far.v4), far: Some(far), ..self };
        site.arena_bytes = site.stat(&mut site.text()?, "stats memory", "arena_free_bytes")?;
        if site.arena_bytes == 0 {
            return fail("values have no room beside packets".to_owned());
        }
        Ok(site)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Leaves the server `more` file descriptors beyond those now open. Returns its former limit.
    pub(crate) fn limit_files(&self, more: u64) -> Outcome<Rlimit> {
        let process = procfs::process::Process::new(i32::try_from(self.server.pid())?)?;
        let maximum = match process.limits()?.max_open_files.hard_limit {
            procfs::process::LimitValue::Value(files) => Some(files),
            procfs::process::LimitValue::Unlimited => None,
        };
        let current = Some(u64::try_from(process.fd_count()?)? + more);
        self.set_files(Rlimit { current, maximum })
    }

    /// Sets the server's limit of file descriptors. Returns the former one.
    pub(crate) fn set_files(&self, limit: Rlimit) -> Outcome<Rlimit> {
        let pid = i32::try_from(self.server.pid()).ok().and_then(Pid::from_raw);
        Ok(prlimit(pid, Resource::Nofile, limit)?)
    }

    /// Opens a connection that speaks text.
    pub(crate) fn text(&self) -> Outcome<Wire> {
        Wire::connect(self.address(), Speech::Text)
    }

    /// Number of moves of connections to another column; an error if 0 though each turn forces one.
    pub(crate) fn moves(&self) -> Outcome<u64> {
        let rows = self.text()?.stats("stats columns")?;
        let taken = rows.iter().filter(|(name, _)| name.ends_with(":migrations_taken"));
        let moves = taken.map(|(_, moves)| moves.parse::<u64>()).sum::<Result<_, _>>()?;
        if moves == 0 && !self.loses {
            return fail(format!("{}: no connection has moved", self.name));
        }
        Ok(moves)
    }

    /// The number of this name in a `stats` command.
    pub(crate) fn stat(&self, wire: &mut Wire, command: &str, name: &str) -> Outcome<u64> {
        let rows = wire.stats(command)?;
        match rows.iter().find(|(other, _)| other == name).map(|(_, value)| value.parse()) {
            Some(Ok(number)) => Ok(number),
            other => fail(format!("{}: {command}: {name} is {other:?}", self.name)),
        }
    }
}

/// Ends the soak for all, and collects the faults.
#[derive(Default)]
pub(crate) struct Bell {
    over: AtomicBool,
    faults: Mutex<Vec<String>>,
}

impl Bell {
    /// True until the soak is over.
    pub(crate) fn goes_on(&self) -> bool {
        // Relaxed: a flag by itself.
        !self.over.load(Ordering::Relaxed)
    }

    /// Ends the soak: nobody begins anything new.
    pub(crate) fn ring(&self) {
        self.over.store(true, Ordering::Relaxed); // a flag by itself
    }

    /// Records a fault, and ends the soak.
    pub(crate) fn fault(&self, what: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.ring();
    }

    /// The faults so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for `time`, or until the soak is over.
    pub(crate) fn pause(&self, time: Duration) {
        let start = std::time::Instant::now();
        while self.goes_on() && start.elapsed() < time {
            std::thread::sleep(LOOK.min(time));
        }
    }
}

/// Number of an actor's deeds so far, for the line each minute.
#[derive(Default)]
pub(crate) struct Deeds(AtomicU64);

impl Deeds {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed); // a count by itself
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // a count by itself
    }
}
