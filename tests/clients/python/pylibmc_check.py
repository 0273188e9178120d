"""Tests a server with pylibmc. Fails if the server's behaviour is not what that client documents.

Usage: pylibmc_check.py HOST PORT text|binary
"""

import pickle
import sys

import pylibmc

# The smallest exptime that is a date, in 1970, and not a duration.
LONG_AGO = 30 * 24 * 60 * 60 + 1


def raises(error, call, *args):
    """Fails if a call does not raise this error."""
    try:
        answer = call(*args)
    except error:
        return
    raise AssertionError(f"{call.__name__}{args!r:.80} answered {answer!r:.80}")


def set_and_get(mc):
    # The client keeps a value's type in the flags, which must come back unchanged.
    for value in [b"", "x", b"two\r\nlines\x00\xff", 42, 1 << 70, 1.5, {"a": [1, None]}]:
        assert mc.set("py", value)
        got = mc.get("py")
        assert got == value and type(got) is type(value), f"{value!r} came back as {got!r}"
    assert mc.get("py-nosuch") is None


def add_and_replace(mc):
    # Only the binary protocol distinguishes a REPLACE of a missing key from a refused one.
    if mc.binary:
        raises(pylibmc.NotFound, mc.replace, "py-add", "1")
    else:
        assert not mc.replace("py-add", "1")
    assert mc.add("py-add", "2")
    assert not mc.add("py-add", "3")
    assert mc.get("py-add") == "2"
    assert mc.replace("py-add", "4")
    assert mc.get("py-add") == "4"


def append_and_prepend(mc):
    assert not mc.append("py-append", b"x")
    assert not mc.prepend("py-append", b"x")
    assert mc.set("py-append", b"mid")
    assert mc.append("py-append", b"end")
    assert mc.prepend("py-append", b"beg")
    assert mc.get("py-append") == b"begmidend"


def gets_and_cas(mc):
    assert mc.set("py-cas", "1")
    value, cas = mc.gets("py-cas")
    assert value == "1" and cas > 0
    assert mc.cas("py-cas", "2", cas)
    assert not mc.cas("py-cas", "3", cas)
    assert mc.get("py-cas") == "2"
    assert mc.gets("py-nosuch") == (None, None)
    raises(pylibmc.NotFound, mc.cas, "py-nosuch", "4", cas)


def many_keys(mc):
    pairs = {f"py-multi-{index}": index for index in range(1000)}
    assert mc.set_multi(pairs) == []
    assert mc.get_multi([*pairs, "py-nosuch"]) == pairs
    some = {key: -1 for key in list(pairs)[:3]}
    assert sorted(mc.add_multi({**some, "py-multi-new": 1})) == sorted(some)
    mc.incr_multi(list(pairs), delta=5)
    assert mc.get_multi(list(pairs)) == {key: value + 5 for key, value in pairs.items()}
    assert mc.delete_multi(list(pairs))
    assert not mc.delete_multi(list(pairs))
    assert mc.get_multi(list(pairs)) == {}
    assert mc.get("py-multi-new") == 1


def incr_and_decr(mc):
    assert mc.set("py-n", 10)
    assert mc.incr("py-n") == 11
    assert mc.incr("py-n", 89) == 100
    assert mc.decr("py-n", 95) == 5
    assert mc.decr("py-n", 6) == 0
    assert mc.get("py-n") == 0
    assert mc.set("py-n", (1 << 64) - 1)
    assert mc.incr("py-n", 3) == 2
    raises(pylibmc.NotFound, mc.incr, "py-nosuch")
    raises(pylibmc.NotFound, mc.decr, "py-nosuch")


def delete_and_expiry(mc):
    assert mc.set("py-d", "1")
    assert mc.delete("py-d")
    assert not mc.delete("py-d")
    assert mc.set("py-d", "1", 100)
    assert mc.get("py-d") == "1"
    assert mc.set("py-d", "1", LONG_AGO)
    assert mc.get("py-d") is None
    # memcached does not accept the binary TOUCH that the wheel's libmemcached sends.
    if not mc.binary:
        assert mc.set("py-t", "1")
        assert mc.touch("py-t", 100)
        assert mc.get("py-t") == "1"
        assert mc.touch("py-t", LONG_AGO)
        assert mc.get("py-t") is None
        assert not mc.touch("py-t", 100)


def large_values(mc):
    for value_bytes in [16 << 10, 100 << 10, (1 << 20) - 200]:
        value = bytes(index * 7 % 251 for index in range(value_bytes))
        assert mc.set("py-large", value)
        assert mc.get("py-large") == value, f"{value_bytes} bytes come back"
    raises(pylibmc.TooBig, mc.set, "py-large", b"x" * (1 << 20))
    # memcached deletes the item that the refused value would have replaced.
    assert mc.get("py-large") is None
    assert mc.set("py-zlib", "z" * (4 << 20), min_compress_len=1000)
    assert mc.get("py-zlib") == "z" * (4 << 20)


def keys(mc):
    assert mc.set("k" * 250, "1")
    assert mc.get("k" * 250) == "1"
    if mc.binary:
        # Only in the binary protocol a key may contain any bytes.
        assert mc.set("a key\r\nwith\x00everything", "2")
        assert mc.get("a key\r\nwith\x00everything") == "2"


def clones(mc):
    """Separate clients see the values that other clients set."""
    others = [mc.clone() for _ in range(16)]
    assert mc.set("py-sum", 0)
    for other in others * 50:
        other.incr("py-sum")
    assert mc.get("py-sum") == 16 * 50


def stats_and_flush(mc):
    [(_, stats)] = mc.get_stats()
    for name in ["pid", "uptime", "version", "curr_items", "cmd_get", "limit_maxbytes"]:
        assert name in stats, name
    assert mc.set("py-f", pickle.dumps(1))
    assert mc.flush_all()
    assert mc.get("py-f") is None


def non_numeric(mc):
    # This check is the last, because in binary the client takes the error for a broken connection.
    assert mc.set("py-x", "x")
    raises(pylibmc.Error, mc.incr, "py-x")


CHECKS = [
    set_and_get,
    add_and_replace,
    append_and_prepend,
    gets_and_cas,
    many_keys,
    incr_and_decr,
    delete_and_expiry,
    large_values,
    keys,
    clones,
    stats_and_flush,
    non_numeric,
]


def main(host, port, protocol):
    # In milliseconds; libmemcached's defaults of 4 and 5 seconds are too short on a loaded machine.
    patience = {"_poll_timeout": 60_000, "connect_timeout": 60_000}
    behaviors = {"cas": True, "tcp_nodelay": True, **patience}
    mc = pylibmc.Client([f"{host}:{port}"], binary=protocol == "binary", behaviors=behaviors)
    for check in CHECKS:
        check(mc)
    print(f"pylibmc, {protocol}: {len(CHECKS)} checks passed")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in ("text", "binary"):
        sys.exit("usage: pylibmc_check.py HOST PORT text|binary")
    main(*sys.argv[1:])
