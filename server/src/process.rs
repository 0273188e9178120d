//! Process set-up: limits, identity, detaching, signals.
//!
//! Where: called by `main` before and after `run` starts the columns; nothing here is on a
//! packet's path. The server's one file with `unsafe`: calls for which no safe wrapper exists.
//! Invariant: identity, limits and the signal mask are set while the process has one thread, so
//! every column inherits them.
//! Source: memcached 1.6.45 `main`, `daemonize`; credentials(7), sigwaitinfo(2).
#![allow(unsafe_code, reason = "fork, signal masks, user lookup and rusage have no safe wrapper")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::Settings;

/// Descriptors of a column beside clients and listeners: its epoll, its wake-up.
const FILES_PER_COLUMN: usize = 4;
/// Listeners an entry of `-l` may come to: IPv4 and IPv6, and a name with some addresses.
const FILES_PER_LISTEN: usize = 4;
/// Descriptors of the process: standard streams and what is open for a moment.
const FILES_BASE: usize = 32;

/// Longest answer of the user database that is looked at.
const USER_BYTES_MAX: usize = 1 << 20;

/// Raises the limit of open files to what `-c` needs, the core file limit if `-r` asks, and the
/// limit of locked memory if `-k` does.
///
/// # Errors
/// The hard limit is below `-c`, or core files stay impossible.
pub fn raise_limits(settings: &Settings) -> Result<(), String> {
    if settings.core_dumps {
        raise_core()?;
    }
    if settings.lock_memory {
        // Only root may; whether it was enough, mlockall says.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
    let connections = u64::from(settings.connections_max);
    let of_column = FILES_PER_COLUMN + FILES_PER_LISTEN * settings.listen.len();
    let ours = u64::try_from(settings.columns * of_column + FILES_BASE).unwrap_or(u64::MAX);
    let wanted = connections.saturating_add(ours);
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let hard = now.maximum.map_or(wanted, |maximum| maximum.max(wanted));
    if setrlimit(Resource::Nofile, limit(wanted, hard)).is_ok() {
        return Ok(());
    }
    // Not privileged: the hard limit is all there is.
    let granted = now.maximum.unwrap_or(wanted).min(wanted);
    if granted < connections
        || setrlimit(Resource::Nofile, limit(granted, now.maximum.unwrap_or(granted))).is_err()
    {
        return Err(format!(
            "failed to set rlimit for open files. Try starting as root or requesting smaller \
             maxconns value. (-c {connections} needs {wanted} open files, the hard limit is {})",
            now.maximum.unwrap_or(0)
        ));
    }
    Ok(())
}

fn limit(current: u64, maximum: u64) -> Rlimit {
    Rlimit { current: Some(current), maximum: Some(maximum) }
}

fn raise_core() -> Result<(), String> {
    if setrlimit(Resource::Core, Rlimit { current: None, maximum: None }).is_err() {
        let maximum = getrlimit(Resource::Core).maximum;
        let _ = setrlimit(Resource::Core, Rlimit { current: maximum, maximum });
    }
    match getrlimit(Resource::Core).current {
        Some(0) => Err("failed to ensure corefile creation".to_owned()),
        _ => Ok(()),
    }
}

/// Locks what the process has so far (`-k`): before the store reserves address space for more than
/// it will use, and locks what it uses itself.
///
/// # Errors
/// The system refuses (RLIMIT_MEMLOCK).
pub fn lock_present() -> io::Result<()> {
    // SAFETY: takes numbers. Each thread's own part of the heap would be 64 MiB of address space,
    // all of it locked.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    Ok(())
}

/// Has the calling thread run only where no other wants the processor, and stand back at once when
/// one does. To be nice is not enough: a nice thread keeps the processor for the rest of its slice,
/// milliseconds, from one that wakes up.
///
/// # Errors
/// The system refuses.
pub fn stand_back() -> io::Result<()> {
    let unused = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameter is ours and outlives the call, which reads it.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks what else is mapped from now on, once it is touched: threads' stacks, buffers. Not where
/// there may be only so much: beyond that nothing could be mapped any more.
///
/// # Errors
/// The system refuses.
pub fn lock_future() -> io::Result<()> {
    if getrlimit(Resource::Memlock).current.is_some() {
        return Ok(());
    }
    mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    Ok(())
}

/// Undoes what was locked. What else `-k` was to lock, the system refused, for a reason that the
/// user can do something about: told in words.
pub fn unlock() -> String {
    // Nothing is lost if it is refused.
    let _ = munlockall();
    match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("RLIMIT_MEMLOCK is {bytes} bytes; nothing is locked"),
        None => "nothing is locked".to_owned(),
    }
}

/// True when started as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::getuid().is_root() || rustix::process::geteuid().is_root()
}

