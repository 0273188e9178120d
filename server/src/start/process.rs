//! The process: its limits, its user, its detachment from the terminal, its signals.
//!
//! Where: `main` calls most of these functions; `run`, `stats` and `shutdown` call a few. Only this
//! file of the server contains `unsafe`, because some calls have no safe wrapper.
//! Invariant: user, limits and signal mask are set while the process has one thread, so that every
//! column inherits them.
//! Source: memcached 1.6.45 `main`, `daemonize`; credentials(7), sigwaitinfo(2).
#![allow(unsafe_code, reason = "fork and glibc's allocator have no safe wrapper")]

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{self, SigSet};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{self, ForkResult, Uid, User};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::limits::ADMIN_CONNECTIONS_MAX;
use crate::start::settings::Settings;

/// Number of descriptors that a column needs for its epoll, waker, timer and `schedstat`.
const FILES_PER_COLUMN: usize = 4;
/// Number of listeners of a column for one value of `-l`, which may be a name with four addresses.
const FILES_PER_LISTEN: usize = 4;
/// Number of descriptors for the listener of `--admin`, and for the epoll and wakers of its thread.
const FILES_ADMIN: usize = 8;
/// Number of descriptors for the standard streams, and for files that are open for a short time.
const FILES_BASE: usize = 32;

