//! Instructions per request: in the store alone, and from the bytes of a request to its reply.
//!
//! Where: outside the cache. The program runs itself under callgrind, which counts instructions. No
//! clock is read, so load on the machine does not change the figures.
//! Invariant: a figure is the difference of two runs that differ only in the number of operations,
//! minus the same difference for an empty loop, minus the instructions of this program's own lines
//! (calls, checks). Filling the store is not counted.
//! Source: valgrind's callgrind manual, `--toggle-collect`.

mod bounds;
mod datagrams;
mod files;
#[path = "../measure/mod.rs"]
mod measure;
mod measured;
mod op;
mod packets;

use std::path::PathBuf;
use std::process::ExitCode;

use measure::in_process::{KEYS_END, VALUE_BYTES_MAX, eviction};
use measure::report::{Report, say};
use measure::wire::Protocol;
use measure::{Outcome, fail};
use op::Op;
use store::policy::Eviction;
use testing::callgrind::{self, Profile, per_operation};

/// Pattern of function names. Callgrind counts the matching functions and the functions they call.
const COUNTED: &str = "*measured_batches*";

/// Counts instructions per request with valgrind's callgrind, in a run of N and a run of 2N
/// operations: the difference, divided by N, minus an empty loop and this program's own lines. Rows
/// `store` are calls of the store. Rows `request` are all work from the request's bytes to the
/// reply's bytes (parse, execute, encode), without a socket. Rows `datagrams` also receive and send
/// (without the kernel's instructions). Rows `packet` use AF_XDP between two network namespaces.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// Number of operations (N above); callgrind is fifty times slower than the processor
    #[arg(long, default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) count: u32,
    /// Number of keys that are stored beforehand
    #[arg(long, default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(KEYS_END / 4)))]
    pub(crate) keys: u32,
    /// Length of each value in bytes; keys have 36 bytes
    #[arg(long, default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(VALUE_BYTES_MAX)))]
    pub(crate) value_bytes: u32,
    /// The protocol of rows `request:`: text (get, set), meta (mg, ms) or binary (GETK, SET)
    #[arg(long, value_enum, default_value_t = Protocol::Text)]
    pub(crate) protocol: Protocol,
    /// Eviction policy of the store
    #[arg(long, default_value = Eviction::default().name(), value_parser = eviction)]
    pub(crate) eviction: Eviction,
    /// Count only rows whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// For each row, show this number of functions: those with the most instructions
    #[arg(long, default_value_t = 0)]
    breakdown: u32,
    /// For each row, show this number of source lines: those with the most instructions
    #[arg(long, default_value_t = 0)]
    lines: u32,
    /// Instead of counting rows, list the source files that serve one get over TCP
    #[arg(long, conflicts_with_all = ["check", "write", "only"])]
    files: bool,
    /// Also write the result to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail if a row takes over 1 % more instructions than in the committed table (bounds.md)
    #[arg(long)]
    check: bool,
    /// Write the counted figures to bounds.md
    #[arg(long, conflicts_with_all = ["check", "only"])]
    write: bool,
    /// In the runs under callgrind: number of operations
    #[arg(long, hide = true, requires = "op")]
    for_callgrind: Option<u32>,
    /// In the runs under callgrind: the operation's name
    #[arg(long, hide = true)]
    op: Option<String>,
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let (Some(count), Some(name)) = (options.for_callgrind, &options.op) else {
        return if options.files { files::list(&options) } else { drive(&options) };
    };
    if name == files::OP {
        return files::run(count);
    }
    match Op::ALL.iter().find(|(known, _)| known == name) {
        Some((_, op)) => measured::run(*op, count, &options),
        None => fail(format!("--op: there is no operation {name:?}")),
    }
}

/// Counts one operation, `count` times, in a run of this program.
fn counted(op: &str, count: u32, options: &Options) -> Outcome<Profile> {
    let numbers = [count, options.count, options.keys, options.value_bytes];
    let [count, n, keys, value_bytes] = numbers.map(|number| number.to_string());
    let words = [
        ["--op", op],
        ["--for-callgrind", &count],
        ["--count", &n],
        ["--keys", &keys],
        ["--value-bytes", &value_bytes],
        ["--protocol", options.protocol.name()],
        ["--eviction", options.eviction.name()],
    ];
    let pattern = (op != files::OP).then_some(COUNTED);
    Ok(callgrind::count(pattern, words.as_flattened())?)
}

fn drive(options: &Options) -> Outcome<()> {
    let mut report = Report::new();
    report.fact("valgrind", callgrind::version()?);
    report.fact(
        "store",
        format!(
            "{} keys of 36 B, values of {} B, {}",
            options.keys,
            options.value_bytes,
            options.eviction.name()
        ),
    );
    report.fact("requests", options.protocol.name().to_owned());
    report.open()?;
    let mut nothing = Profile::default();
    for (name, op) in Op::ALL {
        let is_baseline = op == Op::Nothing;
        if !is_baseline && !name.contains(&options.only) {
            continue;
        }
        if op.zero_copy().is_some() && !rustix::process::geteuid().is_root() {
            say(&format!("  {name:<60} left out, because it needs root\n"))?;
            continue;
        }
        let count = options.count;
        let short = counted(name, count, options)?;
        let long = counted(name, 2 * count, options)?;
        let difference = long.less(&short);
        if is_baseline {
            nothing = difference;
            continue;
        }
        let profile = difference.less(&nothing).without_benches();
        let per_op = |instructions: i64| per_operation(instructions, count);
        report.figure(name, "instructions", per_op(profile.all()))?;
        show(&profile.by_function(), options.breakdown, per_op)?;
        show(&profile.by_line(), options.lines, per_op)?;
    }
    report.close(options.json.as_deref())?;
    match (options.write, options.check) {
        (true, _) => bounds::write(&report),
        (_, true) => bounds::check(&report, options.only.is_empty()),
        _ => Ok(()),
    }
}

fn show(parts: &[(String, i64)], rows: u32, per_op: impl Fn(i64) -> f64) -> Outcome<()> {
    for (part, instructions) in parts.iter().take(usize::try_from(rows)?) {
        say(&format!("      {:>9.1}  {part}\n", per_op(*instructions)))?;
    }
    Ok(())
}
