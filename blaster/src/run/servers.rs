//! The servers of a run: resolves names, chooses the protocol, and checks that each server answers.
//!
//! Where: called before the other steps of a run.
//! Invariant: every error tells the user what to do, for example if no server listens or if the
//! protocol is wrong.

use super::error::RunError;
use crate::target::steer::{Steer, Steering};
use crate::target::version::{self, ServerInfo};
use crate::target::{self, Family, Place, Ring, Target};
use crate::wire::Protocol;
use crate::words::size;
use std::fmt::Display;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of servers queried at the same time.
const QUERIES_MAX: usize = 128;
/// Number of queries without an answer after which a server counts as silent.
const QUERIES_BEFORE_SILENT: u32 = 3;
/// If a server's reported uptime lags behind the clock by more seconds than this, the server was
/// restarted.
const UPTIME_SLACK_S: u64 = 3;
const NAMES_MAX: usize = 5;

#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) targets: Arc<[Target]>,
    pub(crate) ring: Arc<Ring>,
    pub(crate) protocol: Protocol,
    /// Each server's version, process and items at the start.
    pub(crate) infos: Vec<ServerInfo>,
    queried: Instant,
    /// The rule that chooses the server's column for each request.
    pub(crate) steering: Steering,
}

impl Servers {
    pub(crate) fn find(
        names: &[String],
        family: Family,
        requested: Option<Protocol>,
        steer: Option<(Steer, Option<NonZeroU16>)>,
    ) -> Result<Servers, RunError> {
        let parse = |text: &String| target::parse(text, family).map_err(RunError::failed);
        let targets: Vec<Target> = names.iter().map(parse).collect::<Result<_, _>>()?;
        let protocol = protocol(requested, &targets)?;
        let named = |(target, info): (&Target, io::Result<_>)| {
            info.map_err(|error| wrong(target, format!("{error}: is a server running there?")))
        };
        let infos =
            targets.iter().zip(query(&targets, protocol)).map(named).collect::<Result<_, _>>()?;
        let steering = match steer {
            Some((Steer::First, _)) => to_first(&targets, protocol)?,
            Some((how, columns)) => steering(&targets, how, columns)?,
            None => Steering::default(),
        };
        Ok(Servers { steering, ..Servers::known(targets, infos, protocol) })
    }

    /// Builds the servers from the facts that an agent reports.
    pub(crate) fn known(
        targets: Vec<Target>,
        infos: Vec<ServerInfo>,
        protocol: Protocol,
    ) -> Servers {
        let ring = Arc::new(Ring::new(&targets));
        let steering = Steering::default();
        Servers {
            ring,
            targets: targets.into(),
            protocol,
            infos,
            queried: Instant::now(),
            steering,
        }
    }

    pub(crate) fn query(&self) -> Vec<io::Result<ServerInfo>> {
        query(&self.targets, self.protocol)
    }

    /// Describes each server that went away or was restarted.
    pub(crate) fn changed(&self) -> Vec<String> {
        let mut now = self.query();
        let is_silent = |now: &io::Result<ServerInfo>, before: &ServerInfo| {
            before.version.is_some() && now.as_ref().is_ok_and(|info| info.version.is_none())
        };
        // A busy server may miss a query, so only several unanswered queries count as silence.
        for _ in 1..QUERIES_BEFORE_SILENT {
            if now.iter().zip(&self.infos).any(|(now, before)| is_silent(now, before)) {
                now = self.query();
            }
        }
        let all = self.targets.iter().zip(self.infos.iter().zip(now));
        let changes = all.filter_map(|(target, (before, now))| {
            let why = change(before, now, self.queried.elapsed())?;
            Some(format!("{} {why}", target.name))
        });
        changes.collect()
    }

    /// Returns the sum of the servers' memory limits. Fails if a server does not report its limit.
    pub(crate) fn limit_bytes(&self) -> Result<u64, RunError> {
        let limit = |(target, info): (&Target, &ServerInfo)| {
            let why = "the server reports no limit of its memory: give --keys in place of --fill";
            info.limit_bytes.ok_or_else(|| wrong(target, why))
        };
        self.targets.iter().zip(&self.infos).map(limit).sum()
    }

    /// Describes the first server whose memory cannot hold its share of `bytes`.
    pub(crate) fn too_small(&self, bytes: f64) -> Option<String> {
        let weights: f64 = self.targets.iter().map(|target| f64::from(target.weight)).sum();
        let mut servers = self.targets.iter().zip(&self.infos);
        servers.find_map(|(target, info)| {
            let (limit, share) =
                (info.limit_bytes? as f64, bytes * f64::from(target.weight) / weights);
            let [limit_told, share_told] = [limit, share].map(size);
            (share > limit).then(|| {
                format!(
                    "{} may use {limit_told} of memory, but its share of the keys and values takes \
                     {share_told}, so it cannot keep all of them. Give the server more memory, or \
                     use fewer --keys",
                    target.name
                )
            })
        })
    }

