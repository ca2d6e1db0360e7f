# flashfork: make demo shows it, make test checks it. Every target installs the Debian packages it needs, or says which.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
FLASHFORK := $(TARGET)/release/flashfork

# gcc and libc6-dev: the linker, SQLite, the C example. The others: what the tests drive.
BUILD_PACKAGES := gcc libc6-dev make pkg-config
TEST_PACKAGES := $(BUILD_PACKAGES) afl++ binutils busybox-static chromium e2fsprogs g++ gdb libasan8 libjemalloc2 libmimalloc2.0 \
	libtcmalloc-minimal4 python3 python3-numpy qemu-system-x86 redis-server ruby shellcheck
BENCH_PACKAGES := $(BUILD_PACKAGES) afl++ emacs-nox hyperfine linux-perf perl python3 python3-numpy python3-pandas redis-server ruby \
	sqlite3 stress-ng
# What the kernel with on-demand fork is built with; its source comes from apt too.
KERNEL_PACKAGES := $(BUILD_PACKAGES) bc bison busybox-static ccache flex libcap-dev libelf-dev libnuma-dev liburing-dev \
	qemu-system-x86 rsync xz-utils
# Lets tests of the engine odf boot the patched kernel.
ON_DEMAND = FLASHFORK_ODF_KERNEL=$$($(MAKE) -s --no-print-directory -C kernel image)

.PHONY: all build demo test test-all test-quick test-system test-lab test-vm test-kernel bench bench-vm-lab install lint clean

all: build

build:
	@scripts/need-packages $(BUILD_PACKAGES)
	$(CARGO) build --release --locked -p flashfork-cli -p flashfork-preload -p flashfork-vmm
	install -D -m 755 "$$(CARGO="$(CARGO)" scripts/build-agent --locked)" $(TARGET)/lib/flashfork/flashfork-agent

# An ordinary Python program, what a clone costs by size, real SQLite; ends in a table.
demo: build
	@scripts/need-packages $(BUILD_PACKAGES) python3
	@FLASHFORK=$(FLASHFORK) scripts/demo

# Quick lanes first. Each ends in cargo's own summary lines.
test: lint test-quick test-system test-lab test-vm test-kernel

test-quick:
	@scripts/need-packages $(TEST_PACKAGES)
	$(CARGO) test --workspace --locked --exclude flashfork-tests --exclude flashfork-lab

test-system: build
	@scripts/need-packages $(TEST_PACKAGES)
	$(CARGO) test --locked -p flashfork-tests

test-lab: build
	@scripts/need-packages $(TEST_PACKAGES)
	$(CARGO) test --locked -p flashfork-lab

# Linux guests through command, daemon and shells, on nested KVM in the lab; the test has a time limit.
test-vm: build
	@scripts/need-packages $(TEST_PACKAGES)
	$(CARGO) test --release --locked -p flashfork-tests --test vm

# The first time it builds a kernel, which takes minutes; it is kept under ~/.cache/flashfork.
test-kernel: build
	@scripts/need-packages $(KERNEL_PACKAGES)
	$(MAKE) -C kernel test FLASHFORK=$(abspath $(FLASHFORK))
	$(ON_DEMAND) $(CARGO) test --release --locked -p flashfork-tests --test behaviour -- lab/odf
	$(ON_DEMAND) $(CARGO) test --release --locked -p flashfork-tests --test model_on_demand

# Everything, the long runs too: hours rather than minutes.
test-all: test
	$(CARGO) test --release --locked -p flashfork --test cost -- --ignored
	@scripts/need-packages apache2 postgresql
	$(ON_DEMAND) FLASHFORK_TEST_ALL=1 $(CARGO) test --release --locked -p flashfork-tests
	FLASHFORK_TEST_ALL=1 $(CARGO) test --locked -p flashfork-cli --test warm
	FLASHFORK_TEST_ALL=1 $(CARGO) test --release --locked -p flashfork-vmm --lib --test many --test soak --test messages --test http
	@scripts/need-packages $(KERNEL_PACKAGES) libpython3.11-testsuite python3.11 redis-server redis-tools stress-ng
	$(MAKE) -C kernel test-all FLASHFORK=$(abspath $(FLASHFORK))

# The figures of SPECIFICATION.md.
bench: build
	@scripts/need-packages $(BENCH_PACKAGES)
	$(FLASHFORK) bench fork
	$(FLASHFORK) bench unit-test
	$(FLASHFORK) bench fuzz
	$(FLASHFORK) bench rollback
	$(FLASHFORK) bench clones
	$(FLASHFORK) bench seal-threads
	$(FLASHFORK) bench redis
	$(FLASHFORK) bench warm
	$(FLASHFORK) bench vm-clone
	$(FLASHFORK) bench vm-memory

# Clones of Linux guests on nested KVM in the lab: some minutes, emulated. Only ratios of like with like mean something there.
bench-vm-lab: build
	@scripts/need-packages $(TEST_PACKAGES)
	FLASHFORK=$(FLASHFORK) scripts/bench-vm-lab $(ARGS) > $(TARGET)/bench-vm-lab.json
	@echo "Records: $(TARGET)/bench-vm-lab.json"

lint:
	@scripts/need-packages $(BUILD_PACKAGES) shellcheck
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	shellcheck scripts/* .ci/run tests/vm/journey crates/flashfork/install-c.sh kernel/scripts/* $(addprefix kernel/tests/,forced redis-snapshots selftests-in-guest stressors)

install: build
	install -D -m 755 $(FLASHFORK) $(DESTDIR)$(PREFIX)/bin/flashfork
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/flashfork $(addprefix $(TARGET)/,release/flashfork-vmd release/flashfork-shell lib/flashfork/flashfork-agent)
	install -D -m 755 $(TARGET)/release/libflashfork_preload.so $(DESTDIR)$(PREFIX)/lib/flashfork/libflashfork_preload.so
	CARGO="$(CARGO)" DESTDIR="$(DESTDIR)" crates/flashfork/install-c.sh $(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(FLASHFORK) man $(DESTDIR)$(PREFIX)/share/man/man1
	$(FLASHFORK) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flashfork

clean:
	$(CARGO) clean
