//! The servers that are asked, as their users start them.
//!
//! Where: started once for each comparison. Invariant: one thread, pinned; killed and reaped when
//! dropped; none where there is no such program.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server listens within this time, or it is broken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ports that may turn out to be taken.
const TRIES: u32 = 5;

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// memcached with one thread.
pub(crate) fn memcached(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    let program = std::env::var_os("MEMCACHED").unwrap_or_else(|| "memcached".into());
    start(cpu, program, |port| {
        let args = ["-u", "root", "-l", "127.0.0.1", "-t", "1", "-U", "0", "-m", "256", "-p"];
        args.iter().map(|arg| (*arg).to_owned()).chain([port.to_string()]).collect()
    })
}

/// Redis, which has one thread for commands.
pub(crate) fn redis(cpu: usize) -> Result<Option<Server>, Box<dyn Error>> {
    start(cpu, "redis-server".into(), |port| {
        let args = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"];
        args.iter().map(|arg| (*arg).to_owned()).chain([port.to_string()]).collect()
    })
}

fn start(
    cpu: usize,
    program: OsString,
    args: impl Fn(u16) -> Vec<String>,
) -> Result<Option<Server>, Box<dyn Error>> {
    let name = program.to_string_lossy().into_owned();
    for _ in 0..TRIES {
        // Free a moment ago: whoever takes it meanwhile makes the server end, and another is tried.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(&program);
        command.args(args(address.port())).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            child => child?,
        };
        let mut server = Server { child, name: name.clone(), address };
        let until = Instant::now() + PATIENCE;
        while server.child.try_wait()?.is_none() && Instant::now() < until {
            if TcpStream::connect(address).is_ok() {
                pin(server.child.id(), cpu)?;
                return Ok(Some(server));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Err(format!("{name} does not listen").into())
}

/// All threads of a process.
fn pin(pid: u32, cpu: usize) -> io::Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["-a", "-p", "-c", &cpu.to_string(), &pid.to_string()]);
    let output = taskset.output()?;
    let why = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    if output.status.success() { Ok(()) } else { Err(why()) }
}
