//! The command line of `kvblaster report`.
//!
//! Where: called by `flags`. Invariant: a page is written whole or not at all, and says where.

use super::{ReportError, report};
use crate::flags::{Asked, Flag, Refusal, Rows, lines};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// A page to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The results' folders.
    pub folders: Vec<PathBuf>,
    /// Where it goes; none: to stdout.
    pub out: Option<PathBuf>,
}

const FLAGS: &[Flag<Plan>] = &[Flag {
    long: "out",
    short: Some('o'),
    value: "FILE",
    help: &["where the page goes (default report.html); - is stdout"],
    apply: |plan, text| {
        plan.out = (text != "-").then(|| text.into());
        Ok(())
    },
}];

const ABOUT: &str = "\
Usage: kvblaster report [OPTIONS] DIR...

Puts results side by side on one HTML page. It needs no network and no other
file. A DIR is what --out of run or capacity named.

";

/// Parses what follows `report`.
///
/// # Errors
/// Something is unknown, or no folder is named.
pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Asked, Refusal> {
    let mut plan = Plan { folders: Vec::new(), out: Some("report.html".into()) };
    let free = |plan: &mut Plan, word: OsString| {
        plan.folders.push(word.into());
        Ok(())
    };
    let rows = Rows { flags: &[FLAGS], names: Vec::new, set: |_, _, _| Ok(()), free };
    if rows.apply(&mut parser, &mut plan)?.is_none() {
        return Ok(Asked::Print(format!("{ABOUT}{}", lines(FLAGS))));
    }
    if plan.folders.is_empty() {
        return Err(Refusal(ReportError::Nothing.to_string()));
    }
    Ok(Asked::Report(Box::new(plan)))
}

impl Plan {
    /// Makes the page; gives what is to be printed: the page itself, or where it is.
    ///
    /// # Errors
    /// A result cannot be read, or the page not be written.
    pub fn run(&self) -> Result<String, ReportError> {
        let page = report(&self.folders)?;
        let Some(path) = &self.out else { return Ok(page) };
        let failed = |error| ReportError::Page(path.clone(), error);
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, page).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        Ok(format!("{}: a page of {} results\n", path.display(), self.folders.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::sample;

    fn parsed(words: &[&str]) -> Result<Asked, Refusal> {
        parse(lexopt::Parser::from_args(words))
    }

    fn making(words: &[&str]) -> Plan {
        match parsed(words) {
            Ok(Asked::Report(plan)) => *plan,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn words_are_understood_or_refused_by_name() {
        let plain = making(&["a", "b"]);
        assert_eq!(plain.out, Some(PathBuf::from("report.html")));
        assert_eq!(plain.folders, ["a", "b"].map(PathBuf::from));
        assert_eq!(making(&["a", "-o", "-"]).out, None);
        assert_eq!(making(&["--out=x", "a"]).out, Some(PathBuf::from("x")));
        assert!(matches!(parsed(&["--help"]), Ok(Asked::Print(text)) if text.contains("--out")));
        assert!(parsed(&[]).unwrap_err().0.contains("no results"));
        assert!(parsed(&["a", "--nothing"]).unwrap_err().0.contains("--nothing"));
        assert!(parsed(&["a", "-o"]).is_err());
    }

    #[test]
    fn a_page_is_written_where_it_was_asked_for() {
        let folder = std::env::temp_dir().join(format!("kvblaster-making-{}", std::process::id()));
        sample::result("ours", 50).write(&folder.join("a")).unwrap();
        let path = folder.join("page.html");
        let folders = vec![folder.join("a"), folder.join("a")];
        let making = Plan { folders, out: Some(path.clone()) };
        assert!(making.run().unwrap().ends_with("page.html: a page of 2 results\n"));
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.contains("ours #1") && page.contains("ours #2"));
        assert_eq!(Plan { out: None, ..making.clone() }.run().unwrap(), page);
        let nowhere = Plan { out: Some(folder.join("no/where")), ..making };
        assert!(nowhere.run().unwrap_err().to_string().contains("no/where"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
