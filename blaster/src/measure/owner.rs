//! Which process of this machine serves an address.
//!
//! Where: once, before the traffic. Invariant: unprivileged: what belongs to others is not found,
//! which is no error; `--server-pid` says it then.
//! Source: proc_pid_net(5): a socket's inode, and who has it open.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Processes looked at.
const PROCESSES_MAX: usize = 100_000;
/// Open files looked at, of one process.
const FILES_MAX: usize = 1_000_000;
/// The state of a listening TCP socket, and of an unconnected UDP one.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// What is served.
#[derive(Clone, Copy, Debug)]
pub enum Served<'a> {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A UDP port.
    Udp(SocketAddr),
    /// A path.
    Unix(&'a Path),
}

/// The processes that have the listening socket open, from the least number on; none where it is
/// another machine's, or another user's.
#[must_use]
pub fn owners(served: Served<'_>) -> Vec<u32> {
    let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let inodes = match served {
        Served::Tcp(address) => {
            let mut inodes = inodes(&read("tcp"), address, LISTENS);
            inodes.append(&mut self::inodes(&read("tcp6"), address, LISTENS));
            inodes
        }
        Served::Udp(address) => {
            let mut inodes = inodes(&read("udp"), address, UNCONNECTED);
            inodes.append(&mut self::inodes(&read("udp6"), address, UNCONNECTED));
            inodes
        }
        Served::Unix(path) => unix_inodes(&read("unix"), &path.to_string_lossy()),
    };
    if inodes.is_empty() { Vec::new() } else { holders(&inodes) }
}

/// Inodes of the sockets that listen on an address, or on all addresses.
fn inodes(table: &str, address: SocketAddr, state: &str) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, found) = (fields.next(), fields.nth(1));
        let Some((ip, port)) = local.and_then(socket) else { continue };
        let is_it = found == Some(state)
            && port == address.port()
            && (ip.is_unspecified() || ip == address.ip().to_canonical());
        if is_it {
            inodes.extend(fields.nth(5).and_then(|inode| inode.parse::<u64>().ok()));
        }
    }
    inodes
}

/// An address as the kernel prints it: words in the machine's byte order.
fn socket(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

/// Inodes of the listening sockets at a path.
fn unix_inodes(table: &str, path: &str) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for line in table.lines().skip(1) {
        // The path comes last and may hold spaces; the inode before it is padded with them.
        let fields: Vec<&str> = line.splitn(7, ' ').collect();
        let [_, _, _, flags, _, _, rest] = fields[..] else { continue };
        let Some((inode, found)) = rest.trim_start().split_once(' ') else { continue };
        // __SO_ACCEPTCON: it listens.
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        if listens && found == path {
            inodes.extend(inode.parse::<u64>().ok());
        }
    }
    inodes
}

/// Who has one of the sockets open.
fn holders(inodes: &BTreeSet<u64>) -> Vec<u32> {
    let mut pids = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return pids };
    for process in processes.flatten().take(PROCESSES_MAX) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let holds = files.flatten().take(FILES_MAX).any(|file| {
            fs::read_link(file.path())
                .is_ok_and(|link| inode(&link).is_some_and(|inode| inodes.contains(&inode)))
        });
        if holds {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    pids
}

/// The inode in `socket:[INODE]`.
fn inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    /// A table as the kernel prints it, of local address, state and inode.
    fn table(rows: &[(&str, &str, u32)]) -> String {
        let mut table = "  sl  local_address rem_address   st tx_queue rx_queue\n".to_owned();
        for (at, (local, state, inode)) in rows.iter().enumerate() {
            table += &format!(
                "  {at:2}: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 \
                 00000000     0        0 {inode} 1 000000001d3b25de 100 0 0 10 0\n"
            );
        }
        table
    }

    const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01    99 /tmp/a b.sock
0000000000000000: 00000003 00000000 00000000 0001 03   100 /tmp/a b.sock
0000000000000000: 00000003 00000000 00000000 0001 03 4346747
";

    fn of(table: &str, address: &str) -> Vec<u64> {
        inodes(table, address.parse().unwrap(), LISTENS).into_iter().collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_are_found_by_address_and_port() {
        let tcp = table(&[
            ("00000000:07E8", "0A", 1679),
            ("0100007F:2BCB", "0A", 4711),
            ("0200007F:2BCB", "0A", 4712),
            ("0100007F:2BCB", "01", 4713),
        ]);
        assert_eq!(of(&tcp, "127.0.0.1:11211"), [4711]);
        assert_eq!(of(&tcp, "10.0.0.1:2024"), [1679]);
        assert_eq!(of(&tcp, "127.0.0.1:80"), [0; 0]);
        let tcp6 = table(&[
            ("00000000000000000000000001000000:2BCB", "0A", 815),
            ("00000000000000000000000000000000:2BCC", "0A", 816),
        ]);
        assert_eq!(of(&tcp6, "[::1]:11211"), [815]);
        // All addresses of IPv6 take IPv4's connections too.
        assert_eq!(of(&tcp6, "127.0.0.1:11212"), [816]);
        assert_eq!(of("\n\n 0: zz:1\n 0: 0:0 x 0A\n", "127.0.0.1:1"), [0; 0]);
    }

    #[test]
    fn listeners_are_found_by_path() {
        assert_eq!(unix_inodes(UNIX, "/tmp/a b.sock").into_iter().collect::<Vec<_>>(), [99]);
        assert!(unix_inodes(UNIX, "/tmp/a").is_empty());
    }

    #[test]
    fn this_process_is_found_by_what_it_serves() {
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(owners(Served::Tcp(tcp.local_addr().unwrap())).contains(&own));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(owners(Served::Udp(udp.local_addr().unwrap())).contains(&own));
        let folder = std::env::temp_dir().join(format!("kvblaster-owner-{own}"));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("of this");
        let unix = UnixListener::bind(&path).unwrap();
        assert!(owners(Served::Unix(&path)).contains(&own));
        drop(unix);
        fs::remove_dir_all(&folder).unwrap();
    }
}