/// Raises the limit of open files to what `-c` needs. With `-r`, also raises the limit of core
/// files, and with `-k` the limit of locked memory.
///
/// # Errors
/// The hard limit of open files is below `-c`, or the hard limit of core files is 0.
pub fn raise_limits(settings: &Settings) -> Result<(), String> {
    if settings.core_dumps {
        raise_core()?;
    }
    if settings.lock_memory {
        // Only root may raise this limit. If the limit stays too low, mlockall will fail.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
    let connections = u64::from(settings.columns.connections_max);
    let wanted = connections.saturating_add(files_beside_connections(settings));
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let hard = now.maximum.map_or(wanted, |maximum| maximum.max(wanted));
    if setrlimit(Resource::Nofile, limit(wanted, hard)).is_ok() {
        return Ok(());
    }
    // A process without privileges can raise the limit only to the hard limit.
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

/// Number of descriptors that the process needs in addition to those of client connections.
#[must_use]
pub fn files_beside_connections(settings: &Settings) -> u64 {
    let of_column = FILES_PER_COLUMN + FILES_PER_LISTEN * settings.listen.len();
    let of_admin = settings.admin.map_or(0, |_| FILES_ADMIN + ADMIN_CONNECTIONS_MAX);
    u64::try_from(settings.columns.count * of_column + of_admin + FILES_BASE).unwrap_or(u64::MAX)
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

/// Locks the memory that the process has mapped so far (`-k`). Call this function before the store
/// reserves its address space, because the store itself locks the parts that it uses.
///
/// # Errors
/// The system refuses (RLIMIT_MEMLOCK).
pub fn lock_present() -> io::Result<()> {
    // Makes all threads use one heap, because each further heap would map and lock 64 MiB.
    // SAFETY: the call takes two numbers. Under the allocator's own lock, it changes how many heaps
    // the allocator creates from now on; memory that is already allocated stays unchanged.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    Ok(())
}

/// Makes the calling thread run only while no other thread wants its processor (`SCHED_IDLE`). A
/// higher nice value is not enough: when another thread wakes up, a nice thread keeps the processor
/// for the rest of its time slice, which is milliseconds.
///
/// # Errors
/// The system refuses.
pub fn yield_to_others() -> io::Result<()> {
    let unused = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread. The call reads `unused`, which lives on this stack.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks each page that is mapped from now on, such as stacks and buffers, when it is first
/// touched. Does nothing if RLIMIT_MEMLOCK is finite: no memory above that limit could be mapped.
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

/// Unlocks all memory after a failed lock. Returns a text for the log with the limit to raise.
pub fn unlock() -> String {
    // If the system refuses, some memory stays locked, which does no harm.
    let _ = munlockall();
    match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("no memory is locked; RLIMIT_MEMLOCK is {bytes} bytes"),
        None => "no memory is locked".to_owned(),
    }
}

/// The effective user id of the process.
#[must_use]
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True if the real or the effective user of the process is root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::getuid().is_root() || rustix::process::geteuid().is_root()
}

/// Looks up `name` in the user database. Returns `None` if there is no such user.
///
/// # Errors
/// The database cannot be read.
pub fn find_user(name: &str) -> io::Result<Option<User>> {
    match User::from_name(name) {
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        found => Ok(found?),
    }
}

/// Number of bits in a set of capabilities, which is more than the number of any capability.
const CAPABILITIES_MAX: u32 = 64;

/// Returns the privileges that the server needs after its sockets are open: only the right to lock
/// more memory than RLIMIT_MEMLOCK, if `-k` is given and this limit is finite.
#[must_use]
pub fn needed_capabilities(settings: &Settings) -> CapabilitySet {
    let locks_beyond = settings.lock_memory && getrlimit(Resource::Memlock).current.is_some();
    if locks_beyond { CapabilitySet::IPC_LOCK } else { CapabilitySet::empty() }
}

/// Ensures that this process never gains a privilege by executing another program. Call this
/// function while the process is still root and has one thread.
///
/// # Errors
/// The system refuses.
pub fn forgo_privileges() -> io::Result<()> {
    for number in 0..CAPABILITIES_MAX {
        // The call fails without CAP_SETPCAP, and for bits that are not capabilities of this
        // kernel. Capabilities that are left in the set do no harm: after `set_no_new_privs`, a
        // program gains no capability when it is executed.
        let one = CapabilitySet::from_bits_retain(1 << number);
        if thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    thread::set_no_new_privs(true)?;
    Ok(())
}

/// Gives up all capabilities but `kept`, for good. Call this function while the process has one
/// thread, because a new thread copies the capabilities. Returns the capabilities that are left.
///
/// # Errors
/// The system refuses, or does not report the capabilities.
pub fn give_up_capabilities(kept: CapabilitySet) -> io::Result<CapabilitySet> {
    // The call fails on kernels without ambient capabilities, where none has to be cleared.
    let _ = thread::clear_ambient_capability_set();
    let kept = kept & thread::capabilities(None)?.permitted;
    let none = CapabilitySet::empty();
    thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: none },
    )?;
    let now = thread::capabilities(None)?;
    Ok(now.effective | now.permitted | now.inheritable)
}

/// The names of capabilities, as in capabilities(7).
#[must_use]
pub fn names_of(capabilities: CapabilitySet) -> String {
    let names: Vec<String> =
        capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    names.join(", ")
}

/// Gives up root for good: drops the supplementary groups, and changes group and user to `user`.
///
/// Call this function before any thread starts, and after limits are raised and TCP ports bound.
///
/// # Errors
/// The system refuses, or root could be regained.
pub fn become_user(user: &User) -> io::Result<()> {
    match unistd::setgroups(&[]) {
        // A user namespace may forbid the call; the process then keeps its groups.
        Err(Errno::EPERM) => {
            log::warn!("failed to drop supplementary groups: {}", io::Error::from(Errno::EPERM));
        }
        done => done?,
    }
    unistd::setgid(user.gid)?;
    unistd::setuid(user.uid)?;
    if !user.uid.is_root() && unistd::setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("the process could become root again"));
    }
    Ok(())
}

/// Lets the system write a core file of this process (`-r`), even after a change of user.
///
/// # Errors
/// The system refuses.
pub fn allow_core_dump() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    Ok(())
}

/// A detached process. Its parent waits until `ready` is called.
#[derive(Debug)]
pub struct Daemon {
    parent: PipeWriter,
    keep_output: bool,
}

