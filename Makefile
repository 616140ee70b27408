# Everything that is done with this repository, by name. Needs GNU make; `make` alone lists what there is.
#
# Each target that builds first runs `setup`, which says in a sentence what is missing.

# A fresh rustup is found also before the shell has been restarted.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup outside lint demo try torture test bench bench-test bench-copies bench-tunnels bench-media bench-python regret instructions interop rivals rivals-test rpc-test readers-test check doc deny doctor fuzz package c python clean
.DEFAULT_GOAL := help

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: setup ## Copy a file over an emulated path that goes bad, beside the kernel's TCP, and write a report to demo-out/ (FILE=path for a file of yours)
	cargo build --profile demo --bin uts --bin uts-lab
	@cargo run --quiet --profile demo --bin uts-lab -- demo $${FILE:+--file "$$FILE"} --out demo-out

try: setup ## Test one function of the library, not optimised: seconds from a changed line to the result (FUNCTION=detection)
	cargo test --profile dev -p uts-functions --lib -- $(or $(FUNCTION),$(error say which function, as in: make try FUNCTION=detection))::

# The instant is the first seed, so that each run tries others; it is said, and `UTS_SEED=n` runs one again.
torture: setup ## Exchange mechanisms at random over random paths, under new seeds each time (SEEDS=10000)
	UTS_SEED_FIRST=$${FIRST:-$$(date +%s)000000} UTS_SEEDS=$(or $(SEEDS),10000) cargo test --workspace --test torture -- --nocapture

test: setup ## Run every test: unit, conformance, 1,000 seeds, end to end; the last line has the total
	@scripts/cargo-test --workspace

interop: setup target/interop/made ## Run the second implementation, in Python, against the programs: interop/README.md
	cargo build --bin uts
	@cd interop && ../target/interop/bin/python -m uts_interop vectors && \
		../target/interop/bin/python -m uts_interop suite "$$(cd .. && pwd)/target/debug/uts"

# Python with the packages that it needs, which `make test` takes as well once it is there.
target/interop/made: interop/requirements.txt
	python3 -m venv target/interop
	target/interop/bin/pip install --quiet --disable-pip-version-check -r interop/requirements.txt
	@touch $@

bench: setup ## Measure UTS beside raw UDP, kernel TCP, quinn, s2n-quic, quiche and TQUIC, and its parts, and say what fell since the last record (QUICK=1 for a first look, RECORD=1 to record): docs/performance.md
	cargo build --release --locked --manifest-path bench/Cargo.toml --target-dir bench/target -p uts-bench $$(scripts/bench-rivals)
	@bench/target/release/uts-bench $(if $(QUICK),--quick) --out bench/out/bench.json $(BENCH)
	@$(if $(findstring --out,$(BENCH)),true,python3 bench/compare.py bench/out/bench.json bench/out/recorded$(if $(QUICK),-quick).json $(if $(RECORD),--record))

bench-test: setup ## Test the program that measures, and the one that compares
	@python3 bench/compare.py --test
	@scripts/cargo-test --release --locked --manifest-path bench/Cargo.toml --target-dir bench/target -p uts-bench -p uts-bench-ends $$(scripts/bench-rivals)

bench-copies: setup ## Measure `uts cp` beside scp, rsync and croc, on loopback and over emulated paths (QUICK=1 for small files): bench/copies
	cargo build --release --locked --bin uts --bin uts-lab
	@python3 bench/copies $(if $(QUICK),--quick) $(BENCH)

bench-tunnels: setup ## Measure `uts tunnel` beside ssh -L, KCP and WireGuard over emulated paths (QUICK=1 for small works): bench/tunnels
	cargo build --release --locked --bin uts --bin uts-lab
	cargo build --release --locked -p uts-plot --example tunnels
	@scripts/tunnel-rivals bench/out/rivals
	@python3 bench/tunnels $(if $(QUICK),--quick) $(BENCH)

bench-media: setup ## Measure `uts media` beside SRT and RIST over emulated paths (QUICK=1 for a part): bench/media
	cargo build --release --locked --bin uts --bin uts-lab
	cargo build --release --locked -p uts-plot --example media
	@python3 bench/media $(if $(QUICK),--quick) $(BENCH)

