//! The rules for documents: every link has a target, and the changelog keeps its form.
//!
//! Where: applied to the documents of the tree.
//! Source: GitHub's rules for anchors, and keepachangelog.com for the sections of the changelog.

use crate::source::{self, Kind, Source};
use std::fs;

const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

pub(crate) fn links(source: &Source) -> Vec<String> {
    if source.kind != Kind::Markdown {
        return Vec::new();
    }
    let mut broken = Vec::new();
    for (line, text) in prose(&source.text) {
        for target in targets(text) {
            if !leads_somewhere(source, target) {
                broken.push(format!("{}:{}: no such place: {target}", source.path, line + 1));
            }
        }
    }
    broken
}

fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

fn leads_somewhere(source: &Source, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = source::root().join(folder).join(file);
    if !file.is_empty() && !path.exists() {
        return false;
    }
    if anchor.is_empty() {
        return true;
    }
    let text = if file.is_empty() { Ok(source.text.clone()) } else { fs::read_to_string(path) };
    text.is_ok_and(|text| {
        let mut headings = prose(&text).filter(|(_, line)| line.starts_with('#'));
        headings.any(|(_, line)| self::anchor(line) == anchor)
    })
}

/// Returns the anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |one: &char| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_');
    title.chars().filter(kept).map(|one| if one == ' ' { '-' } else { one }).collect()
}

pub(crate) fn changelog(source: &Source) -> Vec<String> {
    if source.path != "CHANGELOG.md" {
        return Vec::new();
    }
    let mut broken = Vec::new();
    let mut in_section = false;
    for (line, text) in source.text.lines().enumerate() {
        let good = if let Some(section) = text.strip_prefix("### ") {
            in_section = true;
            SECTIONS.contains(&section)
        } else if let Some(release) = text.strip_prefix("## ") {
            in_section = false;
            release == "Unreleased" || is_release(release)
        } else if text.starts_with('#') || line == 0 {
            line == 0 && text == "# Changelog"
        } else {
            !in_section || text.is_empty() || text.starts_with("- ") || text.starts_with("  ")
        };
        if !good {
            broken.push(format!("{}:{}: not the changelog's form: {text}", source.path, line + 1));
        }
    }
    broken
}

/// Returns true for the heading of a release, such as `1.2.3 - 2026-11-20`.
fn is_release(text: &str) -> bool {
    let Some((version, date)) = text.split_once(" - ") else { return false };
    let shape = |text: &str| -> String {
        text.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect()
    };
    let numbers = version.split('.').filter(|part| part.parse::<u32>().is_ok()).count();
    numbers == 3 && shape(date) == "0000-00-00"
}
