//! The profile of the servers' CPUs during a measurement: the share of each kind of work.
//!
//! ```text
//! perf record beside the run -> perf report -> samples -> rows of symbols.toml -> shares
//! ```
//!
//! Where: `measure` profiles a run if the experiment has `drive.profile`; `figures` names the
//! shares.
//! Invariant: the shares sum to 1, and a symbol without a row counts as unmapped. perf and its
//! folder are gone when the `Profiler` is dropped, and when this process ends in any way. perf's
//! output is untrusted: whatever perf prints, kvblaster at most returns an error.
//! Source: "Performance Analysis of Memcached", section 5.1, whose list the categories extend.

use super::experiment::Scale;
use super::figures::{PREFIX, PROFILE};
use super::installed::on_path;
use crate::launch::guard::Guard;
use crate::launch::status_within;
use crate::words::grouped;
use crate::words::values::cpu_list;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::{self, PipeReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The category of samples of a CPU without work, which is left out of the shares.
const IDLE: &str = "idle";
/// The category of samples that no row of `symbols.toml` matches.
const UNMAPPED: &str = "unmapped";
/// Samples a second on each CPU. The number is prime, to stay out of step with periodic work.
const SAMPLES_PER_S: &str = "3989";
/// With fewer samples, there is no profile. With this number, the 95 % interval of a share is at
/// most ±4.9 % of the work: 1.96 times the square root of 0.5 * 0.5 / 400.
const SAMPLES_MIN: u64 = 400;
/// The rows that give each symbol its category.
const ROWS: &str = include_str!("symbols.toml");
/// If perf does not begin, or does not end, within this time, there is no profile.
const PATIENCE: Duration = Duration::from_secs(5);
/// If perf does not write a report within this time, there is no profile.
const REPORT_PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks that perf has begun.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum number of bytes of a report that are read. Symbols with the most samples come first.
const REPORT_BYTES_MAX: u64 = 16 << 20;
/// kvblaster keeps at most this number of bytes of perf's messages.
const WORDS_BYTES_MAX: u64 = 1 << 14;
/// kvblaster shows at most this number of characters of perf's messages.
const WORDS_CHARS_MAX: usize = 200;
/// The kernel's setting that keeps users without privileges from profiling.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// perf is not installed, refused, or did not begin or end in time, or `symbols.toml` is wrong.
    #[error("{0}")]
    Failed(String),
    /// perf took fewer than `SAMPLES_MIN` samples of the servers' work.
    #[error(
        "perf took {0} samples, but a profile needs {least}; measure longer",
        least = grouped(SAMPLES_MIN as f64)
    )]
    Few(u64),
    /// A process or a file cannot be used.
    #[error("perf: {0}")]
    System(#[from] io::Error),
}

/// A running `perf record`.
#[derive(Debug)]
pub(crate) struct Profiler {
    cpus: Vec<usize>,
    perf: PathBuf,
    record: Child,
    words: mpsc::Receiver<Vec<u8>>,
    scratch: Scratch,
}

/// The folder of perf's files. When this process ends, the guard removes the folder and kills perf.
#[derive(Debug)]
struct Scratch {
    guard: Guard,
    folder: PathBuf,
}

/// Checks that perf can record on a CPU. Fails if perf is not installed, or refuses to record,
/// usually because of `kernel.perf_event_paranoid`.
pub(crate) fn check(cpu: usize) -> Result<(), ProfileError> {
    let mut profiler = Profiler::start(&[cpu])?;
    profiler.stop()
}

