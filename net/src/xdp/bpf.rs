//! Calls of bpf(2) for the maps, programs and links of XDP.
//!
//! Where: called by `link` at start.
//! Invariant: each structure has the first fields of the kernel's structure; the kernel takes all
//! later fields as zero. Closing a descriptor releases the kernel's object. If the object is a
//! link, the kernel removes the program from the interface.
//! Source: bpf(2); `union bpf_attr` of `linux/bpf.h`.
#![allow(unsafe_code, reason = "neither rustix nor libc has bpf(2)")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::program::Instruction;

/// Numbers of the commands of bpf(2).
const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Flag of a program that accepts packets in several pieces. (Our program reads only the first.)
const HAS_FRAGMENTS: u32 = 1 << 5;
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

const NAME_BYTES: usize = 16;
/// The name of a map or of a program, which tools show. The last byte is 0.
pub(super) type Name = [u8; NAME_BYTES];
pub(super) const NAME: Name = *b"hypostyle_udp\0\0\0";

/// The point on a packet's path at which the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachMode {
    /// In the driver, before the kernel processes the packet.
    Native,
    /// At the entry to the kernel's stack, with any driver.
    Generic,
}

#[repr(C)]
struct CreateMap {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: Name,
}

/// Creates an empty map from queue numbers to AF_XDP sockets, with `entries` entries.
pub(super) fn create_map(entries: u32) -> io::Result<OwnedFd> {
    let mut create = CreateMap {
        map_type: MAP_TYPE_XSKMAP,
        key_bytes: 4,
        value_bytes: 4,
        entries,
        flags: 0,
        inner: 0,
        numa_node: 0,
        name: NAME,
    };
    // SAFETY: MAP_CREATE takes this structure, which holds no pointer.
    descriptor(unsafe { call(MAP_CREATE, &mut create) }?)
}

#[repr(C)]
struct UpdateElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Enters a socket into a map, for queue `number`. Closing the socket removes it from the map.
pub(super) fn enter(map: BorrowedFd<'_>, number: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = raw(socket);
    let mut update = UpdateElement {
        map: raw(map),
        padding: 0,
        key: address(&raw const number),
        value: address(&raw const value),
        flags: 0,
    };
    // SAFETY: MAP_UPDATE_ELEM takes this structure, and reads a key and a value of four bytes each,
    // as `create_map` has declared: `number` and `value`, which both outlive the call.
    unsafe { call(MAP_UPDATE_ELEM, &mut update) }.map(drop)
}

#[repr(C)]
struct LoadProgram {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: Name,
    interface: u32,
    attach_type: u32,
}

/// Loads an XDP program. If `takes_long` is true, the program also gets packets in several pieces.
pub(super) fn load(program: &[Instruction], takes_long: bool, name: Name) -> io::Result<OwnedFd> {
    let license: &CStr = c"Apache-2.0";
    let mut load = LoadProgram {
        program_type: PROG_TYPE_XDP,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: address(program.as_ptr()),
        license: address(license.as_ptr()),
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: if takes_long { HAS_FRAGMENTS } else { 0 },
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: PROG_LOAD takes this structure, and reads `count` instructions of eight bytes, which
    // `program` has, and a license that ends in 0, as a `CStr` does. Both outlive the call. The
    // kernel writes no log, because `log_level` is 0.
    descriptor(unsafe { call(PROG_LOAD, &mut load) }?)
}

#[repr(C)]
struct CreateLink {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches a program to an interface for as long as the returned link is open. Fails if the
/// interface already has a program: with EBUSY in the same mode, with EEXIST in the other mode.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    mode: AttachMode,
) -> io::Result<OwnedFd> {
    let mut create = CreateLink {
        program: raw(program),
        interface,
        attach_type: ATTACH_XDP,
        flags: match mode {
            AttachMode::Native => FLAG_NATIVE,
            AttachMode::Generic => FLAG_GENERIC,
        },
    };
    // SAFETY: LINK_CREATE takes this structure, which holds no pointer.
    descriptor(unsafe { call(LINK_CREATE, &mut create) }?)
}

#[repr(C)]
struct FromId {
    id: u32,
    next_id: u32,
    flags: u32,
}

#[repr(C)]
struct AskInfo {
    object: u32,
    bytes: u32,
    info: u64,
}

/// The kernel's description of a program, up to the field `name`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    program_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_bytes: u32,
    translated_bytes: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    user: u32,
    maps: u32,
    map_ids: u64,
    name: Name,
}

pub(super) fn name_of(id: u32) -> io::Result<String> {
    let mut from = FromId { id, next_id: 0, flags: 0 };
    // SAFETY: PROG_GET_FD_BY_ID takes this structure, which holds no pointer.
    let program = descriptor(unsafe { call(PROG_GET_FD_BY_ID, &mut from) }?)?;
    let info = info(program.as_fd())?;
    let name = info.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

pub(super) fn id_of(program: BorrowedFd<'_>) -> io::Result<u32> {
    info(program).map(|info| info.id)
}

fn info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = ProgramInfo::default();
    let bytes = u32::try_from(size_of::<ProgramInfo>()).map_err(io::Error::other)?;
    let mut ask =
        AskInfo { object: raw(program), bytes, info: (&raw mut info).expose_provenance() as u64 };
    // SAFETY: OBJ_GET_INFO_BY_FD takes this structure, and writes at most `bytes` bytes to `info`,
    // which has this size, outlives the call, and may hold any bytes. The kernel writes nothing to
    // `jited`, `translated` and `map_ids`, because their lengths are 0.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut ask) }?;
    Ok(info)
}

pub(super) fn is_ours(name: &str) -> bool {
    name.as_bytes() == NAME.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
pub(super) fn run(program: BorrowedFd<'_>, packet: &[u8]) -> io::Result<u32> {
    const PROG_TEST_RUN: u32 = 10;
    #[repr(C)]
    struct RunProgram {
        program: u32,
        verdict: u32,
        bytes_in: u32,
        bytes_out: u32,
        packet_in: u64,
        packet_out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut run = RunProgram {
        program: raw(program),
        verdict: 0,
        bytes_in: u32::try_from(packet.len()).map_err(io::Error::other)?,
        bytes_out: 0,
        packet_in: address(packet.as_ptr()),
        packet_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: PROG_TEST_RUN takes this structure, and reads `bytes_in` bytes of `packet`, which
    // outlives the call. The kernel writes no packet, because `packet_out` is 0.
    unsafe { call(PROG_TEST_RUN, &mut run) }?;
    Ok(run.verdict)
}

/// Calls bpf(2).
///
/// # Safety
/// The command takes a structure that begins with the fields of a `T`, and every pointer in
/// `attributes` points to memory that the command may read or write.
unsafe fn call<T>(command: u32, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes at most `size_of::<T>()` bytes of `attributes`, and the
    // memory to which its pointers point. The caller guarantees that the command may do so.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(result).map_err(io::Error::other)?;
    // SAFETY: each command whose result is passed here returns a new descriptor without an owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}
