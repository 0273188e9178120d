//! Runs this program under callgrind, and reads callgrind's output.
//!
//! Where: benches that count instructions.
//! Invariant: an instruction counts for its source line, and for the function whose text contains
//! this line, even if the compiler has inlined the function.
//! Source: valgrind's manual, "Callgrind Format Specification".

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

type Place = (String, String, u32);

/// Number of executed instructions at each place; may be negative in a difference of profiles.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    places: HashMap<Place, i64>,
}

/// Returns the version of valgrind.
///
/// # Errors
/// valgrind does not run.
pub fn version() -> io::Result<String> {
    match Command::new("valgrind").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => Err(io::Error::other(format!(
            "valgrind: {error}; the count of instructions needs the package `valgrind` \
             (Debian, Ubuntu: apt-get install valgrind)"
        ))),
    }
}

/// Runs this program with `arguments` under callgrind. Counts the functions that match the pattern
/// `counted` and the functions they call, or (`None`) the whole program.
///
/// # Errors
/// valgrind or the program fails, or callgrind counts nothing.
pub fn count(counted: Option<&str>, arguments: &[&str]) -> io::Result<Profile> {
    let file = std::env::temp_dir().join(format!("callgrind.{}", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]);
    if let Some(counted) = counted {
        command.args(["--collect-atstart=no", &format!("--toggle-collect={counted}")]);
    }
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(std::env::current_exe()?).args(arguments);
    let output = command.stdin(Stdio::null()).output()?;
    let failed = |why: &str| io::Error::other(format!("{}: {why}", arguments.join(" ")));
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let text = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    let profile = Profile::parse(&text);
    match profile.all() {
        0 => Err(failed("callgrind counted nothing")),
        _ => Ok(profile),
    }
}

/// Returns how many of `instructions` one of `count` operations takes.
#[expect(clippy::cast_precision_loss, reason = "never near 2^53 instructions")]
pub fn per_operation(instructions: i64, count: u32) -> f64 {
    instructions as f64 / f64::from(count)
}

/// The names of files or functions by their numbers. Callgrind's output has a number and a name
/// where the name first occurs, and afterwards only the number.
#[derive(Default)]
struct Names {
    known: HashMap<String, String>,
}

impl Names {
    fn resolve(&mut self, text: &str) -> String {
        let Some((number, name)) = text.split_once(')') else { return text.to_owned() };
        if !name.is_empty() {
            self.known.insert(number.to_owned(), name.trim().to_owned());
        }
        self.known.get(number).cloned().unwrap_or_default()
    }
}

impl Profile {
    fn parse(text: &str) -> Profile {
        let (mut files, mut functions) = (Names::default(), Names::default());
        let (mut file, mut function, mut line) = (String::new(), String::new(), 0_u32);
        let mut profile = Profile::default();
        let mut is_call = false;
        for text in text.lines() {
            if let Some((key, value)) = text.split_once('=') {
                match key {
                    "fl" | "fi" | "fe" => file = files.resolve(value),
                    "fn" => function = functions.resolve(value),
                    "cfi" | "cfl" => drop(files.resolve(value)),
                    "cfn" => drop(functions.resolve(value)),
                    // The next line repeats the cost that the callee's own lines have.
                    "calls" => is_call = true,
                    _ => {}
                }
                continue;
            }
            let mut words = text.split_whitespace();
            let (Some(position), Some(cost)) = (words.next(), words.next()) else { continue };
            let Ok(cost) = cost.parse::<i64>() else { continue };
            let Some(at) = moved(line, position) else { continue };
            line = at;
            if !std::mem::take(&mut is_call) {
                let place = (function.clone(), file.clone(), line);
                *profile.places.entry(place).or_default() += cost;
            }
        }
        profile
    }

    /// Returns the instructions of all places together.
    pub fn all(&self) -> i64 {
        self.places.values().sum()
    }

    /// Returns the difference of this profile and another one.
    pub fn less(&self, other: &Profile) -> Profile {
        let mut difference = self.clone();
        for (place, cost) in &other.places {
            *difference.places.entry(place.clone()).or_default() -= cost;
        }
        difference
    }

