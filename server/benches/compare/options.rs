//! The comparison's options: what is measured, how long, between which servers.
//!
//! Where: read once by `main`, before any server starts.
//! Invariant: every number is within the bounds named here, so no later arithmetic on it overflows.

use std::path::PathBuf;

use crate::measure::options::{each, one_of, real, unknown, whole, wholes};
use crate::measure::requests::Protocol;
use crate::measure::{Outcome, contestant};

/// Most connections one run opens.
const CONNECTIONS_MAX: u32 = 10_000;
/// Most requests one connection keeps in flight.
const IN_FLIGHT_MAX: u32 = 1_000;
/// Most keys: their number is written with eight digits.
const KEYS_MAX: u32 = 100_000_000;
/// Longest value: a batch of replies is kept per connection.
const VALUE_BYTES_MAX: u32 = 65_536;
/// Longest window.
const SECONDS_MAX: f64 = 600.0;
/// Most pairs.
const PAIRS_MAX: u32 = 1_000;
/// Most megabytes for `-m`.
const MEMORY_MB_MAX: u32 = 1_048_576;

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: cargo bench --bench compare -- [options]
Requests per second of server CPU: hypostyle against memcached, over loopback TCP.
The rival is the memcached that MEMCACHED= names, or the first on PATH.

  --protocol NAME    text (get, set), meta (mg, ms) or binary (GETK, SET) (text)
  --pairs N          measured pairs, each server first in turn (9)
  --seconds S        length of one measured window (2)
  --warmup S         unmeasured load before each window (0.3)
  --connections N    client connections (50)
  --in-flight N,N    requests in flight per connection, one table row each (1,32)
  --keys N           keys stored beforehand, all of them hit (100000)
  --value-bytes N    length of each value (64)
  --set-ratio R      share of sets among the requests, 0 to 1 (0)
  --threads N        -t of both servers (1)
  --reqs-per-event N -R of both servers (500)
  --memory-mb N      -m of both servers (1024)
  --subject PATH     measure this server instead of hypostyle
  --subject-args STR further arguments of the subject, separated by spaces
  --aa               the rival against itself: must give 1.00 to within 0.03
  --client-sleeps    the client sleeps when nothing has come; the server then also pays for
                     waking it, which no server does whose clients are on other machines
  --json FILE        the result as JSON too
";

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) protocol: Protocol,
    pub(crate) pairs: u32,
    pub(crate) seconds: f64,
    pub(crate) warmup_seconds: f64,
    pub(crate) connections: u32,
    pub(crate) in_flight: Vec<u32>,
    pub(crate) keys: u32,
    pub(crate) value_bytes: u32,
    pub(crate) set_ratio: f64,
    pub(crate) threads: u32,
    pub(crate) reqs_per_event: u32,
    pub(crate) memory_mb: u32,
    pub(crate) subject: Option<PathBuf>,
    pub(crate) subject_args: Vec<String>,
    pub(crate) rival: PathBuf,
    pub(crate) aa: bool,
    pub(crate) client_sleeps: bool,
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    fn with_defaults() -> Options {
        Options {
            protocol: Protocol::Text,
            pairs: 9,
            seconds: 2.0,
            warmup_seconds: 0.3,
            connections: 50,
            in_flight: vec![1, 32],
            keys: 100_000,
            value_bytes: 64,
            set_ratio: 0.0,
            threads: 1,
            reqs_per_event: 500,
            memory_mb: 1024,
            subject: contestant::ours(),
            subject_args: Vec::new(),
            rival: contestant::memcached(),
            aa: false,
            client_sleeps: false,
            json: None,
        }
    }

    /// `None`: the usage was asked for.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Outcome<Option<Options>> {
        let mut options = Options::with_defaults();
        let flags = ["--aa", "--client-sleeps"];
        let go = each(words, &flags, |name, value| options.take(name, value))?;
        Ok(go.then_some(options))
    }

    fn take(&mut self, name: &str, value: &str) -> Outcome<()> {
        let count = |max: u32| whole(name, value, max);
        match name {
            "--aa" => self.aa = true,
            "--client-sleeps" => self.client_sleeps = true,
            "--protocol" => self.protocol = one_of(name, value, &Protocol::ALL)?,
            "--pairs" => self.pairs = count(PAIRS_MAX)?,
            "--seconds" => self.seconds = real(name, value, 0.1, SECONDS_MAX)?,
            "--warmup" => self.warmup_seconds = real(name, value, 0.0, SECONDS_MAX)?,
            "--connections" => self.connections = count(CONNECTIONS_MAX)?,
            "--in-flight" => self.in_flight = wholes(name, value, IN_FLIGHT_MAX)?,
            "--keys" => self.keys = count(KEYS_MAX)?,
            "--value-bytes" => self.value_bytes = count(VALUE_BYTES_MAX)?,
            "--set-ratio" => self.set_ratio = real(name, value, 0.0, 1.0)?,
            "--threads" => self.threads = count(CONNECTIONS_MAX)?,
            "--reqs-per-event" => self.reqs_per_event = count(CONNECTIONS_MAX)?,
            "--memory-mb" => self.memory_mb = count(MEMORY_MB_MAX)?,
            "--subject" => self.subject = Some(value.into()),
            "--subject-args" => {
                self.subject_args = value.split_whitespace().map(str::to_owned).collect();
            }
            "--json" => self.json = Some(value.into()),
            _ => return unknown(name),
        }
        Ok(())
    }
}
