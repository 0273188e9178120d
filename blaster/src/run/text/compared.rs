//! The report of a comparison as text: a table of the figures, and a sentence for each figure.
//!
//! Where: printed by `main` when the comparison is over.
//! Invariant: every sentence gives a confidence interval, or says that there is too little data for
//! an interval. A sentence on a doubtful figure names the reason for the doubt.

use super::{head, remarked};
use crate::result::manifest::TargetRecord;
use crate::run::compare::figures::{
    Against, Finding, Kind, PER_CPU, ROUNDS_MIN, Row, SAME_SHARES_WITHIN, SAME_WITHIN,
};
use crate::run::compare::{Comparison, Plan};
use crate::words::{grouped, percent, quoted, sentence, size, time, whole, wrapped};
use std::fmt::Write;

const NAMES: usize = 24;
const COLUMN: usize = 14;

/// Returns the whole report.
pub fn text(plan: &Plan, done: &Comparison) -> String {
    let mut out = String::new();
    let letters: Vec<String> =
        ('A'..='Z').take(done.servers.len()).map(|letter| letter.to_string()).collect();
    let mut manifest = done.servers.first().map(|one| one.manifest.clone()).unwrap_or_default();
    let named = |(letter, server): (&String, &crate::result::RunResult)| {
        let target = server.manifest.targets.first()?;
        Some(TargetRecord { name: format!("{letter}  {}", target.name), ..target.clone() })
    };
    manifest.targets = letters.iter().zip(&done.servers).filter_map(named).collect();
    head(&mut out, &plan.run, &manifest);
    let schedule = plan.run.schedule;
    let round_s = (schedule.report * schedule.reports).as_secs_f64();
    let about = format!(
        "Medians of {} round{}, in which the servers took turns of {round_s} s each. Brackets give \
         the {:.0} % confidence interval of a ratio or difference.",
        done.rounds,
        if done.rounds == 1 { "" } else { "s" },
        100.0 * done.confidence
    );
    out.push_str(&wrapped("", &about));
    let _ = write!(out, "\n{:NAMES$}", "");
    letters.iter().for_each(|letter| _ = write!(out, "{letter:>COLUMN$}"));
    out.push('\n');
    for row in &done.figures {
        let _ = write!(out, "{:NAMES$}", row.figure);
        let cells = row.medians.iter().map(|median| match row.is_too_little {
            true => "too little".to_owned(),
            false => cell(row.kind, *median),
        });
        cells.for_each(|cell| _ = write!(out, "{cell:>COLUMN$}"));
        out.push('\n');
    }
    for (nth, letter) in letters.iter().enumerate().skip(1) {
        out.push('\n');
        out.extend(findings(done, nth, letter).iter().map(|told| wrapped("", told)));
    }
    out.push('\n');
    out.push_str(&notes(plan, done));
    out
}

/// Returns a sentence per figure that compares server `nth` (`letter`) with the first server.
pub(crate) fn findings(done: &Comparison, nth: usize, letter: &str) -> Vec<String> {
    let mut told = Vec::new();
    for row in &done.figures {
        let against = row.against.get(nth - 1).and_then(Option::as_ref);
        told.extend(against.map(|against| told_of(row, letter, against)));
        told.extend(row.is_too_little.then(|| too_little(row)));
    }
    told
}

/// Returns the sentence on the first of these figures that differs: CPU use, rate, mean time, p99.
/// `None` if no difference was found in these figures.
pub(crate) fn most_telling(done: &Comparison, nth: usize, letter: &str) -> Option<String> {
    let telling = [PER_CPU, "requests per second", "mean response time", "p99"];
    telling.into_iter().find_map(|name| {
        let row = done.figures.iter().find(|row| row.figure == name)?;
        let against = row.against.get(nth - 1).and_then(Option::as_ref)?;
        (against.finding == Finding::Differs).then(|| told_of(row, letter, against))
    })
}

fn notes(plan: &Plan, done: &Comparison) -> String {
    let mut out = String::new();
    for server in &done.servers {
        let letter = server.manifest.label.get(..1).unwrap_or_default();
        for remark in &server.verdict.remarks {
            let mut remark = remark.clone();
            remark.sentence = format!("{letter}: {}", remark.sentence);
            out.push_str(&remarked(&remark));
        }
        for judgement in server.judgements.iter().filter(|one| !one.is_met) {
            let told = format!("{letter}: {}", sentence(&judgement.sentence));
            out.push_str(&wrapped("FAILED: ", &told));
        }
    }
    done.servers.iter().for_each(|server| super::left(&mut out, server));
    let has = |what: &str| done.figures.iter().any(|row| row.figure == what);
    if !has(PER_CPU) {
        let text = "the CPU time of the servers is not known: they run on another machine, or as \
                    another user";
        out.push_str(&wrapped("note: ", &sentence(text)));
    } else if plan.server_cpus.is_empty() {
        let text = "CPU-seconds are the CPU time that the kernel charges to the servers' \
                    processes. The kernel's work in interrupts counts only if the servers have \
                    CPUs of their own (--server-cpus)";
        out.push_str(&wrapped("note: ", &sentence(text)));
    }
    if done.is_interrupted {
        let why = done.failed.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("the comparison ended before its last round{why}");
        out.push_str(&wrapped("note: ", &sentence(&text)));
    }
    if let Some(folder) = &plan.run.out {
        let _ = writeln!(out, "next: kvblaster report {}", quoted(&folder.to_string_lossy()));
    }
    out
}

