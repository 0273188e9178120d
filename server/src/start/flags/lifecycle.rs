//! Flags about the process itself: -d -u -P -r -k -v -h -i -V.
//!
//! Where: `flags::flags` lists these rows; `main` and `process` obey the settings.
//! Invariant: -h, -i and -V end the parsing. Only the flags before them are checked.
//! Source: memcached 1.6.45 `main`, `usage`.

use super::flag::{BadFlag, Flag, Handler, ValueKind};
use super::help;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: Some('d'),
        long: "daemon",
        takes: ValueKind::Nothing,
        help: &["run as a daemon"],
        handler: Handler::Switches(|choices| choices.settings.daemonize = true),
    },
    Flag {
        short: Some('r'),
        long: "enable-coredumps",
        takes: ValueKind::Nothing,
        help: &["maximize core file limit"],
        handler: Handler::Switches(|choices| choices.settings.core_dumps = true),
    },
    Flag {
        short: Some('u'),
        long: "user",
        takes: ValueKind::Value("<user>"),
        help: &["assume identity of <username> (only when run as root)"],
        handler: Handler::Sets(|choices, value| {
            if value.is_empty() {
                return Err(BadFlag::usage("-u takes the name of a user"));
            }
            choices.settings.user = Some(value.to_owned());
            Ok(())
        }),
    },
    Flag {
        short: Some('k'),
        long: "lock-memory",
        takes: ValueKind::Nothing,
        help: &["lock down all paged memory"],
        handler: Handler::Switches(|choices| choices.settings.lock_memory = true),
    },
    Flag {
        short: Some('v'),
        long: "verbose",
        takes: ValueKind::Optional,
        help: &[
            "verbose: also report the start and the end of the server, and",
            "changes of the memory limit; -vv and -vvv report no more",
        ],
        handler: Handler::Switches(|choices| choices.settings.verbosity += 1),
    },
    Flag {
        short: Some('h'),
        long: "help",
        takes: ValueKind::Nothing,
        help: &["print this help and exit"],
        handler: Handler::Switches(|choices| choices.print = Some(help::usage())),
    },
    Flag {
        short: Some('i'),
        long: "license",
        takes: ValueKind::Nothing,
        help: &["print the license and exit"],
        handler: Handler::Switches(|choices| choices.print = Some(help::license())),
    },
    Flag {
        short: Some('V'),
        long: "version",
        takes: ValueKind::Nothing,
        help: &["print version and exit"],
        handler: Handler::Switches(|choices| choices.print = Some(help::version())),
    },
    Flag {
        short: Some('P'),
        long: "pidfile",
        takes: ValueKind::Value("<file>"),
        help: &["save PID in <file>"],
        handler: Handler::Sets(|choices, value| {
            if value.is_empty() {
                return Err(BadFlag::usage("-P takes the path of a file"));
            }
            choices.settings.pid_path = Some(value.into());
            Ok(())
        }),
    },
];
