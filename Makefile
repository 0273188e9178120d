# make test   installs the tests' needs, runs all tests, and ends with the counts of their results
# make check  runs only the Rust tests and lints, for daily work
# make explore  runs any number of random thread schedules: SCHEDULES=100000
# make soak   runs two servers under mixed load for MINUTES, and then audits them; SOAK=--moving
#             selects load that moves between threads each second; as root, SOAK='--bypass full'
#             (or send) leaves values in the packets that brought them
# make loss   loses, duplicates and delays packets past the kernel for MINUTES, and compares each
#             answer byte for byte
# make vm     runs the tests that depend on kernels and machines on Debian's kernels 6.1 and 6.12,
#             in machines of two NUMA nodes; software emulation takes minutes
# make pages  writes manual pages and completions for bash, zsh and fish to target/pages
# make sanitize  runs tests under those of the address and thread sanitizers, valgrind and Miri that
#             are installed; KINDS='address thread memcheck miri' selects some
# make mutants  tests a sample of mutants of each crate by cargo-mutants; CRATES='net store' selects
#             crates
# make peers  only installs: memcached, Redis, nutcracker, libmemcached's tools, a browser, and
#             clients for Python, Go, Node, Java and Ruby

CARGO ?= cargo
PEERS := tests/.peers
FUZZ_SECONDS ?= 20
MINUTES ?= 10
# Further arguments of the soak, such as --moving.
SOAK ?=
# SCHEDULES is the number of schedules of each kind; without it a run takes a minute. FROM is the
# seed of the first schedule; SEED, if set, is the seed of the only schedule.
SCHEDULES ?=
FROM ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d " ")
SEED ?=
KINDS ?=
CRATES ?=
# KIND is a part of the name of a kind in `store/tests/explore/main.rs` or of a test
# `under_shuttle`.
KIND ?=
CARGO_FUZZ := 0.13.2
CARGO_MUTANTS := 27.1.0

.PHONY: check test peers loom explore writes plant sanitize mutants fuzz soak loss pages vm

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --no-fail-fast

test: peers
	@tests/together '$(CARGO) test --workspace --no-fail-fast' \
		'$(MAKE) --no-print-directory loom' '$(MAKE) --no-print-directory explore FROM=1' \
		'$(MAKE) --no-print-directory writes' '$(MAKE) --no-print-directory fuzz'

peers:
	tests/install $(PEERS)

pages:
	$(CARGO) run --quiet -p hypostyle --example pages -- target/pages

# Tests the lock-free parts under all interleavings that loom can distinguish.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --target-dir target/loom \
		-p hypostyle-memory -p hypostyle-store --lib loom

# Tests the store under random schedules, with an audit after each, and the queues of interfaces and
# the other state that columns share. A failure prints its seed and kind, which reproduce it.
explore: export RUSTFLAGS = --cfg shuttle
explore: export EXPLORE_SCHEDULES = $(SCHEDULES)
explore: export EXPLORE_FROM = $(FROM)
explore: export EXPLORE_SEED = $(SEED)
explore:
	$(CARGO) test --target-dir target/shuttle -p hypostyle-store --test explore \
		-- --nocapture --test-threads 2 $(KIND)
	$(CARGO) test --target-dir target/shuttle -p hypostyle-net -p hypostyle-columns -p hypostyle \
		--lib -- --nocapture --test-threads 2 $(or $(KIND),under_shuttle)

# Counts the cache lines that operations write and other columns touch.
writes:
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --target-dir target/shuttle \
		-p hypostyle-store --lib shared_writes

# Plants each fault of memory/src/plant.rs in turn; a test must catch each. This takes a minute on
# two cores, but builds everything three times before, so it is not part of `make test`.
plant:
	CARGO=$(CARGO) tests/plant

# Finds errors that no test checks for, and checks that planted errors are reported. Not part of
# `make test`.
sanitize:
	CARGO=$(CARGO) tests/sanitize $(KINDS)

# Finds mutants that the crates' own tests do not catch. This takes hours on two cores, so it is not
# part of `make test`.
mutants:
	@$(CARGO) mutants --version 2>/dev/null | grep -qx 'cargo-mutants $(CARGO_MUTANTS)' || { \
		echo 'make: installing cargo-mutants $(CARGO_MUTANTS)'; \
		$(CARGO) install --locked cargo-mutants --version $(CARGO_MUTANTS); }
	CARGO=$(CARGO) tests/mutants $(CRATES)

# Runs two servers, optimised and with every assertion, under load of clients, operators and the
# system.
soak:
	$(CARGO) bench --profile soak -p hypostyle --bench soak -- --minutes $(MINUTES) $(SOAK)

# Needs root. A model predicts the answers to the datagrams that arrive, and every counter at the
# end.
loss:
	CI=true HYPOSTYLE_LOSS_MINUTES=$(MINUTES) $(CARGO) test -p hypostyle --test network \
		-- --nocapture what_arrives_is_answered_whatever_is_lost_doubled_or_late

vm:
	@tests/together 'tests/vm bookworm' 'tests/vm trixie'

# Runs each fuzz target for a short time: no crash, no hang, no growth of memory.
fuzz:
	@$(CARGO) fuzz --version 2>/dev/null | grep -qx 'cargo-fuzz $(CARGO_FUZZ)' || { \
		echo 'make: installing cargo-fuzz $(CARGO_FUZZ)'; \
		$(CARGO) install --locked cargo-fuzz --version $(CARGO_FUZZ); }
	@mkdir -p target
	@for target in $$(cd fuzz/fuzz_targets && ls *.rs | sed 's/\.rs$$//'); do \
		dictionary=fuzz/$$target.dict; log=target/fuzz-$$target.log; \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s (log: $$log)"; \
		$(CARGO) fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_SECONDS) \
			-timeout=5 -rss_limit_mb=1024 $$([ -f $$dictionary ] && echo -dict=$$dictionary) \
			>$$log 2>&1 || { tail -n 60 $$log; exit 1; }; \
		grep '^Done ' $$log; \
	done
