//! Checks of the documents: the programs accept the commands that documents show, and the options
//! and statistics that documents name exist.
//!
//! Where: outside the server. The tests read the tree's documents, and use the command-line parsers
//! of both programs and a running server.
//! Invariant: a fault names its document and line. A test case below breaks each rule.

mod text;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use blaster::flags::Refusal;
use hypostyle::machine::cpus::{self, Cpus};
use hypostyle::machine::ram::{self, Ram};
use hypostyle::start::flags;
use testing::Folder;

use super::running::Running;
use text::{Program, lines, program, shell, spans, started};

/// The documents outside `docs/` whose commands, options and statistics are checked.
const FRONT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "blaster/README.md"];

/// Options of the benchmarks, which neither program's parser knows.
const BENCHES: [&str; 8] =
    ["--bench", "--aa", "--pairs", "--seconds", "--tables", "--mtus", "--misses", "--check"];

/// The workload that docs/kvblaster/size.md writes to a file.
const WORKLOAD: &str = "job.toml";

struct Document {
    path: String,
    text: String,
}

struct Parsers {
    cpus: Cpus,
    ram: Ram,
    help: String,
    verbs: BTreeSet<String>,
    place: Folder,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn document(path: &str) -> Document {
    let text = fs::read_to_string(root().join(path)).unwrap();
    Document { path: path.to_owned(), text }
}

fn answers() -> Vec<Document> {
    let mut found = Vec::new();
    for folder in ["docs", "docs/kvblaster"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(document(&format!("{folder}/{name}")));
            }
        }
    }
    assert!(found.len() > 10, "{} documents", found.len());
    found
}

fn documents() -> Vec<Document> {
    FRONT.iter().map(|path| document(path)).chain(answers()).collect()
}

