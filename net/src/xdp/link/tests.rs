//! Tests of opening: the reasons of refusals, the interface's state, and closing.
//!
//! Where: in separate network namespaces, which need root.
//! Invariant: a refused opening leaves no program and no socket behind, and programs that were
//! attached before stay attached.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use testing::namespace::{Namespace, Veth, WIRE, pair};

use super::*;
use crate::xdp::tests::{answer, assert_all_chunks, await_that, client, serve, wanted};

fn open_on(end: &Namespace) -> Result<Opened, OpenError> {
    end.on(|| open(&wanted(Mode::Any)))
}

fn program_on(end: &Namespace) -> Option<String> {
    let shown = end.ip("link show wire");
    shown.split("prog/xdp").nth(1).map(|shown| shown.trim().to_owned())
}

#[test]
fn a_second_server_is_told_of_the_first_which_goes_on() {
    let Some([_near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let first = open_on(&far).unwrap();
    let begun = Instant::now();
    let refused = open_on(&far).unwrap_err();
    assert!(begun.elapsed() >= RELEASE_WAIT, "the first server might have been about to end");
    assert!(matches!(&refused, OpenError::Program { name, .. } if bpf::is_ours(name)));
    assert!(refused.to_string().contains("the XDP program of another server"), "{refused}");
    assert_eq!(first.watch.health(), Some(Health::Up { mtu: 1500 }));
    drop(first);
    let again = open_on(&far).unwrap();
    assert_eq!((again.ports.len(), again.watch.facts().queues), (2, 2));
}

#[test]
fn somebody_elses_program_is_named_and_left_alone() {
    let Some([_near, far]) = pair(Veth::default()) else { return };
    let filter = Filter { addresses: vec![far.v4.into()], ports: 1..=1, allow: Vec::new() };
    let map = bpf::create_map(1).unwrap();
    let code = program(&filter, map.as_raw_fd().unsigned_abs());
    let foreign = bpf::load(&code, false, *b"somebody_else\0\0\0").unwrap();
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let link = far.on(|| {
            let index = Interface::named(&Netlink::open().unwrap(), WIRE).unwrap().index;
            bpf::attach(foreign.as_fd(), index, mode).unwrap()
        });
        let before = program_on(&far);
        let id = bpf::id_of(foreign.as_fd()).unwrap();
        let refused = open_on(&far).unwrap_err();
        let expected =
            format!("the interface already has the XDP program somebody_else (number {id})");
        assert_eq!(refused.to_string(), expected, "{mode:?}");
        assert!(before.is_some() && program_on(&far) == before);
        drop(link);
        await_that(|| program_on(&far).is_none());
    }
}

#[test]
fn a_queue_that_somebody_has_is_named_and_no_program_is_left() {
    let Some([_near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let somebody = far.on(|| {
        let interface = Interface::named(&Netlink::open().unwrap(), WIRE).unwrap().index;
        let nothing = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let (mtu, chunks, sums) = (1500, CHUNKS_MIN, Sums::Whole);
        let plan = Plan {
            interface,
            queue: 1,
            mtu,
            chunks: 0..chunks,
            may_zero_copy: false,
            sums,
            kernel_sums: false,
            in_place_min: None,
        };
        let mut umem = Umem::new(Arc::new(Arena::new(chunks, 0, 2048).unwrap()));
        plan.open(&mut umem, None, &nothing, |_| Ok(())).unwrap()
    });
    let refused = open_on(&far).unwrap_err();
    assert_eq!(refused.to_string(), "another AF_XDP socket uses queue 1");
    await_that(|| program_on(&far).is_none());
    let wanted = OpenOptions { queues: Some(0..1), ..wanted(Mode::Any) };
    let beside = far.on(|| open(&wanted)).unwrap();
    assert_eq!(beside.ports.len(), 1);
    drop((beside, somebody));
    assert_eq!(open_on(&far).unwrap().ports.len(), 2);
}

#[test]
fn what_is_not_there_is_told() {
    let Some([_near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let here = |ip: &str| [ip.parse::<IpAddr>().unwrap()];
    let networks: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(); NETWORKS_MAX + 1];
    let (other, v6) = (here("10.77.0.9"), here("::"));
    let cases = [
        (OpenOptions { interface: "nowire", ..wanted(Mode::Any) }, "there is no interface nowire"),
        (OpenOptions { interface: "lo", ..wanted(Mode::Any) }, "lo is no Ethernet interface"),
        (
            OpenOptions { queues: Some(1..3), ..wanted(Mode::Any) },
            "queues 1 to 2 are requested, but the last queue of the interface is queue 1",
        ),
        (
            OpenOptions { addresses: &other, ..wanted(Mode::Any) },
            "wire does not have the address 10.77.0.9",
        ),
        (OpenOptions { addresses: &[], ..wanted(Mode::Any) }, "wire has no IP address"),
        (
            OpenOptions { ports: RangeInclusive::new(7, 6), ..wanted(Mode::Any) },
            "no port is requested",
        ),
        (
            OpenOptions { allow: &networks, ..wanted(Mode::Any) },
            "at most 64 networks can be allowed, but 65 are given",
        ),
        (
            OpenOptions { memory_bytes_max: (1 << 20) - 1, ..wanted(Mode::Any) },
            "the buffers for packets need at least 1048576 bytes of memory",
        ),
    ];
    for (wanted, expected) in cases {
        assert_eq!(far.on(|| open(&wanted)).unwrap_err().to_string(), expected);
        assert_eq!(program_on(&far), None);
    }
    let one =
        OpenOptions { ports_max: 1, memory_bytes_max: 1 << 20, chunks: 4096, ..wanted(Mode::Any) };
    let opened = far.on(|| open(&one)).unwrap();
    assert_eq!((opened.ports.len(), opened.watch.facts().memory_bytes), (1, 1 << 20));
    drop(opened);
    far.ip("address flush dev wire");
    let refused =
        far.on(|| open(&OpenOptions { addresses: &v6, ..wanted(Mode::Any) })).unwrap_err();
    assert_eq!(refused.to_string(), "wire has no IP address");
}

#[test]
fn privilege_is_needed_to_open_and_never_again() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let Some([near, far]) = pair(Veth::default()) else { return };
    let give_away = || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
    };
    let refused = far.on(|| {
        give_away();
        open(&wanted(Mode::Any)).unwrap_err()
    });
    assert!(matches!(refused, OpenError::Privilege), "{refused:?}");
    let Opened { mut ports, watch, .. } = open_on(&far).unwrap();
    let client = client(&near, far.v4);
    client.send(b"hello").unwrap();
    far.on(|| {
        give_away();
        serve(&mut ports, 1);
        assert_eq!(watch.health(), Some(Health::Up { mtu: 1500 }));
        assert_eq!(ports[0].meter().read(), Some(crate::xdp::Statistics::default()));
    });
    assert_eq!(answer(&client), b"hello");
}

#[test]
fn letters_wait_while_the_link_is_down_and_leave_with_the_next_post() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, watch, .. } = open_on(&far).unwrap();
    let (client, calls) = (client(&near, far.v4), crate::Calls::default());
    client.send(b"hello").unwrap();
    await_that(|| ports[0].inbox.receive(&calls).datagrams == 1);
    let peer = *ports[0].inbox.datagrams().next().unwrap().peer;
    far.ip("link set wire down");
    assert_eq!(watch.health(), Some(Health::Down));
    let outbox = &mut ports[0].outbox;
    for datagrams in 1..=128 {
        assert!(outbox.add(&peer, b"", [&b"late"[..]]));
        assert_eq!(outbox.post_or_drop(&calls).sent, 1);
        assert_eq!((outbox.waiting(), outbox.in_transmission()), (datagrams, datagrams));
    }
    assert!(!outbox.add(&peer, b"", [&b"too late"[..]]));
    far.ip("link set wire up");
    await_that(|| {
        let _ = outbox.post_or_drop(&calls);
        outbox.waiting() == 0
    });
    outbox.reap();
    assert_eq!(outbox.in_transmission(), 0);
    ports[0].inbox.release();
    assert_all_chunks(&ports[0]);
}

