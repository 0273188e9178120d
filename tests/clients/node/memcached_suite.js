// Runs the test suite in the package of npm's memcached against a server.
//
// Fails if a test fails, or if fewer tests ran than the pinned version has.
//
// Usage: node memcached_suite.js HOST:PORT
"use strict";

const fs = require("fs");
const path = require("path");
const Mocha = require("mocha");
require("should");

// The tests of memcached 2.2.2, except those of connections to servers that do not run.
const TESTS = 36;
const LEFT_OUT = "memcached-connections.test.js";
const SUITE = path.join(path.dirname(require.resolve("memcached/package.json")), "test");

const address = process.argv[2];
if (!address) {
  console.error("usage: memcached_suite.js HOST:PORT");
  process.exit(2);
}
const { servers } = require(path.join(SUITE, "common.js"));
// A second name of the same server; the client takes it for another server.
const port = address.split(":").pop();
servers.single = address;
servers.multi = [address, `127.1:${port}`];

const mocha = new Mocha({ reporter: "dot", timeout: 60000 });
for (const file of fs.readdirSync(SUITE)) {
  if (file.endsWith(".test.js") && file !== LEFT_OUT) {
    mocha.addFile(path.join(SUITE, file));
  }
}
let passed = 0;
const runner = mocha.run((failures) => {
  if (passed !== TESTS) {
    console.error(`npm's memcached: ${passed} of ${TESTS} tests passed`);
  }
  process.exit(failures === 0 && passed === TESTS ? 0 : 1);
});
runner.on("pass", () => passed++);
