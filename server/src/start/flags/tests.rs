//! Tests of the command line: of each flag, and of the table of flags as a whole.

use std::collections::HashSet;
use std::ffi::OsString;

use net::xdp::Mode;
use protocol::ProtocolMode;
use store::policy::Eviction;

use super::extended::OPTIONS;
use super::flag::Handler;
use super::{Action, BadFlag, flags, parse};
use crate::machine::cpus::Cpus;
use crate::machine::ram::Ram;
use crate::start::settings::{Listen, Port, Settings, ZeroCopy};
use columns::settings::Migrate;

const CPUS: usize = 3;

fn cpus() -> Cpus {
    Cpus { list: (0..CPUS).collect(), quota: None }
}

fn parse_line(line: &str) -> Result<Action, BadFlag> {
    parse_with(line, Ram::default())
}

fn parse_with(line: &str, ram: Ram) -> Result<Action, BadFlag> {
    parse(line.split_whitespace().map(OsString::from), &cpus(), &ram)
}

fn served(line: &str) -> (Settings, Vec<String>) {
    match parse_line(line) {
        Ok(Action::Serve(settings, notes)) => (*settings, notes),
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns the settings of a command line that causes no notes.
fn settings(line: &str) -> Settings {
    let (settings, notes) = served(line);
    assert_eq!(notes, [""; 0], "{line}");
    settings
}

#[track_caller]
fn refused(line: &str, status: u8, word: &str) {
    let refusal = parse_line(line).expect_err(line);
    assert!(refusal.text.contains(word), "{line}: {refusal}");
    assert_eq!(refusal.status, status, "{line}: {refusal}");
}

#[track_caller]
fn without_effect(line: &str) {
    let (_, notes) = served(line);
    assert_eq!(notes.len(), 1, "{line}: {notes:?}");
    let is_note = notes[0].starts_with('-') && notes[0].contains(" has no effect: ");
    assert!(is_note, "{line}: {notes:?}");
}

fn listen(host: Option<&str>, port: Port) -> Listen {
    Listen { host: host.map(str::to_owned), port, protocol: ProtocolMode::Auto }
}

#[test]
fn no_flags_are_memcacheds_defaults_on_all_processors() {
    let settings = settings("");
    assert_eq!(settings.listen, [listen(None, Port::Number(11211))]);
    assert_eq!(settings.columns.count, CPUS);
    assert_eq!(settings.cpus, [0, 1, 2]);
    assert_eq!(settings.memory_bytes, 64 << 20);
    assert_eq!(settings.columns.item_bytes_max, 1 << 20);
}

#[test]
fn no_two_rows_share_a_name() {
    let mut seen = HashSet::new();
    for flag in flags() {
        assert!(flag.short.is_none_or(|it| seen.insert(it.into())), "{}", flag.long);
        assert!(flag.long.is_empty() || seen.insert(flag.long.to_owned()), "{}", flag.long);
    }
    let mut seen = HashSet::new();
    for option in OPTIONS {
        assert!(seen.insert(option.long), "{}", option.long);
    }
}

#[test]
fn every_flag_of_memcached_is_a_row_with_its_value() {
    let short = "a:AZp:s:U:m:Mc:khiVrvdl:u:P:f:n:t:D:LR:Cb:B:I:SFXWY:e:o:N:";
    for (index, letter) in short.char_indices().filter(|(_, letter)| *letter != ':') {
        let flag = flags().find(|flag| flag.short == Some(letter)).expect(&short[index..]);
        let takes = matches!(flag.takes, super::ValueKind::Value(_));
        assert_eq!(takes, short[index + 1..].starts_with(':'), "-{letter}");
    }
    let long = "a=unix-mask A=enable-shutdown Z=enable-ssl p=port s=unix-socket U=udp-port \
        m=memory-limit M=disable-evictions c=conn-limit k=lock-memory h=help i=license \
        V=version r=enable-coredumps v=verbose d=daemon l=listen u=user P=pidfile \
        f=slab-growth-factor n=slab-min-size t=threads L=enable-largepages \
        R=max-reqs-per-event C=disable-cas b=listen-backlog B=protocol I=max-item-size \
        S=enable-sasl F=disable-flush-all X=disable-dumping W=disable-watch Y=auth-file \
        e=memory-file o=extended N=napi-ids";
    for pair in long.split_whitespace() {
        let (short, long) = pair.split_once('=').unwrap();
        let flag = flags().find(|flag| flag.long == long).expect(long);
        assert_eq!(flag.short, short.chars().next(), "{long}");
    }
}

/// The names are all names in `subopts_tokens` and `storage_read_config` of memcached 1.6.45.
#[test]
fn every_extended_option_of_memcached_is_a_row() {
    let names = "maxconns_fast hashpower no_hashexpand slab_reassign slab_automove \
        slab_automove_ratio slab_automove_window tail_repair_time hash_algorithm lru_crawler \
        lru_crawler_sleep lru_crawler_tocrawl lru_maintainer hot_lru_pct warm_lru_pct \
        hot_max_factor warm_max_factor temporary_ttl idle_timeout watcher_logbuf_size \
        worker_logbuf_size slab_sizes slab_chunk_max track_sizes no_inline_ascii_resp modern \
        no_modern no_chunked_items no_slab_reassign no_slab_automove no_maxconns_fast \
        inline_ascii_resp no_lru_crawler no_lru_maintainer no_drop_privileges drop_privileges \
        resp_obj_mem_limit read_buf_mem_limit ssl_chain_cert ssl_key ssl_verify_mode \
        ssl_keyformat ssl_ciphers ssl_ca_cert ssl_wbuf_size ssl_session_cache ssl_kernel_tls \
        ssl_min_version proxy_config proxy_arg proxy_uring proxy_memprofile relaxed_privileges \
        sock_cookie_id ext_path ext_page_size ext_wbuf_size ext_threads ext_io_depth \
        ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_compact_under ext_drop_under \
        ext_max_sleep ext_max_frag slab_automove_freeratio ext_drop_unread";
    for name in names.split_whitespace() {
        assert!(OPTIONS.iter().any(|option| option.long == name), "{name}");
    }
}

#[test]
fn help_names_every_row_but_those_that_are_refused() {
    let Ok(Action::Print(help)) = parse_line("-h") else { panic!("-h") };
    for flag in flags().filter(|flag| !matches!(flag.handler, Handler::Refused(_))) {
        let is_there = |short| help.contains(&format!("-{short}"));
        assert!(flag.short.is_none_or(is_there), "{}", flag.long);
    }
    for row in flags().chain(OPTIONS) {
        // Compares whole words, because a refused name may be part of another flag's name.
        let mut words = help.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let is_there = match row.long.contains('-') {
            true => help.contains(row.long),
            false => row.long.is_empty() || words.any(|word| word == row.long),
        };
        assert_eq!(is_there, !matches!(row.handler, Handler::Refused(_)), "{}", row.long);
    }
    assert!(help.lines().all(|line| line.len() <= 100 && line.trim_end() == line), "{help}");
}

#[test]
fn all_of_getopts_spellings() {
    for line in ["-p 5", "-p5", "--port=5", "--port 5", "--por 5", "-vdp5 -vv"] {
        assert_eq!(settings(line).port, Port::Number(5), "{line}");
    }
    let settings = settings("-vdvv");
    assert!(settings.daemonize);
    assert_eq!(settings.verbosity, 3);
}

#[test]
fn unknown_and_ambiguous_options_are_errors() {
    refused("-q", 1, "invalid option -- 'q'");
    refused("--nonsense", 1, "unrecognized option '--nonsense'");
    refused("--disable", 1, "ambiguous: --disable-evictions");
    refused("-p", 1, "option requires an argument -- -p");
    refused("--daemon=yes", 1, "Illegal argument");
}

#[test]
fn what_is_unknown_is_told_what_is_near() {
    refused("-T 4", 1, "invalid option -- 'T'; do you mean -t?");
    refused("--thread-s=4", 1, "unrecognized option '--thread-s'; do you mean --threads?");
    refused("--idle-timeout=5", 1, "do you mean -o idle_timeout?");
    refused("-o maxconn_fast", 1, "\"maxconn_fast\"; do you mean maxconns_fast?");
    refused("-o hash_power=20", 1, "do you mean hashpower?");
    for far in ["-q", "--nonsense", "-o nonsense"] {
        assert!(!parse_line(far).unwrap_err().text.contains("do you mean"), "{far}");
    }
}

#[test]
fn a_word_that_is_no_command_is_refused() {
    for line in ["words", "-p 5 words -v", "-v man", "man 1", "mann", "11211"] {
        refused(line, 1, "unexpected word '");
    }
    refused("mann", 1, "do you mean man?");
    refused("-v man", 1, "Commands are 'man' and 'completions SHELL'");
    refused("completions", 64, "completions takes a shell: bash");
    refused("completions ksh", 64, "(given: 'ksh')");
    refused("completions bash zsh", 64, "completions takes a shell");
}

#[test]
fn commands_print_the_manual_page_and_completions() {
    for (line, begins) in
        [("man", ".ie"), ("completions bash", "_hypostyle() {"), ("completions zsh", "#compdef ")]
    {
        match parse_line(line) {
            Ok(Action::Print(text)) => assert!(text.starts_with(begins), "{line}: {text}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn p_port() {
    assert_eq!(settings("-p -1").listen, [listen(None, Port::Any)]);
    assert_eq!(settings("-p 65535").listen, [listen(None, Port::Number(65535))]);
    refused("-p 65536", 64, "ERROR: Invalid port number 65536.");
    refused("-p -2", 64, "Invalid port number");
    refused("-p http", 64, "Invalid port number http");
    let (nowhere, notes) = served("-p 0");
    assert_eq!(nowhere.listen, []);
    assert!(notes.iter().any(|note| note.contains("leaves nothing to listen on")), "{notes:?}");
    assert_eq!(settings("-p 0 -s /tmp/x").listen, []);
}

#[test]
fn u_udp_port() {
    let off = settings("-U 0");
    assert_eq!((off.udp_port, off.datagrams), (Port::Off, Vec::new()));
    // Without -p, TCP listens on the port of -U too, as in memcached.
    let same = settings("-U 11300");
    assert_eq!(same.datagrams, [listen(None, Port::Number(11300))]);
    assert_eq!(same.listen, [listen(None, Port::Number(11300))]);
    let both = settings("-p 11400 -U 11300 -l 127.0.0.1,[::1]:11500");
    let host = |host, port| listen(Some(host), Port::Number(port));
    assert_eq!(both.datagrams, [host("127.0.0.1", 11300), host("::1", 11500)]);
    assert_eq!(both.listen, [host("127.0.0.1", 11400), host("::1", 11500)]);
    assert_eq!(settings("-p 0 -U 11300").listen, []);
    refused("-U x", 64, "-U takes 1 to 65535");
    refused("-U 65536", 64, "Invalid port number 65536");
    refused("-U 11300 -s /tmp/x", 64, "-s disables network support");
}

#[test]
fn udp_options() {
    let settings_of = |line: &str| settings(&format!("-U 1 {line}"));
    let of =
        settings_of("-o udp_allow=10.0.0.0/8,2001:db8::/32,192.0.2.1,no_pin,udp_reply_max=4096");
    let expected = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"];
    assert_eq!(of.udp_allow, expected.map(|network| network.parse().unwrap()));
    assert_eq!((of.udp_reply_max, of.udp_reply_bytes_max()), (Some(4096), 4096));
    assert!(settings_of("-o udp_port_per_column").udp_port_per_column);
    assert!(!of.udp_port_per_column);
    refused("-o udp_allow=10.0.0.0/33", 1, "udp_allow takes networks");
    refused("-o udp_allow=here", 1, "udp_allow takes networks");
    refused("-o udp_allow", 1, "Missing argument");
    refused("-o no_pin,10.0.0.0/8", 1, "Illegal suboption");
    refused("-o udp_reply_max=100", 1, "2048 to 34078200");
    assert_eq!(settings("-o udp_reply_max=34078200").udp_reply_bytes_max(), 34_078_200);
    let many =
        "a reply has at most 65535 datagrams, and at the smallest MTU a datagram carries 520";
    refused("-o udp_reply_max=34078201", 1, many);
}

#[test]
fn busy_poll() {
    assert_eq!(settings("").columns.busy_poll_us, 0);
    assert_eq!(settings("-o busy_poll=50").columns.busy_poll_us, 50);
    refused("-o busy_poll=1000001", 1, "0 to 1000000 microseconds");
}

#[test]
fn stealing_can_be_switched_off() {
    assert!(settings("").steal);
    assert!(!settings("-o no_steal").steal);
    assert!(!settings("").steal_rings && settings("-o steal_rings").steal_rings);
    assert_eq!(settings("").columns.migrate, Migrate::WhileUneven);
    assert_eq!(settings("-o no_migrate").columns.migrate, Migrate::Never);
}

#[test]
fn xdp_interface_and_queues() {
    let xdp = |line: &str| settings(&format!("-U 1 -t 4 {line}")).xdp.unwrap();
    let all = xdp("--xdp eth0");
    assert_eq!((all.interface.as_str(), all.queues, all.fallback), ("eth0", None, false));
    assert_eq!(xdp("--xdp=v.1:0-2").queues, Some(0..3));
    assert_eq!(xdp("--xdp=eth0:2").queues, Some(2..3));
    let of = xdp("--xdp eth0 --xdp-allow 10.0.0.0/8,::1 --xdp-allow 192.0.2.1 --xdp-fallback");
    let expected = ["10.0.0.0/8", "::1/128", "192.0.2.1/32"];
    assert_eq!(of.allow, expected.map(|network| network.parse().unwrap()));
    assert!(of.fallback);
    assert_eq!(of.mode, Mode::Any);
    assert_eq!(xdp("--xdp-mode generic --xdp eth0").mode, Mode::Generic);
    assert_eq!(settings("-U 1").xdp, None);
    for wrong in [
        "eth0:",
        "eth0:x",
        "eth0:3-2",
        "eth0:1,2",
        ":1",
        "",
        "a-name-of-16-byte",
        "a/b",
        "eth0:1024",
    ] {
        refused(&format!("-U 1 --xdp={wrong}"), 64, "--xdp takes an interface");
    }
    refused("--xdp eth0", 64, "it needs -U");
    refused("-U 1 -t 2 --xdp eth0:0-2", 64, "3 queues need 3 threads, but -t is 2");
    refused("-U 1 --xdp eth0 -o udp_port_per_column", 64, "udp_port_per_column");
    refused("-U 1 --xdp eth0 --xdp-allow here", 64, "--xdp-allow takes networks");
    refused("-U 1 --xdp-allow ::1", 64, "--xdp-allow is refused: it needs --xdp");
    refused("-U 1 --xdp eth0 --xdp-mode zero", 64, "--xdp-mode takes native, generic or any");
    refused("-U 1 --xdp-mode native", 64, "--xdp-mode is refused: it needs --xdp");
    refused("-U 1 --xdp-fallback", 64, "--xdp-fallback is refused: it needs --xdp");
}

#[test]
fn zero_copy_goes_past_the_kernel() {
    let off = settings("-U 1 --xdp eth0");
    assert_eq!((off.zero_copy, off.zero_copy_bytes_min), (ZeroCopy::Off, 1024));
    assert_eq!(settings("-o zero_copy=off,zero_copy_min=9").zero_copy, ZeroCopy::Off);
    let send = settings("-o zero_copy=send,zero_copy_min=1 -U 1 --xdp eth0");
    assert_eq!((send.zero_copy, send.zero_copy_bytes_min), (ZeroCopy::Send, 1));
    refused("-U 1 -o zero_copy=send", 64, "it needs --xdp");
    let full = settings("-o zero_copy=full -U 1 --xdp eth0");
    assert_eq!((full.zero_copy, full.zero_copy_bytes_min), (ZeroCopy::Full, 1024));
    refused("-U 1 -o zero_copy=full", 64, "zero_copy=full is refused: ");
    refused("-U 1 --xdp eth0 -o zero_copy=on", 1, "zero_copy must be off, send or full");
    assert!(ZeroCopy::ALL.iter().all(|(name, it)| it.name() == *name));
    refused("-o zero_copy_min=0", 1, "zero_copy_min takes 1 to 1048576 bytes");
}

#[test]
fn s_unix_socket() {
    let settings = settings("-s /tmp/x");
    assert_eq!(settings.unix_path, Some("/tmp/x".into()));
    assert_eq!(settings.listen, []);
    refused(&format!("-s {}", "x".repeat(108)), 64, "1 to 107 bytes");
}

#[test]
fn a_unix_mask() {
    assert_eq!(settings("-a 0660").unix_mask, 0o660);
    assert_eq!(settings("").unix_mask, 0o700);
    refused("-a 8", 1, "octal");
    refused("-a 1777", 1, "octal");
}

#[test]
fn l_listen() {
    let default = Port::Number(11211);
    for (value, expected) in [
        ("127.0.0.1", vec![listen(Some("127.0.0.1"), default)]),
        ("127.0.0.1:5", vec![listen(Some("127.0.0.1"), Port::Number(5))]),
        ("::1", vec![listen(Some("::1"), default)]),
        ("[::1]", vec![listen(Some("::1"), default)]),
        ("[::1]:5", vec![listen(Some("::1"), Port::Number(5))]),
        ("*", vec![listen(None, default)]),
        ("*:0", vec![listen(None, Port::Any)]),
        ("localhost:-1", vec![listen(Some("localhost"), Port::Any)]),
        ("a,b;c", ["a", "b", "c"].map(|host| listen(Some(host), default)).to_vec()),
    ] {
        assert_eq!(settings(&format!("-l {value}")).listen, expected, "{value}");
    }
    let repeated = settings("-l 127.0.0.10 -l 127.0.0.1,127.0.0.10 -p 7");
    let hosts = ["127.0.0.10", "127.0.0.1"].map(|host| listen(Some(host), Port::Number(7)));
    assert_eq!(repeated.listen, hosts);
    assert_eq!(repeated.inter.as_deref(), Some("127.0.0.10,127.0.0.1"));
    for bad in ["[::1", "127.0.0.1:x", "127.0.0.1:70000", "[::1]x", "[::1]:1:2", ":5"] {
        refused(&format!("-l {bad}"), 64, bad);
    }
    refused("-l ,", 64, "-l takes an address");
    let many: Vec<String> = (0..65).map(|number| format!("127.0.0.{number}")).collect();
    refused(&format!("-l {}", many.join(",")), 64, "at most 64");
}

#[test]
fn l_listen_with_prefixes() {
    let ascii = &settings("-l proto[ascii]:127.0.0.1:5,127.0.0.1").listen;
    assert_eq!(ascii[0].protocol, ProtocolMode::Ascii);
    assert_eq!(ascii[0].port, Port::Number(5));
    assert_eq!(ascii[1].protocol, ProtocolMode::Auto);
    let auto = &settings("-B ascii -l proto[negotiating]:127.0.0.1").listen;
    assert_eq!(auto[0].protocol, ProtocolMode::Auto);
    for tag in ["tag_web_:[::1]:5", "tag[web]:[::1]:5", "proto[auto]:tag_web_:[::1]:5"] {
        let (settings, notes) = served(&format!("-l {tag}"));
        assert_eq!(settings.listen, [listen(Some("::1"), Port::Number(5))], "{tag}");
        assert_eq!(notes.len(), 1, "{tag}");
    }
    refused("-l tag_muchtoolong_:127.0.0.1", 64, "between 1 and 8 characters");
    let binary = &settings("-l proto[binary]:127.0.0.1").listen;
    assert_eq!(binary[0].protocol, ProtocolMode::Binary);
    refused("-l proto[proxy]:127.0.0.1", 64, "is refused");
    refused("-l proto[ascii", 64, "Invalid protocol spec");
    for tls in ["notls", "btls", "mtls"] {
        refused(&format!("-l {tls}:127.0.0.1"), 64, "only when SSL is enabled");
    }
}

#[test]
fn b_backlog() {
    assert_eq!(settings("-b 5").backlog, 5);
    refused("-b x", 1, "Backlog must be a number");
    refused("-b -1", 1, "Backlog must be a number");
}

#[test]
fn b_protocol() {
    assert_eq!(settings("-B ascii").listen[0].protocol, ProtocolMode::Ascii);
    assert_eq!(settings("-B auto").protocol, ProtocolMode::Auto);
    assert_eq!(settings("-B binary").listen[0].protocol, ProtocolMode::Binary);
    refused("-B foo", 64, "Invalid value for binding protocol: foo");
}

#[test]
fn m_memory() {
    assert_eq!(settings("-m 2").memory_bytes, 2 << 20);
    assert_eq!(settings("-m 1024m").memory_bytes, 1 << 30);
    assert_eq!(settings("-m 1g").memory_bytes, 1 << 30);
    assert_eq!(settings("-m 24G").memory_bytes, 24 << 30);
    assert_eq!(settings("-m 2000000").memory_bytes, 2_000_000 << 20);
    refused("-m 1", 64, "higher than 1/2 of memory max");
    for bad in ["0", "-1", "x", "1t", "g", "0g", "3000000g", "99999999999999999999"] {
        refused(&format!("-m {bad}"), 1, "megabytes");
    }
}

#[test]
fn m_is_compared_with_what_there_is_and_may_be_a_part_of_it() {
    let machine = Ram { machine: Some(1000 << 20), granted: None };
    let group = Ram { granted: Some(500 << 20), ..machine };
    let served = |line: &str, ram| match parse_with(line, ram) {
        Ok(Action::Serve(settings, notes)) => (settings.memory_bytes >> 20, notes.join("\n")),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(served("-m 80%", machine), (800, String::new()));
    assert_eq!(served("-m 80%", group), (400, String::new()));
    assert_eq!(served("-m 500", group), (500, String::new()));
    let (_, told) = served("-m 501", group);
    let said = "WARNING: -m 501 is more than the 500 megabytes that the control group allows";
    assert!(told.starts_with(said), "{told}");
    let (_, told) = served("-m 2000", machine);
    assert!(told.starts_with("WARNING: -m 2000 is more than the 1000 megabytes that the machine"));
    refused("-m 80%", 1, "the system does not tell how much memory");
    for bad in ["0%", "101%", "%", "8.5%", "-1%"] {
        refused(&format!("-m {bad}"), 1, "or a percentage such as 80%");
    }
}

#[test]
fn l_huge_pages() {
    assert!(settings("-L").huge_pages && !settings("").huge_pages);
}

#[test]
fn o_hashpower() {
    assert_eq!(settings("").index_items, 0);
    assert_eq!(settings("-o hashpower=12").index_items, 6144);
    assert_eq!(settings("-o hashpower=32").index_items, 6 << 30);
    for bad in ["11", "33", "x"] {
        refused(&format!("-o hashpower={bad}"), 1, "hashpower must be between 12 and 32");
    }
}

#[test]
fn m_no_eviction() {
    assert!(!settings("-M").columns.evict);
    assert!(settings("").columns.evict);
}

#[test]
fn o_eviction() {
    let mut names = Vec::new();
    let help = super::help::usage();
    for (name, eviction) in Eviction::ALL {
        assert_eq!(settings(&format!("-o eviction={name}")).eviction, eviction);
        assert!(help.contains(name), "{name} is not in the help");
        names.push(name);
    }
    let default = Eviction::ALL.into_iter().find(|(_, one)| *one == settings("").eviction).unwrap();
    assert!(help.contains(&format!("(default: {})", default.0)), "{default:?}");
    for unknown in ["lru", "", "Fifo"] {
        refused(&format!("-o eviction={unknown}"), 1, &names.join(", "));
    }
    refused("-o eviction", 1, "Missing argument for eviction");
}

#[test]
fn c_connections() {
    assert_eq!(settings("-c 5").columns.connections_max, 5);
    refused("-c 0", 1, "Maximum connections must be greater than 0");
    refused("-c x", 1, "Maximum connections must be greater than 0");
}

#[test]
fn t_threads() {
    let settings = settings("-t 2");
    assert_eq!((settings.columns.count, settings.cpus), (2, vec![0, 1, 2]));
    refused("-t 0", 1, "Number of threads must be greater than 0");
    refused("-t x", 1, "Number of threads must be greater than 0");
    refused("-t 1025", 1, "at most 1024");
    assert!(served("-t 64").1.is_empty());
    assert!(served("-t 65").1[0].starts_with("WARNING: Setting a high number of worker threads"));
}

#[test]
fn r_requests_per_event() {
    assert_eq!(settings("-R 500").columns.requests_per_event, 500);
    refused("-R 0", 1, "Number of requests per event must be greater than 0");
}

#[test]
fn c_no_cas() {
    assert!(!settings("-C").cas);
}

#[test]
fn i_item_size() {
    for (value, bytes) in [("1k", 1024), ("1024", 1024), ("2M", 2 << 20), ("32m", 32 << 20)] {
        assert_eq!(settings(&format!("-I {value}")).columns.item_bytes_max, bytes, "{value}");
    }
    assert_eq!(settings("-I 1024m -m 2048").columns.item_bytes_max, 1 << 30);
    refused("-I 1023", 64, "Item max size cannot be less than 1024 bytes.");
    refused("-I 33m", 64, "Cannot set item size limit higher than 1/2 of memory max.");
    refused("-I 1025m -m 8192", 64, "Cannot set item size limit higher than a gigabyte.");
    refused("-I 2147483647m", 64, "higher than a gigabyte");
    refused("-I x", 1, "-I takes a number of bytes");
    refused("-I m", 1, "-I takes a number of bytes");
    refused("-I 1é", 1, "-I takes a number of bytes");
}

#[test]
fn f_no_flush_all() {
    assert!(!settings("-F").flush_enabled);
}

#[test]
fn d_daemon_makes_paths_absolute() {
    let settings = settings("-d -P pid -s sock");
    assert!(settings.daemonize);
    assert!(settings.pid_path.unwrap().is_absolute());
    assert!(settings.unix_path.unwrap().is_absolute());
}

#[test]
fn r_core_dumps() {
    assert!(settings("-r").core_dumps);
}

#[test]
fn u_user() {
    assert_eq!(settings("-u nobody").user.as_deref(), Some("nobody"));
}

#[test]
fn k_lock_memory() {
    assert!(settings("-k").lock_memory);
}

#[test]
fn v_verbose() {
    assert_eq!(settings("-v").verbosity, 1);
    assert_eq!(settings("-vvv").verbosity, 3);
    assert_eq!(settings("--verbose --verbose=2").verbosity, 2);
}

#[test]
fn h_i_v_print_and_begin_alike() {
    let first = concat!("memcached 1.6.45 (hypostyle ", env!("CARGO_PKG_VERSION"), ")\n");
    for flag in ["-h", "-i", "-V", "--help", "--license", "--version", "-vV -q"] {
        match parse_line(flag) {
            Ok(Action::Print(text)) => assert!(text.starts_with(first), "{flag}: {text}"),
            other => panic!("{flag}: {other:?}"),
        }
    }
}

#[test]
fn p_pid_file() {
    assert_eq!(settings("-P /run/pid").pid_path, Some("/run/pid".into()));
}

#[test]
fn x_no_dumping() {
    assert!(!settings("-X").dump_enabled);
}

#[test]
fn f_n_d_n_are_checked_and_reported() {
    assert!(settings("").watch_enabled && !settings("-W").watch_enabled);
    for line in ["-f 1.5", "-n 48", "-N 1"] {
        without_effect(line);
    }
    refused("-f 1", 1, "Factor must be greater than 1");
    refused("-n 0", 1, "Chunk size must be greater than 0");
    refused("-N 0", 1, "Maximum number of NAPI IDs must be greater than 0");
    assert!(!settings("").detail && !settings("").sizes && settings("-o track_sizes").sizes);
    assert_eq!((settings("-D /").detail, settings("-D /").prefix_end), (true, b'/'));
    let empty = parse(["-D", ""].map(OsString::from), &cpus(), &Ram::default());
    assert_eq!(empty.unwrap_err().text, "No delimiter specified");
    assert_eq!(served("-n 48 -n 48").1.len(), 1);
}

#[test]
fn s_y_z_e_are_refused() {
    assert!(settings("-A").shutdown_enabled && !settings("").shutdown_enabled);
    for flag in ["-S", "-Y users", "-Z", "-e /dev/shm/x"] {
        refused(flag, 64, &format!("{} is refused", &flag[..2]));
    }
}

#[test]
fn o_extended_of_ours() {
    assert_eq!(settings("-o no_pin").cpus, [0; 0]);
    assert!(settings("").columns.connections_max_fast);
    assert!(!settings("-o no_maxconns_fast").columns.connections_max_fast);
    assert!(settings("-o no_maxconns_fast,maxconns_fast").columns.connections_max_fast);
    assert!(settings("").crawler && !settings("-o no_lru_crawler").crawler);
    assert!(settings("-o no_lru_crawler,lru_crawler").crawler);
    let logs = settings("-o worker_logbuf_size=8,watcher_logbuf_size=16");
    assert_eq!((logs.worker_log_bytes, logs.watcher_log_bytes), (8 << 10, 16 << 10));
    refused("-o worker_logbuf_size=0", 1, "worker_logbuf_size must be between 1 and 1048576");
    assert!(settings("").slab_reassign && !settings("-o no_slab_reassign").slab_reassign);
    assert_eq!(settings("-o idle_timeout=30").columns.idle_seconds_max, 30);
    refused("-o idle_timeout", 1, "Missing argument for idle_timeout");
    refused("-o idle_timeout=x", 1, "idle_timeout takes a number of seconds");
}

#[test]
fn o_extended_of_memcached() {
    without_effect("-o relaxed_privileges");
    let (settings, notes) = served("-o modern,no_pin,slab_automove -o slab_automove=2");
    assert_eq!(settings.cpus, [0; 0]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    refused("-o nonsense", 1, "Illegal suboption \"nonsense\"");
    refused("-o hashpower", 1, "Missing argument for hashpower");
    refused("-o slab_automove=3", 1, "slab_automove must be between 0 and 2");
    refused("-o hash_algorithm=md5", 1, "Unknown hash_algorithm option");
    refused("-o slab_automove_ratio=0", 1, "must be > 0 and <= 1");
    for option in ["drop_privileges", "ssl_key=x", "proxy_config=x", "ext_path=/x:1G"] {
        refused(&format!("-o {option}"), 64, "is refused");
    }
}

#[test]
fn every_extended_row_does_what_it_is_listed_for() {
    for option in OPTIONS {
        let line = format!("-o {}=20", option.long);
        match (&option.handler, parse_line(&line)) {
            (Handler::Refused(why), Err(refusal)) => {
                assert!(refusal.text.contains(why))
            }
            (Handler::Nothing { why, .. }, Ok(Action::Serve(_, notes))) => {
                assert!(notes[0].contains(why), "{line}: {notes:?}");
            }
            // The value is outside the option's range.
            (Handler::Nothing { .. }, Err(refusal)) => assert_eq!(refusal.status, 1),
            (Handler::Switches(_) | Handler::Sets(_), Ok(Action::Serve(_, notes))) => {
                assert_eq!(notes, [""; 0])
            }
            // The option takes a name, not a number.
            (Handler::Switches(_) | Handler::Sets(_), Err(refusal)) => {
                assert!(refusal.text.contains(option.long) && refusal.status == 1, "{refusal:?}");
            }
            (_, other) => panic!("{line}: {other:?}"),
        }
    }
}
