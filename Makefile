# flashfork: make demo shows it, make test checks it. Every target installs the Debian packages it needs, or says which.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
FLASHFORK := $(TARGET)/release/flashfork
SHARE = $(DESTDIR)$(PREFIX)/share

export CARGO

# What only the benchmarks need.
BENCH_PACKAGES := afl++ bc binutils bison busybox-static ccache e2fsprogs emacs-nox flex hyperfine iproute2 libelf-dev linux-perf lzip mmdebstrap nailgun \
	nats-server nodejs openjdk-17-jdk-headless patch perl python3 python3-numpy python3-pandas qemu-system-x86 redis-server rsync ruby sqlite3 stress-ng xz-utils

.PHONY: all build deb wheel demo check test test-core test-command test-python test-runtimes test-vm test-kernel test-all bench figures bench-vm-lab install uninstall clean

all: build

build:
	@scripts/need-packages
	$(CARGO) build --release --locked -p flashfork-afl -p flashfork-bench -p flashfork-cli -p flashfork-java -p flashfork-keeper -p flashfork-launcher -p flashfork-preload -p flashfork-serve -p flashfork-vmm
	install -D -m 755 "$$(CARGO="$(CARGO)" scripts/build-agent --locked)" $(TARGET)/lib/flashfork/flashfork-agent
	@scripts/build-jar $(TARGET)/release

# Debian packages of what `make install` installs, into target/deb.
deb:
	@scripts/deb

# The Python package, into target/wheel (docs/PYTHON.md).
wheel:
	@scripts/wheel

# An ordinary Python program, what a clone costs by size, real SQLite, a virtual machine.
demo: build
	@scripts/need-packages busybox-static python3
	@FLASHFORK=$(FLASHFORK) scripts/demo

# The lanes are in scripts/test. Format, lints and unit tests; then one for each part, with what it needs.
check:
	@scripts/test check

test-core test-command test-python test-runtimes test-vm test-kernel:
	@scripts/test $(@:test-%=%)

test:
	@scripts/test check core command python runtimes vm kernel

# Everything, the long runs too: many hours. What each lane came to is kept in tests/RESULTS.md, for a commit; for one of them alone:
# scripts/test --record tests/RESULTS.md core-long
test-all:
	@scripts/test --record tests/RESULTS.md all

# Takes the records of docs/FIGURES.md: two and a half hours, on a machine that does nothing else. RUNS names some of them.
bench: build
	@scripts/need-packages $(BENCH_PACKAGES)
	@FLASHFORK=$(FLASHFORK) scripts/measure $(RUNS)

# Tables and pictures in documents, of the records, which are packed first.
figures:
	UPDATE=1 $(CARGO) test --locked -p flashfork-bench --test records
	UPDATE=1 $(CARGO) test --locked -p flashfork-bench --test documents

# Clones of Linux guests on nested KVM in the lab: some minutes, emulated. Only ratios of like with like mean something there.
# EXPERIMENT=vm-jobs has them compile, and run Java: half an hour. EXPERIMENT=vm-tree makes trees of them.
EXPERIMENT ?= vm-clone
bench-vm-lab: build
	@scripts/need-packages binutils busybox-static qemu-system-x86 $(if $(filter vm-jobs,$(EXPERIMENT)),e2fsprogs mmdebstrap openjdk-17-jdk-headless) $(if $(filter vm-tree,$(EXPERIMENT)),e2fsprogs redis-server)
	FLASHFORK=$(FLASHFORK) scripts/bench-vm-lab $(EXPERIMENT) $(ARGS) > $(TARGET)/bench-vm-lab.json
	@echo "Records: $(TARGET)/bench-vm-lab.json"

install: build
	install -D -m 755 $(FLASHFORK) $(DESTDIR)$(PREFIX)/bin/flashfork
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/flashfork $(addprefix $(TARGET)/,$(addprefix release/flashfork-,bench cli keeper serve shell vmd) lib/flashfork/flashfork-agent)
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/flashfork $(addprefix $(TARGET)/release/,libflashfork_preload.so libflashfork_java.so)
	@[ ! -e $(TARGET)/release/flashfork.jar ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/flashfork $(TARGET)/release/flashfork.jar
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/flashfork crates/flashfork-preload/node/flashfork.js
	CARGO="$(CARGO)" DESTDIR="$(DESTDIR)" crates/flashfork/install-c.sh $(PREFIX)
	for unit in system/flashfork-serve system/flashfork-vmd user/flashfork-vmd; do \
		for kind in socket service; do \
			install -d $(DESTDIR)$(PREFIX)/lib/systemd/$${unit%/*}; \
			sed 's|@LIB@|$(PREFIX)/lib/flashfork|' crates/*/systemd/$${unit#*/}.$$kind > $(DESTDIR)$(PREFIX)/lib/systemd/$$unit.$$kind || exit; \
		done; \
	done
	install -D -m 644 crates/flashfork-vmm/systemd/system.conf $(DESTDIR)$(PREFIX)/lib/systemd/system/flashfork-vmd.service.d/system.conf
	install -d $(addprefix $(SHARE)/,man bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(FLASHFORK) man $(SHARE)/man/man1
	$(FLASHFORK) completions bash > $(SHARE)/bash-completion/completions/flashfork
	$(FLASHFORK) completions zsh > $(SHARE)/zsh/site-functions/_flashfork
	$(FLASHFORK) completions fish > $(SHARE)/fish/vendor_completions.d/flashfork.fish
	install -D -m 644 -t $(SHARE)/doc/flashfork/docs docs/*.md docs/*.svg
	install -D -m 644 -t $(SHARE)/doc/flashfork *.md
	install -D -m 644 -t $(SHARE)/doc/flashfork/docs/figures docs/figures/*.md
	install -D -m 644 -t $(SHARE)/doc/flashfork/kernel kernel/README.md

# What `make install` with the same PREFIX and DESTDIR has put there.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/flashfork $(addprefix $(DESTDIR)$(PREFIX)/include/,flashfork.h flashfork_afl.h flashfork_afl_loop.h)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/,libflashfork.a libflashfork_afl.a libflashfork.so* pkgconfig/flashfork.pc)
	rm -f $(foreach unit,system/flashfork-serve system/flashfork-vmd user/flashfork-vmd,$(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/$(unit).,socket service))
	rm -rf $(DESTDIR)$(PREFIX)/lib/systemd/system/flashfork-vmd.service.d
	rm -f $(addprefix $(SHARE)/,man/man1/flashfork.1 man/man1/flashfork-*.1)
	rm -f $(addprefix $(SHARE)/,bash-completion/completions/flashfork zsh/site-functions/_flashfork)
	rm -f $(SHARE)/fish/vendor_completions.d/flashfork.fish
	rm -rf $(DESTDIR)$(PREFIX)/lib/flashfork $(SHARE)/doc/flashfork

clean:
	$(CARGO) clean
