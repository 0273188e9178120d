//! The XDP program that selects our packets.
//!
//! ```text
//! UDP to our ports, to one of our addresses, from an allowed network  ->  the socket of its queue
//! everything else                                                     ->  the kernel's stack
//! ```
//!
//! Where: the kernel runs the program on every received packet, before the kernel's stack.
//! Invariant: packets that are not certainly ours pass to the kernel's stack: fragments, packets
//! with a VLAN tag, options or extension headers, packets to a group address, and packets in a
//! queue without a socket. The program drops and changes no packet. The program reads a byte only
//! after a check that the packet has this byte; the kernel verifies all checks at loading.
//! Source: `Documentation/bpf/standardization/instruction-set.rst` of Linux; bpf-helpers(7).

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

/// Maximum number of addresses that a program compares. With this number and `NETWORKS_MAX`
/// networks, a program has less than half of the 4,096 instructions that every kernel accepts.
pub(super) const ADDRESSES_MAX: usize = 64;
pub(super) const NETWORKS_MAX: usize = 64;

/// The properties of the packets that a program takes from the kernel's stack.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// The destination addresses. None is a group address.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ports: RangeInclusive<u16>,
    /// The source networks; empty for all sources.
    pub(super) allow: Vec<IpNet>,
}

/// A BPF instruction.
///
/// ```text
/// 0      1                      2        4           8
/// | code | source, destination | offset | immediate |     the registers have four bits each
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: u32,
}

/// Registers. A call leaves its result in R0, and destroys R1 to R5.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
}
use Register::*;

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Width {
    Four = 0x00,
    Two = 0x08,
    One = 0x10,
    Eight = 0x18,
}

/// The condition of a jump. Comparisons are unsigned.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum If {
    Equal = 0x10,
    Greater = 0x20,
    Differs = 0x50,
}

/// Operation codes, from `linux/bpf.h`.
const LOAD: u8 = 0x61;
const LOAD_IMMEDIATE_8: u8 = 0x18;
const MOVE_8: u8 = 0xbf;
const MOVE_IMMEDIATE_4: u8 = 0xb4;
const ADD_IMMEDIATE_8: u8 = 0x07;
const SUBTRACT_IMMEDIATE_4: u8 = 0x14;
const AND_8: u8 = 0x5f;
const AND_IMMEDIATE_4: u8 = 0x54;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_8: u8 = 0x0d;
const JUMP_IF_IMMEDIATE_4: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Offsets of four-byte fields in `struct xdp_md`, to which R1 points when the program starts.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
/// The verdict that passes a packet to the kernel's stack.
const XDP_PASS: u32 = 2;
const REDIRECT_MAP: u32 = 51;
/// Value of an instruction's source register if the immediate is the descriptor of a map.
const IS_MAP: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

#[derive(Debug, Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// For each label, the index of the instruction to which a jump leads.
    places: Vec<usize>,
    /// For each jump, the index of its instruction, and the label to which it leads.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: u32) {
        let registers = from << 4 | to as u8;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// `to = *(from + offset)`
    fn load(&mut self, to: Register, width: Width, from: Register, offset: i16) {
        self.put(LOAD | width as u8, to, from as u8, offset, 0);
    }

    /// `to = value`, eight bytes in memory order; takes two instructions.
    fn set(&mut self, to: Register, value: [u8; 8]) {
        let [b0, b1, b2, b3, b4, b5, b6, b7] = u64::from_ne_bytes(value).to_le_bytes();
        self.put(LOAD_IMMEDIATE_8, to, 0, 0, u32::from_le_bytes([b0, b1, b2, b3]));
        self.put(0, R0, 0, 0, u32::from_le_bytes([b4, b5, b6, b7]));
    }

    /// Jumps to `to` if the condition holds for `value` and the lower four bytes of `this`.
    fn jump_if(&mut self, condition: If, this: Register, value: u32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(JUMP_IF_IMMEDIATE_4 | condition as u8, this, 0, 0, value);
    }

    /// Jumps to `to` if the condition holds for all eight bytes of `this` and `that`.
    fn jump_if_8(&mut self, condition: If, this: Register, that: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(JUMP_IF_8 | condition as u8, this, that as u8, 0, 0);
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(JUMP, R0, 0, 0, 0);
    }

    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = self.instructions.len();
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let far = self.places[label.0].wrapping_sub(at + 1);
            // The limits on addresses and networks keep each offset small enough. With -1 the jump
            // would lead back to itself, and the kernel would refuse the program.
            self.instructions[at].offset = i16::try_from(far).unwrap_or(-1);
        }
        self.instructions
    }
}

