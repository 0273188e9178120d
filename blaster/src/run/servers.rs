//! The servers of a run: resolves names, finds the protocol, and asks who is there.
//!
//! Where: first of all, before a byte is sent.
//! Invariant: every refusal here says what to do about it: nothing listens, or the protocol is
//! another.

use crate::result::version::{self, Said};
use crate::steer::{Steer, Steering};
use crate::target::{self, Family, Ring, Target, TargetError};
use crate::wire::Speech;
use crate::words::size;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Most servers asked at the same time.
const ASKED_MAX: usize = 128;
/// Times that a server is asked before it counts as silent.
const ASKED_AGAIN: u32 = 3;
/// Seconds by which a server's clock may lag.
const UPTIME_SLACK_S: u64 = 3;
/// Most names listed in a message.
const NAMES_MAX: usize = 5;

/// The servers that requests go to.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) targets: Arc<[Target]>,
    pub(crate) ring: Arc<Ring>,
    pub(crate) speech: Speech,
    /// Each server's description of itself.
    pub(crate) said: Vec<Said>,
    /// The time at which they were asked.
    asked: Instant,
    /// The rule that gives each request its column of a server.
    pub(crate) steering: Steering,
}

/// Why servers cannot be driven.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// A name is wrong.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A server does not answer.
    #[error("{0}: {1}: is a server running there?")]
    Unreachable(String, io::Error),
    /// The servers are of different kinds.
    #[error("{0}: one run speaks one protocol: redis:// beside others, or --protocol against it")]
    Mixed(String),
    /// The protocol has no datagrams.
    #[error("{0}: UDP speaks memcached's protocols, not resp")]
    NoDatagrams(String),
    /// The target is not reached over UDP.
    #[error("{0}: --steer: requests are steered over UDP only (udp://HOST:PORT)")]
    NotSteered(String),
    /// The number of columns is not known.
    #[error("{0}: how many columns has it? It does not say so over TCP ({1}): give --columns")]
    NoColumns(String, String),
    /// The columns would need more ports than there are.
    #[error("{0}: --steer ports: {1} columns have no ports from that one on")]
    NoPorts(String, u16),
}

impl Servers {
    /// Resolves names, and checks that each server answers.
    ///
    /// # Errors
    /// A name is wrong, or a server does not answer.
    pub(crate) fn find(
        names: &[String],
        family: Family,
        asked: Option<Speech>,
        steer: Option<(Steer, Option<NonZeroU16>)>,
    ) -> Result<Servers, ServersError> {
        let parse = |text: &String| target::parse(text, family);
        let targets: Vec<Target> = names.iter().map(parse).collect::<Result<_, _>>()?;
        let speech = speech(asked, &targets)?;
        let named = |(target, said): (&Target, io::Result<_>)| {
            said.map_err(|error| ServersError::Unreachable(target.name.clone(), error))
        };
        let said =
            targets.iter().zip(ask(&targets, speech)).map(named).collect::<Result<_, _>>()?;
        let steering = match steer {
            Some((how, columns)) => steering(&targets, how, columns)?,
            None => Steering::default(),
        };
        Ok(Servers { steering, ..Servers::known(targets, said, speech) })
    }

    /// Builds the servers from an agent's findings.
    pub(crate) fn known(targets: Vec<Target>, said: Vec<Said>, speech: Speech) -> Servers {
        let ring = Arc::new(Ring::new(&targets));
        let steering = Steering::default();
        Servers { ring, targets: targets.into(), speech, said, asked: Instant::now(), steering }
    }

    /// Asks each server for its description now.
    pub(crate) fn ask(&self) -> Vec<io::Result<Said>> {
        ask(&self.targets, self.speech)
    }

    /// Describes each server that went away or is another process than before.
    pub(crate) fn changed(&self) -> Vec<String> {
        let mut now = self.ask();
        let is_silent = |now: &io::Result<Said>, before: &Said| {
            before.version.is_some() && now.as_ref().is_ok_and(|said| said.version.is_none())
        };
        // A busy server is given time.
        for _ in 1..ASKED_AGAIN {
            if now.iter().zip(&self.said).any(|(now, before)| is_silent(now, before)) {
                now = self.ask();
            }
        }
        let all = self.targets.iter().zip(self.said.iter().zip(now));
        let told = all.filter_map(|(target, (before, now))| {
            let why = became(before, now, self.asked.elapsed())?;
            Some(format!("{} {why}", target.name))
        });
        told.collect()
    }

    /// Describes the first server whose memory cannot hold its share of `bytes`.
    pub(crate) fn too_small(&self, bytes: f64) -> Option<String> {
        let weights: f64 = self.targets.iter().map(|target| f64::from(target.weight)).sum();
        let mut servers = self.targets.iter().zip(&self.said);
        servers.find_map(|(target, said)| {
            let (limit, share) =
                (said.limit_bytes? as f64, bytes * f64::from(target.weight) / weights);
            let [limit_told, share_told] = [limit, share].map(size);
            (share > limit).then(|| {
                format!(
                    "{} may hold {limit_told}, and its keys and values alone are {share_told}: it \
                     will not keep them all. More memory for it, or fewer --keys",
                    target.name
                )
            })
        })
    }

