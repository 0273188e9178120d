//! The policies that can be simulated, by name.
//!
//! Where: `jobs::Plan` lists the policies to simulate. Invariant: every policy of `store::policy`
//! can be simulated: its name selects the engine, and `live:NAME` selects the real store.

use crate::cache::{Cache, Shape};
use crate::engine::{Engine, Settings};
use crate::live::KeyedStore;
use crate::reference::{Arc, Belady, Clock, Lirs, Lru, Memcached, Sieve};
use crate::sizes::Items;
use std::fmt;
use std::str::FromStr;
use store::MakeError;
use store::policy::Eviction;

/// A policy to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedPolicy {
    /// One of the store's policies, simulated by the `Engine`.
    Ours(Eviction),
    /// One of the store's policies, in the real store.
    Live(Eviction),
    /// A model of another cache's policy.
    Reference(Reference),
}

/// A reference implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Least recently used.
    Lru,
    /// memcached's segmented LRU.
    Memcached,
    /// CLOCK with counters of two bits.
    Clock,
    /// SIEVE.
    Sieve,
    /// ARC.
    Arc,
    /// LIRS.
    Lirs,
    /// Belady's optimal policy.
    Belady,
}

impl Reference {
    /// All references, with their names.
    pub const ALL: [(&'static str, Reference); 7] = [
        ("lru", Reference::Lru),
        ("memcached", Reference::Memcached),
        ("clock", Reference::Clock),
        ("sieve", Reference::Sieve),
        ("arc", Reference::Arc),
        ("lirs", Reference::Lirs),
        ("belady", Reference::Belady),
    ];
}

/// The prefix of a policy's name that selects the real store.
const LIVE: &str = "live:";

impl SimulatedPolicy {
    /// The policy with which all other policies are compared.
    pub const BASELINE: SimulatedPolicy = SimulatedPolicy::Reference(Reference::Lru);

    /// Returns all policies except those in the real store.
    #[must_use]
    pub fn all() -> Vec<SimulatedPolicy> {
        let references = Reference::ALL.iter().map(|(_, one)| SimulatedPolicy::Reference(*one));
        let ours = Eviction::ALL.iter().map(|(_, one)| SimulatedPolicy::Ours(*one));
        references.chain(ours).collect()
    }

    /// Makes an empty cache under this policy.
    pub fn cache<'w>(
        self,
        shape: Shape<'w>,
        requests: &'w [u32],
        items: &'w Items,
        settings: Settings,
    ) -> Result<Box<dyn Cache + 'w>, MakeError> {
        Ok(match self {
            SimulatedPolicy::Ours(policy) => Box::new(Engine::new(shape, policy, settings)),
            SimulatedPolicy::Live(policy) => {
                Box::new(KeyedStore::new(shape.capacity_bytes, policy, items)?)
            }
            SimulatedPolicy::Reference(reference) => match reference {
                Reference::Lru => Box::new(Lru::new(shape)),
                Reference::Memcached => Box::new(Memcached::new(shape)),
                Reference::Clock => Box::new(Clock::new(shape)),
                Reference::Sieve => Box::new(Sieve::new(shape)),
                Reference::Arc => Box::new(Arc::new(shape)),
                Reference::Lirs => Box::new(Lirs::new(shape)),
                Reference::Belady => Box::new(Belady::new(shape, requests)),
            },
        })
    }
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], one: &T) -> &'static str {
    all.iter().find(|(_, other)| other == one).map_or("", |(name, _)| name)
}

impl fmt::Display for SimulatedPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulatedPolicy::Ours(policy) => out.pad(policy.name()),
            SimulatedPolicy::Reference(reference) => out.pad(name_of(&Reference::ALL, reference)),
            SimulatedPolicy::Live(policy) => out.pad(&format!("{LIVE}{}", policy.name())),
        }
    }
}

impl FromStr for SimulatedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "live" {
            return Ok(SimulatedPolicy::Live(Eviction::default()));
        }
        let ours = |name| Eviction::named(name);
        let live = text.strip_prefix(LIVE).and_then(ours).map(SimulatedPolicy::Live);
        let reference = Reference::ALL.iter().find(|(name, _)| *name == text);
        let reference = reference.map(|(_, one)| SimulatedPolicy::Reference(*one));
        ours(text).map(SimulatedPolicy::Ours).or(live).or(reference).ok_or_else(|| {
            let names: Vec<String> =
                SimulatedPolicy::all().iter().map(ToString::to_string).collect();
            let names = names.join(", ");
            format!(
                "no policy called {text}; the policies are {names}; live:NAME runs Hypostyle's \
                 policy NAME in the real store"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_policy() {
        let live = Eviction::ALL.iter().map(|(_, one)| SimulatedPolicy::Live(*one));
        for contestant in SimulatedPolicy::all().into_iter().chain(live) {
            assert_eq!(contestant.to_string().parse(), Ok(contestant));
        }
        assert_eq!("live".parse(), Ok(SimulatedPolicy::Live(Eviction::default())));
        assert!("lfu".parse::<SimulatedPolicy>().unwrap_err().contains("s3-fifo"));
    }
}
