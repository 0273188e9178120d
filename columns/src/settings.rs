//! The settings of the columns.
//!
//! Where: a part of the server's settings; read-only after the columns have started.
//! Invariant: `count` is at least 1.

/// The condition under which a connection moves to another column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// Connections never move (`-o no_migrate`).
    Never,
    /// A connection moves if its column is saturated while another column has time to spare.
    WhileUneven,
    /// Connections move after each turn, for tests.
    AtEachTurn,
}

/// The settings of all columns of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of columns (`-t`).
    pub count: usize,
    /// Maximum number of open connections (`-c`).
    pub connections_max: u32,
    /// If true, a connection above the limit `-c` gets an error and is closed (`-o maxconns_fast`).
    /// If false, listeners pause, and connections wait in the backlog (`-o no_maxconns_fast`).
    pub connections_max_fast: bool,
    /// Maximum number of requests of a connection's turn (`-R`).
    pub requests_per_event: u32,
    /// Bytes of the largest item: key, value and memcached's overhead of 58 bytes (`-I`).
    pub item_bytes_max: usize,
    /// If false, a storage command is refused if the store is full, and no item is evicted (`-M`).
    /// A large value then does not wait for memory that other values hold.
    pub evict: bool,
    /// Seconds after which an idle connection is closed (`-o idle_timeout`); 0 means never.
    pub idle_seconds_max: u32,
    /// Microseconds for which a column without work polls before it sleeps (`-o busy_poll`).
    pub busy_poll_us: u32,
    /// The condition under which connections move.
    pub migrate: Migrate,
}

impl Default for Settings {
    /// Returns the settings of one column with memcached's defaults.
    fn default() -> Settings {
        Settings {
            count: 1,
            connections_max: 1024,
            connections_max_fast: true,
            requests_per_event: 20,
            item_bytes_max: 1 << 20,
            evict: true,
            idle_seconds_max: 0,
            busy_poll_us: 0,
            migrate: Migrate::WhileUneven,
        }
    }
}
