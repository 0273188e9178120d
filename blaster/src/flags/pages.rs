//! The manual pages and the shells' completions, generated from the same `Command` as `--help`.
//!
//! Where: printed by `main`. Invariant: the pages and the completions list exactly the verbs and
//! flags that `parse` accepts.

use super::command;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;

pub(super) fn verb(name: &str) -> Result<Box<Command>, String> {
    let mut whole = command();
    whole.build();
    let verb = whole.find_subcommand(name).cloned().map(Box::new);
    verb.ok_or_else(|| format!("no such command: {name}"))
}

/// Returns the manual page of `verb`, or of kvblaster itself if `verb` is `None`. Fails only if
/// writing to memory fails, which never happens.
pub fn man(verb: Option<Box<Command>>) -> io::Result<String> {
    let mut page = verb.map_or_else(command, |verb| *verb);
    page.build();
    let about = page.get_before_help().or(page.get_about()).cloned().unwrap_or_default();
    let mut out = Vec::new();
    // The quotes make the empty date an argument of the roff macro `.TH`.
    let page = Man::new(page.long_about(about)).date("\"\"");
    page.source(concat!("kvblaster ", env!("CARGO_PKG_VERSION"))).render(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Returns all manual pages, each with the name of its file. Fails as `man` does.
pub fn manual() -> io::Result<Vec<(String, String)>> {
    let mut pages = vec![("kvblaster.1".to_owned(), man(None)?)];
    let mut whole = command();
    whole.build();
    for verb in whole.get_subcommands() {
        let file = format!("kvblaster-{}.1", verb.get_name());
        pages.push((file, man(Some(Box::new(verb.clone())))?));
    }
    Ok(pages)
}

/// Returns the script that lets a shell complete verbs and flags.
pub fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command(), "kvblaster", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::piped;

    #[test]
    fn completions_have_every_verb_and_flag_and_are_scripts() {
        for (shell, word) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let text = completions(shell);
            for verb in command().get_subcommands() {
                assert!(text.contains(verb.get_name()), "{shell}: {}", verb.get_name());
                for long in verb.get_arguments().filter_map(|arg| arg.get_long()) {
                    assert!(text.contains(long), "{shell}: {long}");
                }
            }
            if let Some(output) = piped(&[word, "-n", "/dev/stdin"], &text) {
                assert!(output.status.success(), "{shell}: {output:?}");
            }
        }
    }

    #[test]
    fn manual_pages_have_every_verb_and_flag_and_are_roff() {
        let whole = man(None).unwrap();
        for verb in command().get_subcommands() {
            let name = verb.get_name();
            assert!(whole.contains(&format!("kvblaster\\-{name}(1)")), "{name}: {whole}");
            let page = man(Some(super::verb(name).unwrap())).unwrap();
            let plain = page.replace("\\-", "-");
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let word = arg.get_long().unwrap_or(arg.get_id().as_str());
                assert!(plain.contains(word) || arg.is_positional(), "{name}, {word}: {page}");
            }
            let known = [".TH", ".SH", ".TP", ".IP", ".PP", ".RS", ".RE", ".br", ".ie", ".el"];
            let odd = page.lines().find(|line| {
                line.starts_with('.') && !known.iter().any(|macro_| line.starts_with(macro_))
            });
            assert_eq!(odd, None, "{name}");
            if let Some(output) = piped(&["man", "-l", "-"], &page) {
                let message = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success() && message.contains("SYNOPSIS"), "{output:?}");
            }
        }
    }
}
