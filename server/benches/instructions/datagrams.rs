//! GETs over UDP: received, executed and answered, as a column does it.
//!
//! Where: the runs under callgrind, for the rows of datagrams.
//! Invariant: callgrind counts what the column does in user space. The clients' part, and the check
//! of every reply, stand outside of what it counts.

use std::sync::Arc;

use hypostyle::datagram::{Datagrams, Gather, Guard};
use hypostyle::datapath::udp::{ColumnSocket, Udp};
use hypostyle::turn::TurnState;
use net::{Calls, Inbox, Outbox, SLOT_BYTES_MAX, Sizes};
use protocol::Speak;
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES, Header};

use crate::measure::in_process::{BATCH, between_batches};
use crate::measure::requests::Batch;
use crate::measure::{Outcome, fail};

/// Datagrams that arrive together.
const TOGETHER: usize = BATCH as usize;
/// More than any reply here has.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A column's datagrams, and the clients that ask it.
struct Site {
    column: Datagrams<Udp>,
    clients: Vec<net::Datagrams>,
    outbox: Outbox,
    inbox: Inbox,
    calls: Calls,
}

/// Carries out `keys` requests, `TOGETHER` at a time: each from a client of its own, or all from
/// one client in one burst.
pub(crate) fn run(
    is_burst: bool,
    keys: usize,
    requests: &Batch,
    turn: &mut TurnState,
) -> Outcome<()> {
    let mut site = Site::new(if is_burst { 1 } else { TOGETHER })?;
    let (request_bytes, reply_bytes) = (requests.request.len() / keys, requests.reply.len() / keys);
    let batches = requests.request.chunks(request_bytes * TOGETHER);
    let replies = requests.reply.chunks(reply_bytes * TOGETHER);
    for (nth, (batch, replies)) in batches.zip(replies).enumerate() {
        site.ask(batch.chunks(request_bytes))?;
        site.column.note_input(0);
        measured_batches_of_datagrams(&mut site.column, turn);
        if nth == 0 {
            // An inbox offers two slots at first and learns: this batch takes more turns.
            site.column.turns(turn);
        }
        site.check(replies.chunks(reply_bytes))?;
    }
    Ok(())
}

/// What callgrind counts here.
#[inline(never)]
fn measured_batches_of_datagrams(column: &mut Datagrams<Udp>, turn: &mut TurnState) {
    column.turns(turn);
    between_batches(&mut turn.context.store);
}

impl Site {
    fn new(clients: usize) -> Outcome<Site> {
        let socket = net::Datagrams::bind(([127, 0, 0, 1], 0).into(), Sizes::default())?;
        let at = socket.address()?;
        let clients = (0..clients).map(|_| net::Datagrams::connect(at, Sizes::default()));
        let clients = clients.collect::<Result<_, _>>()?;
        let socket = ColumnSocket {
            socket: Arc::new(socket),
            speak: Speak::Auto,
            datagram_bytes_max: ANSWER_BYTES_MAX,
        };
        let Some(path) = Udp::new(Arc::from([vec![socket]]), 0) else {
            return fail("a column without a socket".to_owned());
        };
        Ok(Site {
            column: Datagrams::new(
                path,
                Guard::default(),
                REPLY_BYTES_MAX,
                Gather::for_columns(1, None),
            ),
            clients,
            outbox: Outbox::new(TOGETHER, TOGETHER, true),
            inbox: Inbox::new(net::BATCH_MAX, SLOT_BYTES_MAX),
            calls: Calls::default(),
        })
    }

    /// Sends requests, one client after the other, with their numbers.
    fn ask<'r>(&mut self, requests: impl Iterator<Item = &'r [u8]>) -> Outcome<()> {
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
        Ok(())
    }

    /// Receives what the column has answered, which must be all these replies.
    fn check<'r>(&mut self, replies: impl Iterator<Item = &'r [u8]>) -> Outcome<()> {
        let mut replies = replies.zip(0..);
        for client in &self.clients {
            while client.receive(&mut self.inbox, &self.calls).datagrams > 0 {
                for came in self.inbox.datagrams() {
                    let (Some((reply, number)), Some((frame, bytes))) =
                        (replies.next(), Header::read(came.bytes))
                    else {
                        return fail("answers that nobody asked for".to_owned());
                    };
                    if frame.id != number || came.bytes.len() != HEADER_BYTES + reply.len() {
                        let bytes = String::from_utf8_lossy(bytes);
                        return fail(format!("an answer that cannot be right: {bytes:?}"));
                    }
                }
            }
        }
        match replies.next() {
            None => Ok(()),
            Some((_, number)) => fail(format!("no answer to request {number} of a batch")),
        }
    }
}
