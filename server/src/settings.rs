//! What a server is told before it starts: plain values, memcached's defaults.
//!
//! Where: filled by `flags` from the command line (or by a test), then read-only behind an `Arc`
//! for the life of the server. What changes at run time (verbosity) is in `shared`.
//! Invariant: a `Settings` that `flags::parse` returned is within every bound memcached sets;
//! nothing after it checks again.
//! Source: memcached 1.6.45 `settings_init` and `main`.

use std::path::PathBuf;

use store::policy::Eviction;

/// The version whose behaviour this server has, and which `version` and `stats` answer.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// This program's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// memcached's default port.
pub const PORT: u16 = 11211;

/// Which port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// No TCP at all (`-p 0`).
    Off,
    /// One the system chooses (`-p -1`), written to `MEMCACHED_PORT_FILENAME`.
    Any,
    /// This one.
    Number(u16),
}

/// Which protocols a listener speaks (`-B`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Told from a connection's first byte.
    Auto,
    /// Text only.
    Ascii,
    /// Binary only.
    Binary,
}

/// One address of `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A name or address, without brackets; `None` = every address of every family.
    pub host: Option<String>,
    /// Its port.
    pub port: Port,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// Everything a server needs to know to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP listeners; empty when only a Unix socket is served.
    pub listen: Vec<Listen>,
    /// `-p` as given, for `stats settings`.
    pub port: Port,
    /// `-l` as given, for `stats settings`.
    pub inter: Option<String>,
    /// Serve this Unix socket instead of TCP (`-s`).
    pub unix_path: Option<PathBuf>,
    /// Access mode of the Unix socket (`-a`), as for chmod.
    pub unix_mask: u32,
    /// Bounds items, index and all per-item state (`-m`).
    pub memory_bytes: usize,
    /// False: errors instead of eviction (`-M`).
    pub evict: bool,
    /// What stays when room is made, where it is (`-o eviction`).
    pub eviction: Eviction,
    /// Most connections open at a time (`-c`).
    pub connections_max: u32,
    /// True: a connection over the limit is told so and closed; false: it waits in the backlog
    /// (`-o maxconns_fast`, `-o no_maxconns_fast`).
    pub connections_max_fast: bool,
    /// Number of columns (`-t`).
    pub columns: usize,
    /// CPUs to pin columns to, in order, used round; empty = not pinned (`-o no_pin`).
    pub cpus: Vec<usize>,
    /// Most requests one connection gets in a turn (`-R`).
    pub requests_per_event: u32,
    /// False: no CAS uniques (`-C`).
    pub cas: bool,
    /// `listen`'s backlog (`-b`).
    pub backlog: i32,
    /// What listeners speak unless told otherwise (`-B`).
    pub protocol: Protocol,
    /// Largest item: key, value and memcached's 58 bytes (`-I`).
    pub item_bytes_max: usize,
    /// False: `flush_all` is refused (`-F`).
    pub flush_enabled: bool,
    /// False: `stats detail` and `stats cachedump` are refused (`-X`).
    pub dump_enabled: bool,
    /// Connections idle for longer are closed, in seconds; 0 = never (`-o idle_timeout`).
    pub idle_seconds_max: u32,
    /// 0 to 3 (`-v`); the start value of `Shared::verbosity`.
    pub verbosity: u32,
    /// Run as this user when started as root (`-u`).
    pub user: Option<String>,
    /// Detach from the terminal (`-d`).
    pub daemonize: bool,
    /// Where to write the process id (`-P`).
    pub pid_path: Option<PathBuf>,
    /// Raise the core file limit (`-r`).
    pub core_dumps: bool,
    /// Lock all memory (`-k`).
    pub lock_memory: bool,
}

impl Default for Settings {
    /// memcached's defaults; one column, not pinned (`flags::parse` fills in what the machine has).
    fn default() -> Self {
        Settings {
            listen: vec![Listen { host: None, port: Port::Number(PORT), protocol: Protocol::Auto }],
            port: Port::Number(PORT),
            inter: None,
            unix_path: None,
            unix_mask: 0o700,
            memory_bytes: 64 << 20,
            evict: true,
            eviction: Eviction::default(),
            connections_max: 1024,
            connections_max_fast: true,
            columns: 1,
            cpus: Vec::new(),
            requests_per_event: 20,
            cas: true,
            backlog: 1024,
            protocol: Protocol::Auto,
            item_bytes_max: 1 << 20,
            flush_enabled: true,
            dump_enabled: true,
            idle_seconds_max: 0,
            verbosity: 0,
            user: None,
            daemonize: false,
            pid_path: None,
            core_dumps: false,
            lock_memory: false,
        }
    }
}
