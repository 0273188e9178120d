"""Tests a server with meta-memcache, which uses only the meta protocol. Fails if the server's
behaviour is not what that client documents.

Usage: meta_memcache_check.py HOST PORT
"""

import random
import sys

from meta_memcache import (
    CacheClient,
    Key,
    LeasePolicy,
    MemcacheError,
    RecachePolicy,
    ServerAddress,
    StalePolicy,
    connection_pool_factory_builder,
)
from meta_memcache.protocol import Conflict, Miss, NotStored, RequestFlags, SetMode, Success, Value

PATIENCE_SECONDS = 60

# The smallest exptime that is a date, in 1970, and not a duration.
LONG_AGO = 30 * 24 * 60 * 60 + 1


def set_and_get(mc):
    # The serializer keeps a value's type in the client flags, which must come back unchanged.
    for value in [b"", "x", b"two\r\nlines\x00\xff", 42, True, {"a": [1, None]}]:
        assert mc.set("meta", value, ttl=100)
        got = mc.get("meta")
        assert got == value and type(got) is type(value), f"{value!r} came back as {got!r}"
    assert mc.get("meta-nosuch") is None


def set_modes(mc):
    def stored(value, mode):
        return mc.set("meta-mode", value, ttl=100, set_mode=mode)

    for mode in [SetMode.REPLACE, SetMode.APPEND, SetMode.PREPEND]:
        assert not stored(b"x", mode), mode
    assert stored(b"1", SetMode.ADD)
    assert not stored(b"2", SetMode.ADD)
    assert stored(b"mid", SetMode.REPLACE)
    assert stored(b"end", SetMode.APPEND)
    assert stored(b"beg", SetMode.PREPEND)
    assert mc.get("meta-mode") == b"begmidend"
    assert not mc.refill("meta-mode", b"3", ttl=100)
    assert mc.refill("meta-refill", b"3", ttl=100)


def compare_and_swap(mc):
    token = mc.set_cas("meta-cas", "1", ttl=100)
    assert mc.get_cas("meta-cas") == ("1", token)
    assert mc.set("meta-cas", "2", ttl=100, cas_token=token)
    assert not mc.set("meta-cas", "3", ttl=100, cas_token=token)
    assert not mc.delete("meta-cas", cas_token=token)
    assert mc.get("meta-cas") == "2"
    key, flags = Key("meta-cas"), RequestFlags(cas_token=token)
    assert isinstance(mc.meta_set(key, "4", flags), Conflict)
    assert isinstance(mc.meta_delete(key, flags), Conflict)
    assert isinstance(mc.meta_set(Key("meta-nosuch"), "4", flags), Miss)


def keys(mc):
    # The client sends a key that is not plain text in base64, and a too long key as a digest.
    for key in [Key("meta-ключ"), Key("a key with spaces"), Key("k" * 200), Key("k" * 1000)]:
        assert mc.set(key, key.key, ttl=100)
        assert mc.get(key) == key.key


def many_keys(mc):
    pairs = {Key(f"meta-multi-{index}"): f"value {index}" for index in range(1000)}
    for key, value in pairs.items():
        mc.set(key, value, ttl=100, no_reply=True)
    got = mc.multi_get([*pairs, Key("meta-nosuch")])
    assert got == {**pairs, Key("meta-nosuch"): None}
    cas = mc.multi_get_cas(list(pairs))
    assert {key: value for key, (value, _) in cas.items()} == pairs
    assert len({token for _, token in cas.values()}) == len(pairs)


def arithmetic(mc):
    assert not mc.delta("meta-n", 1)
    assert mc.delta_and_get("meta-n", 1) is None
    assert mc.delta_initialize_and_get("meta-n", 5, initial_value=10, initial_ttl=100) == 10
    assert mc.delta_initialize_and_get("meta-n", 5, initial_value=10, initial_ttl=100) == 15
    assert mc.delta_and_get("meta-n", -7) == 8
    assert mc.delta_and_get("meta-n", -9) == 0
    assert mc.delta("meta-n", 3, refresh_ttl=50)
    assert int(mc.get("meta-n")) == 3
    assert mc.set("meta-x", b"x", ttl=100)
    try:
        mc.delta("meta-x", 1)
    except MemcacheError:
        return
    raise AssertionError("incremented x")


def delete_touch_and_expiry(mc):
    assert mc.set("meta-d", "1", ttl=100)
    assert mc.touch("meta-d", 1000)
    item = mc.meta_get(Key("meta-d"), RequestFlags(return_ttl=True))
    assert 990 <= item.flags.ttl <= 1000, item.flags.ttl
    assert mc.get("meta-d", touch_ttl=500) == "1"
    item = mc.meta_get(Key("meta-d"), RequestFlags(return_ttl=True))
    assert 490 <= item.flags.ttl <= 500, item.flags.ttl
    assert mc.delete("meta-d")
    assert not mc.delete("meta-d")
    assert mc.invalidate("meta-d")
    assert not mc.touch("meta-d", 100)
    assert mc.set("meta-d", "1", ttl=LONG_AGO)
    assert mc.get("meta-d") is None
    assert mc.set("meta-d", "1", ttl=0)
    item = mc.meta_get(Key("meta-d"), RequestFlags(return_ttl=True))
    assert item.flags.ttl == -1, item.flags.ttl


