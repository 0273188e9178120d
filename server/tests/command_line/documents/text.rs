//! Parses documents: the commands of their code blocks, and their code spans.
//!
//! Where: used by the tests of documents.
//! Invariant: a line belongs to a code block or to prose, never to both.

/// Commands whose arguments contain another command.
const STARTERS: [&str; 3] = ["ip", "taskset", "sudo"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Hypostyle,
    Kvblaster,
}

/// Returns the number and text of each line, and true if it is in a fenced or indented code block.
pub(super) fn lines(text: &str) -> Vec<(usize, &str, bool)> {
    let mut found = Vec::new();
    let (mut is_fenced, mut is_indented, mut is_behind_blank) = (false, false, true);
    for (number, line) in text.lines().enumerate() {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        is_indented = line.starts_with("    ") && (is_indented || is_behind_blank);
        is_behind_blank = line.is_empty();
        if !is_fence {
            found.push((number + 1, line, is_fenced || is_indented));
        }
    }
    found
}

/// Splits a shell line into commands, and each command into words. A quoted text is one word.
pub(super) fn shell(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for one in line.chars() {
        match (quote, one) {
            (Some(end), _) if one == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(one);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | ';' | '|' | '&' | '<' | '>') => {
                commands.last_mut().unwrap().extend(word.take());
                if one != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(one),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands
}

pub(super) fn program(word: &str) -> Option<Program> {
    match word.rsplit('/').next() {
        Some("hypostyle") => Some(Program::Hypostyle),
        Some("kvblaster") => Some(Program::Kvblaster),
        _ => None,
    }
}

pub(super) fn started(command: &[String]) -> Option<(Program, &[String])> {
    let first = command.first()?.as_str();
    if first == "cargo" {
        let of = command.iter().position(|word| word == "--").unwrap_or(command.len());
        let (cargo, words) = command.split_at(of);
        let words = words.get(1..).unwrap_or_default();
        let is_other = cargo.iter().any(|word| word == "kvblaster");
        let which = if is_other { Program::Kvblaster } else { Program::Hypostyle };
        return cargo.iter().any(|word| word == "run").then_some((which, words));
    }
    let mut places = command.iter().enumerate();
    let (at, which) = places.find_map(|(at, word)| Some((at, program(word)?)))?;
    (at == 0 || STARTERS.contains(&first)).then(|| (which, &command[at + 1..]))
}

/// Returns the code spans outside code blocks, each with the number of its first line.
pub(super) fn spans(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line, is_code) in lines(text) {
        if is_code {
            continue;
        }
        for (at, part) in line.split('`').enumerate() {
            if at > 0 {
                match open.take() {
                    Some(span) => found.push(span),
                    None => open = Some((number, String::new())),
                }
            }
            if let Some((_, span)) = &mut open {
                span.push_str(part);
            }
        }
        if let Some((_, span)) = &mut open {
            span.push(' ');
        }
    }
    assert_eq!(open, None, "a code span without an end");
    found
}