impl Profiler {
    /// Begins to record on `cpus`. Returns when perf has begun. Fails if perf is not installed, or
    /// may not record.
    pub(crate) fn start(cpus: &[usize]) -> Result<Profiler, ProfileError> {
        let perf = on_path("perf").ok_or_else(|| {
            let why = "a profile needs the program perf, which is not on PATH";
            ProfileError::Failed(why.to_owned())
        })?;
        let scratch = Scratch::new()?;
        let listed = cpu_list(cpus);
        let mut command = scratch.perf(&perf);
        // `-N` keeps perf from copying the programs into `~/.debug`.
        command
            .args(["record", "-N", "-F", SAMPLES_PER_S, "-C", &listed, "-o"])
            .arg(scratch.data());
        let (reader, writer) = io::pipe()?;
        let record = command.stdout(Stdio::null()).stderr(writer).spawn()?;
        // Closes kvblaster's write end of the pipe; otherwise reading the pipe would never end.
        drop(command);
        let words = read_beside(reader, WORDS_BYTES_MAX)?;
        let mut profiler = Profiler { cpus: cpus.to_vec(), perf, record, words, scratch };
        let begin = Instant::now();
        while !profiler.has_begun() {
            if profiler.record.try_wait()?.is_some() {
                return Err(profiler.refusal());
            }
            if begin.elapsed() >= PATIENCE {
                let why = format!("perf did not begin to record within {} s", PATIENCE.as_secs());
                return Err(ProfileError::Failed(why));
            }
            sleep(LOOK);
        }
        Ok(profiler)
    }

    fn has_begun(&self) -> bool {
        fs::metadata(self.scratch.data()).is_ok_and(|file| file.len() > 0)
    }

    fn stop(&mut self) -> Result<(), ProfileError> {
        let pid = i32::try_from(self.record.id()).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Err(Errno::SRCH), |pid| kill_process(pid, Signal::INT));
        sent.map_err(io::Error::from)?;
        let status = status_within(&mut self.record, PATIENCE)?.ok_or_else(|| slow(PATIENCE))?;
        // If SIGINT ends the recording, perf exits with 128 plus the signal's number, or with 0.
        let is_wrong = status.code().is_some_and(|code| code != 0 && code != 128 + 2);
        if is_wrong { Err(self.refusal()) } else { Ok(()) }
    }

    fn refusal(&mut self) -> ProfileError {
        let words = self.words.recv_timeout(PATIENCE).unwrap_or_default();
        let level = fs::read_to_string(PARANOID).ok();
        let level = level.and_then(|level| level.trim().parse().ok()).unwrap_or_default();
        let why = refused(&String::from_utf8_lossy(&words), level);
        ProfileError::Failed(format!("perf cannot record: {why}"))
    }

    /// Ends the recording. Returns the share of each kind of work, by the name of its figure. The
    /// shares count the processes `pids`, interrupts on idle CPUs, and the kernel's threads for
    /// packets, but not network work in interrupts of other processes. The servers must still run.
    /// Fails if perf cannot report, or has too few samples of the servers. A smoke test needs one
    /// sample.
    pub(crate) fn finish(
        mut self,
        pids: &[u32],
        scale: Scale,
    ) -> Result<BTreeMap<String, f64>, ProfileError> {
        // perf has no samples of threads that have ended, but servers keep their threads.
        let mut threads: BTreeSet<u32> = pids.iter().flat_map(|pid| threads(*pid)).collect();
        threads.extend(softirq_threads(&self.cpus));
        // perf assigns the interrupts of an idle CPU to thread 0, the idle thread.
        threads.insert(0);
        self.stop()?;
        let rows = Rows::read()?;
        let tids = threads.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut samples = parse(&self.report(&tids, None)?, "");
        let with_lines: BTreeSet<String> = samples
            .iter()
            .map(|one| one.object.clone())
            .filter(|name| rows.has_lines(name))
            .collect();
        for object in with_lines {
            let lined = parse(&self.report(&tids, Some(&object))?, &object);
            // If perf finds no source lines of a program, the samples by symbol stay.
            if !lined.is_empty() {
                samples.retain(|one| one.object != object);
                samples.extend(lined);
            }
        }
        rows.shares(&samples, if scale == Scale::Smoke { 1 } else { SAMPLES_MIN })
    }

    /// Runs `perf report` for these threads. With `object`: by source line, for this file only.
    fn report(&self, tids: &str, object: Option<&str>) -> Result<String, ProfileError> {
        // perf sums up samples into rows before it selects threads, so each row must name its
        // thread (`pid`).
        let mut command = self.scratch.perf(&self.perf);
        command.args(["report", "--stdio", "--no-children", "-g", "none", "-t", "|", "-i"]);
        command.arg(self.scratch.data()).args(["--tid", tids, "-F"]);
        match object {
            None => command.arg("period,sample,pid,dso,symbol"),
            Some(name) => command.args([
                "period,sample,pid,dso,symbol,srcline",
                "--full-source-path",
                "--dsos",
                name,
            ]),
        };
        let (reader, writer) = io::pipe()?;
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn()?;
        drop(command);
        let text = read_beside(reader, REPORT_BYTES_MAX)?;
        let text = text.recv_timeout(REPORT_PATIENCE);
        let text = text.map_err(|_| slow(REPORT_PATIENCE))?;
        status_within(&mut child, PATIENCE)?.ok_or_else(|| slow(PATIENCE))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // Errors are ignored, because `drop` cannot return an error.
        let _ = self.record.kill();
        let _ = self.record.wait();
    }
}

