//! The settings that a server starts with: plain values, with memcached's defaults.
//!
//! Where: `flags`, or a test, fills them; afterwards they are read-only behind an `Arc` for the
//! life of the server. Values that change at run time (verbosity) are in `shared`.
//! Invariant: the `Settings` that `flags::parse` returns are within every bound that memcached
//! sets; nothing checks them again.
//! Source: memcached 1.6.45 `settings_init` and `main`.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;
use net::xdp::Mode;
use protocol::Speak;
use store::policy::Eviction;

use crate::limits::{UDP_REPLY_BYTES_MAX, UDP_REPLY_OPEN_BYTES_MAX};

/// The memcached version whose behaviour this server has and reports.
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
    /// A port that the system chooses (`-p -1`), written to `MEMCACHED_PORT_FILENAME`.
    Any,
    /// This port.
    Number(u16),
}

/// One address of `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A name or address, without brackets; `None`: every address of every family.
    pub host: Option<String>,
    /// The port.
    pub port: Port,
    /// The protocols spoken there.
    pub protocol: Speak,
}

/// An interface whose UDP is taken past the kernel's network stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The interface's name.
    pub interface: String,
    /// The queues to use, one per column; `None`: as many as there are of queues and columns.
    pub queues: Option<Range<u32>>,
    /// The networks that are answered (`--xdp-allow`); empty: all. Others pass to the kernel.
    pub allow: Vec<IpNet>,
    /// The place in the driver or kernel where packets are taken (`--xdp-mode`).
    pub mode: Mode,
    /// If AF_XDP cannot be had, serve UDP by the kernel alone (`--xdp-fallback`).
    pub fallback: bool,
}

impl Xdp {
    /// The settings for all queues of an interface, open to all networks.
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
    /// Values lie in the packets' arena, and are sent from there.
    Send,
    /// Also, values that arrive in packets stay where they arrived.
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

/// When a connection moves to another column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// Never (`-o no_migrate`).
    Never,
    /// While its column is saturated and another has time to spare.
    WhileUneven,
    /// After each turn, for tests.
    AtEachTurn,
}

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP listeners; empty when only a Unix socket is served.
    pub listen: Vec<Listen>,
    /// `-p` as given, for `stats settings`.
    pub port: Port,
    /// `-l` as given, for `stats settings`.
    pub inter: Option<String>,
    /// UDP sockets (`-U`); empty: none.
    pub datagrams: Vec<Listen>,
    /// `-U` as given, for `stats settings`.
    pub udp_port: Port,
    /// Each column has a UDP port of its own, numbered in a row (`-o udp_port_per_column`).
    pub udp_port_per_column: bool,
    /// The networks that may ask over UDP; empty: all (`-o udp_allow`).
    pub udp_allow: Vec<IpNet>,
    /// Most bytes of one reply over UDP (`-o udp_reply_max`); `None`: see `udp_reply_bytes_max`.
    pub udp_reply_max: Option<usize>,
    /// Operators' commands are obeyed over UDP too (`-o udp_admin`).
    pub udp_admin: bool,
    /// The interface whose UDP is taken past the kernel's network stack (`--xdp`).
    pub xdp: Option<Xdp>,
    /// How values are sent by AF_XDP (`-o zero_copy`).
    pub zero_copy: ZeroCopy,
    /// Bytes of the shortest value that is sent in place (`-o zero_copy_min`).
    pub zero_copy_bytes_min: usize,
    /// The path of the Unix socket to serve instead of TCP (`-s`).
    pub unix_path: Option<PathBuf>,
    /// Access mode of the Unix socket (`-a`), as for chmod.
    pub unix_mask: u32,
    /// The bound on items, index and all per-item state together (`-m`).
    pub memory_bytes: usize,
    /// The index holds this many items before it grows; 0: the least for a store of this size
    /// (`-o hashpower`).
    pub index_items: u64,
    /// Huge pages are asked for, whatever the size of the region (`-L`).
    pub huge_pages: bool,
    /// If false, a store without room is refused instead of evicting items (`-M`).
    pub evict: bool,
    /// The policy that decides which items are evicted (`-o eviction`).
    pub eviction: Eviction,
    /// Most connections open at a time (`-c`).
    pub connections_max: u32,
    /// A connection above the limit gets an error and is closed if true (`-o maxconns_fast`), and
    /// waits in the backlog if false (`-o no_maxconns_fast`).
    pub connections_max_fast: bool,
    /// Number of columns (`-t`).
    pub columns: usize,
    /// Processors to pin columns to, in order; with more columns than processors they are used
    /// again from the first on. Empty: columns are not pinned (`-o no_pin`).
    pub cpus: Vec<usize>,
    /// Most requests that one turn executes (`-R`).
    pub requests_per_event: u32,
    /// If false, items have no CAS uniques (`-C`).
    pub cas: bool,
    /// Most connections that wait to be accepted, as for `listen` (`-b`).
    pub backlog: i32,
    /// The protocols of listeners whose `-l` names none (`-B`).
    pub protocol: Speak,
    /// Largest item: key, value and memcached's 58 bytes (`-I`).
    pub item_bytes_max: usize,
    /// If false, `flush_all` is refused (`-F`).
    pub flush_enabled: bool,
    /// If false, `stats detail` and `stats cachedump` are refused (`-X`).
    pub dump_enabled: bool,
    /// The byte that ends a key's prefix (`-D`).
    pub prefix_end: u8,
    /// Requests are counted by their keys' prefixes, until `stats detail` changes that (`-D`).
    pub detail: bool,
    /// `stats sizes` counts items by their sizes (`-o track_sizes`).
    pub sizes: bool,
    /// `lru_crawler` may list items, and expired items are removed in the background, until a
    /// command changes that (`-o lru_crawler`).
    pub crawler: bool,
    /// `stats` includes the names that memcached has only with its LRU maintainer
    /// (off: `-o no_lru_maintainer`).
    pub maintainer_told: bool,
    /// If false, `slabs reassign` is refused (`-o no_slab_reassign`).
    pub slab_reassign: bool,
    /// If false, `watch` is refused (`-W`).
    pub watch_enabled: bool,
    /// Most bytes of lines that a column notes for watchers in one loop (`-o worker_logbuf_size`).
    pub worker_log_bytes: usize,
    /// Most bytes of lines that wait for each watcher (`-o watcher_logbuf_size`).
    pub watcher_log_bytes: usize,
    /// `shutdown` is obeyed (`-A`).
    pub shutdown_enabled: bool,
    /// Seconds after which an idle connection is closed; 0: never (`-o idle_timeout`).
    pub idle_seconds_max: u32,
    /// How often `-v` was given; the initial value of `Shared::verbosity`.
    pub verbosity: u32,
    /// Microseconds for which a column without work looks for more before it sleeps
    /// (`-o busy_poll`).
    pub busy_poll_us: u32,
    /// A column with nothing to do takes datagrams from one that is behind (off: `-o no_steal`).
    pub steal: bool,
    /// A column also takes from another's AF_XDP queue if the kernel copies the packets
    /// (`-o steal_rings`).
    pub steal_rings: bool,
    /// When connections move to another column.
    pub migrate: Migrate,
    /// The user to run as when started as root (`-u`).
    pub user: Option<String>,
    /// Detach from the terminal (`-d`).
    pub daemonize: bool,
    /// The path of the file to write the process id to (`-P`).
    pub pid_path: Option<PathBuf>,
    /// Raise the core file limit (`-r`).
    pub core_dumps: bool,
    /// Lock all memory (`-k`).
    pub lock_memory: bool,
}

