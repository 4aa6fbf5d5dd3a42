# `make demo` and `make test` install what they need, build, and do everything; the rest are their parts.

CARGO   ?= cargo
PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= /usr/lib/systemd

.PHONY: demo test lint build install bench-fetch bench-launch bench-idle bench-policies setup-build setup-test setup-demo clean

## Launches and switches to a real application, without and with prepage: a table and a report.
demo: setup-demo build
	scripts/as-root target/release/prepage-eval demo --prepage-bin target/release --out target/demo

## Formatting, clippy and documentation, then every test. Needs root: the kernel layer is tested against the kernel.
test: setup-test lint
	scripts/as-root env CARGO_TERM_COLOR=never $(CARGO) test --workspace --locked

lint: setup-build
	$(CARGO) fmt --all --check
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	    $(CARGO) clippy --workspace --all-targets --locked -- -D warnings; \
	else echo "clippy is not installed with this cargo: NOT linted by it" >&2; fi
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

build: setup-build
	$(CARGO) build --release --workspace --locked

install: build
	install -Dm755 target/release/prepage  $(DESTDIR)$(PREFIX)/bin/prepage
	install -Dm755 target/release/prepaged $(DESTDIR)$(PREFIX)/sbin/prepaged
	install -Dm644 dist/prepage.toml $(DESTDIR)/etc/prepage/prepage.toml
	sed 's|/usr/sbin/prepaged|$(PREFIX)/sbin/prepaged|' dist/prepaged.service | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(UNITDIR)/system/prepaged.service
	sed 's|/usr/bin/prepage|$(PREFIX)/bin/prepage|' dist/prepage-agent.service | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(UNITDIR)/user/prepage-agent.service

## The fetch path alone: us per page, GB/s, and what a concurrently faulting application loses.
bench-fetch: setup-build build
	scripts/as-root target/release/prepage-eval fetch

## Launches of ten programs, cold, warm and helped, as FAST section 5 has them: about twenty minutes.
bench-launch: setup-build build
	scripts/setup launch
	scripts/as-root target/release/prepage-eval launch --install --out target/launches.jsonl

## Switches under each core policy of ASAP section 6.5: about three minutes each.
bench-policies: setup-demo build
	scripts/bench-policies target/release target/policies

## Services that sat idle, swapped out whole to zram and then to the disk: about fifty minutes.
bench-idle: setup-build build
	scripts/as-root target/release/prepage-eval idle --install --out target/idle-zram.jsonl
	scripts/as-root target/release/prepage-eval idle --swap disk --out target/idle-disk.jsonl

setup-build:
	scripts/setup build

setup-test:
	scripts/setup build test

setup-demo:
	scripts/setup build demo

clean:
	$(CARGO) clean