#[test]
fn how_the_interface_is_can_be_asked() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, mut watch, .. } = open_on(&far).unwrap();
    assert_eq!(watch.health(), Some(Health::Up { mtu: 1500 }));
    let nobody = Netlink(std::fs::File::open("/dev/null").unwrap().into());
    let netlink = std::mem::replace(&mut watch.netlink, nobody);
    assert_eq!(watch.health(), None, "the kernel gave no answer");
    watch.netlink = netlink;
    far.ip("link set wire mtu 1400");
    assert_eq!(watch.health(), Some(Health::Up { mtu: 1400 }));
    near.ip("link set wire down");
    await_that(|| watch.health() == Some(Health::Down));
    near.ip("link set wire up");
    await_that(|| watch.health() == Some(Health::Up { mtu: 1400 }));
    far.ip("link set wire down");
    assert_eq!(watch.health(), Some(Health::Down));
    far.ip("link set wire up");
    far.ip("link del wire");
    assert_eq!(watch.health(), Some(Health::Gone));
    // Another interface with the same name is not the watched interface.
    far.ip("link add wire type veth peer name other");
    assert_eq!(watch.health(), Some(Health::Gone));
    let calls = crate::Calls::default();
    assert_eq!(ports[0].inbox.receive(&calls).datagrams, 0);
    assert_eq!(ports[0].outbox.post_or_drop(&calls), crate::Tally::default());
}

/// A child process opens the ports and is then killed, so that it cannot close the ports.
#[test]
fn a_process_that_is_killed_leaves_nothing_and_another_starts_at_once() {
    const CHILD: &str = "HYPOSTYLE_TEST_HOLDS_A_PORT";
    if std::env::var_os(CHILD).is_some() {
        let _opened = open(&wanted(Mode::Any)).unwrap();
        println!("\nopened");
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let Some([_near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    for _ in 0..3 {
        let this = "xdp::link::tests::\
                    a_process_that_is_killed_leaves_nothing_and_another_starts_at_once";
        let mut child = far.on(|| {
            Command::new(std::env::current_exe().unwrap())
                .args([this, "--exact", "--nocapture"])
                .env(CHILD, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        assert!(lines.into_iter().any(|line| line == "opened"));
        assert!(program_on(&far).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = open_on(&far).unwrap();
        assert_eq!(
            (opened.ports.len(), opened.watch.health()),
            (2, Some(Health::Up { mtu: 1500 }))
        );
    }
}
