//! Sends requests in datagrams, which the code of a column receives, executes and answers.
//!
//! Where: the runs under callgrind, for the rows of datagrams and of packets.
//! Invariant: callgrind counts only the column's work in user space, after all requests of a batch
//! have arrived. Callgrind does not count the clients' work or the checks of replies.

use std::sync::Arc;

use columns::datagram::{Datagrams, Gatherer, Guard};
use columns::datapath::Datapath;
use columns::datapath::udp::{ColumnSocket, Udp};
use columns::turn::TurnState;
use hypostyle::execute::Context;
use memory::arena::Arena;
use net::{Calls, Inbox, Outbox, SLOT_BYTES_MAX, Sizes};
use protocol::ProtocolMode;
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES, Header};

use crate::measure::in_process::{BATCH, between_batches};
use crate::measure::requests::Batch;
use crate::measure::{Outcome, fail};
use crate::line::packets::PacketCounter;

pub(crate) const TOGETHER: usize = BATCH as usize;
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a reply in one datagram.
const PART_BYTES: usize = ANSWER_BYTES_MAX - HEADER_BYTES;
/// The bench fails if no datagram arrives in this number of attempts, which take seconds.
const LOOKS_MAX: usize = 1 << 20;

pub(crate) struct Site<D: Datapath> {
    column: Datagrams<D>,
    clients: Vec<net::Datagrams>,
    /// Counts packets that arrive over AF_XDP, where a packet may arrive after the send returned.
    arrivals: Option<PacketCounter>,
    outbox: Outbox,
    inbox: Inbox,
    calls: Calls,
}

impl Site<Udp> {
    pub(crate) fn of_socket(clients: usize) -> Outcome<Site<Udp>> {
        let socket = net::Datagrams::bind(([127, 0, 0, 1], 0).into(), Sizes::default())?;
        let at = socket.address()?;
        let clients = (0..clients).map(|_| net::Datagrams::connect(at, Sizes::default()));
        let clients = clients.collect::<Result<_, _>>()?;
        let socket = ColumnSocket {
            socket: Arc::new(socket),
            speak: ProtocolMode::Auto,
            datagram_bytes_max: ANSWER_BYTES_MAX,
        };
        match Udp::new(Arc::from([vec![socket]]), 0) {
            Some(path) => Ok(Site::new(path, None, clients, None)),
            None => fail("a column without a socket".to_owned()),
        }
    }
}

impl<D: Datapath> Site<D> {
    pub(crate) fn new(
        path: D,
        arena: Option<&Arc<Arena>>,
        clients: Vec<net::Datagrams>,
        arrivals: Option<PacketCounter>,
    ) -> Site<D> {
        let gathers = Gatherer::for_columns(1, arena);
        Site {
            column: Datagrams::new(path, Guard::default(), REPLY_BYTES_MAX, gathers),
            clients,
            arrivals,
            outbox: Outbox::new(TOGETHER, TOGETHER, true),
            inbox: Inbox::new(net::BATCH_MAX, SLOT_BYTES_MAX),
            calls: Calls::default(),
        }
    }

    /// Executes `keys` requests in batches of `TOGETHER`. In a batch, either each client sends one
    /// request, or a single client sends all requests.
    pub(crate) fn run(
        mut self,
        keys: usize,
        requests: &Batch,
        turn: &mut TurnState<Context>,
    ) -> Outcome<()> {
        let request_bytes = requests.request.len() / keys;
        let reply_bytes = requests.reply.len() / keys;
        let batches = requests.request.chunks(request_bytes * TOGETHER);
        let replies = requests.reply.chunks(reply_bytes * TOGETHER);
        for (batch, replies) in batches.zip(replies) {
            self.ask(batch.chunks(request_bytes))?;
            self.column.note_input(0);
            let due = replies.len() / reply_bytes * reply_bytes.div_ceil(PART_BYTES);
            let sent = |turn: &TurnState<Context>| turn.counters.udp_sent.get();
            let (until, mut looks) = (sent(turn) + due as u64, 0);
            // One turn does not always execute the whole batch: the socket's inbox starts with two
            // slots and grows, and a turn may leave some of the long requests to the next turn.
            while sent(turn) < until {
                measured_batches_of_datagrams(&mut self.column, turn);
                looks = looked(looks, "answers")?;
            }
            // The server chooses CAS uniques, so a reply with a unique is checked only in length.
            self.check(replies.chunks(reply_bytes), requests.cas_at.is_empty())?;
        }
        Ok(())
    }

    /// Sends the requests in order, one client after the other, and waits until all have arrived.
    fn ask<'r>(&mut self, requests: impl Iterator<Item = &'r [u8]>) -> Outcome<()> {
        let before = self.arrivals.as_ref().map(PacketCounter::count).transpose()?;
        let each = TOGETHER / self.clients.len();
        let mut requests = requests.zip(0..);
        for client in &self.clients {
            let mut batch = self.outbox.open();
            for (request, number) in requests.by_ref().take(each) {
                batch.add(None, &Header::request(number, 0).bytes(), [request]);
            }
            if batch.post(client, &self.calls).sent != each {
                return fail("requests cannot be sent".to_owned());
            }
        }
        let mut looks = 0;
        while let (Some(arrivals), Some(before)) = (&self.arrivals, before) {
            if arrivals.count()? >= before + TOGETHER as u64 {
                break;
            }
            looks = looked(looks, "requests")?;
        }
        Ok(())
    }

    /// Fails if the column's replies differ from `replies`; if `!is_known`, compares only lengths.
    fn check<'r>(
        &mut self,
        replies: impl Iterator<Item = &'r [u8]>,
        is_known: bool,
    ) -> Outcome<()> {
        let each = TOGETHER / self.clients.len();
        let mut replies = replies.zip(0..);
        for client in &self.clients {
            let mut due = replies.by_ref().take(each).flat_map(|(reply, id)| {
                let parts = reply.chunks(PART_BYTES);
                let (total, numbers) = (parts.len(), 0_u16..);
                parts.zip(numbers).map(move |(part, number)| (id, number, total, part))
            });
            let (mut next, mut looks) = (due.next(), 0);
            while next.is_some() {
                if client.receive(&mut self.inbox, &self.calls).datagrams == 0 {
                    looks = looked(looks, "answers")?;
                    continue;
                }
                for datagram in self.inbox.datagrams() {
                    let (Some((id, number, total, part)), Some((frame, bytes))) =
                        (next, Header::read(datagram.bytes))
                    else {
                        return fail("an answer belongs to no request".to_owned());
                    };
                    let is_due =
                        (frame.id, frame.number, usize::from(frame.total)) == (id, number, total);
                    if !is_due || bytes.len() != part.len() || is_known && bytes != part {
                        let bytes = String::from_utf8_lossy(bytes);
                        return fail(format!("a wrong answer: {bytes:?}"));
                    }
                    next = due.next();
                }
            }
        }
        Ok(())
    }
}

fn looked(looks: usize, what: &str) -> Outcome<usize> {
    if looks == LOOKS_MAX {
        return fail(format!("the {what} do not arrive"));
    }
    if looks > 0 {
        std::thread::yield_now();
    }
    Ok(looks + 1)
}

/// Contains all code that callgrind counts for datagrams.
#[inline(never)]
fn measured_batches_of_datagrams<D: Datapath>(
    column: &mut Datagrams<D>,
    turn: &mut TurnState<Context>,
) {
    column.turns(turn);
    between_batches(&mut turn.executor.store);
}
