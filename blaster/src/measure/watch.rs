//! The CPU and memory that the machine and its processes use during a report.
//!
//! Where: the figures are read when the epoch changes.
//! Invariant: reading never fails; a figure that cannot be read is absent.
//! Source: Pavlik's thesis, section 3.1.2; V. Chidambaram, "Performance Analysis of Memcached",
//! section 8.

use super::cpu::{CpuShares, CpuTicks};
use super::drops::{self, SocketDrops};
use super::interrupts::InterruptCounts;
use super::owner;
use super::process::{ProcessUse, Reading};
use crate::line::packets;
use crate::target::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Instant;

/// Number of server processes that are watched; further processes are ignored.
const PIDS_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pids: Vec<u32>,
    /// The servers' sockets, if a server is reached over UDP and the sockets can be read.
    sockets: Vec<(u32, BTreeSet<u64>)>,
    has_udp: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Instant,
    cpu: CpuTicks,
    own: Option<Reading>,
    servers: Vec<(u32, Reading)>,
    interrupts: InterruptCounts,
    own_drops: Option<SocketDrops>,
    /// Packets dropped at this process's AF_XDP sockets.
    packet_drops: u64,
    server_drops: Vec<(u32, SocketDrops)>,
}

/// The use of CPU and memory between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Shares of this machine's CPU time by category.
    pub machine: Option<CpuShares>,
    /// The use of this process, which is the generator.
    pub client: Option<ProcessUse>,
    /// The sum over this machine's server processes, if any.
    pub server: Option<ProcessUse>,
}

impl Usage {
    /// Merges two spans of time, weighted by length. Omits a figure that is unknown in one span.
    pub(crate) fn merged_with(&self, seconds: f64, other: &Usage, other_seconds: f64) -> Usage {
        let both = |ours: Option<ProcessUse>, theirs: Option<ProcessUse>| {
            ours.zip(theirs).map(|(ours, theirs)| ours.merged_with(seconds, &theirs, other_seconds))
        };
        let machine = self.machine.as_ref().zip(other.machine.as_ref());
        Usage {
            machine: machine.map(|(ours, theirs)| ours.merged_with(seconds, theirs, other_seconds)),
            client: both(self.client, other.client),
            server: both(self.server, other.server),
        }
    }
}

impl Watch {
    /// Watches the processes `pids` or, if `pids` is empty, the processes that serve `served`.
    pub(crate) fn new<'a>(served: impl Iterator<Item = &'a Place>, pids: &[u32]) -> Watch {
        let (mut pids, served) = (pids.to_vec(), served.collect::<Vec<_>>());
        let has_udp = served.iter().any(|one| matches!(one, Place::Udp(_) | Place::Xdp(..)));
        if pids.is_empty() {
            pids.extend(served.into_iter().flat_map(owner::owners));
        }
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(PIDS_MAX);
        let sockets = pids.iter().filter(|_| has_udp);
        let sockets = sockets.filter_map(|pid| Some((*pid, drops::sockets_of(*pid)?))).collect();
        Watch { pids, sockets, has_udp }
    }

    pub(crate) fn moment(&self) -> Moment {
        // Interrupts and drops are read last, because reading them takes longer.
        let brief = self.brief_moment();
        let drops = |(pid, sockets): &(u32, _)| Some((*pid, SocketDrops::of(*pid, sockets)?));
        Moment {
            interrupts: InterruptCounts::read(),
            own_drops: if self.has_udp { SocketDrops::own() } else { None },
            packet_drops: packets::dropped(),
            server_drops: self.sockets.iter().filter_map(drops).collect(),
            ..brief
        }
    }

    /// Reads only what can be read fast: no interrupts and no dropped datagrams.
    pub(crate) fn brief_moment(&self) -> Moment {
        let servers = self.pids.iter().filter_map(|pid| Some((*pid, Reading::of(*pid)?)));
        Moment {
            at: Instant::now(),
            cpu: CpuTicks::read(),
            own: Reading::own(),
            servers: servers.collect(),
            interrupts: InterruptCounts::default(),
            own_drops: None,
            packet_drops: 0,
            server_drops: Vec::new(),
        }
    }
}

