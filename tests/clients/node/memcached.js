// Tests a server with npm's memcached client. Fails if the server's behaviour is not what that
// client documents.
//
// Usage: node memcached.js HOST:PORT

'use strict';

const assert = require('assert');
const Memcached = require('memcached');

const [address] = process.argv.slice(2);
if (!address) {
  console.error('usage: node memcached.js HOST:PORT');
  process.exit(2);
}

const client = new Memcached(address, { timeout: 10000, retries: 0, failures: 0, poolSize: 8 });

// Calls the client; resolves to its result.
function call(method, ...args) {
  return new Promise((resolve, reject) => {
    client[method](...args, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

// Calls the client; resolves to its error, and fails if there is none.
async function fails(method, ...args) {
  try {
    await call(method, ...args);
  } catch (error) {
    return error.message || String(error);
  }
  return assert.fail(`${method} ${args[0]} did not fail`);
}

const checks = {
  async 'set and get'() {
    assert.strictEqual(await call('set', 'js', 'hello', 100), true);
    assert.strictEqual(await call('get', 'js'), 'hello');
    assert.strictEqual(await call('set', 'js', 'two\r\nlines', 0), true);
    assert.strictEqual(await call('get', 'js'), 'two\r\nlines');
    assert.strictEqual(await call('get', 'js-nosuch'), undefined);
  },
  // The client keeps a value's type in the flags, which must come back unchanged.
  async 'types by flags'() {
    for (const value of [42, { a: [1, 2], b: null }, Buffer.from([0, 255, 13, 10])]) {
      await call('set', 'js-type', value, 0);
      assert.deepStrictEqual(await call('get', 'js-type'), value);
    }
  },
  async 'add and replace'() {
    assert.match(await fails('replace', 'js-add', '1', 0), /not stored/i);
    assert.strictEqual(await call('add', 'js-add', '1', 0), true);
    assert.match(await fails('add', 'js-add', '2', 0), /not stored/i);
    assert.strictEqual(await call('replace', 'js-add', '3', 0), true);
    assert.strictEqual(await call('get', 'js-add'), '3');
  },
  async 'append and prepend'() {
    assert.match(await fails('append', 'js-append', 'x'), /not stored/i);
    await call('set', 'js-append', 'mid', 0);
    assert.strictEqual(await call('append', 'js-append', 'end'), true);
    assert.strictEqual(await call('prepend', 'js-append', 'beg'), true);
    assert.strictEqual(await call('get', 'js-append'), 'begmidend');
  },
  async 'gets and cas'() {
    await call('set', 'js-cas', '1', 0);
    const { cas } = await call('gets', 'js-cas');
    assert.match(String(cas), /^[0-9]+$/);
    assert.strictEqual(await call('cas', 'js-cas', '2', cas, 0), true);
    assert.strictEqual(await call('cas', 'js-cas', '3', cas, 0), false);
    assert.strictEqual(await call('get', 'js-cas'), '2');
  },
  async 'get multi'() {
    const keys = Array.from({ length: 500 }, (_, index) => `js-multi-${index}`);
    await Promise.all(keys.map((key) => call('set', key, key, 0)));
    const answers = await call('getMulti', [...keys, 'js-nosuch']);
    assert.deepStrictEqual(answers, Object.fromEntries(keys.map((key) => [key, key])));
  },
  async 'incr and decr'() {
    await call('set', 'js-n', '10', 0);
    assert.strictEqual(await call('incr', 'js-n', 5), 15);
    assert.strictEqual(await call('decr', 'js-n', 7), 8);
    assert.strictEqual(await call('decr', 'js-n', 9), 0);
    assert.strictEqual(await call('incr', 'js-nosuch', 1), false);
    await call('set', 'js-n', 'x', 0);
    assert.match(await fails('incr', 'js-n', 1), /non-numeric/);
  },
  async 'delete, touch and expiry'() {
    await call('set', 'js-t', '1', 0);
    assert.strictEqual(await call('touch', 'js-t', 100), true);
    assert.strictEqual(await call('get', 'js-t'), '1');
    assert.strictEqual(await call('del', 'js-t'), true);
    assert.strictEqual(await call('del', 'js-t'), false);
    assert.strictEqual(await call('touch', 'js-t', 0), false);
    await call('set', 'js-t', '1', 2592001);
    assert.strictEqual(await call('get', 'js-t'), undefined);
  },
  async 'large values'() {
    for (const bytes of [16 << 10, 100 << 10, (1 << 20) - 200]) {
      const value = 'v'.repeat(bytes);
      assert.strictEqual(await call('set', 'js-large', value, 0), true);
      assert.ok((await call('get', 'js-large')) === value, `${bytes} bytes come back`);
    }
  },
  async 'many at once'() {
    await call('set', 'js-sum', '0', 0);
    await Promise.all(Array.from({ length: 2000 }, () => call('incr', 'js-sum', 1)));
    assert.strictEqual(Number(await call('get', 'js-sum')), 2000);
  },
  async 'version, stats and flush'() {
    const [version] = await call('version');
    assert.match(version.version, /^1\.6\.[0-9]+$/);
    const [stats] = await call('stats');
    for (const name of ['pid', 'uptime', 'curr_items', 'cmd_get', 'limit_maxbytes']) {
      assert.strictEqual(typeof stats[name], 'number', name);
    }
    const [flushed] = await call('flush');
    assert.strictEqual(flushed, true);
    assert.strictEqual(await call('get', 'js'), undefined);
  },
};

// Without an answer node ends because it has nothing to wait for; that must not count as success.
process.exitCode = 1;

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (error) {
      console.error(`memcached for node: ${name}: ${error.stack || error}`);
      process.exit(1);
    }
  }
  console.log(`memcached for node: ${Object.keys(checks).length} checks passed`);
  process.exit(0);
})();
