//! The committed table of bounds: the maximum number of instructions of each row.
//!
//! Where: used after all rows are counted, if `--check` or `--write` is given.
//! Invariant: a row takes at most `ROOM_PER_CENT` % more than its bound in the table. A bound is
//! raised only with a reason in the table's last column, so that small increases do not add up.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::measure::report::{Report, say};
use crate::measure::{Outcome, fail};

/// If a row exceeds its bound by more than this percentage, the check fails.
const ROOM_PER_CENT: f64 = 1.0;

const HEAD: &str = "\
# Maximum number of instructions per request

`cargo bench --bench instructions -- --check` counts again, as root, and fails if a row takes more
than 1 % above this table. Keys hash by a fixed seed, so that two runs count the same.
`--write` writes the counted figures, and keeps the reasons. A row that is raised has the reason in
its last column. A row `store` gives the instructions of one call of the store. A row `request`
gives the instructions of all the server's work from a request's bytes to the reply's bytes; if the
row names datagrams, it includes receiving and sending. A row `packet` gives the instructions of the
same work over AF_XDP, including receiving and sending.

| row | instructions | why it was raised |
|---|---:|---|
";

struct Bound {
    name: String,
    instructions: f64,
    reason: String,
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/bounds.md")
}

fn read() -> Outcome<Vec<Bound>> {
    let text = std::fs::read_to_string(path())?;
    let rows = text.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.filter(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, instructions, reason] = cells[..] else {
                return fail(format!(
                    "{}: this row does not have three cells: {line}",
                    path().display()
                ));
            };
            let (name, reason) = (name.to_owned(), reason.to_owned());
            Ok(Bound { name, instructions: instructions.parse()?, reason })
        })
        .collect()
}

/// Writes a table whose bounds are the counted figures. Copies the reasons from the old table.
pub(crate) fn write(report: &Report) -> Outcome<()> {
    let old = read().unwrap_or_default();
    let mut text = HEAD.to_owned();
    for figure in report.figures() {
        let reason = old.iter().find(|row| row.name == figure.name).map_or("", |row| &row.reason);
        writeln!(text, "| {} | {:.1} | {reason} |", figure.name, figure.value)?;
    }
    Ok(std::fs::write(path(), text)?)
}

/// Compares the counted figures with the table. Fails if a figure exceeds its bound by more than
/// `ROOM_PER_CENT` or has no row. If `is_all` is true, also fails if a row has no figure.
pub(crate) fn check(report: &Report, is_all: bool) -> Outcome<()> {
    let bounds = read()?;
    let mut faults = Vec::new();
    for figure in report.figures() {
        match bounds.iter().find(|row| row.name == figure.name) {
            None => faults.push(format!("{} is not in the table", figure.name)),
            Some(row) => {
                let more = 100.0 * (figure.value / row.instructions - 1.0);
                say(&format!("  {:<60}{more:>+13.2} % of {:.1}\n", row.name, row.instructions))?;
                if more > ROOM_PER_CENT {
                    faults.push(format!("{} takes {more:.2} % more", row.name));
                }
            }
        }
    }
    let is_counted = |row: &&Bound| report.figures().iter().any(|it| it.name == row.name);
    let missed = bounds.iter().filter(|row| is_all && !is_counted(row));
    faults.extend(missed.map(|row| format!("{} was not counted", row.name)));
    match faults.is_empty() {
        true => say("every row is within its bound\n"),
        false => fail(format!("rows that differ from the table: {}", faults.join("; "))),
    }
}