bench-python: python ## Measure UTS for Python beside aioquic and qh3, on loopback (QUICK=1 for a tenth of it): bench/python
	python3 -m venv target/bench-python
	target/bench-python/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/python/uts_transport-*.whl
	target/bench-python/bin/pip install --quiet --disable-pip-version-check aioquic==1.7.2 qh3==2.1.0 cffi==2.1.1
	@target/bench-python/bin/python bench/python $(if $(QUICK),--quick) $(BENCH)

regret: setup ## Compare the profile that adapts with the best fixed one, in virtual time, over 65 scenarios; page in regret-out/ (REGRET='--only voice')
	cargo build --release --locked --bin uts-regret
	@target/release/uts-regret --out regret-out $(REGRET)

instructions: setup ## Count the instructions per packet of the hot path under valgrind; fails if they have grown
	@scripts/instructions

# What the system has of their libraries: with one that was installed since, or is gone, cargo looks again.
rivals rivals-test: export RIVAL_LIBRARIES = $(shell scripts/rivals)

rivals: setup ## Build the transports that experiments compare UTS with (quinn, s2n-quic, SRT, ENet): rivals/README.md
	@scripts/rivals
	cargo build --release --locked --manifest-path rivals/Cargo.toml --target-dir rivals/target

rivals-test: setup ## Test the rivals under every workload that they can carry
	@scripts/rivals
	@scripts/cargo-test --release --locked --manifest-path rivals/Cargo.toml --target-dir rivals/target

rpc-test: setup ## Test services of tonic (gRPC) and tarpc over flows: rpc/README.md
	@scripts/cargo-test --locked --manifest-path rpc/Cargo.toml --target-dir rpc/target

readers-test: setup ## Test that logs and tables are read by the readers of others: quiche's of qlog, Parquet's
	@scripts/cargo-test --locked --manifest-path readers/Cargo.toml --target-dir readers/target

check: lint ## Check all that `make lint` does, and run the tests inside the crates: before each commit
	@scripts/cargo-test --workspace --lib --bins

lint: setup ## Check formatting, lints, texts, lengths of files, links and other workspaces
	@scripts/wide-lines
	@scripts/first-words
	@scripts/long-files
	@scripts/lint
	@$(MAKE) --no-print-directory doc outside

outside: setup ## Check that what has a workspace of its own still compiles: benchmarks, rivals, fuzzers, gRPC
	@scripts/outside

doc: setup ## Build the documentation of all crates, private parts included, into target/doc
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --features uts/simulation --locked

package: setup ## Build a Debian package with manual, completions and units of systemd into target/package (needs cargo-deb)
	@scripts/package

python: setup target/python/venv/made ## Build a wheel with the library inside into target/python: docs/python.md
	@scripts/python-wheel

# Python with what ours needs, which `make test` takes as well once it is there.
target/python/venv/made: python/pyproject.toml
	python3 -m venv target/python/venv
	target/python/venv/bin/pip install --quiet --disable-pip-version-check cffi==2.1.1 setuptools==80.9.0
	@touch $@

c: setup ## Build the library for C and install it with uts.h and uts.pc under DESTDIR and PREFIX (/usr/local): docs/c.md
	@scripts/c-library

deny: setup ## Check licences and sources of all dependencies (and with cargo-deny installed, their versions)
	@scripts/deny

fuzz: setup ## Fuzz every decoder, the handshake and sequences of datagrams, one after the other (TARGET=name, SECONDS=60 for each): fuzz/README.md
	@scripts/fuzz $(or $(TARGET),all) $(or $(SECONDS),60)

doctor: setup ## List the optional tools that are installed, and what each is for
	@scripts/doctor

clean: ## Remove everything that was built, and the demonstration's report
	cargo clean
	rm -rf demo-out call-out regret-out bench/target bench/out fuzz/target fuzz/found readers/target rivals/target rpc/target

setup:
	@scripts/setup
