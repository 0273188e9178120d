//! The settings that a server starts with: plain values, with memcached's defaults.
//!
//! Where: `flags` fills them from the command line, or a test does; afterwards they are read-only
//! behind an `Arc` for the life of the server. What changes at run time (verbosity) is in `shared`.
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

/// The memcached version whose behaviour this server has, and which `version` and `stats` report.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// This program's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// memcached's default port.
pub const PORT: u16 = 11211;

/// Which port to listen on.
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
    /// Its name.
    pub interface: String,
    /// The queues to take from, each by one column; none: as many as there are, and columns.
    pub queues: Option<Range<u32>>,
    /// The networks that are answered (`--xdp-allow`); none: all. What others send passes to the
    /// kernel.
    pub allow: Vec<IpNet>,
    /// Where packets are taken (`--xdp-mode`).
    pub mode: Mode,
    /// If that cannot be, the kernel's UDP alone is served (`--xdp-fallback`).
    pub fallback: bool,
}

impl Xdp {
    /// All that an interface has, for everybody.
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

/// What values and packets past the kernel share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Nothing.
    #[default]
    Off,
    /// Values lie where packets lie, and are sent from there.
    Send,
    /// Those that came in packets lie where they came.
    Full,
}

impl ZeroCopy {
    /// All, by their names.
    pub const ALL: [(&'static str, ZeroCopy); 3] =
        [("off", ZeroCopy::Off), ("send", ZeroCopy::Send), ("full", ZeroCopy::Full)];

    /// Its name.
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
    /// Each column has a UDP port of its own, one behind the other (`-o udp_port_per_column`).
    pub udp_port_per_column: bool,
    /// The networks that may ask over UDP; none: all (`-o udp_allow`).
    pub udp_allow: Vec<IpNet>,
    /// The most bytes of one reply over UDP (`-o udp_reply_max`); none: `udp_reply_bytes_max` says.
    pub udp_reply_max: Option<usize>,
    /// Operators are obeyed over UDP too (`-o udp_admin`).
    pub udp_admin: bool,
    /// Where to take UDP past the kernel's stack (`--xdp`).
    pub xdp: Option<Xdp>,
    /// What values and packets past the kernel share (`-o zero_copy`).
    pub zero_copy: ZeroCopy,
    /// The shortest values that do (`-o zero_copy_min`).
    pub zero_copy_bytes_min: usize,
    /// The path of the Unix socket to serve instead of TCP (`-s`).
    pub unix_path: Option<PathBuf>,
    /// Access mode of the Unix socket (`-a`), as for chmod.
    pub unix_mask: u32,
    /// The bound on items, index and all per-item state together (`-m`).
    pub memory_bytes: usize,
    /// The index holds this many items before it grows; 0: as few as a store of this size has at
    /// first (`-o hashpower`).
    pub index_items: u64,
    /// Huge pages are asked for, whatever the size of the memory (`-L`).
    pub huge_pages: bool,
    /// False: a store without room is refused instead of evicting items (`-M`).
    pub evict: bool,
    /// The policy that decides which items are evicted (`-o eviction`).
    pub eviction: Eviction,
    /// Most connections open at a time (`-c`).
    pub connections_max: u32,
    /// What becomes of a connection above the limit. True: it gets an error and is closed; false:
    /// it waits in the backlog (`-o maxconns_fast`, `-o no_maxconns_fast`).
    pub connections_max_fast: bool,
    /// Number of columns (`-t`).
    pub columns: usize,
    /// Processors to pin columns to, in order; with more columns than processors they are used
    /// again from the first on. Empty: columns are not pinned (`-o no_pin`).
    pub cpus: Vec<usize>,
    /// Most requests that one turn executes (`-R`).
    pub requests_per_event: u32,
    /// False: no CAS uniques (`-C`).
    pub cas: bool,
    /// Most connections that wait to be accepted, as for `listen` (`-b`).
    pub backlog: i32,
    /// The protocols of listeners whose `-l` names none (`-B`).
    pub protocol: Speak,
    /// Largest item: key, value and memcached's 58 bytes (`-I`).
    pub item_bytes_max: usize,
    /// False: `flush_all` is refused (`-F`).
    pub flush_enabled: bool,
    /// False: `stats detail` and `stats cachedump` are refused (`-X`).
    pub dump_enabled: bool,
    /// What ends a key's prefix (`-D`).
    pub prefix_end: u8,
    /// Requests are counted by their keys' prefixes, until it is told otherwise (`-D`).
    pub detail: bool,
    /// `stats sizes` tells of items' sizes (`-o track_sizes`).
    pub sizes: bool,
    /// `lru_crawler` may list items, and items that have expired go unasked, until it is told
    /// otherwise (`-o lru_crawler`).
    pub crawler: bool,
    /// `stats` has the names that memcached leaves out without its LRU maintainer (`-o
    /// no_lru_maintainer`).
    pub maintainer_told: bool,
    /// False: `slabs reassign` is refused (`-o no_slab_reassign`).
    pub slab_reassign: bool,
    /// False: `watch` is refused (`-W`).
    pub watch_enabled: bool,
    /// Bytes of lines that a column keeps of one loop for those who watch
    /// (`-o worker_logbuf_size`).
    pub worker_log_bytes: usize,
    /// Bytes of lines that wait for each who watches (`-o watcher_logbuf_size`).
    pub watcher_log_bytes: usize,
    /// `shutdown` is obeyed (`-A`).
    pub shutdown_enabled: bool,
    /// Seconds after which an idle connection is closed; 0: never (`-o idle_timeout`).
    pub idle_seconds_max: u32,
    /// How often `-v` was given; the initial value of `Shared::verbosity`.
    pub verbosity: u32,
    /// Microseconds for which a column that has no more work looks for some before it sleeps
    /// (`-o busy_poll`).
    pub busy_poll_us: u32,
    /// A column that has nothing to do takes datagrams from one that is behind (`-o no_steal`: no).
    pub steal: bool,
    /// It also takes from a queue of an interface whose packets the kernel copies
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
    /// May anybody ask over UDP? So it is where an address is not the machine's own, and `-o
    /// udp_allow` names no networks.
    #[must_use]
    pub fn udp_is_open(&self) -> bool {
        let is_own = |host: &str| {
            host == "localhost"
                || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
        };
        let is_open = |at: &Listen| !at.host.as_deref().is_some_and(is_own);
        self.udp_allow.is_empty() && self.datagrams.iter().any(is_open)
    }

    /// The most bytes of one reply over UDP.
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
