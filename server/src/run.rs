//! Starts and stops a server.
//!
//! Where: `main` calls `bind` while the process may still be root, and then `start`. Tests call
//! `Server::start`, which calls `bind` and `start`.
//! Invariant: when `Server::stop` returns, every column's thread has ended, every connection and
//! listener is closed, and the Unix socket's file is removed.

pub(crate) mod ahead;
pub mod bypass;
pub mod listen;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use columns::datagram::{Datagrams, Gatherer, Guard};
use columns::datapath::list::{AnyDatagrams, Datapaths};
use columns::datapath::udp::Udp;
use columns::datapath::xdp::Xdp;
use columns::stream::Kernel;
use columns::{
    Column, ColumnListener, End, Migration, Parts, Statuses, Stealing, Timers, coarse_now,
};
use memory::arena::Arena;
use net::{Calls, Endpoint, Waker};
use store::Store;

use crate::admin::{Admin, AdminListener};
use crate::clock::Clock;
use crate::execute::Context;
use crate::limits;
use crate::machine::numa::Nodes;
use crate::shared::Shared;
use crate::start::process;
use crate::start::settings::Settings;
use ahead::Populator;
use bypass::BypassError;
use listen::{ListenError, Listeners};

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// AF_XDP is not available (`--xdp`).
    #[error(transparent)]
    Bypass(#[from] BypassError),
    /// The address of `--admin` cannot be opened.
    #[error("failed to listen on {0} (--admin): {1}")]
    Admin(SocketAddr, io::Error),
    /// The store cannot be created.
    #[error(transparent)]
    Store(#[from] store::MakeError),
    /// The system has no descriptor, thread or memory for a column.
    #[error("cannot start a worker thread: {0}")]
    Column(#[from] io::Error),
}

/// A server whose listeners are open, but which has no threads yet, so that the process may still
/// fork and change its user. Until the threads start, connections wait in the backlog.
#[derive(Debug)]
pub struct BoundServer {
    settings: Arc<Settings>,
    listeners: Listeners,
    admin: Option<AdminListener>,
    bypass: Option<bypass::OpenPorts>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    endpoints: Vec<Endpoint>,
    datagram_addresses: Vec<SocketAddr>,
    listeners: Vec<ColumnListener<net::Listener>>,
    columns: Vec<RunningColumn>,
    populator: Populator,
    admin: Option<Admin>,
    end: Arc<End>,
}

/// A column's sockets and waker, and the state by which columns take work from each other.
struct Sockets {
    waker: Arc<Waker>,
    stealing: Option<Stealing>,
    migration: Option<Migration<Context, net::Stream>>,
    listeners: Vec<ColumnListener<net::Listener>>,
    datapaths: Datapaths,
}

#[derive(Debug)]
struct RunningColumn {
    waker: Arc<Waker>,
    calls: Arc<Calls>,
    thread: JoinHandle<()>,
}

impl BoundServer {
    /// Opens the listeners (also that of `--admin`) and, with `--xdp`, the AF_XDP ports. Each of
    /// these ports receives and sends the packets of one queue of the interface.
    ///
    /// # Errors
    /// A listener or a port cannot be opened.
    pub fn bind(settings: Settings) -> Result<BoundServer, StartError> {
        let listeners = listen::open(&settings)?;
        let bypass = bypass::open(&settings, &listeners.datagram_addresses)?;
        let bind = |at| AdminListener::bind(at).map_err(|error| StartError::Admin(at, error));
        let admin = settings.admin.map(bind).transpose()?;
        Ok(BoundServer { settings: Arc::new(settings), listeners, admin, bypass })
    }

    /// The TCP addresses of the listeners, with the port that the system chose instead of port 0.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.listeners.endpoints)
    }

    /// Makes the store, and starts the columns and the thread of `--admin`.
    ///
    /// # Errors
    /// There is no memory, thread or descriptor for the store or the threads.
    pub fn start(mut self) -> Result<Server, StartError> {
        let admin = self.admin.take();
        let mut server = self.start_columns()?;
        match admin.map(|listener| listener.start(Arc::clone(&server.shared))).transpose() {
            Ok(admin) => server.admin = admin,
            Err(error) => {
                server.stop();
                return Err(error.into());
            }
        }
        Ok(server)
    }

    fn start_columns(self) -> Result<Server, StartError> {
        let BoundServer { settings, listeners, bypass, .. } = self;
        let ring_bytes = bypass.as_ref().map_or(0, |it| it.interface.ring_bytes());
        let locked = settings.lock_memory.then(process::lock_present);
        let nodes = Nodes::read(Path::new("/"));
        let arena = bypass.as_ref().and_then(|it| it.arena.clone());
        let store = store(&settings, &nodes, (ring_bytes, arena))?;
        let lock_rest = |()| store.lock_memory().and_then(|()| process::lock_future());
        let locked = locked.map(|locked| locked.and_then(lock_rest));
        if let Some(Err(error)) = &locked {
            log::warn!("-k invalid, mlockall() failed: {error} ({})", process::unlock());
        }
        let is_locked = locked.is_some_and(|locked| locked.is_ok());
        let (clock, start) = (Clock::new(unix_seconds()), coarse_now());
        let waker = |_| Waker::new().map(Arc::new);
        let wakers = (0..settings.columns.count).map(waker).collect::<io::Result<Vec<_>>>()?;
        let shared = Shared::new(Arc::clone(&settings), store, clock.process_started);
        look_for_huge_pages(&shared);
        shared.columns.pages.set_wakers(&wakers);
        let mut server = Server {
            populator: Populator::start(&shared.store, !is_locked)?,
            shared: Arc::clone(&shared),
            endpoints: listeners.endpoints,
            datagram_addresses: listeners.datagram_addresses.clone(),
            listeners: listeners.columns.iter().flatten().cloned().collect(),
            columns: Vec::with_capacity(settings.columns.count),
            admin: None,
            end: Arc::default(),
        };
        let guard = guard(&settings, &listeners.datagram_addresses);
        let reply_bytes_max = settings.udp_reply_bytes_max();
        tell_of_open_udp(&settings);
        let stealing = stealing(&settings, &nodes, &wakers);
        let mut packets = Vec::new();
        if let Some(bypass::OpenPorts { ports, speak, interface, arena }) = bypass {
            let may_steal = bypass::may_steal(&settings, &interface);
            let thieves = if may_steal { stealing.len() } else { 0 };
            let paths = Xdp::of_columns(ports, thieves, speak, &interface);
            let gathers = Gatherer::for_columns(paths.len(), arena.as_ref());
            let of_path =
                |path| Datagrams::new(path, guard.clone(), reply_bytes_max, Arc::clone(&gathers));
            packets = paths.into_iter().map(of_path).map(AnyDatagrams::Xdp).collect();
            // `set` cannot fail, because no other code sets this cell.
            let _ = shared.bypass.set(interface);
        }
        let mut packets = packets.into_iter();
        let mut stealing = stealing.into_iter();
        let mut migrations = Migration::of_columns(&shared.columns.settings, &wakers).into_iter();
        let gathers = Gatherer::for_columns(settings.columns.count, None);
        let datagrams: Arc<[_]> = listeners.datagrams.into();
        for (index, (listeners, waker)) in listeners.columns.into_iter().zip(wakers).enumerate() {
            let udp = Udp::new(Arc::clone(&datagrams), index).map(|path| {
                Datagrams::new(path, guard.clone(), reply_bytes_max, Arc::clone(&gathers))
            });
            let udp = udp.map(AnyDatagrams::Udp);
            let datapaths: Datapaths = packets.next().into_iter().chain(udp).collect();
            let (stealing, migration) = (stealing.next(), migrations.next());
            // The first column wakes each second to advance the store's clock. With
            // `-o idle_timeout` every column wakes each second to check for idle connections. With
            // `--xdp` the columns that have a port wake to check the port and the interface.
            let looks = settings.columns.idle_seconds_max > 0 || datapaths.wake_each_second();
            let sockets = Sockets { waker, stealing, migration, listeners, datapaths };
            let timers = Timers::new(start, index == 0 || looks);
            if let Err(error) = server.start_column(index, sockets, clock, timers) {
                server.stop();
                return Err(error.into());
            }
        }
        Ok(server)
    }
}

/// Makes the store in the bytes of `-m` that remain without packets and the arena's values.
fn store(
    settings: &Settings,
    nodes: &Nodes,
    (ring_bytes, arena): (usize, Option<Arc<Arena>>),
) -> Result<Arc<Store>, store::MakeError> {
    let arena_bytes = arena.as_ref().map_or(0, |arena| arena.value_bytes());
    let mut config = settings.store_config();
    config.memory_bytes -= ring_bytes + arena_bytes;
    let start = store::Start {
        items: settings.index_items,
        huge_pages: settings.huge_pages,
        nodes: nodes.of_columns(settings.columns.count, &settings.cpus),
        arena,
        arena_value_bytes_min: settings.zero_copy_bytes_min,
        hash_seed: None,
    };
    let store = Store::with_start(&config, start)?;
    if let Err(error) = store.place_memory() {
        log::warn!(
            "WARNING: cannot place memory on the NUMA nodes of the threads, so access to memory \
             may be slower: {error}"
        );
    }
    Ok(store)
}

fn look_for_huge_pages(shared: &Shared) {
    if !shared.store.wants_huge_pages() {
        return;
    }
    let given = memory::map::huge_pages_are_given();
    // `set` cannot fail, because no other code sets this cell.
    let _ = shared.huge_pages.set(given);
    if shared.settings.huge_pages && !given {
        log::warn!(
            "-L: the system provides no huge pages now (see /sys/kernel/mm/transparent_hugepage); \
             until it does, the memory of items has pages of the usual size"
        );
    }
}

fn tell_of_open_udp(settings: &Settings) {
    if settings.udp_is_open() {
        log::warn!(
            "this server answers requests over UDP from all networks, and sender addresses can be \
             forged; add -o udp_allow=NETWORKS to answer only these networks. Without this option, \
             a reply has at most {} bytes, and each network gets only a few long replies per \
             second",
            settings.udp_reply_bytes_max()
        );
    }
}

fn guard(settings: &Settings, addresses: &[SocketAddr]) -> Guard {
    let own = net::own_addresses().unwrap_or_default();
    Guard::new(
        addresses.iter().map(SocketAddr::port).collect(),
        own.into_iter().flat_map(|address| address.broadcasts).collect(),
        settings.udp_allow.clone(),
        settings.udp_is_open(),
    )
}

/// Makes each column's `Stealing`. The list is empty if columns cannot or may not steal.
fn stealing(settings: &Settings, nodes: &Nodes, wakers: &[Arc<Waker>]) -> Vec<Stealing> {
    if !settings.steal || wakers.len() == 1 || settings.datagrams.is_empty() {
        return Vec::new();
    }
    let statuses = Statuses::new(wakers);
    let of_column = |own| {
        let neighbours = nodes.neighbours(own, wakers.len(), &settings.cpus);
        Stealing::new(Arc::clone(&statuses), own, neighbours)
    };
    (0..wakers.len()).map(of_column).collect()
}

fn addresses(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    let tcp = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix(_) => None,
    };
    endpoints.iter().filter_map(tcp).collect()
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Server {
    /// Opens the listeners and starts the columns.
    ///
    /// # Errors
    /// See `BoundServer::bind` and `BoundServer::start`.
    pub fn start(settings: Settings) -> Result<Server, StartError> {
        BoundServer::bind(settings)?.start()
    }

    fn start_column(
        &mut self,
        index: usize,
        Sockets { waker, stealing, migration, listeners, datapaths }: Sockets,
        clock: Clock,
        timers: Timers,
    ) -> io::Result<()> {
        let calls = Arc::<Calls>::default();
        let shared = &self.shared;
        let counters = shared.requests.get(index).map(Arc::clone).unwrap_or_default();
        let store = shared.store.column();
        let mut executor = Context::new(store, counters, Arc::clone(shared), clock);
        executor.populator = Some(self.populator.handle());
        let column = Column::new(Parts {
            executor,
            shared: (Arc::clone(&shared.columns), index),
            way: Kernel,
            listeners,
            datapaths,
            stealing,
            migration,
            waker: Arc::clone(&waker),
            end: Arc::clone(&self.end),
            calls: Arc::clone(&calls),
            timers,
        })?;
        let cpus = &shared.settings.cpus;
        let cpu = cpus.get(index % cpus.len().max(1)).copied();
        let thread = thread::Builder::new().name(format!("column-{index}")).spawn(move || {
            if let Some(cpu) = cpu
                && let Err(error) = net::pin_thread(cpu)
            {
                log::warn!("thread column-{index} is not pinned to processor {cpu}: {error}");
            }
            if let Err(error) = column.run() {
                // The server must end, because the kernel would still give connections to this
                // column's listeners, and no thread would accept them.
                log::error!(
                    "thread column-{index} cannot wait for events: {error}; the server ends"
                );
                std::process::exit(1);
            }
        })?;
        self.columns.push(RunningColumn { waker, calls, thread });
        Ok(())
    }

    /// The TCP addresses on which the server listens, as `BoundServer::addresses` returns them.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.endpoints)
    }

    /// The UDP addresses and ports on which the server listens.
    #[must_use]
    pub fn datagram_addresses(&self) -> &[SocketAddr] {
        &self.datagram_addresses
    }

    /// The address and port of the listener for operators (`--admin`).
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// The state that the columns share: store, counters, settings.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The counts of each column's system calls.
    pub fn calls(&self) -> impl Iterator<Item = &Calls> {
        self.columns.iter().map(|column| &*column.calls)
    }

    /// Accepts no more connections. Waits until all requests are answered, but at most for
    /// `limits::END_GRACEFULLY`, and then stops the server. Removes the Unix socket's file.
    pub fn stop_gracefully(mut self) {
        self.end.tell_gracefully();
        self.admin.iter().for_each(Admin::tell_end);
        self.close_listeners();
        self.wake();
        let since = Instant::now();
        let is_over = || self.columns.iter().all(|column| column.thread.is_finished());
        while !is_over() && since.elapsed() < limits::END_GRACEFULLY {
            thread::park_timeout(limits::END_LOOK);
        }
        if !is_over() {
            let waited = limits::END_GRACEFULLY;
            log::warn!(
                "the server has waited {waited:?} for requests that are not answered yet, and ends \
                 without answering them"
            );
        }
        self.stop();
    }

    /// Stops the server: waits until every column's thread has closed its connections and ended.
    pub fn stop(mut self) {
        self.end.tell_at_once();
        self.wake();
        for column in self.columns.drain(..) {
            if column.thread.join().is_err() {
                log::error!("a worker thread panicked");
            }
        }
        self.close_listeners();
        self.populator.stop();
        if let Some(admin) = self.admin {
            admin.stop();
        }
    }

    fn wake(&self) {
        self.columns.iter().for_each(|column| column.waker.wake());
    }

    /// Removes the Unix socket's file. Each listener closes as soon as no column uses it.
    fn close_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            listener.socket.remove_file();
        }
    }
}
