//! Implements memcached's text protocol (classic and meta) and binary protocol: parses bytes into a
//! `Request`, and writes the outcome of a request as bytes. The crate also parses replies for a
//! load generator, and has the UDP header, flows and RESP.
//!
//! Where: between the datapath, which receives and sends bytes, and the server's executor.
//! Invariant: the crate does no I/O. Parsing a request neither allocates nor copies: a `Request`
//! borrows from the input. The requests in a stream do not depend on the pieces in which the stream
//! arrives. The texts of a protocol's answers are only in the protocol's own `write` file.
//! Source: memcached's `protocol.txt`; `proto_text.c`, `proto_parser.c`, `proto_bin.c`,
//! `mcmc.c` (1.6.45).

pub mod base64;
pub mod binary;
pub mod command;
mod decoded;
mod digits;
pub mod flow;
pub mod form;
pub mod meta;
pub mod number;
pub mod outcome;
pub mod reply;
pub mod request;
pub mod resp;
pub mod session;
pub mod show;
pub mod step;
pub mod text;
pub mod udp;

pub use binary::Tag;
pub use command::{COMMANDS, Command, MetaVerb, Shape};
pub use form::{Answer, Form, GetForm};
pub use memory::verb::Verb;
pub use outcome::{Outcome, Refusal};
pub use reply::Reply;
pub use request::{
    Args, Delete, Delta, Get, Initial, KEY_BYTES_MAX, LineTokens, Meta, Request, Stats, Store,
};
pub use session::{ModeNames, ProtocolMode, Session, refusal_of, stored};
pub use step::{Step, TAIL_BYTES_MAX, Tail, TailRead};
pub use text::LINE_BYTES_MAX;