impl Scratch {
    fn new() -> io::Result<Scratch> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers only have to differ.
        let nth = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("kvblaster-{}-{nth}.perf", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        // Another user may have made the folder. So `create` must fail if the folder exists.
        DirBuilder::new().mode(0o700).create(&folder)?;
        match Guard::new(Some(&folder)) {
            Ok(guard) => Ok(Scratch { guard, folder }),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns a command that runs perf in the guard's process group. perf reads no settings, and
    /// asks no server for symbols.
    fn perf(&self, perf: &Path) -> Command {
        let mut command = Command::new(perf);
        command.process_group(self.guard.group.as_raw_pid()).stdin(Stdio::null());
        command.env("PERF_CONFIG", "/dev/null").env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // perf must end first, because perf could write to the folder during the removal.
        self.guard.kill();
        // An error is ignored, because `drop` cannot return an error.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn slow(patience: Duration) -> ProfileError {
    ProfileError::Failed(format!("perf did not end within {} s", patience.as_secs()))
}

/// Returns the reason why perf refused, from perf's messages and the value in `PARANOID`.
fn refused(words: &str, level: i32) -> String {
    if words.contains("perf_event_paranoid") {
        return format!(
            "the sysctl kernel.perf_event_paranoid is {level}: run kvblaster as root, or set this \
             sysctl to 0 or less"
        );
    }
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|one| !one.is_control()).take(WORDS_CHARS_MAX).collect()
}

/// Reads a pipe to its end in a new thread, which sends the first `bytes_max` bytes.
fn read_beside(mut reader: PipeReader, bytes_max: u64) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    let keep = move || {
        let mut kept = Vec::new();
        let _ = (&mut reader).take(bytes_max).read_to_end(&mut kept);
        // Reads and drops the remaining bytes, because perf would wait if the pipe were full.
        let _ = io::copy(&mut reader, &mut io::sink());
        let _ = sender.send(kept);
    };
    std::thread::Builder::new().name("perf's words".to_owned()).spawn(keep)?;
    Ok(receiver)
}

/// Returns the ids of a process's threads. Returns no ids if the process has ended.
fn threads(pid: u32) -> Vec<u32> {
    numbers(&Path::new("/proc").join(pid.to_string()).join("task"))
}

/// Returns the ids of the kernel's threads (ksoftirqd) that handle packets on these CPUs.
fn softirq_threads(cpus: &[usize]) -> Vec<u32> {
    let names: Vec<String> = cpus.iter().map(|cpu| format!("ksoftirqd/{cpu}")).collect();
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        names.iter().any(|one| one == name.trim_end())
    };
    numbers(Path::new("/proc")).into_iter().filter(is_one).collect()
}

/// Returns all file names of a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The samples of one symbol, or of one source line in this symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sample {
    /// The sum of the samples' weights, in nanoseconds or cycles.
    period: u64,
    /// The number of samples; 0 if the report does not give the number.
    count: u64,
    object: String,
    symbol: String,
    /// File and line of the source; empty if perf does not know the line.
    line: String,
}

