//! The verdict on a result: remarks that say why the result is invalid, or what a reader must know.
//!
//! Where: made by the self-check, and by all code that finds a fault of a run.
//! Invariant: a result without a remark that makes it invalid is valid.

use serde::{Deserialize, Serialize};

/// Names of the rules that blame the generator.
const GENERATOR_FAULTS: [&str; 4] = ["not-offered", LATE_SENDS, "thread-full", GENERATOR_BOUND];
/// Name of the rule that at least one request is answered.
pub(crate) const NO_ANSWERS: &str = "no-answers";
/// Name of the rule that requests are sent when they are due.
pub(crate) const LATE_SENDS: &str = "late-sends";
/// Name of the rule that the generator could have sent more: against a server that does no work,
/// its rate is at least `HEADROOM_MIN` times the measured rate.
pub(crate) const GENERATOR_BOUND: &str = "generator-bound";

/// The effect of a remark on the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The result does not show what the server can do.
    Invalid,
    /// The result is valid, but a reader has to know of the remark.
    Warning,
}

/// One finding of the self-check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The rule's name.
    pub rule: String,
    /// The effect on the result.
    pub severity: Severity,
    /// The finding in words, with advice.
    pub sentence: String,
}

/// The findings of the self-check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// All findings.
    pub remarks: Vec<Remark>,
}

impl Verdict {
    /// True if the result shows what the server can do.
    pub(crate) fn is_valid(&self) -> bool {
        self.why_invalid().is_none()
    }

    /// The first reason why the result is invalid.
    pub(crate) fn why_invalid(&self) -> Option<&Remark> {
        self.remarks.iter().find(|remark| remark.severity == Severity::Invalid)
    }

    /// The first remark that blames the generator.
    pub(crate) fn generator_fault(&self) -> Option<&Remark> {
        self.remarks.iter().find(|remark| GENERATOR_FAULTS.contains(&remark.rule.as_str()))
    }

    /// True if there is a remark of this rule.
    pub fn has(&self, rule: &str) -> bool {
        self.remarks.iter().any(|remark| remark.rule == rule)
    }

    pub(crate) fn add(&mut self, rule: &str, severity: Severity, sentence: String) {
        self.remarks.push(Remark { rule: rule.to_owned(), severity, sentence });
    }
}
