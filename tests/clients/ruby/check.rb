# frozen_string_literal: true

# Tests a server with Dalli. Fails if the server's behaviour is not what that client documents.
#
# Usage: ruby -I FOLDER_OF_DALLI check.rb HOST:PORT meta|binary

require 'logger'
require 'dalli'

ADDRESS, PROTOCOL = ARGV
abort 'usage: check.rb HOST:PORT meta|binary' unless %w[meta binary].include?(PROTOCOL)

Dalli.logger = Logger.new(IO::NULL)
OPTIONS = { protocol: PROTOCOL.to_sym, socket_timeout: 60, socket_max_failures: 0 }.freeze
CLIENT = Dalli::Client.new(ADDRESS, OPTIONS)

# The smallest exptime that is a date, in 1970, and not a duration. Dalli would add the current time
# to a date in the past, so its clock is set to 0.
LONG_AGO = (30 * 24 * 60 * 60) + 1
Dalli::Protocol::TtlSanitizer.define_singleton_method(:current_timestamp) { 0 }

# In the meta protocol, Dalli 3.2.8 reads a value only up to the end of the value's first line.
LINES = PROTOCOL == 'meta' ? "two\nlines" : "two\r\nlines"

def same(expected, came)
  raise "expected #{expected.inspect[0, 80]}, came #{came.inspect[0, 80]}" unless expected == came
end

# A store returns true in one protocol and the CAS unique in the other.
def stored(answer)
  raise "not stored: #{answer.inspect}" unless answer
end

# A refused command returns false in one protocol and nil in the other.
def refused(answer)
  raise "not refused: #{answer.inspect}" if answer
end

def raises(error)
  yield
rescue error
  nil
else
  raise "#{error} was not raised"
end

