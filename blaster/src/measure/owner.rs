//! Which process of this machine serves an address.
//!
//! Where: once, before the traffic. Invariant: unprivileged: what belongs to others is not found,
//! which is no error; `--server-pid` says it then.
//! Source: proc_pid_net(5): a socket's inode, and who has it open.

use procfs::net::{TcpState, UdpState, tcp, tcp6, udp, udp6};
use procfs::process::{FDTarget, Process, all_processes};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

/// Processes looked at.
const PROCESSES_MAX: usize = 100_000;
/// Open files looked at, of one process.
const FILES_MAX: usize = 1_000_000;

/// What is served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Served<'a> {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(&'a Path),
}

/// The processes that have the listening socket open, from the least number on; none where it is
/// another machine's, or another user's.
pub(crate) fn owners(served: Served<'_>) -> Vec<u32> {
    let inodes: BTreeSet<u64> = match served {
        Served::Tcp(address) => {
            let all = [tcp(), tcp6()].into_iter().flatten().flatten();
            let ours = all.filter(|one| one.state == TcpState::Listen);
            let ours = ours.filter(|one| takes(one.local_address, address));
            ours.map(|one| one.inode).collect()
        }
        Served::Udp(address) => {
            let all = [udp(), udp6()].into_iter().flatten().flatten();
            let ours = all.filter(|one| one.state == UdpState::Close);
            let ours = ours.filter(|one| takes(one.local_address, address));
            ours.map(|one| one.inode).collect()
        }
        Served::Unix(path) => {
            let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
            unix_inodes(&table, &path.to_string_lossy())
        }
    };
    if inodes.is_empty() { Vec::new() } else { holders(&inodes) }
}

/// Whether a socket that is bound to one address is asked by who asks another. All addresses of
/// IPv6 take IPv4's connections too.
fn takes(local: SocketAddr, address: SocketAddr) -> bool {
    let (ip, asked) = (local.ip().to_canonical(), address.ip().to_canonical());
    local.port() == address.port() && (ip.is_unspecified() || ip == asked)
}

/// Inodes of the listening sockets at a path, which may hold spaces.
fn unix_inodes(table: &str, path: &str) -> BTreeSet<u64> {
    let inode = |line: &str| {
        // The path comes last; the inode before it is padded with spaces.
        let fields: Vec<&str> = line.splitn(7, ' ').collect();
        let [_, _, _, flags, _, _, rest] = fields[..] else { return None };
        let (inode, found) = rest.trim_start().split_once(' ')?;
        // __SO_ACCEPTCON: it listens.
        let listens = u32::from_str_radix(flags, 16).ok()? & 0x1_0000 != 0;
        inode.parse().ok().filter(|_| listens && found == path)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// Who has one of the sockets open.
fn holders(inodes: &BTreeSet<u64>) -> Vec<u32> {
    let is_one =
        |target: &FDTarget| matches!(target, FDTarget::Socket(inode) if inodes.contains(inode));
    let holds = |process: &Process| {
        let mut files = process.fd().into_iter().flatten().take(FILES_MAX);
        files.any(|file| file.is_ok_and(|file| is_one(&file.target)))
    };
    let all = all_processes().into_iter().flatten().take(PROCESSES_MAX).filter_map(Result::ok);
    let mut pids: Vec<u32> =
        all.filter(holds).filter_map(|process| process.pid.try_into().ok()).collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01    99 /tmp/a b.sock
0000000000000000: 00000003 00000000 00000000 0001 03   100 /tmp/a b.sock
0000000000000000: 00000003 00000000 00000000 0001 03 4346747
";

    #[test]
    fn listeners_are_found_by_address_and_port() {
        for (local, address, is_it) in [
            ("127.0.0.1:11211", "127.0.0.1:11211", true),
            ("127.0.0.2:11211", "127.0.0.1:11211", false),
            ("127.0.0.1:11211", "127.0.0.1:80", false),
            ("0.0.0.0:2024", "10.0.0.1:2024", true),
            ("[::1]:11211", "[::1]:11211", true),
            ("[::]:11212", "127.0.0.1:11212", true),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
        ] {
            let found = takes(local.parse().unwrap(), address.parse().unwrap());
            assert_eq!(found, is_it, "{local} for {address}");
        }
    }

    #[test]
    fn listeners_are_found_by_path() {
        assert_eq!(unix_inodes(UNIX, "/tmp/a b.sock"), [99].into());
        assert_eq!(unix_inodes(UNIX, "/tmp/a"), BTreeSet::new());
    }

    #[test]
    fn this_process_is_found_by_what_it_serves() {
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(owners(Served::Tcp(tcp.local_addr().unwrap())).contains(&own));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(owners(Served::Udp(udp.local_addr().unwrap())).contains(&own));
        let folder = std::env::temp_dir().join(format!("kvblaster-owner-{own}"));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("of this");
        let unix = UnixListener::bind(&path).unwrap();
        assert!(owners(Served::Unix(&path)).contains(&own));
        drop(unix);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
