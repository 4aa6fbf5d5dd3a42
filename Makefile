# `make demo` and `make test` install what they need, build, and do everything; the rest are their parts.

CARGO   ?= cargo
PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= /usr/lib/systemd
# Which GNOME Shell its extension is for: up to 44 extensions are no modules. Without one here, a later one.
GNOME_SHELL ?= $(shell gnome-shell --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/')

# Where cargo builds; what is measured goes to target/ in any case.
export CARGO_TARGET_DIR ?= target
BIN = $(CARGO_TARGET_DIR)/release
EXTENSION = $(PREFIX)/share/gnome-shell/extensions/prepage@prepage.org

.PHONY: demo test test-report lint build install install-extension uninstall bench bench-reclaimed bench-together bench-together-800 \
    bench-together-onset bench-observing bench-pressure bench-launch bench-launch-emmc bench-launch-figures bench-peers bench-idle \
    bench-report bench-quick bench-fetch bench-policies bench-storage bench-swap bench-zram bench-mthp results setup-build \
    setup-test setup-demo clean

## Launches and switches to a real application, without and with prepage: a table and a report.
demo: setup-demo build
	scripts/as-root $(BIN)/prepage-eval demo --prepage-bin $(BIN) --out target/demo

## Formatting, clippy and documentation, then every test. Needs root: the kernel layer is tested against the kernel.
test: setup-test lint
	scripts/as-root env CARGO_TERM_COLOR=never $(CARGO) test --workspace --locked --no-fail-fast

## The report as a browser shows it; installs chromium where no browser is.
test-report: setup-build
	scripts/setup report
	$(CARGO) test -p prepage-eval --test report --locked -- --ignored

lint: setup-build
	scripts/setup lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

build: setup-build
	$(CARGO) build --release --workspace --locked

## What `make build` has built, to PREFIX below DESTDIR; a configuration that is there stays. So a new one has its values
## commented out: it would keep the defaults of now, and keys that a later version may not know.
install:
	@[ -e $(BIN)/prepaged ] || { echo "make install: nothing is built in $(BIN): say make build first" >&2; exit 1; }
	install -Dm755 $(BIN)/prepage  $(DESTDIR)$(PREFIX)/bin/prepage
	install -Dm755 $(BIN)/prepage-launch $(DESTDIR)$(PREFIX)/bin/prepage-launch
	install -Dm755 $(BIN)/prepage-control $(DESTDIR)$(PREFIX)/bin/prepage-control
	install -Dm755 $(BIN)/prepaged $(DESTDIR)$(PREFIX)/sbin/prepaged
	[ -e $(DESTDIR)/etc/prepage/prepage.toml ] || sed 's/^[a-z_]* = /# &/' dist/prepage.toml | \
	    install -Dm644 /dev/stdin $(DESTDIR)/etc/prepage/prepage.toml
	sed 's|/usr/sbin/prepaged|$(PREFIX)/sbin/prepaged|' dist/prepaged.service | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(UNITDIR)/system/prepaged.service
	sed 's|/usr/bin/prepage|$(PREFIX)/bin/prepage|' dist/prepage-agent.service | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(UNITDIR)/user/prepage-agent.service
	sed 's|/usr/bin/prepage|$(PREFIX)/bin/prepage|' dist/prepage-agent.desktop | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/applications/prepage-agent.desktop
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 dist/man/*.1
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man8 dist/man/*.8
	$(MAKE) install-extension

## The extension that reports the focus in a session of GNOME Shell; for one user: PREFIX=~/.local.
install-extension:
	install -Dm644 dist/gnome-shell/metadata.json $(DESTDIR)$(EXTENSION)/metadata.json
	sed '$(if $(filter 42 43 44,$(GNOME_SHELL)),s/^export default //)' dist/gnome-shell/extension.js | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(EXTENSION)/extension.js

## Removes what `make install` put to PREFIX below DESTDIR; the configuration and what was learned stay.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/prepage bin/prepage-launch bin/prepage-control sbin/prepaged \
	    share/applications/prepage-agent.desktop share/man/man8/prepaged.8 \
	    $(addprefix share/man/man1/,$(notdir $(wildcard dist/man/*.1))))
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,system/prepaged.service user/prepage-agent.service)
	rm -rf $(DESTDIR)$(EXTENSION)
	@echo "left are your settings, $(DESTDIR)/etc/prepage, and what was learned, /var/lib/prepage"

## The fetch path alone: us per page, GB/s, and what a concurrently faulting application loses.
bench-fetch: setup-build build
	scripts/as-root $(BIN)/prepage-eval fetch

BENCH = scripts/as-root $(BIN)/prepage-eval

## The canonical evaluation, by parts of 105 minutes at most; each can be run by itself. A part that was interrupted goes on when
## the same is said again, of the same build; `rm -r target/bench` begins anew.
BENCH_PARTS = reclaimed together together-800 together-onset observing pressure launch launch-emmc launch-figures peers idle \
    storage swap zram mthp policies report
bench:
	@echo "about twelve hours, in these parts: $(BENCH_PARTS)"
	$(MAKE) $(addprefix bench-,$(BENCH_PARTS))

## Eight applications, each swapped out whole, in all modes of the paper's figures: about 45 minutes.
bench-reclaimed: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	@echo "about 45 minutes"
	$(BENCH) run --apps all --install --modes launch,resident,files_dropped,off,observe,anon,file,full --samples 12 --resume \
	    --out target/bench/reclaimed.jsonl

## Eight applications at once under one limit, about half of what they hold: about 100 minutes.
bench-together: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	@echo "about 100 minutes"
	$(BENCH) run --apps all --install --setting together --sequences 3 --rounds 10 --resume \
	    --out target/bench/together.jsonl

## The same under a tighter limit, and with nothing that announces a switch but its demand faults: about 60 minutes each.
bench-together-800: TOGETHER = --limit-mib 800 --modes off,full
bench-together-onset: TOGETHER = --modes off,full_onset
bench-together-800 bench-together-onset: bench-together-%: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	@echo "about 60 minutes"
	$(BENCH) run --apps all --install --setting together --sequences 3 --rounds 6 $(TOGETHER) --resume \
	    --out target/bench/together-$*.jsonl

## Chromium with everything resident, watched and not (what is on the path of a switch), and pushed out by others: about ten
## minutes each.
bench-observing: SWITCHES = --modes resident,resident_observe --samples 30
bench-pressure: SWITCHES = --setting pressure --modes off,full
bench-observing bench-pressure: bench-%: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	@echo "about ten minutes"
	$(BENCH) run --apps chromium --install $(SWITCHES) --resume --out target/bench/$*.jsonl

## Launches of all programs, cold, warm and helped, as FAST section 5 has them, and as the service sees them; and of ten, helped by
## what warm launches have taught: about an hour.
bench-launch: setup-build build
	scripts/setup launch
	mkdir -p target/bench
	@echo "about an hour"
	$(BENCH) launch --programs all --install --resume \
	    --scenarios cold,warm,sorted,fast,detected,prefetch_only,whole_files,vmtouch --out target/bench/launches.jsonl
	$(BENCH) launch --install --resume --learn warm --scenarios cold,warm,fast,detected \
	    --out target/bench/launches-learned-warm.jsonl

## Launches of ten programs with the disk held to an eMMC's speed: about 40 minutes.
bench-launch-emmc: setup-build build
	scripts/setup launch
	mkdir -p target/bench
	@echo "about 40 minutes"
	$(BENCH) launch --throttle emmc --install --scenarios cold,warm,fast,detected,sorted,whole_files,vmtouch --resume \
	    --out target/bench/launches-emmc.jsonl

## What FAST shows beside launch times, in launches of their own: Figures 7 and 8, Table 4, updates. About half an hour.
FIGURE_PROGRAMS ?= gimp,python3
DETAIL_PROGRAMS ?= gimp,python3,git,uname
bench-launch-figures: setup-build build
	scripts/setup launch
	mkdir -p target/bench
	@echo "about half an hour"
	$(BENCH) launch --programs $(FIGURE_PROGRAMS) --install --scenarios cold --runs 0 --timelines 5 --resume \
	    --out target/bench/launch-timelines.jsonl
	$(BENCH) launch --programs all --install --scenarios cold --runs 5 --simultaneous 2,5,10,15 --resume \
	    --out target/bench/launch-at-once.jsonl
	$(BENCH) launch --programs $(DETAIL_PROGRAMS) --install --overheads --runs 8 --resume \
	    --out target/bench/launch-overheads.jsonl
	$(BENCH) launch --programs gimp,python3 --install --mismatch --runs 8 --resume \
	    --out target/bench/launch-mismatch.jsonl

## Beside what people use today, in the same alternation: vmtouch, whole files and, where it is installed, the daemon preload,
## which learns from nearly an hour of use by itself and here from three sessions. About a quarter of an hour.
PEER_PROGRAMS ?= libreoffice,inkscape,python3,node,gcc,perl,ruby,gdb
bench-peers: setup-build build
	scripts/setup launch
	mkdir -p target/bench
	@echo "about a quarter of an hour"
	$(BENCH) launch --programs $(PEER_PROGRAMS) --install --runs 5 --resume \
	    --scenarios cold,warm,fast,detected,whole_files,vmtouch,preload --out target/bench/launches-peers.jsonl

## Services that sat idle, swapped out whole to zram and then to the disk: about 75 minutes.
bench-idle: setup-build build
	mkdir -p target/bench
	@echo "about 75 minutes"
	$(BENCH) idle --services redis,node,jvm --install --resume --out target/bench/idle-zram.jsonl
	$(BENCH) idle --services redis,node,jvm --install --swap disk --resume --out target/bench/idle-disk.jsonl

FACTOR_APPS ?= chromium,writer,gimp

## One factor at a time, at each of its levels: storage (native, ufs, emmc; eight applications), swap (zram, disk, zswap), zram
## (each compressor that the kernel offers) and mthp (off, on). Each level has a record, which bench-report draws.
bench-storage: FACTOR_APPS = all
bench-storage bench-swap bench-zram bench-mthp: bench-%: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	scripts/bench-factor $* $(BIN) target/bench --apps $(FACTOR_APPS) --install

## The core policies of ASAP section 6.5, alternating in one run: about eight minutes. The configuration says which
## cores are big and which little.
POLICIES_CONFIG ?= scripts/policies.toml
bench-policies: setup-build build
	scripts/setup demo
	mkdir -p target/bench
	@echo "about eight minutes"
	$(BENCH) run --prepage-config $(POLICIES_CONFIG) --samples 20 --resume --out target/bench/policies.jsonl \
	    --modes off,full:asap,full:big1,full:big-all,full:little1,full:little-all,full:iorap

## The report of what has been measured.
bench-report: build
	$(BENCH) report target/bench/*.jsonl --out target/bench/report.html --markdown target/bench/report.md

## Keeps the records and tables of the canonical evaluation in results/.
results: bench-report
	scripts/keep-results target/bench results

## About ten minutes of it: four applications and three launches, few samples.
bench-quick: setup-build build
	scripts/setup demo
	mkdir -p target/bench-quick
	@echo "about ten minutes"
	$(BENCH) run --apps chromium,writer,thunderbird,evince --install --modes resident,off,full --samples 6 --warmup 6 \
	    --stall-blocks 0 --resume --out target/bench-quick/reclaimed.jsonl
	$(BENCH) run --apps chromium,writer,thunderbird,evince --setting together --sequences 1 --rounds 4 --warmup 3 \
	    --stall-blocks 0 --limit-mib 400 --resume --out target/bench-quick/together.jsonl
	$(BENCH) launch --programs python3,gcc,node --install --runs 4 --scenarios cold,warm,fast,detected --resume \
	    --out target/bench-quick/launches.jsonl
	$(BENCH) report target/bench-quick/*.jsonl --out target/bench-quick/report.html --markdown target/bench-quick/report.md

setup-build:
	scripts/setup build

setup-test:
	scripts/setup build test

setup-demo:
	scripts/setup build demo

clean:
	$(CARGO) clean
