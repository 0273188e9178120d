//! The listener for operators (`--admin`): metrics, statistics and health over HTTP.
//!
//! Where: beside the columns. `run` binds the listener while the process may still be root, and
//! starts the thread after the columns.
//! Invariant: the thread `admin` only reads what the columns share, so no request of an operator
//! delays a column. A peer can make the thread hold one connection of `ADMIN_CONNECTIONS_MAX`, for
//! `ADMIN_REQUEST_TIME`, with `ADMIN_REQUEST_BYTES_MAX` bytes of a request and one answer.
//! Source: RFC 9112 (HTTP/1.1).

mod answer;
mod exposition;
mod metrics;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_runtime::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::limits::{
    ADMIN_CONNECTIONS_MAX, ADMIN_REQUEST_BYTES_MAX, ADMIN_REQUEST_TIME, ADMIN_REST,
};
use crate::shared::Shared;

/// The listener, before its thread starts.
#[derive(Debug)]
pub(crate) struct AdminListener(std::net::TcpListener);

/// The thread that answers operators.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    site: Arc<Site>,
    end: Arc<Notify>,
    thread: JoinHandle<()>,
}

/// The state from which answers are made.
#[derive(Debug)]
struct Site {
    shared: Arc<Shared>,
    /// True if only programs of this machine can connect.
    is_loopback: bool,
    /// True after the server was told to end gracefully.
    ends: AtomicBool,
}

impl AdminListener {
    /// Opens the listener.
    ///
    /// # Errors
    /// The address is in use or is not an address of this machine.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<AdminListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(AdminListener(listener))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no descriptor or thread left.
    pub(crate) fn start(self, shared: Arc<Shared>) -> io::Result<Admin> {
        let address = self.0.local_addr()?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        let site = Arc::new(Site { shared, is_loopback, ends: AtomicBool::new(false) });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _runtime_of_the_listener = runtime.enter();
            TcpListener::from_std(self.0)?
        };
        let end = Arc::<Notify>::default();
        let ended = Arc::clone(&end);
        let serving = serve(listener, Arc::clone(&site));
        // At the end of `block_on` the runtime is dropped, and with it the listener and all
        // connections.
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(serving);
                ended.notified().await;
            });
        })?;
        Ok(Admin { address, site, end, thread })
    }
}

impl Admin {
    /// The address and port of the listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on that the server is not ready for clients.
    pub(crate) fn tell_end(&self) {
        // Relaxed, like the load in `answer`: no other data depend on the flag.
        self.site.ends.store(true, Ordering::Relaxed);
    }

    /// Closes the listener and all connections, and waits until the thread has ended.
    pub(crate) fn stop(self) {
        self.end.notify_one();
        if self.thread.join().is_err() {
            log::error!("the thread of --admin panicked");
        }
    }
}

async fn serve(listener: TcpListener, site: Arc<Site>) {
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, Arc::clone(&site), place));
            }
            // No descriptor is left, or the peer is gone already.
            Err(_) => sleep(ADMIN_REST).await,
        }
    }
}

/// Reads one request and answers it. A peer that is too slow is disconnected.
async fn converse(stream: TcpStream, site: Arc<Site>, _place: OwnedSemaphorePermit) {
    let service = service_fn(|request| {
        let answer = answer::answer(&site, &request);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(ADMIN_REQUEST_BYTES_MAX)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the peer is gone or sent no HTTP.
    let _ = timeout(ADMIN_REQUEST_TIME, connection).await;
}
