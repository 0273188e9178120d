//! A link between two network namespaces, with a column's AF_XDP port at one end.
//!
//! Where: the rows `packet` of the table. The server's own code opens the port, in native mode.
//! Invariant: nothing outside the namespaces is changed. If the row's name contains a `zero_copy`
//! mode, values are in the arena. The store gets the memory that the rings and the arena do not
//! take.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use columns::datapath::xdp::Xdp;
use hypostyle::run::bypass::{self, OpenPorts};
use hypostyle::start::settings::{self, Listen, Port, Settings, ZeroCopy};
use net::Sizes;
use net::xdp::Mode;
use protocol::ProtocolMode;
use protocol::udp::HEADER_BYTES;
use store::policy::Eviction;
use store::{Column, Config, Start, Store, Value};
use testing::namespace::{Namespace, Veth, WIRE, pair};

use crate::datagrams::{Site, TOGETHER};
use crate::measure::in_process::{HASH_SEED, Key, START};
use crate::measure::{Outcome, fail};

const PORT: u16 = 11_211;
/// MTUs of the link: the MTU of Ethernet, and a larger MTU for long requests.
const MTUS: [usize; 2] = [1500, 9000];
const HEADERS_BYTES: usize = 28 + HEADER_BYTES;

pub(crate) struct Packets {
    near: Namespace,
    far: Namespace,
    opened: OpenPorts,
    settings: Settings,
}

pub(crate) struct PacketCounter(File);

impl Packets {
    /// `memory_bytes`, like a server's `-m`, is for packets and values together. The link gets an
    /// MTU that is large enough for requests of `request_bytes`.
    pub(crate) fn open(
        zero_copy: ZeroCopy,
        memory_bytes: usize,
        request_bytes: usize,
        eviction: Eviction,
    ) -> Outcome<Packets> {
        let mtu = MTUS[usize::from(HEADERS_BYTES + request_bytes > MTUS[0])];
        let Some([near, far]) = pair(Veth { queues: 1, mtu: u32::try_from(mtu)? }) else {
            return fail("network namespaces need root and the program `ip`".to_owned());
        };
        let listen = Listen { host: None, port: Port::Number(PORT), protocol: ProtocolMode::Auto };
        let settings = Settings {
            memory_bytes,
            datagrams: vec![listen],
            xdp: Some(settings::Xdp { mode: Mode::Native, ..settings::Xdp::of(WIRE) }),
            zero_copy,
            eviction,
            ..Settings::default()
        };
        let at = SocketAddr::from((far.v4, PORT));
        match far.on(|| bypass::open(&settings, &[at]))? {
            Some(opened) if (opened.arena.is_some()) == (zero_copy != ZeroCopy::Off) => {
                Ok(Packets { near, far, opened, settings })
            }
            _ => fail(format!("the kernel is too old for zero_copy={}", zero_copy.name())),
        }
    }

    pub(crate) fn store(&self) -> Outcome<Arc<Store>> {
        let Packets { opened, settings, .. } = self;
        let value_bytes = opened.arena.as_ref().map_or(0, |arena| arena.value_bytes());
        let config = Config {
            memory_bytes: settings.memory_bytes - opened.interface.ring_bytes() - value_bytes,
            item_bytes_max: settings.columns.item_bytes_max,
            columns: 1,
            eviction: Some(settings.eviction),
            cas: true,
            now: START,
        };
        let start = Start {
            arena: opened.arena.clone(),
            arena_value_bytes_min: settings.zero_copy_bytes_min,
            hash_seed: Some(HASH_SEED),
            ..Start::default()
        };
        Ok(Store::with_start(&config, start)?)
    }

    /// True if values of this length are stored in the arena.
    pub(crate) fn has(&self, value_bytes: usize) -> bool {
        self.opened.arena.is_some() && value_bytes >= self.settings.zero_copy_bytes_min
    }

    /// Gives the port to a column, and connects clients at the other end of the link.
    pub(crate) fn site(self) -> Outcome<Site<Xdp>> {
        let Packets { near, far, opened, .. } = self;
        let at = SocketAddr::from((far.v4, PORT));
        let connect = |_| net::Datagrams::connect(at, Sizes::default());
        let clients = near.on(|| (0..TOGETHER).map(connect).collect::<io::Result<_>>())?;
        let counter = format!("/sys/class/net/{WIRE}/statistics/rx_packets");
        let counter = PacketCounter(far.on(|| File::open(counter))?);
        let mut paths = Xdp::of_columns(opened.ports, 0, opened.speak, &opened.interface);
        match paths.pop() {
            Some(path) => Ok(Site::new(path, opened.arena.as_ref(), clients, Some(counter))),
            None => fail("a link without a queue".to_owned()),
        }
    }
}

impl PacketCounter {
    pub(crate) fn count(&self) -> Outcome<u64> {
        let mut text = [0; 24];
        let bytes = self.0.read_at(&mut text, 0)?;
        Ok(str::from_utf8(&text[..bytes])?.trim().parse()?)
    }
}

pub(crate) fn check_in_arena(column: &mut Column, keys: &[Key]) -> Outcome<()> {
    for key in keys {
        match column.get(key).map(|hit| hit.value) {
            Some(Value::Frames(..)) => {}
            _ => {
                return fail("a value is not in the arena: the store needs more memory".to_owned());
            }
        }
    }
    Ok(())
}