    /// Removes the instructions of benches, whose lines call the code and check results.
    pub fn without_benches(mut self) -> Profile {
        self.places.retain(|(_, file, _), _| !file.contains("/benches/"));
        self
    }

    /// Returns the files of the crates' sources, each with its instructions, in alphabetical order.
    pub fn by_source_file(&self) -> Vec<(String, i64)> {
        let of_source = |(_, file, _): &Place| match is_ours(file) && file.contains("/src/") {
            true => shown(file),
            false => String::new(),
        };
        let mut files = self.by(of_source);
        files.retain(|(file, _)| !file.is_empty());
        files.sort();
        files
    }

    /// Returns each source line with its instructions, the largest number first.
    pub fn by_line(&self) -> Vec<(String, i64)> {
        self.by(|(function, file, line)| match is_ours(file) {
            true => format!("{}:{line}", shown(file)),
            false => format!("{}:{line} in {}", shown(file), last_name(function)),
        })
    }

    /// Returns each function with the instructions of its source lines, the largest number first.
    pub fn by_function(&self) -> Vec<(String, i64)> {
        let mut sources: HashMap<String, Vec<String>> = HashMap::new();
        self.by(|(function, file, line)| {
            if !is_ours(file) {
                return format!("{} in {}", shown(file), last_name(function));
            }
            let text = sources.entry(file.clone()).or_insert_with(|| {
                let text = fs::read_to_string(file).unwrap_or_default();
                text.lines().map(str::to_owned).collect()
            });
            let (at, name) = function_around(text, *line);
            format!("{}:{at} {name}", shown(file))
        })
    }

    fn by(&self, mut group: impl FnMut(&Place) -> String) -> Vec<(String, i64)> {
        let mut sums: HashMap<String, i64> = HashMap::new();
        for (place, cost) in &self.places {
            *sums.entry(group(place)).or_default() += cost;
        }
        let mut sums: Vec<(String, i64)> = sums.into_iter().collect();
        sums.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        sums
    }
}

fn moved(line: u32, position: &str) -> Option<u32> {
    match position.as_bytes() {
        [b'*'] => Some(line),
        [b'+', ..] => Some(line + position[1..].parse::<u32>().ok()?),
        [b'-', ..] => line.checked_sub(position[1..].parse::<u32>().ok()?),
        _ => position.parse::<u32>().ok(),
    }
}

fn root() -> &'static str {
    env!("CARGO_MANIFEST_DIR").trim_end_matches("/testing")
}

fn is_ours(file: &str) -> bool {
    file.starts_with(root()) || !Path::new(file).is_absolute() && Path::new(file).exists()
}

fn shown(file: &str) -> String {
    match file.strip_prefix(root()) {
        Some(ours) => ours.trim_start_matches('/').to_owned(),
        None => {
            let parts: Vec<&str> = file.split('/').collect();
            parts[parts.len().saturating_sub(3)..].join("/")
        }
    }
}

fn last_name(function: &str) -> String {
    let name = function.split_once('\'').map_or(function, |(name, _)| name);
    let parts: Vec<&str> = name.split("::").filter(|part| !is_hash(part)).collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}

fn is_hash(part: &str) -> bool {
    part.len() == 17 && part.starts_with('h')
}

/// Finds the function that contains a line: the nearest function above with less indentation.
fn function_around(text: &[String], line: u32) -> (usize, String) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let here = usize::try_from(line).unwrap_or(0).min(text.len());
    let above = text[..here].iter().enumerate().rev();
    // A closing brace counts as inside the block that it closes.
    let inside = |line: &String| indent(line) + usize::from(line.trim_start().starts_with('}'));
    let depth = text.get(here.saturating_sub(1)).map_or(0, inside);
    let mut is_first = true;
    for (at, line) in above {
        let is_around = std::mem::take(&mut is_first) || indent(line) < depth;
        let name = function_begun(line.trim_start()).filter(|_| is_around);
        if let Some(name) = name {
            return (at + 1, name.to_owned());
        }
    }
    (here, String::new())
}

fn function_begun(line: &str) -> Option<&str> {
    let mut rest = line;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}
