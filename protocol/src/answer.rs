//! Fixed answers, line ends included.
//!
//! Where: written by the session for what is no request, and by the executor.
//! Invariant: each is memcached 1.6.45's, byte for byte.
//! Source: memcached 1.6.45 `proto_text.c`, `proto_parser.c`.

/// Nothing is sent.
pub const NOTHING: &str = "";
/// End of a retrieval line's values.
pub const END: &str = "END\r\n";
/// Stored.
pub const STORED: &str = "STORED\r\n";
/// The verb's condition does not hold.
pub const NOT_STORED: &str = "NOT_STORED\r\n";
/// The CAS unique differs.
pub const EXISTS: &str = "EXISTS\r\n";
/// No such key.
pub const NOT_FOUND: &str = "NOT_FOUND\r\n";
/// Deleted.
pub const DELETED: &str = "DELETED\r\n";
/// Touched.
pub const TOUCHED: &str = "TOUCHED\r\n";
/// Done.
pub const OK: &str = "OK\r\n";
/// Meta no-operation.
pub const MN: &str = "MN\r\n";
/// Meta miss.
pub const EN: &str = "EN\r\n";
/// Unknown command.
pub const ERROR: &str = "ERROR\r\n";
/// The line does not have its command's form.
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
/// A retrieval line holds a key over 250 bytes; memcached ends this one line twice.
pub const KEY_TOO_LONG: &str = "CLIENT_ERROR bad command line format\r\n\r\n";
/// What is left of `KEY_TOO_LONG` when the line's last word is `noreply`.
pub const KEY_TOO_LONG_NOREPLY: &str = "\r\n";
/// What followed the value was not `\r\n`.
pub const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
/// Exptime of touch, gat, flush_all.
pub const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
/// Delta of incr, decr.
pub const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
/// incr, decr, ma on a value that is no number.
pub const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Over `-I`.
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
/// No room for a value.
pub const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object\r\n";
/// No room for a number that grew, or for what `md x` leaves.
pub const NO_MEMORY_DELTA: &str = "SERVER_ERROR out of memory\r\n";
/// No room for the number `ma N` starts with.
pub const NO_MEMORY_VIVIFY: &str = "SERVER_ERROR Out of memory allocating new item\r\n";
/// `-F`.
pub const FLUSH_REFUSED: &str = "CLIENT_ERROR flush_all not allowed\r\n";
/// A meta flag of a wrong letter.
pub const FLAG_INVALID: &str = "CLIENT_ERROR invalid flag\r\n";
/// A meta flag twice.
pub const FLAG_DUPLICATE: &str = "CLIENT_ERROR duplicate flag\r\n";
/// Either of the two, from `ma`.
pub const FLAG_ARITHMETIC: &str = "CLIENT_ERROR invalid or duplicate flag\r\n";
/// Too many meta flags.
pub const FLAGS_TOO_LONG: &str = "CLIENT_ERROR options flags are too long\r\n";
/// A meta flag's number.
pub const FLAG_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";
/// Meta flag `b` on a key that is not base64.
pub const KEY_ENCODING: &str = "CLIENT_ERROR error decoding key\r\n";
/// Meta flag `O` over 32 bytes.
pub const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long\r\n";
/// Meta flag `M` of ms.
pub const MODE_SET: &str = "CLIENT_ERROR invalid mode for ms M token\r\n";
/// Meta flag `M` of ma.
pub const MODE_ARITHMETIC: &str = "CLIENT_ERROR invalid mode for ma M token\r\n";
/// Meta flag `J`.
pub const INITIAL: &str = "CLIENT_ERROR invalid numeric initial value\r\n";
/// Meta flag `D`.
pub const DELTA: &str = "CLIENT_ERROR invalid numeric delta value\r\n";