    /// The names of the servers that do not answer now.
    pub(crate) fn silent(&self) -> Vec<String> {
        let said = ask(&self.targets, self.speech);
        let is_silent = |said: &io::Result<_>| !matches!(said, Ok(Said { version: Some(_), .. }));
        let all = self.names().into_iter().zip(&said);
        all.filter(|(_, said)| is_silent(said)).map(|(name, _)| name).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    /// Lists the servers that do not answer, each with the agents concerned if others hear it; all
    /// servers if none is silent.
    pub(crate) fn named(&self, silent: &[(u32, Vec<String>)]) -> String {
        let named = |name: String| {
            let to = silent.iter().filter(|(_, names)| names.contains(&name));
            let to: Vec<String> = to.map(|(agent, _)| agent.to_string()).collect();
            match to.len() {
                0 => None,
                count if count == silent.len() => Some(name),
                _ => Some(format!("{name} (as agent {} sees it)", to.join(", "))),
            }
        };
        let mut names: Vec<String> = self.names().into_iter().filter_map(named).collect();
        if names.is_empty() {
            names = self.names();
        }
        let more = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        let names = names.join(", ");
        if more > 0 { format!("{names} and {more} more") } else { names }
    }
}

/// Describes how a server has changed; none if it has not.
fn became(before: &Said, now: io::Result<Said>, passed: Duration) -> Option<String> {
    let now = match now {
        Ok(now) => now,
        Err(error) => return Some(format!("went away: {error}")),
    };
    if before.version.is_some() && now.version.is_none() {
        return Some("does not answer any more".to_owned());
    }
    if let (Some(then), Some(pid)) = (before.pid, now.pid)
        && then != pid
    {
        let told = "was started anew: its process was";
        return Some(format!("{told} {then}, and is {pid}; what it held is not there any more"));
    }
    let (then, uptime) = (before.uptime_s?, now.uptime_s?);
    let is_less = uptime < then || uptime + UPTIME_SLACK_S < passed.as_secs();
    is_less.then(|| {
        format!("was started anew: it was up for {then} s before, and is for {uptime} s now")
    })
}

/// Steers to the given number of columns, or to the number that each server reports.
fn steering(
    targets: &[Target],
    how: Steer,
    asked: Option<NonZeroU16>,
) -> Result<Steering, ServersError> {
    let columns = |target: &Target| {
        let name = || target.name.clone();
        let Some(address) = target.place.datagrams() else {
            return Err(ServersError::NotSteered(name()));
        };
        let said = || match version::threads(target) {
            Ok(Some(columns)) => Ok(columns),
            Ok(None) => Err(ServersError::NoColumns(name(), "no num_threads".to_owned())),
            Err(error) => Err(ServersError::NoColumns(name(), error.to_string())),
        };
        let columns = asked.map_or_else(said, Ok)?;
        let has_ports = address.port().checked_add(columns.get() - 1).is_some();
        match how == Steer::Ports && !has_ports {
            true => Err(ServersError::NoPorts(name(), columns.get())),
            false => Ok(columns),
        }
    };
    let columns: Vec<NonZeroU16> = targets.iter().map(columns).collect::<Result<_, _>>()?;
    Ok(Steering::new(how, &columns))
}

/// The one protocol of all servers.
fn speech(asked: Option<Speech>, targets: &[Target]) -> Result<Speech, ServersError> {
    let first = targets.first().is_some_and(|target| target.is_redis);
    let speech = asked.unwrap_or(if first { Speech::Resp } else { Speech::Text });
    for target in targets {
        if target.is_redis != first || (target.is_redis && speech != Speech::Resp) {
            return Err(ServersError::Mixed(target.name.clone()));
        }
        if speech == Speech::Resp && target.place.datagrams().is_some() {
            return Err(ServersError::NoDatagrams(target.name.clone()));
        }
    }
    Ok(speech)
}

/// Asks all servers at once: a server that is not there takes seconds to fail.
fn ask(targets: &[Target], speech: Speech) -> Vec<io::Result<Said>> {
    let mut said = Vec::new();
    for some in targets.chunks(ASKED_MAX) {
        std::thread::scope(|scope| {
            let ask = |target| {
                let ask = move || version::ask(target, speech == Speech::Resp);
                std::thread::Builder::new().spawn_scoped(scope, ask)
            };
            let asking: Vec<_> = some.iter().map(ask).collect();
            let answer = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
                thread.and_then(|asking| asking.join().unwrap_or_else(|_| Ok(Said::default())))
            };
            said.extend(asking.into_iter().map(answer));
        });
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_another_one_where_its_process_or_its_uptime_says_so() {
        let said = |pid, uptime_s| Said {
            version: Some("1".to_owned()),
            pid: Some(pid),
            uptime_s: Some(uptime_s),
            ..Said::default()
        };
        let after = |now, passed_s| became(&said(7, 100), now, Duration::from_secs(passed_s));
        assert_eq!(after(Ok(said(7, 160)), 60), None);
        // In a container the server's process id is always the same.
        let told = after(Ok(said(7, 30)), 60).unwrap();
        assert_eq!(told, "was started anew: it was up for 100 s before, and is for 30 s now");
        assert!(after(Ok(said(8, 160)), 60).is_some());
        assert_eq!(after(Ok(Said::default()), 1).as_deref(), Some("does not answer any more"));
        let gone = after(Err(io::ErrorKind::ConnectionRefused.into()), 1).unwrap();
        assert_eq!(gone, "went away: connection refused");
        // A server that says nothing of itself is taken to be unchanged.
        let mute = became(&Said::default(), Ok(Said::default()), Duration::from_secs(60));
        assert_eq!(mute, None);
    }
}