CHECKS = {
  'set and get' => lambda do
    # The client keeps a value's encoding in the flags, which must come back unchanged.
    ['', 'x', "#{LINES}\0\xFF".b, 42, nil, { a: [1, 2.5] }, 'z' * 9000].each do |value|
      stored CLIENT.set('rb', value, 100)
      same value, CLIENT.get('rb')
    end
    same nil, CLIENT.get('rb-nosuch')
    stored CLIENT.set('rb-raw', 'raw', 100, raw: true)
    same 'raw', CLIENT.get('rb-raw')
  end,

  'add and replace' => lambda do
    refused CLIENT.replace('rb-add', '1')
    stored CLIENT.add('rb-add', '2')
    refused CLIENT.add('rb-add', '3')
    same '2', CLIENT.get('rb-add')
    stored CLIENT.replace('rb-add', '4')
    same '4', CLIENT.get('rb-add')
    same true, CLIENT.delete('rb-add')
    refused CLIENT.delete('rb-add')
    same nil, CLIENT.get('rb-add')
  end,

  'append and prepend' => lambda do
    refused CLIENT.append('rb-append', 'x')
    refused CLIENT.prepend('rb-append', 'x')
    stored CLIENT.set('rb-append', 'mid', 0, raw: true)
    same true, CLIENT.append('rb-append', 'end')
    same true, CLIENT.prepend('rb-append', 'beg')
    same 'begmidend', CLIENT.get('rb-append')
  end,

  'cas' => lambda do
    stored CLIENT.set('rb-cas', '1')
    value, unique = CLIENT.get_cas('rb-cas')
    same '1', value
    stored CLIENT.set_cas('rb-cas', '2', unique)
    refused CLIENT.set_cas('rb-cas', '3', unique)
    refused CLIENT.replace_cas('rb-cas', '3', unique)
    refused CLIENT.delete_cas('rb-cas', unique)
    same '2', CLIENT.get('rb-cas')
    lost = CLIENT.cas('rb-cas') { CLIENT.set('rb-cas', 'in between') }
    refused lost
    stored(CLIENT.cas('rb-cas') { |seen| "#{seen}, seen" })
    same 'in between, seen', CLIENT.get('rb-cas')
    same true, CLIENT.delete_cas('rb-cas', CLIENT.get_cas('rb-cas').last)
    same nil, CLIENT.cas('rb-cas') { raise 'there is nothing to change' }
    stored(CLIENT.cas!('rb-cas') { |seen| seen.inspect })
    same 'nil', CLIENT.get('rb-cas')
  end,

  'many keys' => lambda do
    pairs = (0...1000).to_h { |index| ["rb-multi-#{index}", "value #{index}"] }
    # Of quiet commands, the server answers only the command that ends them.
    CLIENT.quiet { pairs.each { |key, value| CLIENT.set(key, value, 100) } }
    same pairs, CLIENT.get_multi(*pairs.keys, 'rb-nosuch')
    with_cas = CLIENT.get_multi_cas(*pairs.keys)
    same pairs, with_cas.transform_values(&:first)
    same pairs.size, with_cas.map { |_, (_, unique)| unique }.uniq.size
    CLIENT.quiet do
      pairs.each_key { |key| CLIENT.delete(key) }
      CLIENT.add('rb-quiet', '1')
      CLIENT.add('rb-quiet', '2')
      CLIENT.replace('rb-nosuch', '3')
      CLIENT.append('rb-nosuch', '3')
    end
    same({}, CLIENT.get_multi(*pairs.keys, 'rb-nosuch'))
    same '1', CLIENT.get('rb-quiet')
  end,

  'incr and decr' => lambda do
    same nil, CLIENT.incr('rb-n', 1)
    same 10, CLIENT.incr('rb-n', 5, 100, 10)
    same 15, CLIENT.incr('rb-n', 5, 100, 10)
    same 8, CLIENT.decr('rb-n', 7)
    same 0, CLIENT.decr('rb-n', 9)
    stored CLIENT.set('rb-n', ((1 << 64) - 1).to_s, 0, raw: true)
    same 2, CLIENT.incr('rb-n', 3)
    same '2', CLIENT.get('rb-n').strip
    stored CLIENT.set('rb-x', 'x', 0, raw: true)
    raises(Dalli::DalliError) { CLIENT.incr('rb-x', 1) }
  end,

  'touch and expiry' => lambda do
    stored CLIENT.set('rb-t', '1', 100)
    stored CLIENT.touch('rb-t', 1000)
    same '1', CLIENT.gat('rb-t', 1000)
    same '1', CLIENT.gat('rb-t', LONG_AGO)
    same nil, CLIENT.get('rb-t')
    same nil, CLIENT.gat('rb-t', 100)
    same nil, CLIENT.touch('rb-t', 100)
    stored CLIENT.set('rb-t', '1', LONG_AGO)
    same nil, CLIENT.get('rb-t')
    same 'made', CLIENT.fetch('rb-t', 100) { 'made' }
    same 'made', CLIENT.fetch('rb-t', 100) { raise 'it is there' }
  end,

  'keys' => lambda do
    ['k' * 250, 'schlüssel', 'k' * 1000].each do |key|
      stored CLIENT.set(key, key)
      same key, CLIENT.get(key)
    end
  end,

  'large values' => lambda do
    [16 << 10, 100 << 10, (1 << 20) - 1000].each do |bytes|
      value = Random.new(bytes).bytes(bytes).tr("\r".b, ' '.b)
      stored CLIENT.set('rb-large', value, 0, raw: true)
      same value, CLIENT.get('rb-large').b
    end
    # Uses a separate connection: after an error the meta client takes replies for those to earlier
    # requests.
    other = Dalli::Client.new(ADDRESS, OPTIONS.merge(value_max_bytes: 4 << 20))
    options = { raw: true, compress: false }
    raises(Dalli::DalliError) { other.set('rb-large', 'x' * (1 << 20), 0, options) }
    # memcached deletes the item that the refused value would have replaced.
    same nil, CLIENT.get('rb-large')
  end,

  'many clients' => lambda do
    stored CLIENT.set('rb-sum', '0', 0, raw: true)
    threads = (0...8).map do
      Thread.new do
        client = Dalli::Client.new(ADDRESS, OPTIONS)
        200.times { client.incr('rb-sum') }
      end
    end
    threads.each(&:join)
    same '1600', CLIENT.get('rb-sum')
  end,

  'version, stats and flush' => lambda do
    raise CLIENT.version.inspect unless CLIENT.version[ADDRESS].match?(/\A1\.6\.[0-9]+\z/)
    stats = CLIENT.stats[ADDRESS]
    %w[pid uptime curr_items cmd_get limit_maxbytes].each do |name|
      raise "#{name}: #{stats[name]}" unless stats[name].match?(/\A[0-9]+\z/)
    end
    same true, CLIENT.stats(:settings)[ADDRESS].key?('maxbytes')
    same [true], CLIENT.flush
    same nil, CLIENT.get('rb-sum')
    CLIENT.alive!
  end
}.freeze

CHECKS.each do |name, check|
  check.call
rescue StandardError => e
  abort "dalli, #{PROTOCOL}: #{name}: #{e.full_message}"
end
puts "dalli #{Dalli::VERSION}, #{PROTOCOL}: #{CHECKS.size} checks passed"