    pub(crate) fn silent(&self) -> Vec<String> {
        let infos = query(&self.targets, self.protocol);
        let is_silent =
            |info: &io::Result<_>| !matches!(info, Ok(ServerInfo { version: Some(_), .. }));
        let all = self.names().into_iter().zip(&infos);
        all.filter(|(_, info)| is_silent(info)).map(|(name, _)| name).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    /// Lists the silent servers. `silent` has a row for each agent: the agent's number, and the
    /// servers that do not answer the agent. A server that answers only some agents is listed with
    /// the numbers of the agents that it does not answer. If no server is silent, all servers are
    /// listed.
    pub(crate) fn named(&self, silent: &[(u32, Vec<String>)]) -> String {
        let named = |name: String| {
            let to = silent.iter().filter(|(_, names)| names.contains(&name));
            let to: Vec<String> = to.map(|(agent, _)| agent.to_string()).collect();
            match to.len() {
                0 => None,
                count if count == silent.len() => Some(name),
                _ => Some(format!("{name} (for agent {})", to.join(", "))),
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

fn wrong(target: &Target, why: impl Display) -> RunError {
    RunError::Failed(format!("{}: {why}", target.name))
}

/// Describes how a server changed between two queries. `None` if the server is the same process.
fn change(before: &ServerInfo, now: io::Result<ServerInfo>, passed: Duration) -> Option<String> {
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
        let message = format!("was restarted: its process id changed from {then} to {pid}");
        return Some(message + "; the items that it held are lost");
    }
    let (then, uptime) = (before.uptime_s?, now.uptime_s?);
    let is_less = uptime < then || uptime + UPTIME_SLACK_S < passed.as_secs();
    let ago = passed.as_secs();
    is_less.then(|| {
        format!("was restarted: its uptime is {uptime} s now, but {ago} s ago it was {then} s")
    })
}

/// Returns the steering for the given number of columns, or for the number that servers report.
fn steering(
    targets: &[Target],
    how: Steer,
    given: Option<NonZeroU16>,
) -> Result<Steering, RunError> {
    let columns = |target: &Target| {
        let Some(address) = target.place.datagrams() else {
            let how = how.name();
            let why = format!("--steer {how} works over UDP only (udp://HOST:PORT)");
            return Err(wrong(target, why));
        };
        let lacking = |why: &dyn Display| {
            let why = format!(
                "the server does not report its number of columns over TCP ({why}): give the \
                 number of its columns (threads) with --columns"
            );
            wrong(target, why)
        };
        let reported = || {
            let columns = version::threads(target).map_err(|error| lacking(&error))?;
            columns.ok_or_else(|| lacking(&"its answer to stats settings has no num_threads"))
        };
        let columns = given.map_or_else(reported, Ok)?;
        let has_ports = address.port().checked_add(columns.get() - 1).is_some();
        match how == Steer::Ports && !has_ports {
            true => Err(wrong(
                target,
                format!(
                    "--steer ports: {columns} columns need {columns} ports, but from this port to \
                     65535 there are fewer: give a lower port"
                ),
            )),
            false => Ok(columns),
        }
    };
    let columns: Vec<NonZeroU16> = targets.iter().map(columns).collect::<Result<_, _>>()?;
    Ok(Steering::new(how, &columns))
}

/// Returns the steering to the first column of each server.
fn to_first(targets: &[Target], protocol: Protocol) -> Result<Steering, RunError> {
    let has_text = matches!(protocol, Protocol::Text | Protocol::Meta);
    let is_wrong = |target: &&Target| !has_text || !matches!(target.place, Place::Tcp(_));
    match targets.iter().find(is_wrong) {
        Some(target) => Err(wrong(
            target,
            "--steer first works over TCP only (HOST:PORT), in the protocol text or meta",
        )),
        None => Ok(Steering::new(Steer::First, &[])),
    }
}

fn protocol(requested: Option<Protocol>, targets: &[Target]) -> Result<Protocol, RunError> {
    let first = targets.first().is_some_and(|target| target.is_redis);
    let protocol = requested.unwrap_or(if first { Protocol::Resp } else { Protocol::Text });
    for target in targets {
        if target.is_redis != first || (target.is_redis && protocol != Protocol::Resp) {
            let why = "all targets of a run must have the same protocol: redis:// targets cannot \
                       be combined with other targets, or with a --protocol other than resp";
            return Err(wrong(target, why));
        }
        if protocol == Protocol::Resp && target.place.datagrams().is_some() {
            return Err(wrong(target, "only memcached's protocols work over UDP, not resp"));
        }
    }
    Ok(protocol)
}

/// Queries servers in parallel, because a query takes seconds if no server answers.
fn query(targets: &[Target], protocol: Protocol) -> Vec<io::Result<ServerInfo>> {
    let mut infos = Vec::new();
    for some in targets.chunks(QUERIES_MAX) {
        std::thread::scope(|scope| {
            let ask = |target| {
                let ask = move || version::query(target, protocol == Protocol::Resp);
                std::thread::Builder::new().spawn_scoped(scope, ask)
            };
            let asking: Vec<_> = some.iter().map(ask).collect();
            let answer = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
                thread
                    .and_then(|asking| asking.join().unwrap_or_else(|_| Ok(ServerInfo::default())))
            };
            infos.extend(asking.into_iter().map(answer));
        });
    }
    infos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_another_one_where_its_process_or_its_uptime_says_so() {
        let info = |pid, uptime_s| ServerInfo {
            version: Some("1".to_owned()),
            pid: Some(pid),
            uptime_s: Some(uptime_s),
            ..ServerInfo::default()
        };
        let after = |now, passed_s| change(&info(7, 100), now, Duration::from_secs(passed_s));
        assert_eq!(after(Ok(info(7, 160)), 60), None);
        // In a container, a restarted server may have the same process id as before.
        let message = after(Ok(info(7, 30)), 60).unwrap();
        assert_eq!(message, "was restarted: its uptime is 30 s now, but 60 s ago it was 100 s");
        assert!(after(Ok(info(8, 160)), 60).is_some());
        assert_eq!(
            after(Ok(ServerInfo::default()), 1).as_deref(),
            Some("does not answer any more")
        );
        let gone = after(Err(io::ErrorKind::ConnectionRefused.into()), 1).unwrap();
        assert_eq!(gone, "went away: connection refused");
        // A server that reports neither process nor uptime counts as unchanged.
        let mute =
            change(&ServerInfo::default(), Ok(ServerInfo::default()), Duration::from_secs(60));
        assert_eq!(mute, None);
    }
}