fn cell(kind: Kind, median: Option<f64>) -> String {
    let told = |median| match kind {
        Kind::Rate => grouped(median),
        Kind::Time => time(whole(median)),
        Kind::Bytes => size(median),
        Kind::Share => percent(median),
    };
    median.map_or("-".to_owned(), told)
}

fn too_little(row: &Row) -> String {
    let (first, rest) = row.figure.split_at(1);
    let first = first.to_ascii_uppercase();
    format!(
        "{first}{rest}: a server used too little CPU time to compare; use longer rounds \
         (--schedule) or a higher rate."
    )
}

/// Formats a ratio, or a difference in percentage points, with its interval.
fn value(told: &Against, kind: Kind) -> String {
    let scale = if kind == Kind::Share { 100.0 } else { 1.0 };
    let (low, high) = told.interval.unwrap_or((f64::NAN, f64::NAN));
    let decimals = if (high - low) * scale < 0.05 { 3 } else { 2 };
    let shown = |value: f64| format!("{:.decimals$}", value * scale);
    match told.interval {
        Some((low, high)) => format!("{} [{}, {}]", shown(told.value), shown(low), shown(high)),
        None => shown(told.value),
    }
}

fn told_of(row: &Row, letter: &str, told: &Against) -> String {
    let what = &row.figure;
    let value = value(told, row.kind);
    let (limit, compared) = match row.kind {
        Kind::Share => (
            format!("{:.1} percentage points", 100.0 * SAME_SHARES_WITHIN),
            format!("the difference {letter} - A is {value} percentage points"),
        ),
        _ => (format!("{:.0} %", 100.0 * SAME_WITHIN), format!("the ratio {letter}/A is {value}")),
    };
    let mut said = match (told.finding, row.kind) {
        (Finding::Differs, Kind::Rate) => format!("{letter} answers {value} times A's {what}"),
        (Finding::Differs, Kind::Share) => format!("{what}: {compared}"),
        (Finding::Differs, _) => format!("{letter}'s {what} is {value} times A's"),
        (Finding::Same, _) => {
            format!("{what}: {letter} and A differ by less than {limit}; {compared}")
        }
        (Finding::Noise, _) => format!(
            "{what}: no difference between {letter} and A that exceeds the variation between \
             rounds; {compared}"
        ),
        (Finding::TooFew, _) => format!(
            "{what}: {compared}, but {} too few to tell whether the servers differ; at least \
             {ROUNDS_MIN} are needed",
            match told.rounds {
                1 => "one round is".to_owned(),
                rounds => format!("{rounds} rounds are"),
            }
        ),
    };
    if told.is_unsteady {
        said.push_str(" (unsteady: some rounds are far from the others)");
    }
    if told.is_bound {
        said.push_str(" (kvblaster was the limit: the servers may differ by more)");
    }
    let first = said.remove(0).to_ascii_uppercase();
    sentence(&format!("{first}{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::compare::figures::found;

    fn said(kind: Kind, pairs: &[(f64, f64)]) -> String {
        let figure = if kind == Kind::Rate { PER_CPU } else { "p99" };
        let row = Row {
            figure: figure.into(),
            kind,
            medians: vec![],
            against: vec![],
            is_too_little: false,
        };
        told_of(&row, "B", &found(pairs, kind).unwrap())
    }

    #[test]
    fn every_finding_has_its_sentence() {
        let pairs =
            |to: f64| (0..10).map(|nth| (1.0, to + 0.01 * f64::from(nth))).collect::<Vec<_>>();
        for (kind, pairs, sentence) in [
            (
                Kind::Rate,
                pairs(1.4),
                "B answers 1.44 [1.41, 1.48] times A's requests per CPU-second.",
            ),
            (
                Kind::Time,
                pairs(0.95),
                "P99: no difference between B and A that exceeds the variation between rounds; the \
                 ratio B/A is 0.99 [0.",
            ),
            (
                Kind::Time,
                vec![(5.0, 5.0); 9],
                "P99: B and A differ by less than 3 %; the ratio B/A is 1.000 [",
            ),
            (Kind::Bytes, pairs(2.0), "B's p99 is 2.0"),
            (
                Kind::Share,
                vec![(0.95, 0.90); 8],
                "P99: the difference B - A is -5.000 [-5.000, -5.000] percentage points.",
            ),
            (
                Kind::Rate,
                vec![(1.0, 2.0); 3],
                "Requests per CPU-second: the ratio B/A is 2.00, but 3 rounds are too few",
            ),
            (
                Kind::Rate,
                vec![(1.0, 2.0)],
                "Requests per CPU-second: the ratio B/A is 2.00, but one round is too few",
            ),
        ] {
            let told = said(kind, &pairs);
            assert!(told.starts_with(sentence), "{told}");
        }
        let told = found(&pairs(1.4), Kind::Time).unwrap();
        let told = Against { is_unsteady: true, is_bound: true, ..told };
        let row = Row {
            figure: "p99".into(),
            kind: Kind::Time,
            medians: vec![],
            against: vec![],
            is_too_little: false,
        };
        let told = told_of(&row, "C", &told);
        assert!(told.contains("unsteady") && told.contains("kvblaster was the limit"), "{told}");
    }
}
