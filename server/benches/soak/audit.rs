//! The checks on a server after its load has ended.
//!
//! Where: the end of the soak. Invariant: a server that cannot be audited is a fault too; it must
//! have been built with debug assertions.

use std::time::{Duration, Instant};

use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::site::Site;

/// Longest wait until what was flushed is swept.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest wait until the server is at rest; faults found later are real.
const PATIENCE_FOR_REST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// Audits a server, full and then empty. Returns a line with the result.
pub(crate) fn ask(site: &Site<'_>) -> Outcome<String> {
    let mut wire = site.text()?;
    let evictions = site.stat(&mut wire, "stats", "evictions")?;
    if !site.loses && evictions > 0 {
        return fail(format!("{}: {evictions} evictions, though everything fits", site.name));
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
                return fail(format!("{}: {left} {name} are left of a flush", site.name));
            }
            std::thread::sleep(LOOK);
        }
    }
    if site.far.is_some() {
        arena_is_free(site, &mut wire)?;
    }
    sound(site, &mut wire)?;
    Ok(format!("sound with {items} items, and empty; {evictions} evictions"))
}

/// Waits until no chunk holds a value any more; fails if no value was ever sent from the arena.
fn arena_is_free(site: &Site<'_>, wire: &mut Wire) -> Outcome<()> {
    if site.stat(wire, "stats udp", "zero_copy_bytes")? == 0 {
        return fail(format!("{}: no value was sent from where it lies", site.name));
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
                "{}: of {all_bytes} arena bytes {free_bytes} are free",
                site.name
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// Has the server audit its whole structure, again and again while connections that have gone and
/// background work may still disturb it.
fn sound(site: &Site<'_>, wire: &mut Wire) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let rows = wire.stats("stats audit")?;
        let faults = rows.iter().filter(|(name, _)| name == "audit_fault");
        let faults: Vec<&str> = faults.map(|(_, what)| what.as_str()).collect();
        match (&rows[..], &faults[..]) {
            ([(name, told)], []) if name == "audit" && told == "ok" => return Ok(()),
            (_, []) => {
                return fail(format!("{}: no audit: has it debug assertions?", site.name));
            }
            (_, faults) if start.elapsed() > PATIENCE_FOR_REST => {
                return fail(format!("{}: {}", site.name, faults.join("; ")));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}
