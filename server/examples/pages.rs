//! Writes the manual pages and the shells' completions of `hypostyle` and `kvblaster` to a folder,
//! each made of the rows from which the program itself reads its command line.
//!
//! Where: beside the server, at build time only; `make pages` runs it.
//! Invariant: every row of `-h` is in the manual page and in each shell's completions.

use std::error::Error;
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use hypostyle::flags::{Effect, Flag, Takes, extended, flags};
use hypostyle::settings::{MEMCACHED_VERSION, VERSION};

/// What is told behind the options: heading, and paragraphs of a term and its explanation.
const SECTIONS: [(&str, &[(&str, &str)]); 4] = [
    (
        "SIGNALS",
        &[
            ("SIGTERM, SIGINT", "Ends the server at once. A second one ends it in any case."),
            (
                "SIGUSR1",
                "Ends the server gracefully: it accepts nothing more, and answers what has been \
                 asked, for five seconds at most. The command \"shutdown graceful\" does the same \
                 (-A).",
            ),
            ("SIGHUP, SIGPIPE", "Are ignored: there is nothing to read again."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[(
            hypostyle::port_file::VARIABLE,
            "Names a file to which the ports are written on which the server listens.",
        )],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "It was asked to end, or has printed what it was asked for."),
            ("1", "A value is out of range or an option unknown; there is no memory."),
            ("64", "A feature is refused, or options contradict each other."),
            ("67", "There is no such user (-u)."),
            ("71", "The system refuses, as where a port is taken."),
        ],
    ),
    ("SEE ALSO", &[("kvblaster(1), memcached(1)", "")]),
];

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

/// All files, by name.
fn pages() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut pages = vec![("hypostyle.1".to_owned(), man()?)];
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        pages.push((file("hypostyle", shell), completions(shell)?));
        pages.push((file("kvblaster", shell), blaster::flags::pages::completions(shell)));
    }
    pages.extend(blaster::flags::pages::manual()?);
    Ok(pages)
}

/// The name under which a shell looks for what completes a program's command line.
fn file(program: &str, shell: Shell) -> String {
    clap_complete::Generator::file_name(&shell, program)
}

fn plain(value: &str) -> String {
    value.replace(['<', '>'], "")
}

/// A flag's explanation: the lines of `-h`, and why it does nothing where that is so.
fn told(flag: &Flag) -> String {
    let help = flag.help.join(" ");
    let effect = match flag.effect() {
        Effect::Works => String::new(),
        Effect::Nothing(why) => format!("no effect here: {why}"),
        Effect::Refused(why) => format!("refused: {}", why.trim_end_matches('.')),
    };
    match (help.is_empty(), effect.is_empty()) {
        (false, false) => format!("{help} ({effect})"),
        _ => help + &effect,
    }
}

/// The command line as clap knows it.
fn command() -> Command {
    let command = Command::new("hypostyle")
        .version(VERSION)
        .about("memory cache server that speaks memcached's protocols")
        .long_about(format!(
            "Hypostyle is an in-memory cache with the command line, the protocols and the \
             behaviour of memcached {MEMCACHED_VERSION}. An option of memcached that has nothing \
             to act on here is checked, and reported once to have no effect; one that promises \
             what this version does not have is refused."
        ))
        .override_usage("hypostyle [OPTION]...")
        .disable_help_flag(true)
        .disable_version_flag(true);
    command.args(flags().enumerate().map(|(order, flag)| arg(flag).display_order(order)))
}

fn arg(flag: &Flag) -> Arg {
    let id = flag.short.map_or_else(|| flag.long.to_owned(), String::from);
    let mut arg = Arg::new(id).help(told(flag));
    if let Some(short) = flag.short {
        arg = arg.short(short);
    }
    if !flag.long.is_empty() {
        arg = arg.long(flag.long);
    }
    match flag.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Optional => arg.action(ArgAction::Count),
        Takes::Value(value) => {
            let hint = match value {
                "<file>" => ValueHint::FilePath,
                "<user>" => ValueHint::Username,
                _ => ValueHint::Other,
            };
            arg.action(ArgAction::Append).value_name(plain(value)).value_hint(hint)
        }
    }
}

/// What a shell reads to complete flags, and the options of `-o`.
fn completions(shell: Shell) -> Result<String, Box<dyn Error>> {
    let values = extended().iter().map(|option| {
        let equals = if matches!(option.takes, Takes::Value(_)) { "=" } else { "" };
        clap::builder::PossibleValue::new(format!("{}{equals}", option.long)).help(told(option))
    });
    let values: Vec<_> = values.collect();
    let mut command = command().mut_arg("o", |arg| arg.value_parser(values));
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "hypostyle", &mut out);
    Ok(String::from_utf8(out)?)
}

/// The manual page.
fn man() -> Result<String, Box<dyn Error>> {
    // Without the marks an empty date is no argument, and what follows takes its place.
    let page = Man::new(command()).date("\"\"").manual("Hypostyle");
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    let mut roff = Roff::new();
    roff.control("SH", ["EXTENDED OPTIONS"]);
    roff.text([
        roman("What "),
        bold("-o"),
        roman(" takes, separated by commas. The option may be given often."),
    ]);
    for option in extended() {
        let value = match option.takes {
            Takes::Value(value) => vec![roman("="), italic(plain(value))],
            Takes::Optional => vec![roman("[="), italic("value"), roman("]")],
            Takes::Nothing => Vec::new(),
        };
        let header: Vec<_> = [bold(option.long)].into_iter().chain(value).collect();
        roff.control("TP", []).text(header).text([roman(told(option))]);
    }
    for (heading, paragraphs) in SECTIONS {
        roff.control("SH", [heading]);
        for (term, text) in paragraphs {
            if text.is_empty() {
                roff.text([roman(*term)]);
            } else {
                roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
            }
        }
    }
    roff.to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use std::path::PathBuf;

    /// What a program says to a text on its standard input, both its outputs together; none where
    /// it is not installed.
    fn said(words: &[&str], text: &str) -> Option<String> {
        let output = testing::piped(words, text)?;
        let [out, error] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(output.status.success(), "{words:?}: {error}{out}");
        Some(format!("{out}{error}"))
    }

    /// A folder with all pages, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn with_pages(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pages-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            for (name, text) in pages().unwrap() {
                fs::write(path.join(name), text).unwrap();
            }
            Folder(path)
        }

        fn file(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
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
            texts.push((shell.to_string(), completions(shell).unwrap()));
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
        let folder = Folder::with_pages("man");
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

    /// Each shell takes the script and completes by it.
    #[test]
    fn shells_complete_a_flag_and_an_option() {
        let folder = Folder::with_pages("shells");
        let bash = format!(
            "source '{}'; compopt() {{ :; }}; \
             cur() {{ COMP_WORDS=(hypostyle \"$@\"); COMP_CWORD=$#; \
             _hypostyle hypostyle \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[@]}}\"; }}; \
             cur --max-re; cur -o idle",
            folder.file("hypostyle.bash")
        );
        let zsh = format!(
            "autoload -U compinit && compinit -D && source '{}' && whence -w _hypostyle",
            folder.file("_hypostyle")
        );
        let fish = format!(
            "source '{}'; complete -C 'hypostyle --max-re'; complete -C 'hypostyle -o idle'",
            folder.file("hypostyle.fish")
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
