//! The settings of the columns.
//!
//! Where: made from the server's settings before the columns start; afterwards read-only.
//! Invariant: `columns` is at least 1.

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
    /// Number of columns.
    pub columns: usize,
    /// Maximum number of open connections (`-c`).
    pub connections_max: u32,
    /// If true, a connection above `-c` gets an error and is closed. If false, listeners pause.
    pub connections_max_fast: bool,
    /// Maximum number of requests of a connection's turn (`-R`).
    pub requests_per_event: u32,
    /// Maximum bytes of an item (`-I`).
    pub item_bytes_max: usize,
    /// True if a large value may wait for memory that other values hold.
    pub waits_for_memory: bool,
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
            columns: 1,
            connections_max: 1024,
            connections_max_fast: true,
            requests_per_event: 20,
            item_bytes_max: 1 << 20,
            waits_for_memory: true,
            idle_seconds_max: 0,
            busy_poll_us: 0,
            migrate: Migrate::WhileUneven,
        }
    }
}