/// Reads the lines of a report, and skips lines in another format. `object` is the shared object of
/// all samples if the report has no column `Shared Object`.
fn parse(report: &str, object: &str) -> Vec<Sample> {
    let fields = |line: &str| line.split('|').map(|one| one.trim().to_owned()).collect::<Vec<_>>();
    let header = report.lines().find(|line| line.starts_with('#') && line.contains('|'));
    let header = fields(header.unwrap_or_default().trim_start_matches('#'));
    let column = |name: &str| header.iter().position(|one| one == name);
    let columns = ["Period", "Samples", "Shared Object", "Symbol", "Source:Line"].map(column);
    let sample = |line: &str| {
        let fields = fields(line);
        let [period, count, own, symbol, line] =
            columns.map(|column| fields.get(column?).map(String::as_str));
        // perf writes the mode of the CPU before the symbol: `[k] tcp_ack`.
        let symbol = match symbol?.split_once("] ") {
            Some((mode, symbol)) if mode.starts_with('[') && mode.len() == 2 => symbol,
            _ => symbol?,
        };
        Some(Sample {
            period: period?.parse().ok()?,
            count: count.and_then(|count| count.parse().ok()).unwrap_or_default(),
            object: own.unwrap_or(object).to_owned(),
            symbol: symbol.to_owned(),
            line: line.unwrap_or_default().to_owned(),
        })
    };
    report.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// The contents of `symbols.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    lines: Vec<String>,
    rows: Vec<Row>,
}

/// A row of `symbols.toml`. An empty list matches everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    category: String,
    #[serde(default)]
    object: Vec<String>,
    #[serde(default)]
    exact: Vec<String>,
    #[serde(default)]
    prefix: Vec<String>,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    line: Vec<String>,
    /// The reason why the recordings of the tests have no sample for this row.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests read it"))]
    unseen: String,
}

impl Row {
    fn matches(&self, sample: &Sample) -> bool {
        let Sample { object, symbol, line, .. } = sample;
        let is_any_symbol =
            self.exact.is_empty() && self.prefix.is_empty() && self.contains.is_empty();
        (self.object.is_empty() || self.object.iter().any(|one| object.starts_with(one)))
            && (self.line.is_empty() || self.line.iter().any(|one| line.contains(one)))
            && (is_any_symbol
                || self.exact.contains(symbol)
                || self.prefix.iter().any(|one| symbol.starts_with(one))
                || self.contains.iter().any(|one| symbol.contains(one)))
    }
}

impl Rows {
    fn read() -> Result<Rows, ProfileError> {
        toml::from_str(ROWS).map_err(|error| ProfileError::Failed(format!("symbols.toml: {error}")))
    }

    fn has_lines(&self, object: &str) -> bool {
        self.lines.iter().any(|one| object.starts_with(one))
    }

    fn category(&self, sample: &Sample) -> &str {
        let row = self.rows.iter().find(|row| row.matches(sample));
        row.map_or(UNMAPPED, |row| &row.category)
    }

    /// Returns the share of each category, by the name of its figure, if at least `least` samples
    /// are not idle.
    fn shares(
        &self,
        samples: &[Sample],
        least: u64,
    ) -> Result<BTreeMap<String, f64>, ProfileError> {
        let mut count = 0_u64;
        let kinds = PROFILE.iter().filter_map(|figure| figure.name.strip_prefix(PREFIX));
        let mut sums: BTreeMap<&str, f64> = kinds.map(|name| (name, 0.0)).collect();
        for sample in samples {
            let category = self.category(sample);
            *sums.entry(category).or_default() += sample.period as f64;
            count = count.saturating_add(if category == IDLE { 0 } else { sample.count });
        }
        sums.remove(IDLE);
        let all: f64 = sums.values().sum();
        if count < least || all <= 0.0 {
            return Err(ProfileError::Few(count));
        }
        let named = |(name, sum): (&str, f64)| (format!("{PREFIX}{name}"), sum / all);
        Ok(sums.into_iter().map(named).collect())
    }
}

#[cfg(test)]
mod tests;
