//! A program's result, as text and as JSON.
//!
//! Where: the end of each program.
//! Invariant: both forms have the same figures. A figure that was measured several times has a
//! confidence interval.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use blaster::result::machine::Machine;

use super::launched::{subject, version_of};
use super::statistics::Median;
use super::{Outcome, words};

#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    /// The 95 % confidence interval; `None` if the figure was measured once, or is exact.
    pub(crate) spread: Option<(f64, f64)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    facts: Vec<(&'static str, String)>,
    figures: Vec<Figure>,
}

impl Report {
    /// The new report contains facts about the machine, and the command that repeats the run.
    pub(crate) fn new() -> Report {
        let Machine { kernel, cpu_model, cpus, .. } = Machine::here();
        let name = env!("CARGO_CRATE_NAME");
        let words: Vec<String> = words().skip(1).collect();
        let command = format!("cargo bench --bench {name} -- {}", words.join(" "));
        let facts = vec![
            ("cpu", cpu_model.unwrap_or_else(|| "unknown".to_owned())),
            ("cores", cpus.to_string()),
            ("kernel", kernel),
            ("command", command.trim_end_matches([' ', '-']).to_owned()),
        ];
        Report { facts, figures: Vec::new() }
    }

    /// Opens a report on the server program `named`, or by default on this project's server. Also
    /// returns the program's path.
    pub(crate) fn of_subject(named: Option<&PathBuf>) -> Outcome<(Report, PathBuf)> {
        let (mut report, program) = (Report::new(), subject(named));
        report.fact("subject", version_of(&program)?);
        report.open()?;
        Ok((report, program))
    }

    pub(crate) fn fact(&mut self, name: &'static str, value: String) {
        self.facts.push((name, value));
    }

    pub(crate) fn open(&self) -> Outcome<()> {
        self.facts.iter().try_for_each(|(name, value)| say(&format!("{name:>12}: {value}\n")))
    }

    pub(crate) fn figure(&mut self, name: &str, unit: &'static str, value: f64) -> Outcome<()> {
        self.add(Figure { name: name.to_owned(), unit, value, spread: None })
    }

    pub(crate) fn median(&mut self, name: &str, unit: &'static str, of: Median) -> Outcome<()> {
        let spread = Some((of.low, of.high));
        self.add(Figure { name: name.to_owned(), unit, value: of.value, spread })
    }

    fn add(&mut self, figure: Figure) -> Outcome<()> {
        let Figure { name, unit, value, spread } = &figure;
        let shown = spread.map_or(String::new(), |(low, high)| format!("  [{low:.4}, {high:.4}]"));
        say(&format!("  {name:<60}{value:>14.4} {unit}{shown}\n"))?;
        self.figures.push(figure);
        Ok(())
    }

    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

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
        let facts: Map<String, Value> =
            self.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let all = json!({"facts": facts, "figures": figures});
        Ok(std::fs::write(path, format!("{all:#}\n"))?)
    }
}

/// Prints `text` and flushes standard output, because the next figure may take minutes.
pub(crate) fn say(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
