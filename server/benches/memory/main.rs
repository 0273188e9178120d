//! What fits in memory: bytes an item takes, items at equal memory, misses at equal memory;
//! hypostyle against memcached, both live.
//!
//! Where: outside the cache; it starts both servers and stores into them.
//! Invariant: memory is resident memory of the whole process, as the system counts it.

mod density;
mod equal;
mod feeder;
mod fills;
mod hits;
mod large;
#[path = "../measure/mod.rs"]
mod measure;
mod overwrite;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use measure::options::{each, one_of, real, unknown, whole};
use measure::report::{Report, say};
use measure::{Outcome, contestant, fail};
use sizes::Mix;

/// Most items and megabytes.
const ITEMS_MAX: u32 = 200_000_000;
const MEMORY_MB_MAX: u32 = 1_048_576;
/// Most megabytes of values that are overwritten, and most bytes of one.
const LIVE_MB_MAX: u32 = 4095;
const VALUE_BYTES_MAX: u32 = 900_000;

const USAGE: &str = "\
usage: cargo bench --bench memory -- density|fills|items|hits|large|overwrite [options]
Resident memory of hypostyle against memcached, which MEMCACHED= names, or the first on PATH.

  density            bytes an item takes beyond key and value: the slope of resident memory over
                     items; with and without exptime, client flags and CAS uniques
  fills              resident memory with the same items, all of it, at eight fills between two
                     doublings: what it comes to for an item, and the worst fill for the subject
  items              items held at equal resident memory, after all memory was replaced once; and
                     where each byte of the subject's is
  hits               misses at equal resident memory, with a real order of keys: what misses is
                     stored; lengths of keys and values are drawn from a hash of the key's number
  large              one server alone: values of 100 B and of 1 MiB past what its memory holds, then
                     cache_memlimit to less, then flush_all; fails at the first refused value, at
                     too much resident memory, and where less than 3 GiB remain to the machine
  overwrite          values that fit, each overwritten ten times in no order: resident memory, CPU
                     time and page faults a SET

  --mix NAME,NAME    lengths of keys and values: 20/20, 30/1-100, etc (all three;
                     hits: 20/20 and etc)
  --items N          density: items stored, in 5 steps that double (2222976); fills: the eight are
                     from half of it on, each 2^(1/8) times the one before
  --memory-mb N      -m of the subject (128; 64 for hits; 256 for overwrite); large: 2 to what
                     the machine has
  --live-mb N        overwrite: megabytes of values (78)
  --value-bytes N    overwrite: their mean length; they differ by an eighth (16384)
  --one-in N         large: one value in so many is of 1 MiB (4000)
  --down-mb N        large: the lower limit (a quarter)
  --seconds-max N    large: it must be kept after so long (120)
  --settle S         fills, items, hits: waits so long at most for huge pages where the system is
                     to put them: khugepaged takes 16 MiB every 10 seconds, of all processes (300)
  --trace PATH,PATH  hits: key numbers, u32 little-endian; zstd if the name ends in .zst
  --requests N       hits: only so many of each trace
  --part P           hits: share of all keys that the rival holds (0.1); each number of the trace
                     becomes as many keys as that takes
  --subject PATH     measure this server instead of hypostyle
  --subject-args STR further arguments of the subject, separated by spaces
  --rival-args STR   further arguments of memcached
  --json FILE        the result as JSON too
";

/// What to measure.
pub(crate) struct Options {
    what: String,
    pub(crate) mixes: Vec<Mix>,
    pub(crate) items: u32,
    pub(crate) memory_mb: u32,
    pub(crate) settle: Duration,
    pub(crate) traces: Vec<PathBuf>,
    pub(crate) requests: Option<u32>,
    pub(crate) part: f64,
    pub(crate) one_in: u32,
    pub(crate) live_mb: u32,
    pub(crate) value_bytes: u32,
    pub(crate) down_mb: Option<u32>,
    pub(crate) seconds_max: u32,
    subject: Option<PathBuf>,
    subject_args: Vec<String>,
    rival_args: Vec<String>,
    json: Option<PathBuf>,
}

/// One of the two servers.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) extra: Vec<String>,
}

