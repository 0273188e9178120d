//! Starting and stopping a server.
//!
//! Where: `main` binds (while it may still be root), then starts; tests do both in their own
//! process.
//! Invariant: when `Server::stop` returns, every column's thread has ended, every connection and
//! listener is closed, and the Unix socket's file is gone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use net::{Calls, Place, Waker};
use store::Store;

use crate::ahead::Ahead;
use crate::clock::{Clock, START};
use crate::column::{Column, Parts, Tick, moment};
use crate::execute::Context;
use crate::listen::{self, ListenError, Listeners, Source};
use crate::process;
use crate::settings::Settings;
use crate::shared::Shared;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen where it should.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] store::MakeError),
    /// No descriptor, thread or memory for a column.
    #[error("cannot start a column: {0}")]
    Column(#[from] io::Error),
}

/// A server whose listeners are open but which has no threads yet: the process may still fork and
/// change its user. Connections wait in the backlog.
#[derive(Debug)]
pub struct Bound {
    settings: Arc<Settings>,
    listeners: Listeners,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    places: Vec<Place>,
    sources: Vec<Source>,
    columns: Vec<RunningColumn>,
    ahead: Ahead,
    stopping: Arc<AtomicBool>,
}

#[derive(Debug)]
struct RunningColumn {
    waker: Arc<Waker>,
    calls: Arc<Calls>,
    thread: JoinHandle<()>,
}

impl Bound {
    /// Opens the listeners.
    ///
    /// # Errors
    /// It cannot listen where it should.
    pub fn bind(settings: Settings) -> Result<Bound, StartError> {
        let listeners = listen::open(&settings)?;
        Ok(Bound { settings: Arc::new(settings), listeners })
    }

    /// The TCP addresses it listens on, with real ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.listeners.places)
    }

    /// Makes the store and starts the columns.
    ///
    /// # Errors
    /// No memory, thread or descriptor for them.
    pub fn start(self) -> Result<Server, StartError> {
        let Bound { settings, listeners } = self;
        let locked = settings.lock_memory.then(process::lock_present);
        let store = Store::new(&store::Config {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            columns: settings.columns,
            eviction: settings.evict.then_some(settings.eviction),
            cas: settings.cas,
            now: START,
        })?;
        let lock_rest = |()| store.lock_memory().and_then(|()| process::lock_future());
        let locked = locked.map(|locked| locked.and_then(lock_rest));
        if let Some(Err(error)) = &locked {
            log::warn!("-k invalid, mlockall() failed: {error}: {}", process::unlock());
        }
        let is_locked = locked.is_some_and(|locked| locked.is_ok());
        let clock = Clock::new(unix_seconds());
        let start = moment();
        let shared = Shared::new(Arc::clone(&settings), store, clock.process_started);
        let mut server = Server {
            ahead: Ahead::start(&shared.store, !is_locked)?,
            shared: Arc::clone(&shared),
            places: listeners.places,
            sources: listeners.columns.iter().flatten().cloned().collect(),
            columns: Vec::with_capacity(settings.columns),
            stopping: Arc::default(),
        };
        for (index, sources) in listeners.columns.into_iter().enumerate() {
            // The first wakes once per second for the store; all, if they must look for idle
            // connections.
            let tick = Tick::new(start, index == 0 || settings.idle_seconds_max > 0);
            if let Err(error) = server.start_column(index, sources, clock, tick) {
                server.stop();
                return Err(error.into());
            }
        }
        Ok(server)
    }
}

fn addresses(places: &[Place]) -> Vec<SocketAddr> {
    let tcp = |place: &Place| match place {
        Place::Tcp(address) => Some(*address),
        Place::Unix(_) => None,
    };
    places.iter().filter_map(tcp).collect()
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Server {
    /// Binds and starts.
    ///
    /// # Errors
    /// As `Bound::bind` and `Bound::start`.
    pub fn start(settings: Settings) -> Result<Server, StartError> {
        Bound::bind(settings)?.start()
    }

    fn start_column(
        &mut self,
        index: usize,
        sources: Vec<Source>,
        clock: Clock,
        tick: Tick,
    ) -> io::Result<()> {
        let waker = Arc::new(Waker::new()?);
        let calls = Arc::<Calls>::default();
        let shared = &self.shared;
        let counters = shared.columns.get(index).map(Arc::clone).unwrap_or_default();
        let column = Column::new(Parts {
            number: index,
            context: Context {
                store: shared.store.column(),
                counters,
                shared: Arc::clone(shared),
                clock,
                may_wait: true,
            },
            sources,
            waker: Arc::clone(&waker),
            stopping: Arc::clone(&self.stopping),
            calls: Arc::clone(&calls),
            ahead: self.ahead.asking(),
            tick,
        })?;
        let cpus = &shared.settings.cpus;
        let cpu = cpus.get(index % cpus.len().max(1)).copied();
        let thread =
            std::thread::Builder::new().name(format!("column-{index}")).spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = net::pin_thread(cpu)
                {
                    log::warn!("column {index} runs unpinned: processor {cpu}: {error}");
                }
                if let Err(error) = column.run() {
                    // Its listener would go on to be given connections that nobody accepts.
                    log::error!("column {index} cannot wait for events: {error}; the server ends");
                    std::process::exit(1);
                }
            })?;
        self.columns.push(RunningColumn { waker, calls, thread });
        Ok(())
    }

    /// The TCP addresses it listens on, with real ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.places)
    }

    /// What its columns share: store, counters, settings.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Each column's system calls so far.
    pub fn calls(&self) -> impl Iterator<Item = &Calls> {
        self.columns.iter().map(|column| &*column.calls)
    }

    /// Stops: closes listeners and connections, and waits for the threads to end.
    pub fn stop(self) {
        // Release, pairs with the acquire in `Column::run`.
        self.stopping.store(true, Ordering::Release);
        for column in &self.columns {
            column.waker.wake();
        }
        for column in self.columns {
            if column.thread.join().is_err() {
                log::error!("a column panicked");
            }
        }
        for source in self.sources {
            source.listener.remove_file();
        }
        self.ahead.stop();
    }
}