impl Settings {
    /// True if anybody may ask over UDP: an address is not the machine's own, and `-o udp_allow`
    /// names no networks.
    #[must_use]
    pub fn udp_is_open(&self) -> bool {
        let is_own = |host: &str| {
            host == "localhost"
                || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
        };
        let is_open = |at: &Listen| !at.host.as_deref().is_some_and(is_own);
        self.udp_allow.is_empty() && self.datagrams.iter().any(is_open)
    }

    /// Most bytes of one reply over UDP.
    #[must_use]
    pub fn udp_reply_bytes_max(&self) -> usize {
        self.udp_reply_max.unwrap_or(match self.udp_is_open() {
            true => UDP_REPLY_OPEN_BYTES_MAX,
            false => UDP_REPLY_BYTES_MAX,
        })
    }
}

impl Default for Settings {
    /// memcached's defaults, and one column that is not pinned: `flags::parse` sets columns and
    /// processors to what the machine has.
    fn default() -> Self {
        Settings {
            listen: vec![Listen { host: None, port: Port::Number(PORT), protocol: Speak::Auto }],
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
            memory_bytes: 64 << 20,
            index_items: 0,
            huge_pages: false,
            evict: true,
            eviction: Eviction::default(),
            connections_max: 1024,
            connections_max_fast: true,
            columns: 1,
            cpus: Vec::new(),
            requests_per_event: 20,
            cas: true,
            backlog: 1024,
            protocol: Speak::Auto,
            item_bytes_max: 1 << 20,
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
            idle_seconds_max: 0,
            verbosity: 0,
            busy_poll_us: 0,
            steal: true,
            steal_rings: false,
            migrate: Migrate::WhileUneven,
            user: None,
            daemonize: false,
            pid_path: None,
            core_dumps: false,
            lock_memory: false,
        }
    }
}
