//! Runs the clients that `make peers` has installed, each for a limited time.
//!
//! Where: client side.
//! Invariant: a client that is not installed counts as skipped, not as passed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testing::skip;

/// The longest that one client may take.
const CLIENT_SECONDS_MAX: &str = "900";

/// What a client found; none where it is not installed.
pub(crate) type Verdict = Option<Result<(), String>>;

/// Runs a client that says by its exit status whether all is well.
pub(crate) fn verdict(client: &mut Command) -> Verdict {
    let output = run(client)?;
    Some(if output.status.success() { Ok(()) } else { Err(text(&output)) })
}

/// Runs a client; none where there is no such program, or no such file among its arguments.
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
    // What `timeout` answers when the time is over.
    assert_ne!(output.status.code(), Some(124), "{client:?} did not end:\n{}", text(&output));
    Some(output)
}

fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// All that a client printed.
pub(crate) fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
    format!("{}\n{out}{error}", output.status)
}

/// Where the clients are installed.
pub(crate) fn peers() -> PathBuf {
    root().join("tests/.peers")
}

/// What the clients run.
pub(crate) fn checks() -> PathBuf {
    root().join("tests/clients")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
