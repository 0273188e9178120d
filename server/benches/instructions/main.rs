//! Instructions per request: of the store alone, and from a request's bytes to its reply's.
//!
//! Where: outside the cache. It runs itself under callgrind, which counts; no clock is read, so a
//! busy machine changes nothing.
//! Invariant: a figure is a difference of two runs that differ only in the number of operations,
//! less the same difference for a loop that does nothing, less what was compiled from this
//! program's own lines (calling, checking); filling the store is not counted.
//! Source: valgrind's callgrind manual, `--toggle-collect`.

mod callgrind;
#[path = "../measure/mod.rs"]
mod measure;
mod measured;
mod op;

use std::path::PathBuf;
use std::process::ExitCode;

use callgrind::Profile;
use measure::in_process::{self, KEYS_END, VALUE_BYTES_MAX, eviction_name};
use measure::options::{each, one_of, unknown, whole};
use measure::report::{Report, say};
use measure::requests::Protocol;
use measure::statistics::count_of_u64;
use measure::{Outcome, fail};
use op::Op;
use store::policy::Eviction;

/// Most operations: callgrind is fifty times slower than the processor.
const COUNT_MAX: u32 = 10_000_000;

const USAGE: &str = "\
usage: cargo bench --bench instructions -- [options]
Instructions per request, counted by valgrind's callgrind: (I(2N) - I(N)) / N, less a loop that does
nothing and less what this program's own lines cost. Rows `store` are calls of the store; rows
`request` go from the request's bytes to the reply's (parse, execute, encode), no socket.

  --count N          N above (20000)
  --keys N           keys stored beforehand (20000)
  --value-bytes N    length of each value (64); keys have 36
  --protocol NAME    of rows `request:`: text (get, set), meta (mg, ms) or binary (GETK, SET) (text)
  --eviction NAME    policy of the store (the server's default)
  --only TEXT        only rows whose name has TEXT in it
  --breakdown N      shows, for each row, the N functions with most instructions (0)
  --lines N          and the N source lines (0)
  --json FILE        the result as JSON too
";

/// What to measure.
pub(crate) struct Options {
    pub(crate) count: u32,
    pub(crate) keys: u32,
    pub(crate) value_bytes: u32,
    pub(crate) protocol: Protocol,
    pub(crate) eviction: Eviction,
    only: String,
    breakdown: u32,
    lines: u32,
    json: Option<PathBuf>,
    /// Set in the runs under callgrind: what to do so many times.
    for_callgrind: Option<(u32, String)>,
}

fn main() -> ExitCode {
    measure::run("instructions", run)
}

fn run() -> Outcome<()> {
    let Some(options) = parse()? else { return say(USAGE) };
    match &options.for_callgrind {
        Some((count, name)) => match Op::ALL.iter().find(|(known, _)| known == name) {
            Some((_, op)) => measured::run(*op, *count, &options),
            None => fail(format!("--op: there is no {name:?}")),
        },
        None => drive(&options),
    }
}

fn parse() -> Outcome<Option<Options>> {
    let mut options = Options {
        count: 20_000,
        keys: 20_000,
        value_bytes: 64,
        protocol: Protocol::Text,
        eviction: Eviction::default(),
        only: String::new(),
        breakdown: 0,
        lines: 0,
        json: None,
        for_callgrind: None,
    };
    let (mut for_callgrind, mut op) = (None, String::new());
    let go = each(std::env::args().skip(1), &[], |name, value| {
        match name {
            "--count" => options.count = whole(name, value, COUNT_MAX)?,
            "--keys" => options.keys = whole(name, value, KEYS_END / 4)?,
            "--value-bytes" => options.value_bytes = whole(name, value, VALUE_BYTES_MAX)?,
            "--protocol" => options.protocol = one_of(name, value, &Protocol::ALL)?,
            "--eviction" => options.eviction = in_process::eviction(name, value)?,
            "--only" => options.only = value.to_owned(),
            "--breakdown" => options.breakdown = whole(name, value, 1_000)?,
            "--lines" => options.lines = whole(name, value, 1_000)?,
            "--json" => options.json = Some(value.into()),
            "--for-callgrind" => for_callgrind = Some(whole(name, value, COUNT_MAX)?),
            "--op" => op = value.to_owned(),
            _ => return unknown(name),
        }
        Ok(())
    })?;
    options.for_callgrind = for_callgrind.map(|count| (count, op));
    Ok(go.then_some(options))
}

/// Runs each row twice under callgrind and shows the differences.
fn drive(options: &Options) -> Outcome<()> {
    let mut report = Report::of("instructions")?;
    report.fact("valgrind", callgrind::version()?);
    report.fact(
        "store",
        format!(
            "{} keys of 36 B, values of {} B, {}",
            options.keys,
            options.value_bytes,
            eviction_name(options.eviction)
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
        let count = options.count;
        let short = callgrind::count(name, count, options)?;
        let long = callgrind::count(name, 2 * count, options)?;
        let difference = long.less(&short);
        if is_baseline {
            nothing = difference;
            continue;
        }
        let profile = difference.less(&nothing).without_this_program();
        let per_op = |instructions: i64| {
            let sign = if instructions < 0 { -1.0 } else { 1.0 };
            sign * count_of_u64(instructions.unsigned_abs()) / f64::from(count)
        };
        report.figure(name, "instructions", per_op(profile.all()))?;
        show(&profile.by_function(), options.breakdown, per_op)?;
        show(&profile.by_line(), options.lines, per_op)?;
    }
    report.close(options.json.as_deref())
}

/// The first `rows` of a breakdown.
fn show(parts: &[(String, i64)], rows: u32, per_op: impl Fn(i64) -> f64) -> Outcome<()> {
    for (part, instructions) in parts.iter().take(usize::try_from(rows)?) {
        say(&format!("      {:>9.1}  {part}\n", per_op(*instructions)))?;
    }
    Ok(())
}
