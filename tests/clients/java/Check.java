// Tests a server with spymemcached. Fails if the server does not do what that client documents.
//
// Usage: java Check HOST:PORT text|binary

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.internal.OperationFuture;
import net.spy.memcached.transcoders.SerializingTranscoder;

public class Check {
  private static final long PATIENCE_SECONDS = 20;

  /** The smallest exptime that is a date, in 1970, and not a duration. */
  private static final int LONG_AGO = 30 * 24 * 60 * 60 + 1;

  private final MemcachedClient client;
  private final List<InetSocketAddress> servers;
  private final boolean binary;

  private Check(String address, Protocol protocol) throws Exception {
    // Compression is off, because the checks count the bytes of values.
    SerializingTranscoder transcoder = new SerializingTranscoder();
    transcoder.setCompressionThreshold(Integer.MAX_VALUE);
    servers = AddrUtil.getAddresses(address);
    binary = protocol == Protocol.BINARY;
    client =
        new MemcachedClient(
            new ConnectionFactoryBuilder()
                .setProtocol(protocol)
                .setOpTimeout(TimeUnit.SECONDS.toMillis(PATIENCE_SECONDS))
                .setTranscoder(transcoder)
                .build(),
            servers);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2 || !arguments[1].matches("text|binary")) {
      System.err.println("usage: java Check HOST:PORT text|binary");
      System.exit(2);
    }
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    Logger.getLogger("net.spy.memcached").setLevel(Level.OFF);
    Protocol protocol = arguments[1].equals("binary") ? Protocol.BINARY : Protocol.TEXT;
    Check check = new Check(arguments[0], protocol);
    try {
      check.setAndGet();
      check.addAndReplace();
      check.appendAndPrepend();
      check.getsAndCas();
      check.counts();
      check.touchAndExpiry();
      check.manyKeys();
      check.manyAtOnce();
      check.largeValues();
      check.versionsStatsAndFlush();
    } catch (Exception | AssertionError error) {
      error.printStackTrace();
      System.exit(1);
    }
    System.out.println("spymemcached, " + arguments[1] + ": 10 checks passed");
    System.exit(0);
  }

  /** Fails if the received value is not the expected one. */
  private static void same(Object expected, Object came) {
    if (!Objects.deepEquals(expected, came)) {
      throw new AssertionError("expected " + expected + ", came " + came);
    }
  }

  private static <T> T result(Future<T> future) throws Exception {
    return future.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private void setAndGet() throws Exception {
    // The client keeps a value's type in the flags, which must come back unchanged.
    Object[] values = {
      "", "x", "two\r\nlines\0", 42, 1L << 40, true, 1.5, new byte[] {0, -1, 10}, List.of(1, "a")
    };
    for (Object value : values) {
      same(true, result(client.set("java", 100, value)));
      same(value, client.get("java"));
    }
    same(null, client.get("java-nosuch"));
  }

  private void addAndReplace() throws Exception {
    same(false, result(client.replace("java-add", 0, "1")));
    same(true, result(client.add("java-add", 0, "2")));
    same(false, result(client.add("java-add", 0, "3")));
    same("2", client.get("java-add"));
    same(true, result(client.replace("java-add", 0, "4")));
    same("4", client.get("java-add"));
    same(true, result(client.delete("java-add")));
    same(false, result(client.delete("java-add")));
    same(null, client.get("java-add"));
  }

  private void appendAndPrepend() throws Exception {
    same(false, result(client.append("java-append", "x")));
    same(false, result(client.prepend("java-append", "x")));
    same(true, result(client.set("java-append", 0, "mid")));
    same(true, result(client.append("java-append", "end")));
    same(true, result(client.prepend("java-append", "beg")));
    same("begmidend", client.get("java-append"));
  }

  private void getsAndCas() throws Exception {
    OperationFuture<Boolean> set = client.set("java-cas", 0, "1");
    same(true, result(set));
    CASValue<Object> first = client.gets("java-cas");
    same("1", first.getValue());
    if (binary) {
      // In the binary protocol the answer to SET contains the CAS unique.
      same(first.getCas(), set.getCas());
    }
    same(CASResponse.OK, client.cas("java-cas", first.getCas(), "2"));
    same(CASResponse.EXISTS, client.cas("java-cas", first.getCas(), "3"));
    same("2", client.get("java-cas"));
    same(CASResponse.NOT_FOUND, client.cas("java-nosuch", first.getCas(), "4"));
    if (binary) {
      same(false, result(client.delete("java-cas", first.getCas())));
      same(true, result(client.delete("java-cas", client.gets("java-cas").getCas())));
    }
  }

  private void counts() throws Exception {
    same(-1L, client.incr("java-n", 1));
    same(10L, client.incr("java-n", 5, 10, 100));
    same(15L, client.incr("java-n", 5, 10, 100));
    same(8L, client.decr("java-n", 7));
    same(0L, client.decr("java-n", 9));
    same(3L, result(client.asyncIncr("java-n", 3)));
    same("3", ((String) client.get("java-n")).trim());
    same(7L, client.decr("java-n2", 1, 7, 100));
    same(true, result(client.set("java-x", 0, "x")));
    // In text the client reports the error as an exception, in binary as a status.
    try {
      same(-1L, result(client.asyncIncr("java-x", 1)));
    } catch (ExecutionException error) {
      same(true, error.getMessage().contains("non-numeric"));
    }
  }

  private void touchAndExpiry() throws Exception {
    same(true, result(client.set("java-t", 100, "1")));
    same(true, result(client.touch("java-t", 1000)));
    same("1", client.get("java-t"));
    same(true, result(client.touch("java-t", LONG_AGO)));
    same(null, client.get("java-t"));
    same(false, result(client.touch("java-t", 1000)));
    same(true, result(client.set("java-t", LONG_AGO, "1")));
    same(null, client.get("java-t"));
    if (binary) {
      same(null, client.getAndTouch("java-t", 100));
      same(true, result(client.set("java-t", 100, "1")));
      same("1", client.getAndTouch("java-t", 1000).getValue());
      same("1", client.getAndTouch("java-t", LONG_AGO).getValue());
      same(null, client.get("java-t"));
    }
  }

  private void manyKeys() throws Exception {
    Map<String, Object> pairs = new HashMap<>();
    List<Future<Boolean>> sets = new ArrayList<>();
    for (int index = 0; index < 1000; index++) {
      pairs.put("java-multi-" + index, "value " + index);
      sets.add(client.set("java-multi-" + index, 0, "value " + index));
    }
    for (Future<Boolean> set : sets) {
      same(true, result(set));
    }
    List<String> keys = new ArrayList<>(pairs.keySet());
    keys.add("java-nosuch");
    same(pairs, client.getBulk(keys));
    String longest = "k".repeat(250);
    same(true, result(client.set(longest, 0, "1")));
    same("1", client.get(longest));
  }

  private void manyAtOnce() throws Exception {
    same(true, result(client.set("java-sum", 0, "0")));
    List<Future<Long>> sums = new ArrayList<>();
    for (int round = 0; round < 2000; round++) {
      sums.add(client.asyncIncr("java-sum", 1));
    }
    for (int round = 0; round < 2000; round++) {
      same(round + 1L, result(sums.get(round)));
    }
  }

  private void largeValues() throws Exception {
    for (int bytes : new int[] {16 << 10, 100 << 10, (1 << 20) - 200}) {
      byte[] value = new byte[bytes];
      new Random(bytes).nextBytes(value);
      same(true, result(client.set("java-large", 0, value)));
      same(value, client.get("java-large"));
    }
  }

  private void versionsStatsAndFlush() throws Exception {
    for (String version : client.getVersions().values()) {
      same(true, version.matches("1\\.6\\.[0-9]+"));
    }
    Map<String, String> stats = client.getStats().get(servers.get(0));
    for (String name : List.of("pid", "uptime", "curr_items", "cmd_get", "limit_maxbytes")) {
      same(true, stats.get(name).matches("[0-9]+"));
    }
    same(true, client.getStats("settings").get(servers.get(0)).containsKey("maxbytes"));
    same(true, result(client.flush()));
    same(null, client.get("java-large"));
  }
}
