//! The manual page and the shell completions, made from the rows of the command line.
//!
//! Where: `hypostyle man` and `hypostyle completions SHELL` print the texts; `examples/pages.rs`
//! writes them to files.
//! Invariant: every row of `-h` is in the manual page and in each shell's completions.

use std::io;

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::flag::{BadFlag, Effect, Flag, ValueKind, meant, unknown};
use super::{Action, extended, flags};
use crate::start::settings::{MEMCACHED_VERSION, VERSION};

/// Commands: first words of the command line that are not flags.
const COMMANDS: [&str; 2] = ["man", "completions"];

/// Sections of the manual page after the options: each has a heading, and terms with explanations.
const SECTIONS: [(&str, &[(&str, &str)]); 4] = [
    (
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "Ends the server at once. A second signal ends the server even if the first has no \
                 effect.",
            ),
            (
                "SIGUSR1",
                "Ends the server gracefully: the server accepts no more connections, answers the \
                 requests that have arrived, and ends after five seconds at most. With -A, the \
                 command \"shutdown graceful\" does the same.",
            ),
            (
                "SIGHUP, SIGPIPE",
                "The server ignores these signals. It has no configuration file that SIGHUP could \
                 reload.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[(
            crate::start::port_file::VARIABLE,
            "Names a file to which the server writes the ports on which it listens.",
        )],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "The server was stopped, or the requested text was printed."),
            ("1", "A value is out of range, an option is unknown, or there is too little memory."),
            ("64", "An option needs a feature that is missing, or options contradict each other."),
            ("67", "There is no such user (-u)."),
            ("71", "The system refuses an operation, for example because a port is in use."),
        ],
    ),
    ("SEE ALSO", &[("kvblaster(1), memcached(1)", "")]),
];

/// Returns the text that a command prints. The command is the first word of the command line.
///
/// # Errors
/// There is no such command, or its arguments are wrong.
pub(super) fn text_of_command(
    word: &str,
    is_first: bool,
    parser: &mut lexopt::Parser,
) -> Result<Action, BadFlag> {
    let behind = parser.raw_args().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let behind: Vec<_> = behind.iter().map(|word| word.to_string_lossy()).collect();
    let behind: Vec<&str> = behind.iter().map(|word| &**word).collect();
    let text = match (word, &*behind) {
        ("man", []) if is_first => {
            man().map_err(|error| BadFlag::value(format!("cannot make the manual page: {error}")))
        }
        ("completions", &[shell]) if is_first => shell
            .parse()
            .map(completions)
            .map_err(|_| BadFlag::usage(format!("{COMPLETIONS_TAKE} (given: '{shell}')"))),
        ("completions", _) if is_first => Err(BadFlag::usage(COMPLETIONS_TAKE)),
        _ => {
            let known = "Commands are 'man' and 'completions SHELL'; options begin with '-'.";
            let meant = meant(word, COMMANDS.into_iter());
            Err(unknown(&format!("unexpected word '{word}'{meant}\n{known}")))
        }
    };
    text.map(Action::Print)
}

const COMPLETIONS_TAKE: &str = "completions takes a shell: bash, elvish, fish, powershell or zsh";

fn plain(value: &str) -> String {
    value.replace(['<', '>'], "")
}

/// A flag's explanation: the lines of `-h`, and the reason if the flag has no effect or is refused.
fn explanation(flag: &Flag) -> String {
    let help = flag.help.join(" ");
    let effect = match flag.effect() {
        Effect::Works => String::new(),
        Effect::Nothing(why) => format!("has no effect: {why}"),
        Effect::Refused(why) => format!("refused: {}", why.trim_end_matches('.')),
    };
    match (help.is_empty(), effect.is_empty()) {
        (false, false) => format!("{help} ({effect})"),
        _ => help + &effect,
    }
}

/// The command line in clap's form, for the manual page and the completions.
#[must_use]
pub fn command() -> Command {
    let command = Command::new("hypostyle")
        .version(VERSION)
        .about("memory cache server that speaks memcached's protocols")
        .long_about(format!(
            "Hypostyle is an in-memory cache with the command line, the protocols and the \
             behaviour of memcached {MEMCACHED_VERSION}. If an option of memcached has no effect \
             in Hypostyle, the server checks the option's value and reports the option once. If an \
             option needs a feature that Hypostyle lacks, the server does not start."
        ))
        .override_usage("hypostyle [OPTION]... | man | completions SHELL")
        .disable_help_flag(true)
        .disable_version_flag(true);
    command.args(flags().enumerate().map(|(order, flag)| arg(flag).display_order(order)))
}

fn arg(flag: &Flag) -> Arg {
    let id = flag.short.map_or_else(|| flag.long.to_owned(), String::from);
    let mut arg = Arg::new(id).help(explanation(flag));
    if let Some(short) = flag.short {
        arg = arg.short(short);
    }
    if !flag.long.is_empty() {
        arg = arg.long(flag.long);
    }
    match flag.takes {
        ValueKind::Nothing => arg.action(ArgAction::SetTrue),
        ValueKind::Optional => arg.action(ArgAction::Count),
        ValueKind::Value(value) => {
            let hint = match value {
                "<file>" => ValueHint::FilePath,
                "<user>" => ValueHint::Username,
                _ => ValueHint::Other,
            };
            arg.action(ArgAction::Append).value_name(plain(value)).value_hint(hint)
        }
    }
}

/// The completion script of a shell, for flags and the options of `-o`.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let values = extended().iter().map(|option| {
        let equals = if matches!(option.takes, ValueKind::Value(_)) { "=" } else { "" };
        clap::builder::PossibleValue::new(format!("{}{equals}", option.long))
            .help(explanation(option))
    });
    let values: Vec<_> = values.collect();
    let mut command = command().mut_arg("o", |arg| arg.value_parser(values));
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "hypostyle", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The manual page.
///
/// # Errors
/// Never fails: the page is written to memory.
pub fn man() -> io::Result<String> {
    // The quotation marks make an empty argument. Without one, roff takes the next argument as
    // the date.
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
        roman("Write these options after "),
        bold("-o"),
        roman(", separated by commas. The flag may be repeated."),
    ]);
    for option in extended() {
        let value = match option.takes {
            ValueKind::Value(value) => vec![roman("="), italic(plain(value))],
            ValueKind::Optional => vec![roman("[="), italic("value"), roman("]")],
            ValueKind::Nothing => Vec::new(),
        };
        let header: Vec<_> = [bold(option.long)].into_iter().chain(value).collect();
        roff.control("TP", []).text(header).text([roman(explanation(option))]);
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
    Ok(String::from_utf8_lossy(&out).into_owned())
}
