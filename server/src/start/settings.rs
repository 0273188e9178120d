//! The settings that a server starts with: plain values, with memcached's defaults.
//!
//! Where: `flags` or a test fills the settings; afterwards the settings are read-only, behind an
//! `Arc`. Values that change at run time, such as the verbosity, are in `shared`.
//! Invariant: `flags::parse` checks memcached's bounds. No other code checks these bounds again.
//! Source: memcached 1.6.45 `settings_init` and `main`.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;
use net::xdp::Mode;
use protocol::ProtocolMode;
use store::policy::Eviction;

use crate::clock::START;
use crate::limits::{UDP_REPLY_BYTES_MAX, UDP_REPLY_OPEN_BYTES_MAX};

/// The version of memcached whose behaviour this server has. The server reports this version.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// This program's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// memcached's default port.
pub const PORT: u16 = 11211;

/// A port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// No TCP port (`-p 0`).
    Off,
    /// A port that the system chooses (`-p -1`); see `port_file`.
    Any,
    /// The port with this number.
    Number(u16),
}

/// One address of `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A name or address, without brackets. `None` means every address of every family.
    pub host: Option<String>,
    /// The port.
    pub port: Port,
    /// The protocols spoken at this address.
    pub protocol: ProtocolMode,
}

/// An interface whose UDP packets bypass the kernel's network stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The interface's name.
    pub interface: String,
    /// The queues to use, one for each column. `None` means all queues, but at most one per column.
    pub queues: Option<Range<u32>>,
    /// The networks whose packets are answered (`--xdp-allow`). Empty means all networks.
    pub allow: Vec<IpNet>,
    /// The stage in the driver or the kernel at which packets are received (`--xdp-mode`).
    pub mode: Mode,
    /// If true, and AF_XDP is not available, the server uses the kernel's UDP (`--xdp-fallback`).
    pub fallback: bool,
}

impl Xdp {
    /// Makes the settings for all queues of an interface, open to all networks.
    #[must_use]
    pub fn of(interface: &str) -> Xdp {
        Xdp {
            interface: interface.to_owned(),
            queues: None,
            allow: Vec::new(),
            mode: Mode::default(),
            fallback: false,
        }
    }
}

/// How values are sent by AF_XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Values are copied into packets.
    #[default]
    Off,
    /// Values are kept in the memory for packets, and are sent from there without a copy.
    Send,
    /// Like `Send`. In addition, values that arrive in packets stay where they were received.
    Full,
}

impl ZeroCopy {
    /// All variants with their names.
    pub const ALL: [(&'static str, ZeroCopy); 3] =
        [("off", ZeroCopy::Off), ("send", ZeroCopy::Send), ("full", ZeroCopy::Full)];

    /// The name of the variant.
    #[must_use]
    pub fn name(self) -> &'static str {
        ZeroCopy::ALL[self as usize].0
    }
}

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP listeners. Empty if only a Unix socket is served.
    pub listen: Vec<Listen>,
    /// The value of `-p`, for `stats settings`.
    pub port: Port,
    /// The value of `-l`, for `stats settings`.
    pub inter: Option<String>,
    /// UDP sockets (`-U`). Empty without UDP.
    pub datagrams: Vec<Listen>,
    /// The value of `-U`, for `stats settings`.
    pub udp_port: Port,
    /// If true, columns have different, consecutive UDP ports (`-o udp_port_per_column`).
    pub udp_port_per_column: bool,
    /// The networks that may send requests over UDP (`-o udp_allow`); an empty list means all.
    pub udp_allow: Vec<IpNet>,
    /// Maximum bytes of one reply over UDP (`-o udp_reply_max`). `None` means a default.
    pub udp_reply_max: Option<usize>,
    /// If true, operators' commands are obeyed over UDP too (`-o udp_admin`).
    pub udp_admin: bool,
    /// The interface whose UDP packets bypass the kernel's network stack (`--xdp`).
    pub xdp: Option<Xdp>,
    /// How values are sent by AF_XDP (`-o zero_copy`).
    pub zero_copy: ZeroCopy,
    /// Bytes of the shortest value that is sent without a copy (`-o zero_copy_min`).
    pub zero_copy_bytes_min: usize,
    /// The path of the Unix socket to serve instead of TCP (`-s`).
    pub unix_path: Option<PathBuf>,
    /// Access mode of the Unix socket (`-a`), as for chmod.
    pub unix_mask: u32,
    /// The address of the listener for operators (`--admin`).
    pub admin: Option<SocketAddr>,
    /// Bytes that items, index and all per-item state may take together (`-m`).
    pub memory_bytes: usize,
    /// Number of items for which the index has room at first (`-o hashpower`). 0 means the minimum.
    pub index_items: u64,
    /// If true, huge pages are requested even for a small memory region (`-L`).
    pub huge_pages: bool,
    /// The policy that decides which items are evicted (`-o eviction`).
    pub eviction: Eviction,
    /// The settings of the columns.
    pub columns: columns::settings::Settings,
    /// The processors to which columns are pinned, in this order. Empty if columns are not pinned.
    pub cpus: Vec<usize>,
    /// If false, items have no CAS uniques (`-C`).
    pub cas: bool,
    /// Maximum number of connections that wait to be accepted (`-b`, the backlog of listen(2)).
    pub backlog: i32,
    /// The protocols of listeners for which `-l` gives no protocol (`-B`).
    pub protocol: ProtocolMode,
    /// If false, `flush_all` is refused (`-F`).
    pub flush_enabled: bool,
    /// If false, the commands that list keys or prefixes are refused (`-X`).
    pub dump_enabled: bool,
    /// The byte that ends a key's prefix (`-D`).
    pub prefix_end: u8,
    /// If true, requests are counted for each key prefix, until `stats detail off` (`-D`).
    pub detail: bool,
    /// If true, `stats sizes` counts items by their sizes (`-o track_sizes`).
    pub sizes: bool,
    /// If true, `lru_crawler` may list items, and expired items are removed in the background,
    /// until `lru_crawler disable` (`-o lru_crawler`).
    pub crawler: bool,
    /// If false, `stats` omits the lines of memcached's LRU maintainer (`-o no_lru_maintainer`).
    pub maintainer_told: bool,
    /// If false, `slabs reassign` is refused (`-o no_slab_reassign`).
    pub slab_reassign: bool,
    /// If false, `watch` is refused (`-W`).
    pub watch_enabled: bool,
    /// Maximum bytes of `watch` lines that a column writes in one loop (`-o worker_logbuf_size`).
    pub worker_log_bytes: usize,
    /// Maximum bytes of lines that wait for a client that watches (`-o watcher_logbuf_size`).
    pub watcher_log_bytes: usize,
    /// If true, `shutdown` is obeyed (`-A`).
    pub shutdown_enabled: bool,
    /// How often `-v` was given; the initial value of `Shared::verbosity`.
    pub verbosity: u32,
    /// If false, idle columns take no datagrams from busy columns (`-o no_steal`).
    pub steal: bool,
    /// If true, columns steal AF_XDP packets even if the kernel copies packets (`-o steal_rings`).
    pub steal_rings: bool,
    /// The user that the process becomes if it is started as root (`-u`).
    pub user: Option<String>,
    /// If true, the process detaches from the terminal (`-d`).
    pub daemonize: bool,
    /// The path of the file that gets the process id (`-P`).
    pub pid_path: Option<PathBuf>,
    /// If true, the limit of core files is raised (`-r`).
    pub core_dumps: bool,
    /// If true, all memory is locked (`-k`).
    pub lock_memory: bool,
}

