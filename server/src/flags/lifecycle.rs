//! Flags about the process itself: -d -u -P -r -k -v -h -i -V.
//!
//! Where: rows of `flags`; `main` and `process` obey the settings that these flags change.
//! Invariant: -h, -i and -V end the parsing. Only the flags before them are checked.
//! Source: memcached 1.6.45 `main`, `usage`.

use super::{BadFlag, Does, Flag, Takes, help};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        short: Some('d'),
        long: "daemon",
        takes: Takes::Nothing,
        help: &["run as a daemon"],
        does: Does::Sets(|choices, _| {
            choices.settings.daemonize = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('r'),
        long: "enable-coredumps",
        takes: Takes::Nothing,
        help: &["maximize core file limit"],
        does: Does::Sets(|choices, _| {
            choices.settings.core_dumps = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('u'),
        long: "user",
        takes: Takes::Value("<user>"),
        help: &["assume identity of <username> (only when run as root)"],
        does: Does::Sets(|choices, value| {
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
        takes: Takes::Nothing,
        help: &["lock down all paged memory"],
        does: Does::Sets(|choices, _| {
            choices.settings.lock_memory = true;
            Ok(())
        }),
    },
    Flag {
        short: Some('v'),
        long: "verbose",
        takes: Takes::Optional,
        help: &[
            "verbose: also report start, stop and changes of the memory",
            "limit; -vv and -vvv report no more than -v",
        ],
        does: Does::Sets(|choices, _| {
            choices.settings.verbosity += 1;
            Ok(())
        }),
    },
    Flag {
        short: Some('h'),
        long: "help",
        takes: Takes::Nothing,
        help: &["print this help and exit"],
        does: Does::Sets(|choices, _| {
            choices.print = Some(help::usage());
            Ok(())
        }),
    },
    Flag {
        short: Some('i'),
        long: "license",
        takes: Takes::Nothing,
        help: &["print the license and exit"],
        does: Does::Sets(|choices, _| {
            choices.print = Some(help::license());
            Ok(())
        }),
    },
    Flag {
        short: Some('V'),
        long: "version",
        takes: Takes::Nothing,
        help: &["print version and exit"],
        does: Does::Sets(|choices, _| {
            choices.print = Some(help::version());
            Ok(())
        }),
    },
    Flag {
        short: Some('P'),
        long: "pidfile",
        takes: Takes::Value("<file>"),
        help: &["save PID in <file>"],
        does: Does::Sets(|choices, value| {
            if value.is_empty() {
                return Err(BadFlag::usage("-P takes the path of a file"));
            }
            choices.settings.pid_path = Some(value.into());
            Ok(())
        }),
    },
];
