"""Runs the integration test suite in pymemcache's package against a server.

Fails where a test fails, and where fewer tests ran than the pinned version holds.

Usage: pymemcache_suite.py HOST PORT
"""

import os
import pathlib
import sys

import pymemcache.test
import pytest

# The tests of pymemcache 4.0.0 on plain sockets. The suite itself skips its tests of TLS.
TESTS = 100


class Passed:
    """Counts the tests that passed."""

    count = 0

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.count += 1


def main(host, port):
    # In CI pytest prints differences in full, which takes minutes for a thousand keys.
    for name in ("CI", "BUILD_NUMBER"):
        os.environ.pop(name, None)
    suite = pathlib.Path(pymemcache.test.__file__).parent / "test_integration.py"
    passed = Passed()
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore"]
    status = pytest.main([str(suite), "--server", host, "--port", port, *options], plugins=[passed])
    if passed.count != TESTS:
        print(f"pymemcache: {passed.count} of {TESTS} tests passed")
        return 1
    return status


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: pymemcache_suite.py HOST PORT")
    sys.exit(main(*sys.argv[1:]))