/// Offsets of header fields from the packet's first byte.
mod at {
    pub(super) const MAC: i16 = 0;
    pub(super) const KIND: i16 = 12;
    pub(super) const V4_VERSION: i16 = 14;
    pub(super) const V4_PARTS: i16 = 20;
    pub(super) const V4_CARRIES: i16 = 23;
    pub(super) const V4_FROM: i16 = 26;
    pub(super) const V4_TO: i16 = 30;
    pub(super) const V4_PORT: i16 = 36;
    pub(super) const V6_CARRIES: i16 = 20;
    pub(super) const V6_FROM: i16 = 22;
    pub(super) const V6_TO: i16 = 38;
    pub(super) const V6_PORT: i16 = 56;
}

const UDP: u32 = 17;

/// Assembles the program; `map` is the descriptor of the map from queue numbers to sockets. R6
/// points to the program's context, R2 to the packet's first byte, and R3 to the packet's end.
pub(super) fn program(filter: &Filter, map: u32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let [v6, ours, pass] = [(); 3].map(|()| a.label());
    a.put(MOVE_8, R6, R1 as u8, 0, 0);
    a.load(R2, Width::Four, R1, DATA);
    a.load(R3, Width::Four, R1, DATA_END);
    has_bytes(&mut a, crate::wire::HEADERS_BYTES_V4, pass);
    a.load(R4, Width::One, R2, at::MAC);
    a.put(AND_IMMEDIATE_4, R4, 0, 0, 1);
    a.jump_if(If::Differs, R4, 0, pass); // a group address
    a.load(R4, Width::Two, R2, at::KIND);
    a.jump_if(If::Equal, R4, two(0x86dd), v6);
    a.jump_if(If::Differs, R4, two(0x0800), pass); // neither IPv4 nor IPv6

    a.load(R4, Width::One, R2, at::V4_VERSION);
    a.jump_if(If::Differs, R4, 0x45, pass); // IPv4 options
    a.load(R4, Width::One, R2, at::V4_CARRIES);
    a.jump_if(If::Differs, R4, UDP, pass);
    a.load(R4, Width::Two, R2, at::V4_PARTS);
    a.put(AND_IMMEDIATE_4, R4, 0, 0, two(0x3fff));
    a.jump_if(If::Differs, R4, 0, pass); // a fragment
    is_to_our_port(&mut a, &filter.ports, at::V4_PORT, pass);
    a.load(R4, Width::Four, R2, at::V4_TO);
    a.load(R5, Width::Four, R2, at::V4_FROM);
    is_v4_ours(&mut a, filter, ours, pass);

    a.place(v6);
    has_bytes(&mut a, crate::wire::HEADERS_BYTES_V6, pass);
    a.load(R4, Width::One, R2, at::V6_CARRIES);
    a.jump_if(If::Differs, R4, UDP, pass); // an extension header, or not UDP
    is_to_our_port(&mut a, &filter.ports, at::V6_PORT, pass);
    a.load(R4, Width::Eight, R2, at::V6_TO);
    a.load(R5, Width::Eight, R2, at::V6_TO + 8);
    a.load(R7, Width::Eight, R2, at::V6_FROM);
    a.load(R8, Width::Eight, R2, at::V6_FROM + 8);
    is_v6_ours(&mut a, filter, ours, pass);

    a.place(ours);
    a.put(LOAD_IMMEDIATE_8, R1, IS_MAP, 0, map);
    a.put(0, R0, 0, 0, 0);
    a.load(R2, Width::Four, R6, QUEUE);
    a.put(MOVE_IMMEDIATE_4, R3, 0, 0, XDP_PASS); // the result if the queue has no socket
    a.put(CALL, R0, 0, 0, REDIRECT_MAP);
    a.put(EXIT, R0, 0, 0, 0);
    a.place(pass);
    a.put(MOVE_IMMEDIATE_4, R0, 0, 0, XDP_PASS);
    a.put(EXIT, R0, 0, 0, 0);
    a.finish()
}

