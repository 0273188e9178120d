//! Writes the manual pages and the shell completions of `hypostyle` and `kvblaster` to a folder.
//! The programs print the same texts with their commands `man` and `completions`.
//!
//! Where: at build time only; `make pages` runs it.
//! Invariant: every row of `-h` is in the manual page and in each shell's completions.

use std::error::Error;
use std::fs;
use std::path::Path;

use clap_complete::Shell;
use hypostyle::start::flags::pages::{completions, man};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err("usage: pages FOLDER".into());
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    for (name, text) in pages()? {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn pages() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut pages = vec![("hypostyle.1".to_owned(), man()?)];
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        pages.push((file("hypostyle", shell), completions(shell)));
        pages.push((file("kvblaster", shell), blaster::flags::pages::completions(shell)));
    }
    pages.extend(blaster::flags::pages::manual()?);
    Ok(pages)
}

/// The file name under which a shell looks for a program's completions.
fn file(program: &str, shell: Shell) -> String {
    clap_complete::Generator::file_name(&shell, program)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use hypostyle::start::flags::pages::command;
    use hypostyle::start::flags::{extended, flags};
    use hypostyle::start::settings::VERSION;
    use testing::Folder;

    /// Runs a program with `text` as its input. Returns its outputs; `None` if it is not installed.
    fn said(words: &[&str], text: &str) -> Option<String> {
        let output = testing::piped(words, text)?;
        let [out, error] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(output.status.success(), "{words:?}: {error}{out}");
        Some(format!("{out}{error}"))
    }

    fn folder_with_pages() -> Folder {
        let folder = Folder::new();
        for (name, text) in pages().unwrap() {
            fs::write(folder.path(&name), text).unwrap();
        }
        folder
    }

    fn file(folder: &Folder, name: &str) -> String {
        folder.path(name).to_str().unwrap().to_owned()
    }

    #[test]
    fn every_flag_and_option_is_in_the_manual_page_and_in_each_shells_completions() {
        command().debug_assert();
        let mut page = man().unwrap().replace("\\-", "-");
        for font in ["\\fB", "\\fI", "\\fR"] {
            page = page.replace(font, " ");
        }
        let mut texts = vec![("manual".to_owned(), page)];
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            texts.push((shell.to_string(), completions(shell)));
        }
        for (name, text) in texts {
            let has = |word: &str| {
                text.split(|one: char| !one.is_alphanumeric() && !"-_".contains(one))
                    .any(|one| one == word)
            };
            for flag in flags() {
                let (dashes, dash) = if name == "fish" { ("", "") } else { ("--", "-") };
                let long = flag.long.is_empty() || has(&format!("{dashes}{}", flag.long));
                let short = flag.short.is_none_or(|short| has(&format!("{dash}{short}")));
                assert!(long && short, "{name}: {}", flag.long);
            }
            for option in extended() {
                assert!(has(option.long), "{name}: {}", option.long);
            }
        }
    }

    #[test]
    fn manual_pages_are_rendered_without_a_warning() {
        let folder = folder_with_pages();
        let mut seen = 0;
        for page in fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()) {
            if page.extension().is_none_or(|end| end != "1") {
                continue;
            }
            seen += 1;
            let page = page.to_str().unwrap();
            if let Some(said) = said(&["man", "--warnings", "-E", "UTF-8", "-l", page], "") {
                assert!(said.contains("SYNOPSIS"), "{page}: {said}");
                let foot = said.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
                assert!(foot.contains(VERSION) && foot.ends_with("(1)"), "{page}: {foot}");
                let warned = said.lines().find(|line| line.contains("warning"));
                assert_eq!(warned, None, "{page}");
            }
        }
        assert!(seen > 8, "hypostyle.1, kvblaster.1 and one for each command: {seen}");
    }

    /// Each shell must load its script. Bash and fish must also complete the beginning of a flag
    /// and of an option.
    #[test]
    fn shells_complete_a_flag_and_an_option() {
        let folder = folder_with_pages();
        let bash = format!(
            "source '{}'; compopt() {{ :; }}; \
             cur() {{ COMP_WORDS=(hypostyle \"$@\"); COMP_CWORD=$#; \
             _hypostyle hypostyle \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[@]}}\"; }}; \
             cur --max-re; cur -o idle",
            file(&folder, "hypostyle.bash")
        );
        let zsh = format!(
            "autoload -U compinit && compinit -D && source '{}' && whence -w _hypostyle",
            file(&folder, "_hypostyle")
        );
        let fish = format!(
            "source '{}'; complete -C 'hypostyle --max-re'; complete -C 'hypostyle -o idle'",
            file(&folder, "hypostyle.fish")
        );
        if let Some(said) = said(&["bash"], &bash) {
            assert_eq!(said, "--max-reqs-per-event\nidle_timeout=\n");
        }
        if let Some(said) = said(&["zsh", "-f", "/dev/stdin"], &zsh) {
            assert_eq!(said, "_hypostyle: function\n");
        }
        if let Some(said) = said(&["fish", "--no-config", "/dev/stdin"], &fish) {
            assert!(said.contains("--max-reqs-per-event\t"), "{said}");
            assert!(said.contains("idle_timeout=\t"), "{said}");
        }
    }
}
