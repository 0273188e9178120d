//! The exit statuses of kvblaster, for scripts.
//!
//! Where: `main` exits with a status that `--help` and `docs/kvblaster/run.md` list.
//! Invariant: each status has the same meaning for all commands. If there are asserts, an invalid
//! result never leads to `Met`. A failed measurement never leads to `NotMet`.

use crate::words::wrapped;
use std::process::ExitCode;

/// An exit status. If several statuses apply, the one that is declared last is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// The command has finished, and every assert holds.
    Met = 0,
    /// Figures were measured, but an assert does not hold or the run ended early.
    NotMet = 1,
    /// There are asserts, but the measured figures are invalid.
    Invalid = 2,
    /// Nothing could be measured.
    Failed = 3,
    /// The command line is wrong (sysexits.h).
    Usage = 64,
}

/// Each status with its meaning, as `--help` shows it.
const MEANINGS: [(Exit, &str); 5] = [
    (Exit::Met, "done; every assertion is met"),
    (
        Exit::NotMet,
        "measured, but an assertion is not met, a server stopped or was restarted, or the run \
         ended early",
    ),
    (
        Exit::Invalid,
        "an assertion was given, but the result is INVALID: the figures do not show what the \
         server can do",
    ),
    (
        Exit::Failed,
        "failed: for example, no server answers, a permission is missing, or a file cannot be \
         written",
    ),
    (Exit::Usage, "the command line is wrong"),
];

impl Exit {
    /// Returns the status for the operating system.
    pub fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

pub(crate) fn table() -> String {
    let mut out = "Exit status:\n".to_owned();
    for (exit, meaning) in MEANINGS {
        out += &wrapped(&format!("  {:>2}  ", exit as u8), meaning);
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documents_has_the_statuses_of_the_code() {
        let document = include_str!("../../../docs/kvblaster/run.md");
        for (exit, meaning) in MEANINGS {
            let row = format!("| {} | {} |", exit as u8, meaning);
            assert!(document.contains(&row), "{row}");
        }
        let wide = table().lines().find(|line| line.len() > 80).map(str::to_owned);
        assert_eq!(wide, None);
    }
}