impl Settings {
    /// Returns the configuration of a store that gets all bytes of `-m`.
    #[must_use]
    pub fn store_config(&self) -> store::Config {
        store::Config {
            memory_bytes: self.memory_bytes,
            item_bytes_max: self.columns.item_bytes_max,
            columns: self.columns.count,
            eviction: self.columns.evict.then_some(self.eviction),
            cas: self.cas,
            now: START,
        }
    }

    /// True if every network may send requests over UDP: `-o udp_allow` names no network, and at
    /// least one address is not a loopback address.
    #[must_use]
    pub fn udp_is_open(&self) -> bool {
        let is_own = |host: &str| {
            host == "localhost"
                || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
        };
        let is_open = |at: &Listen| !at.host.as_deref().is_some_and(is_own);
        self.udp_allow.is_empty() && self.datagrams.iter().any(is_open)
    }

    /// Maximum bytes of one reply over UDP.
    #[must_use]
    pub fn udp_reply_bytes_max(&self) -> usize {
        self.udp_reply_max.unwrap_or(match self.udp_is_open() {
            true => UDP_REPLY_OPEN_BYTES_MAX,
            false => UDP_REPLY_BYTES_MAX,
        })
    }

    /// Returns memcached's defaults, but with `count` columns, which are not pinned.
    #[must_use]
    pub fn with_columns(count: usize) -> Self {
        Settings {
            listen: vec![Listen {
                host: None,
                port: Port::Number(PORT),
                protocol: ProtocolMode::Auto,
            }],
            port: Port::Number(PORT),
            inter: None,
            datagrams: Vec::new(),
            udp_port: Port::Off,
            udp_port_per_column: false,
            udp_allow: Vec::new(),
            udp_reply_max: None,
            udp_admin: false,
            xdp: None,
            zero_copy: ZeroCopy::Off,
            zero_copy_bytes_min: 1024,
            unix_path: None,
            unix_mask: 0o700,
            admin: None,
            memory_bytes: 64 << 20,
            index_items: 0,
            huge_pages: false,
            eviction: Eviction::default(),
            columns: columns::settings::Settings { count, ..Default::default() },
            cpus: Vec::new(),
            cas: true,
            backlog: 1024,
            protocol: ProtocolMode::Auto,
            flush_enabled: true,
            dump_enabled: true,
            prefix_end: b':',
            detail: false,
            sizes: false,
            crawler: true,
            maintainer_told: true,
            slab_reassign: true,
            watch_enabled: true,
            worker_log_bytes: 64 << 10,
            watcher_log_bytes: 256 << 10,
            shutdown_enabled: false,
            verbosity: 0,
            steal: true,
            steal_rings: false,
            user: None,
            daemonize: false,
            pid_path: None,
            core_dumps: false,
            lock_memory: false,
        }
    }
}

impl Default for Settings {
    /// Returns memcached's defaults, but with one column, which is not pinned.
    fn default() -> Self {
        Settings::with_columns(1)
    }
}
