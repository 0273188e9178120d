//! The paths of the real servers that tests start.
//!
//! Where: a module of tests that need real servers.
//! Invariant: none; each test ends the servers that it starts.
//!
//! If `MEMCACHED` has a path, tests start this memcached instead of the one on `PATH`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

pub(crate) fn memcached_program() -> OsString {
    std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into())
}

pub(crate) fn as_root() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() { &["-u", "root"] } else { &[] }
}

/// Builds hypostyle in this test's profile, if its sources have changed. Returns its path.
pub(crate) fn hypostyle_program() -> PathBuf {
    static BUILT: Once = Once::new();
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    BUILT.call_once(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "hypostyle", "--bin", "hypostyle"]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        assert!(build.status().unwrap().success(), "hypostyle does not build");
    });
    profile.join("hypostyle")
}