/// Adds a check: if the packet has fewer than `bytes` bytes, the program jumps to `pass`.
fn has_bytes(a: &mut Assembler, bytes: usize, pass: Label) {
    a.put(MOVE_8, R4, R2 as u8, 0, 0);
    a.put(ADD_IMMEDIATE_8, R4, 0, 0, u32::try_from(bytes).unwrap_or(u32::MAX >> 1));
    a.jump_if_8(If::Greater, R4, R3, pass);
}

/// Adds a check: if the port at `offset` is not one of ours, the program jumps to `pass`.
fn is_to_our_port(a: &mut Assembler, ports: &RangeInclusive<u16>, offset: i16, pass: Label) {
    let (first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
    a.load(R4, Width::Two, R2, offset);
    a.put(TO_BIG_ENDIAN, R4, 0, 0, 16);
    a.put(SUBTRACT_IMMEDIATE_4, R4, 0, 0, first); // a lower port wraps around to a high number
    a.jump_if(If::Greater, R4, last.saturating_sub(first), pass);
}

/// Adds a jump to `ours` if R4 is our address and R5 is in an allowed network, else to `pass`.
fn is_v4_ours(a: &mut Assembler, filter: &Filter, ours: Label, pass: Label) {
    let from = a.label();
    for ip in filter.addresses.iter().filter_map(v4) {
        a.jump_if(If::Equal, R4, u32::from_ne_bytes(ip.octets()), from);
    }
    a.jump(pass);
    // The kernel refuses unreachable instructions; without IPv4 addresses, no jump leads to `from`.
    if !filter.addresses.iter().any(IpAddr::is_ipv4) {
        return;
    }
    a.place(from);
    if filter.allow.is_empty() {
        return a.jump(ours);
    }
    for network in &filter.allow {
        if let IpNet::V4(network) = network {
            a.put(MOVE_8, R4, R5 as u8, 0, 0);
            a.put(AND_IMMEDIATE_4, R4, 0, 0, u32::from_ne_bytes(network.netmask().octets()));
            a.jump_if(If::Equal, R4, u32::from_ne_bytes(network.network().octets()), ours);
        }
    }
    a.jump(pass);
}

/// Like `is_v4_ours`, but the destination is in R4 and R5, and the source in R7 and R8.
fn is_v6_ours(a: &mut Assembler, filter: &Filter, ours: Label, pass: Label) {
    let from = a.label();
    for ip in filter.addresses.iter().filter_map(v6) {
        let ([high, low], next) = (halves(ip), a.label());
        a.set(R0, high);
        a.jump_if_8(If::Differs, R4, R0, next);
        a.set(R0, low);
        a.jump_if_8(If::Equal, R5, R0, from);
        a.place(next);
    }
    a.jump(pass);
    if !filter.addresses.iter().any(IpAddr::is_ipv6) {
        return;
    }
    a.place(from);
    if filter.allow.is_empty() {
        return a.jump(ours);
    }
    for network in &filter.allow {
        let IpNet::V6(network) = network else { continue };
        let next = a.label();
        let masks = halves(network.netmask());
        for ((value, mask), half) in halves(network.network()).into_iter().zip(masks).zip([R7, R8])
        {
            a.set(R4, mask);
            a.put(AND_8, R4, half as u8, 0, 0);
            a.set(R0, value);
            a.jump_if_8(If::Differs, R4, R0, next);
        }
        a.jump(ours);
        a.place(next);
    }
    a.jump(pass);
}

fn v4(ip: &IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = ip { Some(*ip) } else { None }
}

fn v6(ip: &IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(ip) = ip { Some(*ip) } else { None }
}

/// The upper and the lower eight bytes of an address, in packet order.
fn halves(ip: Ipv6Addr) -> [[u8; 8]; 2] {
    let [a, b, c, d, e, f, g, h, low @ ..] = ip.octets();
    [[a, b, c, d, e, f, g, h], low]
}

/// Returns the number that a two-byte load of the big-endian `value` puts into a register.
fn two(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}
