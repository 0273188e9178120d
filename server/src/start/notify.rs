//! Tells the service manager (systemd) that the server is ready, that it works, and that it ends.
//!
//! Where: `main` calls `ready` after the server's start, and `stopping` before its end.
//! Invariant: without `NOTIFY_SOCKET` in the environment, nothing is sent. A server that does not
//! work does not tell that it works, so that the service manager restarts it.
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::shared::Shared;

/// Tells that the server accepts clients. If the service manager has a watchdog, starts a thread
/// that tells the watchdog that the server works.
///
/// # Errors
/// The service manager's socket cannot be written to, or the system has no thread left.
pub fn ready(shared: &Arc<Shared>) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Ready])?;
    if let Some(time) = sd_notify::watchdog_enabled() {
        let shared = Arc::clone(shared);
        let watch = move || tell_watchdog(&shared, time / 2);
        thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
    }
    Ok(())
}

/// Tells that the server ends.
///
/// # Errors
/// The service manager's socket cannot be written to.
pub fn stopping() -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Stopping])
}

fn tell_watchdog(shared: &Shared, period: Duration) {
    loop {
        let told = match shared.sickness() {
            None => sd_notify::notify(&[NotifyState::Watchdog]),
            Some(fault) => Err(io::Error::other(fault)),
        };
        if let Err(error) = told {
            log::error!(
                "the service manager's watchdog is not told that the server works: {error}"
            );
        }
        thread::sleep(period);
    }
}
