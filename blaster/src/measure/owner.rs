//! Finds the processes on this machine that serve an address.
//!
//! Where: used once, before the traffic.
//! Invariant: no privilege is needed, so processes of other users are not found; the user can name
//! such processes with `--server-pid`. If no socket in this network namespace has the address, the
//! other namespaces with this address are searched.
//! Source: proc_pid_net(5), for sockets' inodes; proc_pid_fd(5), for processes with open sockets.

use crate::target::Place;
use procfs::net::{TcpNetEntry, TcpState, UdpNetEntry, UdpState, tcp, tcp6, udp, udp6};
use procfs::process::{FDTarget, Process, all_processes};
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

const PROCESSES_MAX: usize = 100_000;
/// Maximum number of open files that are searched in a process; further files are ignored.
const FILES_MAX: usize = 1_000_000;

/// The ascending ids of the processes that serve the address, without other users' processes.
pub(crate) fn owners(served: &Place) -> Vec<u32> {
    let inodes = match served {
        &Place::Tcp(address) => {
            let here = tcp_inodes([tcp(), tcp6()], address);
            let of = |there: &Process| tcp_inodes([there.tcp(), there.tcp6()], address);
            if here.is_empty() { elsewhere(address.ip(), of) } else { here }
        }
        &Place::Udp(address) | &Place::Xdp(_, address) => {
            let here = udp_inodes([udp(), udp6()], address);
            let of = |there: &Process| udp_inodes([there.udp(), there.udp6()], address);
            if here.is_empty() { elsewhere(address.ip(), of) } else { here }
        }
        Place::Unix(path) => {
            let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
            unix_inodes(&table, &path.to_string_lossy())
        }
    };
    if inodes.is_empty() { Vec::new() } else { holders(&inodes) }
}

type Sockets<T> = [procfs::ProcResult<Vec<T>>; 2];

fn tcp_inodes(tables: Sockets<TcpNetEntry>, address: SocketAddr) -> BTreeSet<u64> {
    let ours = tables.into_iter().flatten().flatten().filter(|one| one.state == TcpState::Listen);
    ours.filter(|one| takes(one.local_address, address)).map(|one| one.inode).collect()
}

/// The inodes of the unconnected UDP sockets at an address.
fn udp_inodes(tables: Sockets<UdpNetEntry>, address: SocketAddr) -> BTreeSet<u64> {
    let ours = tables.into_iter().flatten().flatten().filter(|one| one.state == UdpState::Close);
    ours.filter(|one| takes(one.local_address, address)).map(|one| one.inode).collect()
}

/// The inodes that `of` finds in the other network namespaces in which the address `ip` is local.
fn elsewhere(ip: IpAddr, of: impl Fn(&Process) -> BTreeSet<u64>) -> BTreeSet<u64> {
    let namespace =
        |process: &Process| std::fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok();
    let own = Process::myself().ok().and_then(|own| namespace(&own));
    let mut seen: HashSet<PathBuf> = own.into_iter().collect();
    let all = all_processes().into_iter().flatten().take(PROCESSES_MAX).filter_map(Result::ok);
    let others = all.filter(|process| namespace(process).is_some_and(|it| seen.insert(it)));
    others.filter(|process| has_address(process, ip)).flat_map(|process| of(&process)).collect()
}

/// True if the address is local in the process's network namespace.
fn has_address(process: &Process, ip: IpAddr) -> bool {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/net/{name}", process.pid)).unwrap_or_default()
    };
    match ip {
        IpAddr::V4(ip) => has_v4(&read("fib_trie"), ip),
        IpAddr::V6(ip) => {
            let digits: String = ip.octets().iter().map(|byte| format!("{byte:02x}")).collect();
            read("if_inet6").lines().any(|line| line.starts_with(&digits))
        }
    }
}

/// True if a leaf of the routing trie (/proc/net/fib_trie) shows the address as local.
fn has_v4(trie: &str, ip: Ipv4Addr) -> bool {
    let leaf = format!("|-- {ip}");
    let lines = trie.lines().map(str::trim);
    lines.clone().zip(lines.skip(1)).any(|(line, next)| line == leaf && next == "/32 host LOCAL")
}

/// True if a socket bound to `local` receives requests to `address`. A socket bound to `[::]` also
/// receives requests to IPv4 addresses.
fn takes(local: SocketAddr, address: SocketAddr) -> bool {
    let (ip, asked) = (local.ip().to_canonical(), address.ip().to_canonical());
    local.port() == address.port() && (ip.is_unspecified() || ip == asked)
}

/// The inodes of the Unix sockets that listen at a path, which may contain spaces.
fn unix_inodes(table: &str, path: &str) -> BTreeSet<u64> {
    let inode = |line: &str| {
        // The last two fields are the inode, padded with spaces, and the path.
        let fields: Vec<&str> = line.splitn(7, ' ').collect();
        let [_, _, _, flags, _, _, rest] = fields[..] else { return None };
        let (inode, found) = rest.trim_start().split_once(' ')?;
        // The flag __SO_ACCEPTCON means that the socket listens.
        let listens = u32::from_str_radix(flags, 16).ok()? & 0x1_0000 != 0;
        inode.parse().ok().filter(|_| listens && found == path)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

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
    fn a_machine_has_the_addresses_of_its_local_hosts() {
        let trie = "Local:
  +-- 10.99.0.0/24 2 0 2
     |-- 10.99.0.0
        /24 link UNICAST
     |-- 10.99.0.1
        /32 host LOCAL
     |-- 10.99.0.255
        /32 link BROADCAST
";
        for (ip, has) in [("10.99.0.1", true), ("10.99.0.255", false), ("10.99.0.2", false)] {
            assert_eq!(has_v4(trie, ip.parse().unwrap()), has, "{ip}");
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
        assert!(owners(&Place::Tcp(tcp.local_addr().unwrap())).contains(&own));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(owners(&Place::Udp(udp.local_addr().unwrap())).contains(&own));
        let folder = std::env::temp_dir().join(format!("kvblaster-owner-{own}"));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("of this");
        let unix = UnixListener::bind(&path).unwrap();
        assert!(owners(&Place::Unix(path.clone())).contains(&own));
        drop(unix);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
