//! The command line of `kvblaster report`.
//!
//! Where: called by `flags`.
//! Invariant: a page is written completely or not at all, and the path of its file is printed.

use super::{ReportError, report};
use std::fs;
use std::path::PathBuf;

/// The flags of `kvblaster report`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(before_help = "\
Puts results side by side on one HTML page, which needs no network and no other
file.")]
pub struct Plan {
    /// Folder into which `run`, `capacity` or `compare` wrote a result (--out)
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// File into which the page is written; `-` means stdout
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

impl Plan {
    /// Makes the page, and returns what to print: the page, or a line with the path of its file.
    /// Fails if a result cannot be read, or the page cannot be written.
    pub fn run(&self) -> Result<String, ReportError> {
        let page = report(&self.folders)?;
        let path = &self.out;
        if path.as_os_str() == "-" {
            return Ok(page);
        }
        let failed = |error| ReportError::Page(path.clone(), error);
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, page).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        Ok(format!("the page is {}\n", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};
    use crate::result::sample;

    #[test]
    fn words_are_understood_or_refused_by_name() {
        let making = |words: &str| match parse_words(&format!("report {words}")).unwrap() {
            Verb::Report(plan) => plan,
            other => panic!("{words}: {other:?}"),
        };
        let plain = making("a b");
        assert_eq!(plain.out, PathBuf::from("report.html"));
        assert_eq!(plain.folders, ["a", "b"].map(PathBuf::from));
        assert_eq!(
            ["a -o -", "--out=x a"].map(|words| making(words).out),
            ["-", "x"].map(PathBuf::from)
        );
        let rows = [("", "<DIR>..."), ("a --nothing", "--nothing"), ("a -o", "--out <FILE>")];
        refused("report", &rows);
    }

    #[test]
    fn a_page_is_written_where_it_was_asked_for() {
        let folder = std::env::temp_dir().join(format!("kvblaster-making-{}", std::process::id()));
        sample::result("ours", 50).write(&folder.join("a")).unwrap();
        let path = folder.join("page.html");
        let folders = vec![folder.join("a"), folder.join("a")];
        let making = Plan { folders, out: path.clone() };
        assert!(making.run().unwrap().ends_with("page.html\n"));
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.contains("ours #1") && page.contains("ours #2"));
        assert_eq!(Plan { out: "-".into(), ..making.clone() }.run().unwrap(), page);
        let nowhere = Plan { out: folder.join("no/where"), ..making };
        assert!(nowhere.run().unwrap_err().to_string().contains("no/where"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
