//! The text files of the tree. The text of a Rust file is kept in two forms: original, and with
//! comments and strings blanked.
//!
//! Where: between the files of the tree and the rules.
//! Invariant: a line has the same number in both forms.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose files are not part of this project.
const LEFT_OUT: [&str; 7] =
    ["target", ".git", "tests/.peers", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", ".jj"];

/// Files that are generated or copied.
const GENERATED: [&str; 2] = ["Cargo.lock", "LICENSE"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rust,
    Markdown,
    Other,
}

/// The path is relative to the workspace's root, with `/` between folders.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// A Rust file's text with comments and strings blanked; empty for other kinds.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let kind = match Path::new(path).extension().and_then(|ending| ending.to_str()) {
            Some("rs") => Kind::Rust,
            Some("md") => Kind::Markdown,
            _ => Kind::Other,
        };
        let code = if kind == Kind::Rust { code(text) } else { String::new() };
        Source { path: path.to_owned(), kind, text: text.to_owned(), code }
    }

    /// The first folder of the path; for a crate's file this is the folder of the crate.
    pub(crate) fn folder(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    pub(crate) fn is_test(&self) -> bool {
        let ends = ["tests.rs", "under_loom.rs", "under_shuttle.rs"];
        self.path.contains("tests/") || ends.iter().any(|end| self.path.ends_with(end))
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) fn tree() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            if LEFT_OUT.contains(&name.as_str()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if !GENERATED.iter().any(|file| name.ends_with(file)) {
                // Files that are not UTF-8 are data; the rules skip them.
                let text = fs::read_to_string(&path);
                sources.extend(text.ok().map(|text| Source::new(&name, &text)));
            }
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let in_word = before.is_alphanumeric() || before == '_';
        let blank = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => block_comment(rest),
            [b'"', ..] => string(rest),
            [b'r', ..] if !in_word => raw_string(rest).unwrap_or(0),
            [b'b', b'r', ..] if !in_word => raw_string(&rest[1..]).map_or(0, |bytes| bytes + 1),
            [b'\'', ..] => character(rest),
            _ => 0,
        };
        let bytes = if blank == 0 { next.len_utf8() } else { blank };
        if blank == 0 {
            code.push(next);
        } else {
            code.extend(rest[..blank].chars().map(|one| if one == '\n' { '\n' } else { ' ' }));
        }
        before = next;
        rest = &rest[bytes..];
    }
    code
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    for at in 0..rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => depth += 1,
            [b'*', b'/', ..] => {
                depth -= 1;
                if depth == 0 {
                    return at + 2;
                }
            }
            _ => {}
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest[1..].bytes().take_while(|&byte| byte == b'#').count();
    let inside = rest[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let at = inside.find(&end)?;
    Some(1 + hashes + 1 + at + end.len())
}

/// Returns the length of a character literal, or 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            rest[at + 1..].find('\'').map_or(0, |end| at + 1 + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}
