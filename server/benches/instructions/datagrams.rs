//! Requests in datagrams: received, executed and answered, as a column does it.
//!
//! Where: the runs under callgrind, for the rows of datagrams and of packets.
//! Invariant: callgrind counts what the column does in user space once all requests of a batch have
//! arrived. It does not count the clients, nor the check of every reply.

use std::sync::Arc;

use hypostyle::datagram::{Datagrams, Gather, Guard};
use hypostyle::datapath::Datapath;
use hypostyle::datapath::udp::{ColumnSocket, Udp};
use hypostyle::turn::TurnState;
use memory::arena::Arena;
use net::{Calls, Inbox, Outbox, SLOT_BYTES_MAX, Sizes};
use protocol::Speak;
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES, Header};

use crate::measure::in_process::{BATCH, between_batches};
use crate::measure::requests::Batch;
use crate::measure::{Outcome, fail};
use crate::packets::Came;

/// Datagrams that arrive together.
pub(crate) const TOGETHER: usize = BATCH as usize;
/// A bound that no reply here reaches.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a reply that fit one datagram.
const PART_BYTES: usize = ANSWER_BYTES_MAX - HEADER_BYTES;
/// Looks for a datagram before the bench gives up; they take seconds.
const LOOKS_MAX: usize = 1 << 20;

/// A column's datagrams, and the clients that ask it.
pub(crate) struct Site<D: Datapath> {
    column: Datagrams<D>,
    clients: Vec<net::Datagrams>,
    /// Counts arrivals where a sent request is not received at once: past the kernel.
    came: Option<Came>,
    outbox: Outbox,
    inbox: Inbox,
    calls: Calls,
}

impl Site<Udp> {
    /// Returns a column with a socket of the kernel.
    pub(crate) fn of_socket(clients: usize) -> Outcome<Site<Udp>> {
        let socket = net::Datagrams::bind(([127, 0, 0, 1], 0).into(), Sizes::default())?;
        let at = socket.address()?;
        let clients = (0..clients).map(|_| net::Datagrams::connect(at, Sizes::default()));
        let clients = clients.collect::<Result<_, _>>()?;
        let socket = ColumnSocket {
            socket: Arc::new(socket),
            speak: Speak::Auto,
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
        came: Option<Came>,
    ) -> Site<D> {
        let gathers = Gather::for_columns(1, arena);
        Site {
            column: Datagrams::new(path, Guard::default(), REPLY_BYTES_MAX, gathers),
            clients,
            came,
            outbox: Outbox::new(TOGETHER, TOGETHER, true),
            inbox: Inbox::new(net::BATCH_MAX, SLOT_BYTES_MAX),
            calls: Calls::default(),
        }
    }

    /// Carries out `keys` requests, `TOGETHER` at a time: one from each client, or one client's
    /// burst.
    pub(crate) fn run(
        mut self,
        keys: usize,
        requests: &Batch,
        turn: &mut TurnState,
    ) -> Outcome<()> {
        let request_bytes = requests.request.len() / keys;
        let reply_bytes = requests.reply.len() / keys;
        let batches = requests.request.chunks(request_bytes * TOGETHER);
        let replies = requests.reply.chunks(reply_bytes * TOGETHER);
        for (batch, replies) in batches.zip(replies) {
            self.ask(batch.chunks(request_bytes))?;
            self.column.note_input(0);
            let due = replies.len() / reply_bytes * reply_bytes.div_ceil(PART_BYTES);
            let sent = |turn: &TurnState| turn.context.counters.udp_sent.get();
            let (until, mut looks) = (sent(turn) + due as u64, 0);
            // Several turns: a socket's inbox starts with two slots and grows, and a turn may leave
            // some of the long requests to the next.
            while sent(turn) < until {
                measured_batches_of_datagrams(&mut self.column, turn);
                looks = looked(looks, "answers")?;
            }
            // The server chooses the CAS uniques in a reply.
            self.check(replies.chunks(reply_bytes), requests.cas_at.is_empty())?;
        }
        Ok(())
    }

    /// Sends the requests in order, one client after the other, and waits until all have arrived.
    fn ask<'r>(&mut self, requests: impl Iterator<Item = &'r [u8]>) -> Outcome<()> {
        let before = self.came.as_ref().map(Came::count).transpose()?;
        let each = TOGETHER / self.clients.len();
        let mut requests = requests.zip(0..);
        for client in &self.clients {
            let mut letters = self.outbox.open();
            for (request, number) in requests.by_ref().take(each) {
                letters.add(None, &Header::request(number, 0).bytes(), [request]);
            }
            if letters.post(client, &self.calls).sent != each {
                return fail("requests that cannot be sent".to_owned());
            }
        }
        let mut looks = 0;
        while let (Some(came), Some(before)) = (&self.came, before) {
            if came.count()? >= before + TOGETHER as u64 {
                break;
            }
            looks = looked(looks, "requests")?;
        }
        Ok(())
    }

    /// Receives the column's replies, which must equal `replies`: if not `is_known`, only in
    /// length.
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
                for came in self.inbox.datagrams() {
                    let (Some((id, number, total, part)), Some((frame, bytes))) =
                        (next, Header::read(came.bytes))
                    else {
                        return fail("answers that nobody asked for".to_owned());
                    };
                    let is_due =
                        (frame.id, frame.number, usize::from(frame.total)) == (id, number, total);
                    if !is_due || bytes.len() != part.len() || is_known && bytes != part {
                        let bytes = String::from_utf8_lossy(bytes);
                        return fail(format!("an answer that cannot be right: {bytes:?}"));
                    }
                    next = due.next();
                }
            }
        }
        Ok(())
    }
}

/// Counts a look that found nothing; an error after `LOOKS_MAX`.
fn looked(looks: usize, what: &str) -> Outcome<usize> {
    if looks == LOOKS_MAX {
        return fail(format!("{what} that do not come"));
    }
    if looks > 0 {
        std::thread::yield_now();
    }
    Ok(looks + 1)
}

/// Contains everything that callgrind counts here.
#[inline(never)]
fn measured_batches_of_datagrams<D: Datapath>(column: &mut Datagrams<D>, turn: &mut TurnState) {
    column.turns(turn);
    between_batches(&mut turn.context.store);
}
