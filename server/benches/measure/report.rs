//! A program's result, in words and as JSON.
//!
//! Where: the end of each program.
//! Invariant: both forms are made of the same figures, and each stands with its spread where it was
//! measured more than once.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::Outcome;
use super::clocks;
use super::statistics::Median;

/// What was measured and where, as pairs of name and value.
pub(crate) type Facts = Vec<(&'static str, String)>;

/// The machine, and the command to run the same again.
pub(crate) fn machine_and_command(program: &str) -> Outcome<Facts> {
    let mut facts = clocks::machine(clocks::cores()?.len());
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words = words.join(" ");
    let command = format!("cargo bench --bench {program} -- {words}");
    facts.push(("command", command.trim_end_matches([' ', '-']).to_owned()));
    Ok(facts)
}

/// The facts, one a line.
pub(crate) fn facts_text(facts: &Facts) -> String {
    let mut text = String::new();
    for (name, value) in facts {
        let _ = writeln!(text, "{name:>12}: {value}");
    }
    text
}

/// The facts, for JSON.
pub(crate) fn facts_json(facts: &Facts) -> Value {
    let pairs = facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    Value::Object(pairs.collect::<Map<String, Value>>())
}

/// One number with its spread: a 95 % interval, or the least and the most.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    /// `None`: measured once, or exact.
    pub(crate) spread: Option<(f64, f64)>,
}

/// All that a program found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    facts: Facts,
    figures: Vec<Figure>,
}

impl Report {
    /// Of `program`; with the machine and the command.
    pub(crate) fn of(program: &str) -> Outcome<Report> {
        Ok(Report { facts: machine_and_command(program)?, figures: Vec::new() })
    }

    /// Says under what conditions.
    pub(crate) fn fact(&mut self, name: &'static str, value: String) {
        self.facts.push((name, value));
    }

    /// Shows the facts.
    pub(crate) fn open(&self) -> Outcome<()> {
        say(&facts_text(&self.facts))
    }

    /// A figure without a spread. Shown at once.
    pub(crate) fn figure(&mut self, name: &str, unit: &'static str, value: f64) -> Outcome<()> {
        self.add(Figure { name: name.to_owned(), unit, value, spread: None })
    }

    /// A figure with its interval. Shown at once.
    pub(crate) fn median(&mut self, name: &str, unit: &'static str, of: Median) -> Outcome<()> {
        let spread = Some((of.low, of.high));
        self.add(Figure { name: name.to_owned(), unit, value: of.value, spread })
    }

    fn add(&mut self, figure: Figure) -> Outcome<()> {
        let Figure { name, unit, value, spread } = &figure;
        let shown = spread.map_or(String::new(), |(low, high)| format!("  [{low:.4}, {high:.4}]"));
        say(&format!("  {name:<52}{value:>14.4} {unit}{shown}\n"))?;
        self.figures.push(figure);
        Ok(())
    }

    /// The whole result as JSON, where a file was asked for.
    pub(crate) fn close(&self, json_path: Option<&Path>) -> Outcome<()> {
        let Some(path) = json_path else { return Ok(()) };
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|one| {
                let spread = one.spread.map(|(low, high)| json!([low, high]));
                json!({"name": one.name, "unit": one.unit, "value": one.value, "spread": spread})
            })
            .collect();
        write_json(path, &json!({"facts": facts_json(&self.facts), "figures": figures}))
    }
}

/// Writes `value` to the file `path`.
pub(crate) fn write_json(path: &Path, value: &Value) -> Outcome<()> {
    Ok(std::fs::write(path, format!("{value:#}\n"))?)
}

/// Shows `text` at once: some figures take minutes.
pub(crate) fn say(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
