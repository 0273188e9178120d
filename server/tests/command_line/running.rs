//! The built binary as a process that a test starts, drives by requests and signals, and ends.
//!
//! Where: used by every test of the command line.
//! Invariant: no process started here outlives its test, and no wait is longer than `PATIENCE`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testing::KillOnDrop;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestDirectory(pub(crate) PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> TestDirectory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hyp-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        TestDirectory(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn hypostyle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypostyle"));
    command.args(arguments).env_remove("MEMCACHED_PORT_FILENAME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
pub(crate) fn await_some<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[track_caller]
pub(crate) fn ended(mut command: Command) -> Output {
    let mut child = KillOnDrop::spawn(&mut command);
    let status = await_some("the end", || child.try_wait().unwrap());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status, stdout, stderr }
}

/// A process that is not a child of this test, killed if the test fails.
pub(crate) struct Detached(pub(crate) Pid);

impl Drop for Detached {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

pub(crate) struct Running {
    pub(crate) child: KillOnDrop,
    pub(crate) place: TestDirectory,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        let mut command = hypostyle(arguments);
        command.args(["-p", "-1"]);
        Running::of(command)
    }

    #[track_caller]
    pub(crate) fn of(mut command: Command) -> Running {
        let place = TestDirectory::new();
        command.env("MEMCACHED_PORT_FILENAME", place.path("ports"));
        let child = KillOnDrop::spawn(&mut command);
        let mut running = Running { child, place };
        await_some("the port file", || {
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("ended at its start: {status}: {}", running.stderr());
            }
            running.place.path("ports").exists().then_some(())
        });
        running
    }

    pub(crate) fn on_loopback(arguments: &[&str]) -> Running {
        let mut all = vec!["-l", "127.0.0.1"];
        all.extend_from_slice(arguments);
        Running::start(&all)
    }

    pub(crate) fn ports(&self) -> String {
        fs::read_to_string(self.place.path("ports")).unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports().trim().strip_prefix("TCP INET: ").unwrap().parse().unwrap()
    }

    pub(crate) fn ask(&self, request: &str) -> String {
        talk(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).unwrap(), request)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(to_pid(self.pid()), signal).unwrap();
    }

    /// Returns the text of stderr. The process must have ended before this call.
    pub(crate) fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[track_caller]
    pub(crate) fn stop(&mut self, signal: Signal) -> (i32, String) {
        self.signal(signal);
        self.end()
    }

    /// Waits until the process ends. Returns the exit status and the text of stderr.
    #[track_caller]
    pub(crate) fn end(&mut self) -> (i32, String) {
        let status = await_some("the end", || self.child.try_wait().unwrap());
        (status.code().unwrap_or(-1), self.stderr())
    }
}

pub(crate) fn to_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Sends `request`. Returns the whole reply: one line, or the rows of `stats` and the line `END`.
pub(crate) fn talk<S: Read + Write>(mut stream: S, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    loop {
        let start = reply.len();
        let bytes = reader.read_line(&mut reply).unwrap();
        if bytes == 0 || !reply[start..].starts_with("STAT ") {
            return reply;
        }
    }
}

pub(crate) const VERSION_REPLY: &str = "VERSION 1.6.45\r\n";

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
