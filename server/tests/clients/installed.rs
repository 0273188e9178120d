//! Runs the clients that `make peers` has installed, each for a limited time.
//!
//! Where: client side.
//! Invariant: a client that is not installed counts as skipped, not as passed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testing::skip;

/// Time limit for one client, in seconds.
const CLIENT_SECONDS_MAX: &str = "900";

pub(crate) type Verdict = Option<Result<(), String>>;

pub(crate) fn verdict(client: &mut Command) -> Verdict {
    let output = run(client)?;
    Some(if output.status.success() { Ok(()) } else { Err(text(&output)) })
}

/// Returns `None` if the program, or a file among its arguments, does not exist.
pub(crate) fn run(client: &mut Command) -> Option<Output> {
    let program = PathBuf::from(client.get_program());
    let by_name = program.components().count() == 1;
    let found = if by_name { is_on_path(&program) } else { program.exists() };
    let files = client.get_args().map(Path::new).filter(|one| one.starts_with(root()));
    let lacking = files.filter(|one| !one.exists()).map(Path::to_owned).next();
    if let Some(lacking) = (!found).then_some(program.clone()).or(lacking) {
        skip(&format!("{} is not installed (make peers)", lacking.display()));
        return None;
    }
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", CLIENT_SECONDS_MAX]).arg(&program).args(client.get_args());
    let output = limited.output().unwrap();
    // `timeout` exits with 124 when the time is up.
    assert_ne!(output.status.code(), Some(124), "{client:?} did not end:\n{}", text(&output));
    Some(output)
}

fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

pub(crate) fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
    format!("{}\n{out}{error}", output.status)
}

pub(crate) fn peers() -> PathBuf {
    root().join("tests/.peers")
}

pub(crate) fn checks() -> PathBuf {
    root().join("tests/clients")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