impl Moment {
    pub(crate) fn seconds_since(&self, before: &Moment) -> f64 {
        self.at.saturating_duration_since(before.at).as_secs_f64()
    }

    pub(crate) fn since(&self, before: &Moment) -> Usage {
        let seconds = self.seconds_since(before);
        let taken = self.servers.iter().filter_map(|(pid, now)| {
            let (_, then) = before.servers.iter().find(|(other, _)| other == pid)?;
            let datagrams_dropped = self.server_drops_since(before, *pid);
            Some(ProcessUse { datagrams_dropped, ..now.since(then, seconds) })
        });
        let mut machine = self.cpu.since(&before.cpu);
        machine
            .iter_mut()
            .for_each(|shares| self.interrupts.add_to(shares, &before.interrupts, seconds));
        let own_drops = self.own_drops.as_ref().zip(before.own_drops.as_ref());
        let packet_drops = self.packet_drops.saturating_sub(before.packet_drops);
        let datagrams_dropped = own_drops.map(|(now, then)| now.since(then) + packet_drops);
        let client = self.own.zip(before.own).map(|(now, then)| now.since(&then, seconds));
        Usage {
            machine,
            client: client.map(|client| ProcessUse { datagrams_dropped, ..client }),
            server: taken.reduce(|sum, one| sum.plus(&one)),
        }
    }

    fn server_drops_since(&self, before: &Moment, pid: u32) -> Option<u64> {
        let of = |moment: &Moment| moment.server_drops.iter().position(|(other, _)| *other == pid);
        let (now, then) = (of(self)?, of(before)?);
        Some(self.server_drops[now].1.since(&before.server_drops[then].1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn this_process_is_seen_as_client_and_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let served = Place::Tcp(listener.local_addr().unwrap());
        let watch = Watch::new([served].iter(), &[]);
        assert!(watch.pids.contains(&std::process::id()));
        let before = watch.moment();
        // Loop until the kernel has counted 20 ms of CPU time.
        let usage = loop {
            let usage = watch.moment().since(&before);
            if usage.client.is_some_and(|client| client.cpu_s > 0.02) {
                break usage;
            }
        };
        let server = usage.server.unwrap();
        assert!(server.cpus() > 0.0 && server.rss_bytes > Some(0), "{server:?}");
    }

    #[test]
    fn datagrams_dropped_at_a_socket_are_seen_at_client_and_server_and_only_over_udp() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let watch = Watch::new([Place::Udp(address)].iter(), &[]);
        let before = watch.moment();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        (0..2000).for_each(|_| _ = sender.send_to(&[0; 8192], address));
        let usage = watch.moment().since(&before);
        let dropped = |used: Option<ProcessUse>| used.unwrap().datagrams_dropped;
        let (client, server) = (dropped(usage.client), dropped(usage.server));
        assert!(client > Some(0) && server > Some(0), "{client:?} {server:?}");
        let twice = usage.merged_with(1.0, &usage, 1.0);
        assert_eq!(dropped(twice.server), server.map(|count| 2 * count));
        let brief = watch.brief_moment().since(&watch.brief_moment());
        assert_eq!((dropped(brief.client), dropped(brief.server)), (None, None));
        let own = Watch::new(std::iter::empty(), &[std::process::id()]);
        assert_eq!(dropped(own.moment().since(&own.moment()).server), None);
    }

    #[test]
    fn a_process_that_is_gone_is_unknown() {
        let watch = Watch::new(std::iter::empty(), &[u32::MAX, u32::MAX]);
        assert_eq!(watch.pids, [u32::MAX]);
        let usage = watch.moment().since(&watch.moment());
        assert_eq!(usage.server, None);
        assert!(usage.client.is_some());
    }

    #[test]
    fn processes_at_the_same_time_add_up() {
        let one = ProcessUse { usr_cpus: 0.5, sys_cpus: 0.25, cpu_s: 7.5, ..ProcessUse::default() };
        let two = ProcessUse { rss_bytes: Some(5), ..one };
        let both = one.plus(&two);
        assert_eq!((both.cpus(), both.cpu_s, both.rss_bytes), (1.5, 15.0, None));
        assert_eq!(two.plus(&two).rss_bytes, Some(10));
    }
}
