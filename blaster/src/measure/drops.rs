//! Datagrams that the kernel dropped at a process's UDP sockets.
//!
//! Where: a run over UDP reads the counters before and after each report.
//! Invariant: only sockets that are open at the second reading count. The number of drops is
//! unknown, not zero, if a counter cannot be read.
//! Source: the column `drops` of /proc/PID/net/udp, see proc_pid_net(5): datagrams dropped because
//! the receive buffer was full or the checksum was wrong.

use procfs::process::{FDTarget, Process};
use std::collections::{BTreeMap, BTreeSet};

/// If this process has more open files, its drops are unknown: each report reads all files.
const OWN_FILES_MAX: usize = 4096;
/// If a server has more open files, its drops are unknown. A server's files are read only once.
const FILES_MAX: usize = 1_000_000;

/// For each socket's inode, the number of datagrams dropped since the socket was opened. The
/// kernel's counter has 32 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketDrops(BTreeMap<u64, u32>);

impl SocketDrops {
    /// Reads the counters of this process, except for sockets in other network namespaces.
    pub(crate) fn own() -> Option<SocketDrops> {
        SocketDrops::read("/proc/thread-self/net", &sockets(std::process::id(), OWN_FILES_MAX)?)
    }

    /// Reads the counters of the UDP sockets among `sockets`, the inodes of a process's sockets.
    pub(crate) fn of(pid: u32, sockets: &BTreeSet<u64>) -> Option<SocketDrops> {
        SocketDrops::read(&format!("/proc/{pid}/net"), sockets)
    }

    fn read(folder: &str, sockets: &BTreeSet<u64>) -> Option<SocketDrops> {
        let table = std::fs::read_to_string(format!("{folder}/udp")).ok()?;
        // Without IPv6, the kernel has no table `udp6`.
        let table6 = std::fs::read_to_string(format!("{folder}/udp6")).unwrap_or_default();
        Some(SocketDrops::parse(table.lines().chain(table6.lines()), sockets))
    }

    /// Parses the tables without the procfs crate, which leaves out the column `drops`.
    fn parse<'t>(lines: impl Iterator<Item = &'t str>, sockets: &BTreeSet<u64>) -> SocketDrops {
        let counter = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let inode = fields.nth(9)?.parse().ok().filter(|inode| sockets.contains(inode))?;
            Some((inode, fields.nth(2)?.parse().ok()?))
        };
        SocketDrops(lines.filter_map(counter).collect())
    }

    pub(crate) fn since(&self, before: &SocketDrops) -> u64 {
        let passed = self
            .0
            .iter()
            .map(|(inode, now)| now.wrapping_sub(before.0.get(inode).copied().unwrap_or_default()));
        passed.map(u64::from).sum()
    }
}

/// Returns the inodes of a server's sockets. `None` if this process may not read them.
pub(crate) fn sockets_of(pid: u32) -> Option<BTreeSet<u64>> {
    sockets(pid, FILES_MAX)
}

/// Returns the inodes of a process's sockets. `None` if the process has more than `files_max` open
/// files, or if its open files cannot be listed.
fn sockets(pid: u32, files_max: usize) -> Option<BTreeSet<u64>> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    if process.fd_count().ok()? > files_max {
        return None;
    }
    let socket = |target: FDTarget| match target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    };
    Some(process.fd().ok()?.flatten().filter_map(|file| socket(file.target)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Contents of /proc/net/udp, recorded under Linux 6.18.
    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
timeout inode ref pointer drops
 1024: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        \
0 36133 2 0000000000000000 7
 4711: 0100007F:2BCB 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        \
0 36134 2 0000000000000000 4294967295
";

    #[test]
    fn only_a_process_own_sockets_count_and_a_counter_may_wrap() {
        let parse = |text: &str, inodes: &[u64]| {
            SocketDrops::parse(text.lines(), &inodes.iter().copied().collect())
        };
        let before = parse(TABLE, &[36133, 36134]);
        assert_eq!(before.0, [(36133, 7), (36134, u32::MAX)].into());
        let after = parse(&TABLE.replace("4294967295", "4"), &[36133, 36134]);
        assert_eq!(after.since(&before), 5);
        // The first pair of readings has a socket that was opened between the readings. In the
        // second pair, all sockets were closed between the readings.
        assert_eq!(
            (before.since(&parse(TABLE, &[36134])), parse(TABLE, &[]).since(&before)),
            (7, 0)
        );
        assert_eq!(parse("\nx\n 1: 2 3\n", &[3]), SocketDrops::default());
    }

    #[test]
    fn datagrams_that_find_a_full_buffer_are_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (own, address) = (std::process::id(), socket.local_addr().unwrap());
        let sockets = sockets_of(own).unwrap();
        let read = || [SocketDrops::own().unwrap(), SocketDrops::of(own, &sockets).unwrap()];
        let before = read();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Sends more than any default receive buffer holds.
        (0..2000).for_each(|_| _ = sender.send_to(&[0; 8192], address));
        let after = read();
        for (after, before) in after.iter().zip(&before) {
            let dropped = after.since(before);
            assert!(dropped > 0, "{dropped}");
        }
        assert_eq!(sockets_of(u32::MAX), None);
    }
}
