//! The real servers that tests start.
//!
//! Where: a module of tests that need real servers.
//! Invariant: none; each test ends the servers that it starts.
//!
//! `MEMCACHED=path` names a memcached to use instead of the one on `PATH`.

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

/// Returns the path of this build's server. Builds it first if its sources have changed.
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