fn commands(page: &str) -> BTreeSet<String> {
    let rows = page.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = rows.take_while(|line| !line.is_empty());
    let names = rows.filter_map(|row| row.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

impl Parsers {
    fn new() -> Parsers {
        let help_of = |words: &[&str]| match blaster::flags::parse(
            ["kvblaster"].iter().chain(words).map(OsString::from),
        ) {
            Err(Refusal::Help(help)) => help.to_string(),
            _ => panic!("no help: {words:?}"),
        };
        let page = help_of(&["--help"]);
        let verbs = commands(&page);
        assert!(verbs.contains("run") && verbs.contains("man"), "{verbs:?}");
        let mut help = page;
        for verb in verbs.iter().filter(|verb| *verb != "help") {
            let page = help_of(&[verb.as_str(), "--help"]);
            for inner in commands(&page).iter().filter(|inner| *inner != "help") {
                help += &help_of(&[verb.as_str(), inner.as_str(), "--help"]);
            }
            help += &page;
        }
        let place = Folder::new();
        let written = document("docs/kvblaster/size.md").text;
        let written = written.split(&format!("cat >{WORKLOAD} <<END\n")).nth(1).unwrap();
        fs::write(place.path(WORKLOAD), written.split("END\n").next().unwrap()).unwrap();
        Parsers {
            cpus: cpus::usable(Path::new("/")),
            ram: ram::usable(Path::new("/")),
            help,
            verbs,
            place,
        }
    }

    /// Returns the message with which a program refuses these words, or `None` if it accepts them.
    fn refusal(&self, program: Program, words: &[String]) -> Option<String> {
        let words = words.iter().map(|word| {
            if word == WORKLOAD {
                return self.place.path(WORKLOAD).into_os_string();
            }
            // A word with a space is a command, such as the value of `--start`, in which kvblaster
            // itself fills in `{port}` and `{mb}`.
            let is_command = word.contains(' ');
            let filled = || word.replace("{port}", "11211").replace("{mb}", "64");
            OsString::from(if is_command { word.clone() } else { filled() })
        });
        match program {
            Program::Hypostyle => {
                flags::parse(words, &self.cpus, &self.ram).err().map(|refusal| refusal.text)
            }
            Program::Kvblaster => {
                match blaster::flags::parse([OsString::from("kvblaster")].into_iter().chain(words))
                {
                    Err(Refusal::Wrong(why)) => Some(why),
                    Err(Refusal::Help(_)) | Ok(_) => None,
                }
            }
        }
    }

    fn check(&self, line: &str, checked: &mut u32, refused: &mut Vec<String>) {
        for command in shell(line) {
            if let Some((program, words)) = started(&command) {
                *checked += 1;
                refused.extend(self.refusal(program, words));
            }
            for word in command.iter().filter(|word| word.contains(' ')) {
                self.check(word, checked, refused);
            }
        }
    }

    fn refused_commands(&self, document: &Document) -> (Vec<String>, u32) {
        let (mut faults, mut checked) = (Vec::new(), 0);
        let mut whole = String::new();
        for (number, line, is_code) in lines(&document.text) {
            let line = line.trim_start();
            let part = line.strip_prefix("$ ").unwrap_or(line);
            if !is_code {
                continue;
            }
            if let Some(begun) = part.strip_suffix('\\') {
                whole.push_str(begun);
                continue;
            }
            whole.push_str(part.strip_prefix("ExecStart=").unwrap_or(part));
            let mut refused = Vec::new();
            self.check(&whole, &mut checked, &mut refused);
            let named = |why: String| format!("{}:{number}: {whole}: {why}", document.path);
            faults.extend(refused.into_iter().map(named));
            whole.clear();
        }
        (faults, checked)
    }

    fn has(&self, option: &str) -> bool {
        if let Some(long) = option.strip_prefix("--") {
            return flags::flags().any(|flag| flag.long == long)
                || self.help.contains(&format!("{option} "))
                || self.help.contains(&format!("{option}\n"))
                || BENCHES.contains(&option);
        }
        let short = option.chars().nth(1);
        flags::flags().any(|flag| flag.short == short)
            || self.help.contains(&format!("{}, --", &option[..2]))
    }

    fn unknown_options(&self, span: &str) -> Vec<String> {
        let words: Vec<&str> = span.split_whitespace().collect();
        let Some(first) = words.first() else { return Vec::new() };
        let which = program(first);
        if which.is_none() && !first.starts_with('-') {
            return Vec::new();
        }
        let mut unknown = Vec::new();
        if let (Some(Program::Kvblaster), Some(verb)) = (which, words.get(1)) {
            let is_name = verb.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_name && !self.verbs.contains(*verb) {
                unknown.push((*verb).to_owned());
            }
        }
        for (at, word) in words.iter().enumerate() {
            let name = word.split('=').next().unwrap_or_default();
            let is_option =
                name.trim_start_matches('-').starts_with(|one: char| one.is_alphabetic());
            if name.starts_with('-') && is_option && !self.has(name) {
                unknown.push(name.to_owned());
            }
            let value =
                words.get(at + 1).filter(|_| *word == "-o" && which != Some(Program::Kvblaster));
            for option in value.iter().flat_map(|list| list.split(',')) {
                let name = option.split('=').next().unwrap_or_default();
                let of = |row: &flags::Flag| match name.strip_suffix('*') {
                    Some(start) => row.long.starts_with(start),
                    None => row.long == name,
                };
                let is_name = name.starts_with(|one: char| one.is_ascii_lowercase());
                if is_name && !flags::extended().iter().any(of) {
                    unknown.push(format!("-o {name}"));
                }
            }
        }
        unknown
    }
}

#[test]
fn the_commands_that_documents_show_are_accepted() {
    let parsers = Parsers::new();
    let (mut faults, mut commands) = (Vec::new(), 0);
    for document in documents() {
        let (refused, checked) = parsers.refused_commands(&document);
        faults.extend(refused);
        commands += checked;
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    assert!(commands > 30, "{commands} commands");
    for planted in [
        "    hypostyle --no-such-flag\n",
        "```\n$ taskset -c 0 hypostyle -o no_such_option\n```\n",
        "    cargo run --release -- -p eleven\n",
        "    cargo run --release -p kvblaster -- ran localhost:11211\n",
        "    kvblaster run \\\n        --no-such-flag localhost:11211\n",
        "    kvblaster compare --start 'hypostyle -p {port} -Q' --start 'hypostyle -p {port}'\n",
    ] {
        let planted = Document { path: String::new(), text: planted.to_owned() };
        assert_eq!(parsers.refused_commands(&planted).0.len(), 1, "{}", planted.text);
    }
    let prose = "a list:\n- hypostyle --no-such-flag\n    hypostyle --no-such-flag\n".to_owned();
    let prose = Document { path: String::new(), text: prose };
    assert_eq!(parsers.refused_commands(&prose), (Vec::new(), 0));
}

#[test]
fn the_options_that_documents_name_exist() {
    let parsers = Parsers::new();
    let mut faults = Vec::new();
    for Document { path, text } in documents() {
        for (line, span) in spans(&text) {
            let unknown = parsers.unknown_options(&span);
            faults.extend(unknown.iter().map(|name| format!("{path}:{line}: {name}: {span}")));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    for planted in [
        "--no-such-flag",
        "-o no_such_option",
        "-o ssx_*",
        "-Q",
        "kvblaster ran",
        "hypostyle --sdp",
    ] {
        assert_eq!(parsers.unknown_options(planted).len(), 1, "{planted}");
    }
    for good in ["-o DIR", "-o udp_allow=10.0.0.0/8,2001:db8::/32", "-t 1 -R 500", "-c", "-vv"] {
        let unknown = parsers.unknown_options(good);
        assert!(unknown.is_empty(), "{good}: {unknown:?}");
    }
}

#[test]
fn the_statistics_that_documents_name_are_answered() {
    let server = Running::on_loopback(&[]);
    let is_answered = |name: &str| !server.ask(&format!("stats {name}\r\n")).starts_with("ERROR");
    assert!(is_answered("store") && !is_answered("nosuch"));
    let mut named = BTreeSet::new();
    for Document { path, text } in documents() {
        for (line, span) in spans(&text) {
            let mut words = span.split_whitespace();
            let name = words.next().filter(|first| *first == "stats").and(words.next());
            let name = name.unwrap_or_default();
            if !name.is_empty() && named.insert(name.to_owned()) {
                assert!(is_answered(name), "{path}:{line}: stats {name}");
            }
        }
    }
    assert!(named.len() > 10, "{named:?}");
}

#[test]
fn documents_open_with_a_question_and_readers_find_them() {
    let front = document("README.md").text + &document("blaster/README.md").text;
    for Document { path, text } in answers() {
        let title = text.lines().next().unwrap_or_default();
        assert!(title.starts_with("# ") && title.ends_with('?'), "{path}: {title}");
        let head: Vec<&str> = text.lines().take(12).collect();
        let is_command = |line: &&str| line.starts_with("    ") || line.contains('`');
        assert!(head.iter().any(is_command), "{path} shows no command at its top");
        assert!(front.contains(&format!("{path})")), "{path} is linked nowhere");
    }
}

#[test]
fn the_front_page_is_one_page() {
    let text = document("README.md").text;
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(long.is_empty(), "{long:?}");
    for command in ["cargo run --release", "make test"] {
        assert!(text.lines().any(|line| line == format!("    {command}")), "{command}");
    }
}
