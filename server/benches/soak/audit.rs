//! The checks on a server after its load has ended.
//!
//! Where: the end of the soak. Invariant: a server that cannot be audited counts as a fault too; a
//! server can be audited only if it was built with debug assertions.

use std::time::{Duration, Instant};

use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::site::Site;

/// If the server has not freed the flushed items after this time, the audit fails.
const PATIENCE: Duration = Duration::from_secs(300);
/// A fault that the audit still finds after this time is real, because the server is then at rest.
const PATIENCE_FOR_REST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn ask(site: &Site<'_>) -> Outcome<String> {
    let mut wire = site.text()?;
    let evictions = site.stat(&mut wire, "stats", "evictions")?;
    if !site.loses && evictions > 0 {
        return fail(format!("{}: {evictions} evictions, although all items fit", site.name));
    }
    let items = site.stat(&mut wire, "stats", "curr_items")?;
    sound(site, &mut wire)?;
    if wire.line("flush_all")? != "OK" {
        return fail(format!("{}: flush_all was refused", site.name));
    }
    let start = Instant::now();
    for name in ["live_bytes", "frame_bytes"] {
        while site.stat(&mut wire, "stats memory", name)? > 0 {
            if start.elapsed() > PATIENCE {
                let left = site.stat(&mut wire, "stats memory", name)?;
                return fail(format!("{}: {name} is still {left} after a flush", site.name));
            }
            std::thread::sleep(LOOK);
        }
    }
    if site.far.is_some() {
        arena_is_free(site, &mut wire)?;
    }
    sound(site, &mut wire)?;
    Ok(format!("no fault with {items} items or after a flush; {evictions} evictions"))
}

/// Waits until the arena holds no value. Fails if the server has copied every value that it sent.
fn arena_is_free(site: &Site<'_>, wire: &mut Wire) -> Outcome<()> {
    if site.stat(wire, "stats udp", "zero_copy_bytes")? == 0 {
        return fail(format!("{}: no value was sent without a copy", site.name));
    }
    let start = Instant::now();
    loop {
        let free_bytes = site.stat(wire, "stats memory", "arena_free_bytes")?;
        let all_bytes = site.arena_bytes;
        if free_bytes == all_bytes {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return fail(format!(
                "{}: after a flush only {free_bytes} of {all_bytes} arena bytes are free",
                site.name
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// Repeats the audit for a while, because closing connections and background work may cause
/// temporary faults.
fn sound(site: &Site<'_>, wire: &mut Wire) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let rows = wire.stats("stats audit")?;
        let faults = rows.iter().filter(|(name, _)| name == "audit_fault");
        let faults: Vec<&str> = faults.map(|(_, what)| what.as_str()).collect();
        match (&rows[..], &faults[..]) {
            ([(name, value)], []) if name == "audit" && value == "ok" => return Ok(()),
            (_, []) => {
                return fail(format!(
                    "{}: no answer to stats audit; was the server built with debug assertions?",
                    site.name
                ));
            }
            (_, faults) if start.elapsed() > PATIENCE_FOR_REST => {
                return fail(format!("{}: {}", site.name, faults.join("; ")));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}