def what_is_known_of_an_item(mc):
    assert mc.set("meta-info", b"12345", ttl=100)
    flags = RequestFlags(
        return_value=True,
        return_size=True,
        return_fetched=True,
        return_last_access=True,
        return_client_flag=True,
        return_cas_token=True,
        return_key=True,
        opaque=b"opaque-1",
    )
    first = mc.meta_get(Key("meta-info"), flags)
    second = mc.meta_get(Key("meta-info"), flags)
    assert isinstance(first, Value) and first.value == b"12345"
    assert (first.flags.fetched, second.flags.fetched) == (False, True)
    assert first.flags.size == 5 and first.flags.opaque == b"opaque-1"
    assert 0 <= second.flags.last_access <= PATIENCE_SECONDS
    assert first.flags.cas_token == second.flags.cas_token > 0
    head = mc.meta_get(Key("meta-info"), RequestFlags(no_update_lru=True, return_size=True))
    assert isinstance(head, Success) and head.flags.size == 5


def leases(mc):
    """On a miss one client wins and stores a value; the others wait until they read that value."""
    policy, waits = LeasePolicy(ttl=30, miss_retries=3), []
    value, token = mc.get_or_lease_cas("meta-lease", policy)
    assert value is None and token > 0

    def fill(seconds):
        waits.append(seconds)
        assert mc.set("meta-lease", "filled", ttl=100, cas_token=token)

    assert mc.get_or_lease("meta-lease", policy, lease_wait_fn=fill) == "filled"
    assert len(waits) == 1
    lost = mc.get_or_lease("meta-lost", policy), mc.get_or_lease(
        "meta-lost", policy, lease_wait_fn=waits.append
    )
    assert lost == (None, None) and len(waits) == 3, waits


def recache(mc):
    """Shortly before the item expires one client must refill it; the others still read it."""
    assert mc.set("meta-recache", "old", ttl=20)
    policy = RecachePolicy(ttl=30)
    assert mc.get("meta-recache", recache_policy=policy) is None
    assert mc.get("meta-recache", recache_policy=policy) == "old"
    assert mc.set("meta-recache", "new", ttl=100)
    assert mc.get("meta-recache", recache_policy=policy) == "new"


def stale(mc):
    """An invalidated item stays readable for all clients except the one that refills it."""
    policy = StalePolicy(mark_stale_on_deletion_ttl=30, mark_stale_on_cas_mismatch=True)
    ask = RequestFlags(return_value=True, return_client_flag=True, return_ttl=True)
    token = mc.set_cas("meta-stale", "1", ttl=100)
    assert mc.delete("meta-stale", stale_policy=policy)
    value, won = mc.get_cas("meta-stale")
    assert value is None and won != token
    assert mc.get("meta-stale") == "1"
    item = mc.meta_get(Key("meta-stale"), ask)
    assert item.flags.stale and item.flags.win is False and 20 <= item.flags.ttl <= 30
    # A store with a token from before the deletion still succeeds, but its item is stale.
    assert mc.set("meta-stale", "2", ttl=100, cas_token=token, stale_policy=policy)
    item = mc.meta_get(Key("meta-stale"), ask)
    assert item.value == "2" and item.flags.stale and item.flags.win is False
    assert mc.set("meta-stale", "3", ttl=100)
    item = mc.meta_get(Key("meta-stale"), ask)
    assert item.value == "3" and not item.flags.stale and item.flags.win is None


def large_values(mc):
    for value_bytes in [16 << 10, 100 << 10, (1 << 20) - 1000]:
        value = random.Random(value_bytes).randbytes(value_bytes)  # or it would be compressed
        assert mc.set("meta-large", value, ttl=100)
        assert mc.get("meta-large") == value, f"{value_bytes} bytes come back"
    try:
        stored = mc.set("meta-large", random.Random(1).randbytes(1 << 20), ttl=100)
    except MemcacheError:
        stored = False
    assert not stored
    assert isinstance(mc.meta_set(Key("meta-add"), b"1", RequestFlags(mode=69)), Success)
    assert isinstance(mc.meta_set(Key("meta-add"), b"1", RequestFlags(mode=69)), NotStored)


CHECKS = [
    set_and_get,
    set_modes,
    compare_and_swap,
    keys,
    many_keys,
    arithmetic,
    delete_touch_and_expiry,
    what_is_known_of_an_item,
    leases,
    recache,
    stale,
    large_values,
]


def main(host, port):
    mc = CacheClient.cache_client_from_servers(
        servers=[ServerAddress(host=host, port=int(port))],
        connection_pool_factory_fn=connection_pool_factory_builder(
            connection_timeout=PATIENCE_SECONDS, recv_timeout=PATIENCE_SECONDS
        ),
    )
    for check in CHECKS:
        check(mc)
    print(f"meta-memcache: {len(CHECKS)} checks passed")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: meta_memcache_check.py HOST PORT")
    main(*sys.argv[1:])
