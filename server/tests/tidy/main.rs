//! Tests the rules of `STYLE.md` that a program can check.
//!
//! Where: no server; the test reads the tree.
//! Invariant: a message names the file and line that breaks a rule; a test case breaks each rule.
//! Source: TigerBeetle's `tidy.zig`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod circles;
mod markdown;
mod rules;
mod source;

use std::collections::BTreeSet;

use rules::Rule;
use source::{Kind, Source};

fn holds(rule: Rule) {
    let broken: Vec<String> = source::tree().iter().flat_map(rule).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

fn finds(rule: Rule, path: &str, text: &str) -> bool {
    !rule(&Source::new(path, text)).is_empty()
}

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    holds(rules::arrows);
    assert!(finds(
        rules::arrows,
        "protocol/Cargo.toml",
        "[dependencies]\nstore.workspace = true\n"
    ));
    assert!(finds(rules::arrows, "store/Cargo.toml", "[dev-dependencies]\nnet.workspace = true\n"));
    assert!(finds(rules::arrows, "net/src/a.rs", "use store::Column;\n"));
    assert!(finds(rules::arrows, "store/src/a.rs", "use std::net::TcpStream;\n"));
    assert!(!finds(rules::arrows, "server/Cargo.toml", "[dependencies]\nnet.workspace = true\n"));
}

#[test]
fn files_import_each_other_in_small_circles() {
    let tree = source::tree();
    let folders: BTreeSet<&str> = tree.iter().map(Source::folder).collect();
    let broken: Vec<String> =
        folders.iter().flat_map(|folder| circles::circles(&tree, folder)).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));

    let file = |(name, text)| Source::new(&format!("a/src/{name}.rs"), text);
    let circles =
        |files: [(&'static str, &'static str); 6]| circles::circles(&files.map(file), "a").len();
    let passed_on = ("lib", "pub use f::F;\n");
    let chain = [("b", "use crate::c::C;\n"), ("c", "fn c() { crate::d::d() }\n")];
    let [b, c] = chain;
    let [d, e] = [("d", "use super::e::{self, E};\n"), ("e", "use crate::F;\n")];
    assert_eq!(circles([passed_on, b, c, d, e, ("f", "use crate::b::B;\n")]), 1);
    assert_eq!(circles([passed_on, b, c, d, e, ("f", "#[cfg(test)]\nuse crate::b::B;\n")]), 0);
    assert_eq!(circles([passed_on, b, c, d, e, ("f", "use b::B;\n")]), 0, "another crate");
}

#[test]
fn files_open_with_what_they_are() {
    holds(rules::opening);
    assert!(finds(rules::opening, "net/src/a.rs", "use std::io;\n"));
    assert!(!finds(rules::opening, "net/src/a.rs", "//! A listener.\n"));
}

#[test]
fn comments_read_at_once() {
    holds(rules::riddles);
    for text in ["/// What it has.\n", "    // Of these, one.\n", "//! Lets so many in.\n"] {
        assert!(finds(rules::riddles, "net/src/a.rs", text), "{text}");
    }
    assert!(!finds(rules::riddles, "net/src/a.rs", "/// Assumes that what it has is right.\n"));
}

#[test]
fn files_functions_and_lines_are_short() {
    holds(rules::lengths);
    let long_line = format!("//! {}\n", "x".repeat(97));
    assert!(finds(rules::lengths, "net/src/a.rs", &long_line));
    assert!(finds(rules::lengths, "net/src/a.rs", &"//\n".repeat(801)));
    let function = format!("fn a() {{\n{}}}\n", "    a();\n".repeat(70));
    assert!(finds(rules::lengths, "net/src/a.rs", &function));
    assert!(!finds(rules::lengths, "net/src/a.rs", "fn a();\nfn b() {}\n"));
}

#[test]
fn names_say_something() {
    holds(rules::names);
    for text in ["struct BufferManager;", "fn get_impl() {}", "mod utils;", "let common = 1;"] {
        assert!(finds(rules::names, "net/src/a.rs", text), "{text}");
    }
    assert!(finds(rules::names, "net/src/helpers.rs", ""));
    assert!(!finds(rules::names, "net/src/a.rs", "impl A {} // a common manager\n"));
}

#[test]
fn nothing_is_left_over() {
    holds(rules::leftovers);
    for text in ["// TO~DO: more", "d~bg!(1)", "to~do!()", "#[ig~nore]"] {
        let text = text.replace('~', "");
        assert!(finds(rules::leftovers, "net/src/a.rs", &text), "{text}");
    }
    assert!(finds(rules::leftovers, "net/tests/a.rs", "thread::sleep(a)"));
    assert!(!finds(rules::leftovers, "net/tests/a.rs", "// no sleep() here"));
}