/// Who to run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Looks `name` up in the user database; `None` = no such user.
///
/// # Errors
/// The database cannot be read.
pub fn find_user(name: &str) -> io::Result<Option<User>> {
    let name = CString::new(name)?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: name is a C string; entry, buffer (with its own length) and found are ours and
        // outlive the call, which writes only within them.
        let error = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match error {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: found is not null, so the call filled entry in.
                let entry = unsafe { entry.assume_init() };
                return Ok(Some(User { uid: entry.pw_uid, gid: entry.pw_gid }));
            }
            libc::ERANGE if buffer.len() < USER_BYTES_MAX => buffer.resize(buffer.len() * 2, 0),
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Gives up root for `user`, for good: supplementary groups, group and user.
///
/// Call it before any thread starts, and after everything that needs root: low ports, limits,
/// locked memory.
///
/// # Errors
/// The system refuses, or root could be regained.
pub fn become_user(user: User) -> io::Result<()> {
    // SAFETY: with a count of 0 the list is not read.
    if unsafe { libc::setgroups(0, std::ptr::null()) } != 0 {
        let error = io::Error::last_os_error();
        // Within a user namespace: we are in the least groups already.
        if error.raw_os_error() != Some(libc::EPERM) {
            return Err(error);
        }
        log::warn!("failed to drop supplementary groups: {error}");
    }
    // SAFETY: takes a number.
    if unsafe { libc::setgid(user.gid) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes a number.
    if unsafe { libc::setuid(user.uid) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes a number.
    if user.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("root could be regained"));
    }
    Ok(())
}

/// The detached process, whose parent still waits for it to be ready.
#[derive(Debug)]
pub struct Daemon {
    parent: PipeWriter,
    keep_output: bool,
}

/// Detaches from the terminal (`-d`): returns in a child of its own session, in `/` unless
/// `keep_directory`. The parent waits until the child is ready and exits with 0, or else with
/// the child's status: so a start that fails is seen, with its message, by whoever started us.
///
/// # Errors
/// The system refuses, or other threads run already.
pub fn daemonize(keep_output: bool, keep_directory: bool) -> io::Result<Daemon> {
    if fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() != 1) {
        return Err(io::Error::other("cannot fork: other threads run"));
    }
    let (reader, writer) = io::pipe()?;
    // SAFETY: this is the only thread (`main` starts none before, and where /proc is mounted it was
    // checked above), so the child has all of the process, and no lock is held by a thread that is
    // missing in it.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(reader),
        child => {
            drop(writer);
            await_child(reader, child);
        }
    }
    rustix::process::setsid()?;
    if !keep_directory {
        std::env::set_current_dir("/")?;
    }
    Ok(Daemon { parent: writer, keep_output })
}

/// The parent's end: leaves with 0 as soon as the child is ready, or with its status.
fn await_child(mut child: PipeReader, pid: libc::pid_t) -> ! {
    let ready = child.read(&mut [0]).is_ok_and(|bytes| bytes == 1);
    let mut status = 0;
    // SAFETY: pid is our child; status is ours. WNOHANG is not needed: the pipe was closed, so
    // the child has exited or is about to.
    let waited = !ready && unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid;
    let code = match (ready, waited && libc::WIFEXITED(status)) {
        (true, _) => 0,
        (false, true) => libc::WEXITSTATUS(status).max(1),
        (false, false) => 1,
    };
    // SAFETY: ends the process without running what belongs to the child (buffers, exit
    // handlers).
    unsafe { libc::_exit(code) }
}

impl Daemon {
    /// The server answers: lets go of the standard streams (unless `-v`) and of the parent.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn ready(mut self) -> io::Result<()> {
        if !self.keep_output {
            let null = File::options().read(true).write(true).open("/dev/null")?;
            for stream in 0..=2 {
                // SAFETY: both are open descriptors of this process; nothing owns the standard
                // streams' numbers but the standard library, which only writes to them.
                if unsafe { libc::dup2(null.as_raw_fd(), stream) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        self.parent.write_all(&[1])
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// TERM or INT.
    Normally,
    /// USR1.
    Gracefully,
}

/// The signals a server waits for, blocked in this thread and all it starts.
#[derive(Debug)]
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them. To be called before any thread starts.
    ///
    /// # Errors
    /// The system refuses.
    pub fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set it is given; the rest are valid signal numbers
        // and a valid set.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        // SAFETY: set is initialised; the old mask is not asked for.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => Ok(Signals(set)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Sleeps until told to stop. After that the signals are no longer held back, so a second one
    /// ends a process that does not stop. HUP has nothing to reload yet.
    #[must_use]
    pub fn wait(self) -> Stop {
        let stop = loop {
            // SAFETY: the set is initialised; no details are asked for.
            match unsafe { libc::sigwaitinfo(&raw const self.0, std::ptr::null_mut()) } {
                libc::SIGTERM | libc::SIGINT => break Stop::Normally,
                libc::SIGUSR1 => break Stop::Gracefully,
                _ => {}
            }
        };
        // SAFETY: as in `block`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.0, std::ptr::null_mut());
        }
        stop
    }
}

/// Processor time used so far by all threads: in user mode, in the kernel.
#[must_use]
pub fn cpu_times() -> (Duration, Duration) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: usage is ours, and all zeros are a valid rusage should the call fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_by_this_name() {
        assert_eq!(find_user("root").unwrap(), Some(User { uid: 0, gid: 0 }));
        assert_eq!(find_user("no-such-user-here").unwrap(), None);
        assert!(find_user("nul\0byte").is_err());
    }

    #[test]
    fn processor_time_passes() {
        let (user, system) = cpu_times();
        assert!(user + system > Duration::ZERO);
    }

    #[test]
    fn file_limit_covers_the_connections() {
        let settings = Settings { connections_max: 64, ..Settings::default() };
        raise_limits(&settings).unwrap();
        assert!(getrlimit(Resource::Nofile).current.is_none_or(|files| files >= 64));
    }

    #[test]
    fn no_fork_beside_threads() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receiver.recv());
        assert!(daemonize(true, true).is_err());
        drop(sender);
        assert!(thread.join().unwrap().is_err());
    }
}
