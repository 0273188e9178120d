"""Asks libmemcached which server has a key: ketama.py SETTING SERVER... <KEYS >NUMBERS

SETTING is `weighted` or `plain`: MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, or MEMCACHED_BEHAVIOR_KETAMA
with the default hash. A SERVER is HOST PORT WEIGHT with a tab between; port 0 is a Unix socket. Each
line of the input is a key. The library is called as it is installed, without its headers; it connects
to nobody. Exits with 3 where there is none.
"""

import ctypes
import sys

KETAMA = 3
KETAMA_WEIGHTED = 16


def library():
    try:
        found = ctypes.CDLL("libmemcached.so.11")
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    found.memcached_create.restype = pointer
    found.memcached_create.argtypes = [pointer]
    found.memcached_behavior_set.argtypes = [pointer, ctypes.c_int, ctypes.c_uint64]
    found.memcached_server_add_with_weight.argtypes = [pointer, text, ctypes.c_uint16, number]
    found.memcached_server_add_unix_socket_with_weight.argtypes = [pointer, text, number]
    found.memcached_generate_hash.restype = number
    found.memcached_generate_hash.argtypes = [pointer, text, ctypes.c_size_t]
    return found


def main():
    found = library()
    client = found.memcached_create(None)
    setting = {"plain": KETAMA, "weighted": KETAMA_WEIGHTED}[sys.argv[1]]
    assert found.memcached_behavior_set(client, setting, 1) == 0
    for server in sys.argv[2:]:
        host, port, weight = server.split("\t")
        host, port, weight = host.encode(), int(port), int(weight)
        if port:
            done = found.memcached_server_add_with_weight(client, host, port, weight)
        else:
            done = found.memcached_server_add_unix_socket_with_weight(client, host, weight)
        assert done == 0, f"{server}: {done}"
    for line in sys.stdin.buffer:
        key = line.rstrip(b"\n")
        print(found.memcached_generate_hash(client, key, len(key)))


main()