/// Detaches from the terminal (`-d`). Returns in a child process with a new session; the child's
/// directory is `/` unless `keep_directory` is true. The parent exits with 0 when the child is
/// ready, or with the child's status if the child exits first, so that the user sees a failed
/// start.
///
/// # Errors
/// The system refuses, or other threads run already.
pub fn daemonize(keep_output: bool, keep_directory: bool) -> io::Result<Daemon> {
    if fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() != 1) {
        return Err(io::Error::other("cannot fork, because other threads run"));
    }
    let (reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread: `main` starts none before this call, and the count of
    // tasks above checks this where /proc is mounted. So no other thread can hold a lock when the
    // child begins, and no lock stays held in the child forever.
    match unsafe { unistd::fork() }? {
        ForkResult::Child => drop(reader),
        ForkResult::Parent { child } => {
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

/// Ends the parent: with 0 as soon as the child is ready, otherwise with the child's status.
fn await_child(mut child: PipeReader, pid: unistd::Pid) -> ! {
    let code = match child.read(&mut [0]) {
        Ok(1) => 0,
        // The wait is short: the child closed the pipe, so it has exited or is about to exit.
        _ => match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => code.max(1),
            _ => 1,
        },
    };
    // `exit` would run exit handlers and flush buffers that belong to the child.
    // SAFETY: the call takes a number and ends the process.
    unsafe { libc::_exit(code) }
}

impl Daemon {
    /// Lets the parent exit. Connects the standard streams to `/dev/null`, unless output is kept.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn ready(mut self) -> io::Result<()> {
        if !self.keep_output {
            let null = File::options().read(true).write(true).open("/dev/null")?;
            unistd::dup2_stdin(&null)?;
            unistd::dup2_stdout(&null)?;
            unistd::dup2_stderr(&null)?;
        }
        self.parent.write_all(&[1])
    }
}

/// How a signal stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// TERM or INT: the server stops at once.
    Normally,
    /// USR1: the server stops after it has answered the requests that have arrived.
    Gracefully,
}

/// Sends this process the signal with which an operator would stop it.
pub fn ask_to_stop(stop: Stop) {
    let signal = match stop {
        Stop::Normally => Signal::INT,
        Stop::Gracefully => Signal::USR1,
    };
    // A process may always signal itself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

/// The signals for which `wait` waits. Threads that start after `block` block the signals too.
#[derive(Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Blocks the signals. Call this function before any thread starts.
    ///
    /// # Errors
    /// The system refuses.
    pub fn block() -> io::Result<Signals> {
        use signal::Signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
        let set = SigSet::from_iter([SIGTERM, SIGINT, SIGUSR1, SIGHUP]);
        set.thread_block()?;
        Ok(Signals(set))
    }

    /// Sleeps until a signal to stop arrives, then unblocks the signals, so that a second signal
    /// ends a process that does not stop. Ignores HUP, because the server has nothing to reload.
    #[must_use]
    pub fn wait(self) -> Stop {
        let stop = loop {
            match self.0.wait() {
                Ok(signal::SIGTERM | signal::SIGINT) => break Stop::Normally,
                Ok(signal::SIGUSR1) => break Stop::Gracefully,
                _ => {}
            }
        };
        // A mask of valid signals is never refused.
        let _ = self.0.thread_unblock();
        stop
    }
}

/// Processor time that all threads of this process have used in user mode and in the kernel.
#[must_use]
pub fn cpu_times() -> (Duration, Duration) {
    let time =
        |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
    // The system never refuses the times of the process itself.
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    usage.map_or_else(Default::default, |it| (time(it.user_time()), time(it.system_time())))
}

/// Bytes of freed memory that the allocator holds. Slow, because it visits each freed block.
#[must_use]
pub fn heap_free_bytes() -> usize {
    // SAFETY: the call takes nothing, and counts under the allocator's own locks.
    unsafe { libc::mallinfo2() }.fordblks
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Gid;

    #[test]
    fn root_is_known_and_nobody_by_this_name() {
        let root = find_user("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (Uid::from_raw(0), Gid::from_raw(0)));
        assert_eq!(find_user("no-such-user-here").unwrap(), None);
        assert_eq!(find_user("nul\0byte").unwrap(), None);
    }

    #[test]
    fn processor_time_passes() {
        let (user, system) = cpu_times();
        assert!(user + system > Duration::ZERO);
    }

    #[test]
    fn file_limit_covers_the_connections() {
        let mut settings = Settings::default();
        settings.columns.connections_max = 64;
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
