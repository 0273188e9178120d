//! The binary `hypostyle`: starts a server from the command line, and stops it on a signal.
//!
//! Where: the outermost layer, above `flags`, `process` and `run`.
//! Invariant: a failure to do what the user requested is reported on stderr or by the exit status.
//! The process has one thread until `BoundServer::start`.
//! Source: memcached 1.6.45 `main`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use hypostyle::machine::{cpus, ram};
use hypostyle::run::{BoundServer, Server, StartError};
use hypostyle::shared;
use hypostyle::start::pid_file::PidFile;
use hypostyle::start::process::{self, Signals, Stop};
use hypostyle::start::settings::Settings;
use hypostyle::start::{flags, notify, port_file};
use nix::unistd::User;

/// Exit statuses, the same as memcached's (sysexits.h).
const FAILURE: u8 = 1;
const NO_USER: u8 = 67;
const SYSTEM: u8 = 71;

/// The reason why the server did not start: a text for stderr, and the exit status.
struct Failure {
    text: String,
    status: u8,
}

fn main() -> ExitCode {
    let cpus = cpus::usable(Path::new("/"));
    let ram = ram::usable(Path::new("/"));
    let (settings, notes) = match flags::parse(std::env::args_os().skip(1), &cpus, &ram) {
        Ok(flags::Action::Serve(settings, notes)) => (*settings, notes),
        Ok(flags::Action::Print(text)) => {
            let printed = io::stdout().write_all(text.as_bytes());
            return ExitCode::from(u8::from(printed.is_err()));
        }
        Err(refusal) => {
            tell(&refusal.text);
            return ExitCode::from(refusal.status);
        }
    };
    for note in &notes {
        tell(note);
    }
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure.text);
            ExitCode::from(failure.status)
        }
    }
}

/// Writes a line to stderr. Ignores an error: if stderr is closed, nobody reads the line.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn serve(settings: Settings) -> Result<(), Failure> {
    log_to_stderr(settings.verbosity);
    let user = user(&settings)?;
    process::raise_limits(&settings).map_err(|text| Failure { text, status: SYSTEM })?;
    let daemon = settings
        .daemonize
        .then(|| process::daemonize(settings.verbosity > 0, settings.core_dumps))
        .transpose()
        .map_err(failed("failed to daemon() in order to daemonize"))?;
    let signals = Signals::block().map_err(failed("failed to block signals"))?;

    let pid_path = settings.pid_path.clone();
    let server = start(settings, user)?;
    if let Err(text) = port_file::write(&[
        ("TCP", &server.addresses()),
        ("UDP", server.datagram_addresses()),
        ("ADMIN", server.admin_address().as_slice()),
    ]) {
        tell(&text);
    }
    let pid_file = match pid_path.as_deref().map(PidFile::write).transpose() {
        Ok(file) => file,
        // Without the pid file, the user would not know the daemon's process id.
        Err(text) if daemon.is_some() => {
            server.stop();
            return Err(Failure { text, status: SYSTEM });
        }
        Err(text) => {
            tell(&text);
            None
        }
    };
    if let Some(daemon) = daemon {
        daemon.ready().map_err(failed("failed to daemon() in order to daemonize"))?;
    }

    tell_if_unheard(notify::ready(server.shared()));
    let stop = signals.wait();
    tell_if_unheard(notify::stopping());
    match stop {
        Stop::Normally => {
            log::info!("Exiting normally");
            server.stop();
        }
        Stop::Gracefully => {
            tell("Gracefully stopping");
            server.stop_gracefully();
        }
    }
    if let Some(file) = pid_file {
        file.remove();
    }
    Ok(())
}

fn tell_if_unheard(told: io::Result<()>) {
    if let Err(error) = told {
        tell(&format!("cannot notify the service manager (NOTIFY_SOCKET): {error}"));
    }
}

/// Sends the log to stderr, with the verbosity of `-v`. Requests are never logged one by one.
fn log_to_stderr(verbosity: u32) {
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Trace)
        .format(|out, record| writeln!(out, "{}", record.args()))
        .init();
    log::set_max_level(shared::log_level(verbosity));
}

/// Finds the user that the process is to become (`-u`). If the process is not root, `-u` has no
/// effect, and a warning is printed if `-u` names another user.
fn user(settings: &Settings) -> Result<Option<User>, Failure> {
    if !process::is_root() {
        let (own, wanted) = (process::user_id(), settings.user.as_deref());
        let is_other = |name: &&str| {
            process::find_user(name).ok().flatten().is_none_or(|wanted| wanted.uid.as_raw() != own)
        };
        if let Some(name) = wanted.filter(is_other) {
            tell(&format!(
                "WARNING: -u {name} has no effect: this server runs as user {own}, and only root \
                 can switch to another user."
            ));
        }
        return Ok(None);
    }
    let Some(name) = &settings.user else {
        tell(
            "WARNING: running as root. Add '-u <user>' to become that user, or '-u root' to stay \
             root.",
        );
        return Ok(None);
    };
    let found = process::find_user(name).map_err(failed("cannot read the user database"))?;
    match found {
        Some(user) => Ok(Some(user)),
        None => {
            let text = format!("can't find the user {name} to switch to");
            Err(Failure { text, status: NO_USER })
        }
    }
}

/// Binds the listeners, gives up root and all unneeded privileges, and starts the columns. TCP
/// ports are bound before root is given up. A Unix socket is bound after root is given up, so that
/// the socket's file belongs to the user of `-u`.
fn start(settings: Settings, user: Option<User>) -> Result<Server, Failure> {
    let core_dumps = settings.core_dumps;
    let needed = process::needed_capabilities(&settings);
    if let Err(error) = process::forgo_privileges() {
        tell(&format!(
            "WARNING: failed to set no_new_privs, so programs that this server executes may gain \
             privileges: {error}"
        ));
    }
    let give_up_root = || match &user {
        Some(user) => {
            process::become_user(user).map_err(|error| Failure {
                text: format!("failed to assume identity of user {}: {error}", user.uid),
                status: SYSTEM,
            })?;
            let allowed = if core_dumps { process::allow_core_dump() } else { Ok(()) };
            allowed.map_err(failed("failed to ensure corefile creation"))
        }
        None => Ok(()),
    };
    let unix = settings.unix_path.is_some();
    if unix {
        give_up_root()?;
    }
    let bound = BoundServer::bind(settings).map_err(not_started)?;
    if !unix {
        give_up_root()?;
    }
    match process::give_up_capabilities(needed) {
        Ok(kept) if kept.is_empty() => {}
        Ok(kept) => {
            let names = process::names_of(kept);
            tell(&format!(
                "this server keeps the capability {names}, so that -k can lock more memory than \
                 RLIMIT_MEMLOCK allows"
            ));
        }
        Err(error) => tell(&format!(
            "WARNING: this server could not give up its capabilities (privileges of root): {error}"
        )),
    }
    let server = bound.start().map_err(not_started)?;
    for address in server.addresses() {
        log::info!("server listening on {address}");
    }
    for address in server.datagram_addresses() {
        log::info!("server listening on {address} (udp)");
    }
    if let Some(address) = server.admin_address() {
        log::info!("server listening on {address} (admin)");
    }
    Ok(server)
}

fn not_started(error: StartError) -> Failure {
    let status = if matches!(error, StartError::Listen(_) | StartError::Admin(..)) {
        SYSTEM
    } else {
        FAILURE
    };
    Failure { text: error.to_string(), status }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure { text: format!("{what}: {error}"), status: SYSTEM }
}
