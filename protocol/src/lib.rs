//! bytes <-> Request, Reply: memcached's text protocol (classic and meta), its binary one and its
//! UDP frame, in both directions; RESP for a load generator.
//!
//! Where: between the datapath, which brings bytes and takes them away, and the executor.
//! Invariant: no I/O, no allocation, no copying on the server's side: a `Request` borrows from the
//! input. What a `Session` makes of a stream does not depend on where the stream is cut.
//! Source: memcached's `protocol.txt`; `proto_text.c`, `proto_parser.c`, `proto_bin.c`,
//! `mcmc.c` (1.6.45).

pub mod base64;
pub mod binary;
pub mod command;
pub mod form;
pub mod line;
pub mod meta;
pub mod number;
mod operator;
pub mod outcome;
mod parse;
mod quick;
pub mod reply;
pub mod request;
pub mod resp;
mod scan;
pub mod session;
mod short;
pub mod show;
pub mod text;
pub mod udp;

pub use binary::Tag;
pub use command::{COMMANDS, Command, MetaVerb, Shape, StoreVerb};
pub use form::{Answer, Form, GetForm};
pub use outcome::{Outcome, Refusal};
pub use reply::Reply;
pub use request::{Args, Delete, Delta, Get, Initial, Meta, Request, Store};
pub use session::{LINE_BYTES_MAX, Only, Session, Speak, Step};
pub use short::Short;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 250;