impl Options {
    /// The subject and the rival.
    pub(crate) fn sides(&self) -> Outcome<[Side; 2]> {
        let Some(program) = self.subject.clone() else {
            return fail("built without hypostyle: give --subject".to_owned());
        };
        let subject = Side { name: "subject", program, extra: self.subject_args.clone() };
        let program = contestant::memcached();
        Ok([subject, Side { name: "rival", program, extra: self.rival_args.clone() }])
    }
}

fn main() -> ExitCode {
    measure::run("memory", run)
}

fn run() -> Outcome<()> {
    let Some(options) = parse()? else { return say(USAGE) };
    let mut report = Report::of("memory")?;
    for side in &options.sides()? {
        let version = contestant::version_of(Path::new(&side.program))?;
        report.fact(side.name, format!("{version} {}", side.extra.join(" ")));
    }
    report.open()?;
    match options.what.as_str() {
        "density" => density::measure(&options, &mut report)?,
        "fills" => fills::measure(&options, &mut report)?,
        "items" => equal::measure(&options, &mut report)?,
        "hits" => hits::measure(&options, &mut report)?,
        "large" => large::measure(&options, &mut report)?,
        "overwrite" => overwrite::measure(&options, &mut report)?,
        what => {
            let all = "density, fills, items, hits, large or overwrite";
            return fail(format!("{what:?}: {all}; see --help"));
        }
    }
    report.close(options.json.as_deref())
}

fn parse() -> Outcome<Option<Options>> {
    let mut options = Options {
        what: String::new(),
        mixes: Mix::ALL.iter().map(|(_, mix)| *mix).collect(),
        items: 2_222_976,
        memory_mb: 128,
        settle: Duration::from_secs(300),
        traces: Vec::new(),
        requests: None,
        part: 0.1,
        one_in: 4000,
        live_mb: 78,
        value_bytes: 16 << 10,
        down_mb: None,
        seconds_max: 120,
        subject: contestant::ours(),
        subject_args: Vec::new(),
        rival_args: Vec::new(),
        json: None,
    };
    let split = |value: &str| value.split_whitespace().map(str::to_owned).collect();
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = words.iter().position(|word| !word.starts_with('-')).filter(|at| *at < 2) {
        options.what = words.remove(at);
    }
    if options.what == "hits" {
        options.memory_mb = 64;
        options.mixes = vec![Mix::Small, Mix::Etc];
    }
    if options.what == "overwrite" {
        options.memory_mb = 256;
    }
    let go = each(words, &[], |name, value| {
        match name {
            "--mix" => {
                let mixes = value.split(',').map(|one| one_of(name, one, &Mix::ALL));
                options.mixes = mixes.collect::<Outcome<Vec<Mix>>>()?;
            }
            "--items" => options.items = whole(name, value, ITEMS_MAX)?,
            "--memory-mb" => options.memory_mb = whole(name, value, MEMORY_MB_MAX)?,
            "--settle" => {
                options.settle = Duration::from_secs_f64(real(name, value, 0.0, 600.0)?);
            }
            "--trace" => options.traces = value.split(',').map(PathBuf::from).collect(),
            "--requests" => options.requests = Some(whole(name, value, u32::MAX)?),
            "--one-in" => options.one_in = whole(name, value, u32::MAX)?.max(1),
            "--live-mb" => options.live_mb = whole(name, value, LIVE_MB_MAX)?.max(1),
            "--value-bytes" => {
                options.value_bytes = whole(name, value, VALUE_BYTES_MAX)?.max(1);
            }
            "--down-mb" => options.down_mb = Some(whole(name, value, MEMORY_MB_MAX)?),
            "--seconds-max" => options.seconds_max = whole(name, value, u32::MAX)?,
            "--part" => options.part = real(name, value, 0.0001, 1.0)?,
            "--subject" => options.subject = Some(value.into()),
            "--subject-args" => options.subject_args = split(value),
            "--rival-args" => options.rival_args = split(value),
            "--json" => options.json = Some(value.into()),
            _ => return unknown(name),
        }
        Ok(())
    })?;
    Ok(go.then_some(options))
}
