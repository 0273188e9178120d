// Tests a server with memjs, which uses only the binary protocol. Fails if the server's behaviour
// is not what that client documents. memjs's prepend is left out, because it sends an append.
//
// Usage: node memjs.js HOST:PORT

'use strict';

const assert = require('assert');
const { Client } = require('memjs');

const [address] = process.argv.slice(2);
if (!address) {
  console.error('usage: node memjs.js HOST:PORT');
  process.exit(2);
}

const options = { timeout: 10, conntimeout: 10, retries: 0, logger: { log() {} } };
const client = Client.create(address, options);

// The smallest exptime that is a date, in 1970, and not a duration.
const LONG_AGO = 30 * 24 * 60 * 60 + 1;

// Fails if a key does not have a value.
async function holds(key, expected) {
  const { value } = await client.get(key);
  if (expected === null) return assert.strictEqual(value, null, key);
  assert.ok(value !== null, `${key} holds nothing`);
  return assert.ok(value.equals(Buffer.from(expected)), `${key} holds ${value.subarray(0, 60)}`);
}

const checks = {
  async 'set and get'() {
    for (const value of ['', 'hello', 'two\r\nlines', Buffer.from([0, 255, 13, 10])]) {
      assert.strictEqual(await client.set('memjs', value, { expires: 100 }), true);
      await holds('memjs', value);
    }
    const { flags } = await client.get('memjs');
    assert.strictEqual(flags.toString('hex'), '00000000');
    await holds('memjs-nosuch', null);
  },
  async 'add and replace'() {
    assert.strictEqual(await client.replace('memjs-add', '1'), false);
    assert.strictEqual(await client.add('memjs-add', '1'), true);
    assert.strictEqual(await client.add('memjs-add', '2'), false);
    await holds('memjs-add', '1');
    assert.strictEqual(await client.replace('memjs-add', '3'), true);
    await holds('memjs-add', '3');
  },
  async append() {
    await assert.rejects(client.append('memjs-append', 'x'), /MemJS APPEND/);
    await client.set('memjs-append', 'start');
    assert.strictEqual(await client.append('memjs-append', 'end'), true);
    await holds('memjs-append', 'startend');
  },
  async 'increment and decrement'() {
    const counts = async (method, amount, given, value) => {
      assert.deepStrictEqual(await client[method]('memjs-n', amount, given), {
        success: true,
        value,
      });
    };
    await counts('increment', 5, { initial: 10 }, 10);
    await counts('increment', 5, { initial: 10 }, 15);
    await counts('decrement', 7, {}, 8);
    await counts('decrement', 9, {}, 0);
    await client.set('memjs-n', '99');
    await counts('increment', 1, {}, 100);
    await holds('memjs-n', '100');
    await client.set('memjs-n', 'x');
    await assert.rejects(client.increment('memjs-n', 1, {}), /MemJS INCREMENT/);
  },
  async 'delete, touch and expiry'() {
    await client.set('memjs-t', '1');
    assert.strictEqual(await client.touch('memjs-t', 100), true);
    await holds('memjs-t', '1');
    assert.strictEqual(await client.touch('memjs-t', LONG_AGO), true);
    await holds('memjs-t', null);
    assert.strictEqual(await client.touch('memjs-t', 100), false);
    assert.strictEqual(await client.delete('memjs-t'), false);
    await client.set('memjs-t', '1', { expires: LONG_AGO });
    await holds('memjs-t', null);
    await client.set('memjs-t', '1');
    assert.strictEqual(await client.delete('memjs-t'), true);
    await holds('memjs-t', null);
  },
  async 'keys are any bytes'() {
    for (const key of ['k'.repeat(250), 'a key\r\nwith everything', 'schlüssel']) {
      await client.set(key, key);
      await holds(key, key);
    }
    // Uses a separate connection, because memcached closes it after a key that is too long.
    const other = Client.create(address, options);
    await assert.rejects(other.set('k'.repeat(251), '1'), /Invalid arguments/);
  },
  async 'large values'() {
    for (const bytes of [16 << 10, 100 << 10, (1 << 20) - 200]) {
      const value = Buffer.from(Array.from({ length: bytes }, (_, index) => (index * 7) % 251));
      assert.strictEqual(await client.set('memjs-large', value), true);
      await holds('memjs-large', value);
    }
    await assert.rejects(client.set('memjs-large', Buffer.alloc(1 << 20)), /MemJS SET/);
    // memcached deletes the item that the refused value would have replaced.
    await holds('memjs-large', null);
  },
  async 'many at once'() {
    const keys = Array.from({ length: 2000 }, (_, index) => `memjs-many-${index}`);
    await Promise.all(keys.map((key) => client.set(key, key)));
    await Promise.all(keys.map((key) => holds(key, key)));
    await client.set('memjs-sum', '0');
    await Promise.all(keys.map(() => client.increment('memjs-sum', 1, {})));
    await holds('memjs-sum', '2000');
  },
  async 'stats and flush'() {
    const ask = (method, ...args) =>
      new Promise((resolve, reject) => {
        const answered = (error, _, answer) => (error ? reject(error) : resolve(answer));
        client[method](...args, answered);
      });
    const stats = await ask('stats');
    for (const name of ['pid', 'uptime', 'curr_items', 'cmd_get', 'limit_maxbytes']) {
      assert.match(stats[name], /^[0-9]+$/, name);
    }
    const settings = await ask('statsWithKey', 'settings');
    assert.match(settings.maxbytes, /^[0-9]+$/);
    assert.match(stats.version, /^1\.6\.[0-9]+$/);
    assert.deepStrictEqual(await client.flush(), { [address]: true });
    await holds('memjs-many-1', null);
  },
};

// Without an answer node ends because it has nothing to wait for; that must not count as success.
process.exitCode = 1;

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (error) {
      console.error(`memjs: ${name}: ${error.stack || error}`);
      process.exit(1);
    }
  }
  console.log(`memjs: ${Object.keys(checks).length} checks passed`);
  process.exit(0);
})();