#[test]
fn the_server_looks_into_no_form_and_has_no_words_of_a_protocol() {
    holds(rules::forms);
    for text in [
        "a(Form::LINE);\n",
        "Meta::FORM\n",
        "Form::Binary(tag) =>\n",
        "GetForm::Text { .. }\n",
        "b\"END\\r\\n\"\n",
    ] {
        assert!(finds(rules::forms, "server/src/a.rs", text), "{text}");
        assert!(!finds(rules::forms, "server/src/a/tests.rs", text), "{text}");
        assert!(!finds(rules::forms, "protocol/src/a.rs", text), "{text}");
    }
    assert!(!finds(rules::forms, "server/src/a.rs", "/// Ends in `\\r\\n`.\n"));
}

#[test]
fn unsafe_code_is_kept_in_its_places_and_proved() {
    holds(rules::unsafe_code);
    let proved = "// SAFETY: proved.\nunsafe { a() }\n";
    assert!(finds(rules::unsafe_code, "protocol/src/a.rs", proved));
    assert!(finds(rules::unsafe_code, "store/src/verbs/get.rs", proved));
    assert!(!finds(rules::unsafe_code, "store/src/item.rs", proved));
    assert!(!finds(rules::unsafe_code, "store/src/item/tests.rs", proved));
    assert!(finds(rules::unsafe_code, "memory/src/a.rs", "unsafe { a() }\n"));
    assert!(!finds(rules::unsafe_code, "memory/src/a.rs", proved));
    assert!(!finds(rules::unsafe_code, "memory/src/a.rs", "#![allow(unsafe_code)] // unsafe {\n"));
}

#[test]
fn the_tree_names_no_machine() {
    holds(rules::machines);
    for text in ["see /ho~me/me/x", "at cra~tes.io", "/ro~ot/.cargo"] {
        let text = text.replace('~', "");
        assert!(finds(rules::machines, "README.md", &text), "{text}");
    }
}

#[test]
fn links_lead_somewhere() {
    holds(markdown::links);
    assert!(finds(markdown::links, "README.md", "[a](no/such/file.rs)\n"));
    assert!(finds(markdown::links, "README.md", "# One\n[a](#two)\n"));
    assert!(!finds(markdown::links, "README.md", "# One `x` & two\n[a](#one-x--two)\n"));
}

#[test]
fn the_clock_on_the_wall_is_read_at_the_start_and_for_those_who_watch() {
    holds(rules::clocks);
    let reads = "let now = SystemTime::now();\n";
    assert!(finds(rules::clocks, "columns/src/column/timers.rs", reads));
    assert!(finds(rules::clocks, "store/src/a.rs", "clock_gettime(ClockId::Realtime);\n"));
    assert!(!finds(rules::clocks, "server/src/shared/watch.rs", reads));
    assert!(!finds(rules::clocks, "server/src/a.rs", &format!("// {reads}")));
}

#[test]
fn connections_know_no_kernel() {
    holds(rules::ways);
    let names = "struct Connection { stream: net::Stream }\n";
    assert!(finds(rules::ways, "columns/src/connection.rs", names));
    assert!(!finds(rules::ways, "columns/src/stream/kernel.rs", names));
    assert!(!finds(rules::ways, "columns/src/a.rs", &format!("#[cfg(test)]\n{names}")));
}

#[test]
fn the_changelog_has_its_form() {
    holds(markdown::changelog);
    let good =
        "# Changelog\n\n## Unreleased\n\n### Added\n- A thing,\n  told.\n\n## 0.1.0 - 2026-11-20\n";
    assert!(!finds(markdown::changelog, "CHANGELOG.md", good));
    for (from, to) in [("Added", "New"), ("- A", "A"), ("0.1.0 - ", "0.1.0 "), ("# Ch", "# ch")] {
        assert!(finds(markdown::changelog, "CHANGELOG.md", &good.replace(from, to)), "{to}");
    }
}

#[test]
fn each_policy_is_a_file_and_a_row() {
    let rows = std::fs::read_to_string(source::root().join("store/src/policy.rs")).unwrap();
    let row = |name: &str| rows.lines().any(|line| line.contains(&format!(" in {name}, \"")));
    let files = std::fs::read_dir(source::root().join("store/src/policy")).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().display().to_string());
    // The policies share the module `room`, which is not a policy.
    let without: Vec<String> = names.filter(|name| name != "room" && !row(name)).collect();
    assert!(without.is_empty() && row("clock2q") && !row("lru"), "no row: {without:?}");
}

#[test]
fn the_tree_is_seen() {
    let tree = source::tree();
    let rust = tree.iter().filter(|source| source.kind == Kind::Rust).count();
    assert!(rust > 30, "{rust} Rust files");
    assert!(tree.iter().any(|source| source.path == "Makefile"));
    let is_built = |path: &str| path.starts_with("target/") || path.starts_with("fuzz/target/");
    assert!(tree.iter().all(|source| !is_built(&source.path)));
}
