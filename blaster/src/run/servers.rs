//! The servers of a run: names into addresses, the ring, the protocol.
//!
//! Where: first of all, before a byte is sent. Invariant: what is refused here is refused with what
//! to do about it: nothing listens, or the protocol is another.

use super::Plan;
use crate::result::version;
use crate::target::{self, Place, Ring, Target, TargetError};
use crate::wire::Speech;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// A server has so long to take a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where requests go.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) targets: Arc<[Target]>,
    pub(crate) ring: Arc<Ring>,
    pub(crate) speech: Speech,
    /// What each says it is; none where it does not.
    pub(crate) versions: Vec<Option<String>>,
}

/// Why servers cannot be driven.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// A name is wrong.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Nobody is there.
    #[error("{0}: {1}: is a server running there?")]
    Unreachable(String, io::Error),
    /// They are of different kinds.
    #[error("{0}: one run speaks one protocol: redis:// beside others, or --protocol against it")]
    Mixed(String),
    /// The protocol has no datagrams.
    #[error("{0}: UDP speaks memcached's protocols, not resp")]
    NoDatagrams(String),
}

impl Servers {
    /// Resolves what the plan names, and sees that somebody is there.
    ///
    /// # Errors
    /// A name is wrong, or nobody answers.
    pub(crate) fn find(plan: &Plan) -> Result<Servers, ServersError> {
        let parse = |text: &String| target::parse(text, plan.family);
        let targets: Vec<Target> = plan.targets.iter().map(parse).collect::<Result<_, _>>()?;
        let speech = speech(plan, &targets)?;
        targets.iter().try_for_each(reach)?;
        let ask = |target| version::ask(target, speech == Speech::Resp);
        let versions = targets.iter().map(ask).collect();
        let ring = Ring::new(&targets);
        Ok(Servers { ring: Arc::new(ring), targets: targets.into(), speech, versions })
    }
}

/// The one protocol of all.
fn speech(plan: &Plan, targets: &[Target]) -> Result<Speech, ServersError> {
    let first = targets.first().is_some_and(|target| target.is_redis);
    let speech = plan.speech.unwrap_or(if first { Speech::Resp } else { Speech::Text });
    for target in targets {
        if target.is_redis != first || (target.is_redis && speech != Speech::Resp) {
            return Err(ServersError::Mixed(target.name.clone()));
        }
        if speech == Speech::Resp && matches!(target.place, Place::Udp(_)) {
            return Err(ServersError::NoDatagrams(target.name.clone()));
        }
    }
    Ok(speech)
}

/// Sees that somebody takes connections there; UDP does not tell.
fn reach(target: &Target) -> Result<(), ServersError> {
    let reached = match &target.place {
        Place::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).map(drop),
        Place::Unix(path) => UnixStream::connect(path).map(drop),
        Place::Udp(_) => Ok(()),
    };
    reached.map_err(|error| ServersError::Unreachable(target.name.clone(), error))
}
