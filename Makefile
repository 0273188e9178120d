# make test   installs what the tests need, runs them all, and ends with what passed and what failed
# make check  the Rust-only part, for daily work
# make explore  any number of schedules of threads: SCHEDULES=100000
# make soak   everything at once for MINUTES, and then an audit: what only time finds; with
#             SOAK=--moving instead load that moves between threads each second; as root, with
#             SOAK='--bypass full' values in the packets that brought them (or send)
# make loss   packets past the kernel, lost, doubled and late, for MINUTES; each answer to the byte
# make vm     Debian's kernels 6.1 and 6.12 in machines of two NUMA nodes, with the tests that depend
#             on kernels and machines; by software emulation it takes minutes
# make pages  manual pages and completions for bash, zsh and fish, to target/pages
# make sanitize  tests under the address and thread sanitizers, valgrind and Miri, as far as they are
#             here; KINDS='address thread memcheck miri' picks
# make mutants  a sample of each crate changed by cargo-mutants; CRATES='net store' picks
# make peers  only installs: memcached, Redis, libmemcached's tools, clients for Python, Go, Node,
#             Java, Ruby, a browser

CARGO ?= cargo
PEERS := tests/.peers
FUZZ_SECONDS ?= 20
MINUTES ?= 10
# Words more for the soak, such as --moving.
SOAK ?=
# Schedules of each kind; none: as many as a minute takes. The seed of the first; of the only one.
SCHEDULES ?=
FROM ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d " ")
SEED ?=
KINDS ?=
CRATES ?=
# Part of the name of one kind, of `store/tests/explore/main.rs`, or of one test `under_shuttle`.
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

# The lock-free parts under all interleavings that loom can tell apart.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --target-dir target/loom \
		-p hypostyle-memory -p hypostyle-store --lib loom

# The store under schedules drawn at random, with a look at everything behind each; and queues of
# interfaces and what columns share beside the store. What fails is printed, and fails again with the
# seed and the kind that stand there.
explore: export RUSTFLAGS = --cfg shuttle
explore: export EXPLORE_SCHEDULES = $(SCHEDULES)
explore: export EXPLORE_FROM = $(FROM)
explore: export EXPLORE_SEED = $(SEED)
explore:
	$(CARGO) test --target-dir target/shuttle -p hypostyle-store --test explore \
		-- --nocapture --test-threads 2 $(KIND)
	$(CARGO) test --target-dir target/shuttle -p hypostyle-net -p hypostyle --lib \
		-- --nocapture --test-threads 2 $(or $(KIND),under_shuttle)

# The cache lines that operations write and other columns touch, counted.
writes:
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --target-dir target/shuttle \
		-p hypostyle-store --lib shared_writes

# Each fault of memory/src/plant.rs planted in turn, for a test to catch. It takes a minute on
# two cores, but builds everything three times before: no part of `make test`.
plant:
	CARGO=$(CARGO) tests/plant

# Errors that no test looks for, and whether planted ones are seen. Not part of `make test`.
sanitize:
	CARGO=$(CARGO) tests/sanitize $(KINDS)

# What the crates' own tests do not notice. It takes hours on two cores: no part of `make test`.
mutants:
	@$(CARGO) mutants --version 2>/dev/null | grep -qx 'cargo-mutants $(CARGO_MUTANTS)' || { \
		echo 'make: installing cargo-mutants $(CARGO_MUTANTS)'; \
		$(CARGO) install --locked cargo-mutants --version $(CARGO_MUTANTS); }
	CARGO=$(CARGO) tests/mutants $(CRATES)

# Two servers, optimised and with every assertion, under all that clients, operators and systems do.
soak:
	$(CARGO) bench --profile soak -p hypostyle --bench soak -- --minutes $(MINUTES) $(SOAK)

# As root. Of what arrives a model says what is answered; it has every counter right in the end.
loss:
	CI=true HYPOSTYLE_LOSS_MINUTES=$(MINUTES) $(CARGO) test -p hypostyle --test network \
		-- --nocapture what_arrives_is_answered_whatever_is_lost_doubled_or_late

vm:
	@tests/together 'tests/vm bookworm' 'tests/vm trixie'

# A short run of each fuzz target: no crash, no hang, no memory that grows.
fuzz:
	@$(CARGO) fuzz --version 2>/dev/null | grep -qx 'cargo-fuzz $(CARGO_FUZZ)' || { \
		echo 'make: installing cargo-fuzz $(CARGO_FUZZ)'; \
		$(CARGO) install --locked cargo-fuzz --version $(CARGO_FUZZ); }
	@mkdir -p target
	@for target in $$(cd fuzz/fuzz_targets && ls *.rs | sed 's/\.rs$$//'); do \
		dictionary=fuzz/$$target.dict; log=target/fuzz-$$target.log; \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s (all it says: $$log)"; \
		$(CARGO) fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_SECONDS) \
			-timeout=5 -rss_limit_mb=1024 $$([ -f $$dictionary ] && echo -dict=$$dictionary) \
			>$$log 2>&1 || { tail -n 60 $$log; exit 1; }; \
		grep '^Done ' $$log; \
	done
