# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
#   make            build/libvma.so, build/vma_stats, the man page
#   make demo       the two-minute proof (root)
#   make test       before each commit (root)          ALL=1 every test, ONLY=step,step some, REPEAT=3, LOAD=2: scripts/test.sh
#   make bench      [ONLY=name,glob*] (root)           make check   unit tests and symbols, no root
#   make fuzz       [SECONDS_EACH=600] [ONLY=name]     make lint    make format
#   make mutate     [ONLY=name,name] deliberate defects, each of which a test must find (root; ten minutes)
#   make install    [DESTDIR=] [PREFIX=/usr/local] [LIBDIR=PREFIX/lib]     make uninstall [the same]     make clean
#   make deb        packages for Debian 12 in build/deb (root installs what is missing for it)
#   make kmod       vma.ko      make install-kmod [DESTDIR=]      make kunit [ONLY=filter] its tests, no root
#   make vm         [ONLY=tests/vm/test_kmod.py] tests on Debian's own kernel in a virtual machine (root)
#
# V=1 shows the commands whole. SANITIZE=1 (address, undefined) builds into build/asan, SANITIZE=thread into build/tsan,
# CHECK_LOCKS=1 (lib/runtime/lock_check.h) into build/check, BUILD=directory anywhere else. CC=clang works; a change of flags rebuilds.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
SHELL := /bin/bash

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
SYSCONFDIR ?= /etc
SANITIZE ?=
CHECK_LOCKS ?=
SECONDS_EACH ?= 600
ONLY ?=
comma := ,
PYTHON ?= /usr/bin/python3
# Finds libvma.so for LD_PRELOAD=libvma.so; not in every PATH of root's.
LDCONFIG ?= /sbin/ldconfig
CLANG ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /usr/bin/bpftool) bpftool)

# One line, no recipe noise: these make network namespaces.
ROOT_GOALS := $(filter demo test bench vm mutate,$(MAKECMDGOALS))
ifneq ($(ROOT_GOALS),)
ifneq ($(shell id -u),0)
$(error make $(firstword $(ROOT_GOALS)) needs root, because it makes network namespaces and the like: sudo make $(firstword $(ROOT_GOALS)))
endif
endif

ifneq ($(CHECK_LOCKS),)
BUILD ?= build/check
CHECK_FLAGS := -include lib/runtime/lock_check.h
# What lib/preload's functions hold is compared at their end; around fork() and clone() pairs of them hold locks between them.
CHECK_PRELOAD := -finstrument-functions -finstrument-functions-exclude-file-list=lib/runtime,lib/fd,/usr/include \
	-finstrument-functions-exclude-function-list=fork_prepare,fork_parent,forked_child,cloned_child,once_take,once_drop
endif
ifeq ($(SANITIZE),)
BUILD ?= build
else ifeq ($(SANITIZE),thread)
BUILD ?= build/tsan
SAN := -fsanitize=thread
else ifeq ($(SANITIZE),1)
BUILD ?= build/asan
SAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else
$(error SANITIZE=$(SANITIZE) is not known: use SANITIZE=1 (address and undefined) or SANITIZE=thread)
endif
B := $(BUILD)

# One short line for each file, the command itself with V=1.
V ?=
Q := $(if $(V),,@)
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),@:,@printf '  %-6s %s\n' '$(1)' '$@')

CPPFLAGS_ALL := -D_GNU_SOURCE= -Ilib -Iinclude -I$(B)/bpf -I/usr/include/libnl3 $(CHECK_FLAGS) $(CPPFLAGS)
CFLAGS_ALL := -std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread $(CFLAGS)
LIB_CFLAGS := -fPIC -fvisibility=hidden -fno-semantic-interposition -ftls-model=initial-exec
LIBS := -lxdp -lbpf -lnl-route-3 -lnl-3 -lpthread -ldl
LDFLAGS_ALL := -Wl,-z,now -Wl,-z,relro $(LDFLAGS)

# What libvma.so has of the core is optimized as one piece where the compiler can write that as an ordinary object (gcc):
# a packet's way goes through ten files. lib/preload stays as it is: its aliases of libc's names would be lost. The objects
# hold plain code besides, which tests and tools link (-fno-lto).
CAN_LTO := $(if $(SAN)$(CHECK_LOCKS),,$(shell echo 'int x;' | $(CC) -flto -ffat-lto-objects -flinker-output=nolto-rel -r -x c - \
	-o /dev/null 2>/dev/null && echo yes))
ifneq ($(CAN_LTO),)
CORE_CFLAGS := $(if $(filter -O%,$(CFLAGS)),,-O3) -flto -ffat-lto-objects
LDFLAGS_ALL += -fno-lto
endif

LIB_SRC := $(filter-out $(if $(CHECK_LOCKS),,lib/runtime/lock_check.c),$(sort $(shell find lib -name '*.c')))
CORE_SRC := $(filter-out lib/preload/%,$(LIB_SRC))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/obj/%.o)
CORE_OBJ := $(CORE_SRC:%.c=$(B)/obj/%.o)
PRELOAD_OBJ := $(filter-out $(CORE_OBJ),$(LIB_OBJ))
MAP := $(wildcard lib/preload/libvma.map)
STATS_SRC := $(wildcard tools/vma_stats/*.c)
STATS_OBJ := $(STATS_SRC:%.c=$(B)/obj/%.o)
# The library's parts without the entry points.
VMAD_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tools/vmad/*.c) lib/preload/parts.c)
BPF_SRC := $(wildcard bpf/*.bpf.c)
SKEL := $(BPF_SRC:bpf/%.bpf.c=$(B)/bpf/%.skel.h)
UNIT := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test_*.c))
SIM := $(B)/tests/sim/sim
SIM_SRC := $(wildcard tests/sim/*.c)
CONFORM := $(B)/tests/conform/conform
CONFORM_SRC := $(wildcard tests/conform/*.c) tests/sim/seg.c tests/sim/segq_check.c
# stats_writer has a table of libc's functions of its own, which the checker of the locks would need.
# exits and counted_calls are preloaded into programs; a test makes the latter.
HELPERS := $(patsubst tests/integration/%.c,$(B)/tests/integration/%,$(filter-out %/exits.c %/counted_calls.c $(if $(CHECK_LOCKS),%/stats_writer.c),$(shell find tests/integration -name '*.c'))) \
	$(B)/tests/integration/exits.so
VM_BIN := $(patsubst tests/vm/%.c,$(B)/tests/vm/%,$(wildcard tests/vm/*.c))
BENCH_BIN := $(patsubst tests/bench/%.c,$(B)/bench/bin/%,$(wildcard tests/bench/*.c))
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJ := $(CORE_SRC:%.c=$(B)/fuzz/obj/%.o)
MAN := $(B)/libvma.7
TOOLS := $(B)/vma_stats $(B)/vmad
CONF := etc/libvma.conf
DOCS := $(wildcard docs/*.3 docs/*.5 docs/*.8)
HEADERS := $(wildcard include/mellanox/*.h)

.PHONY: all lib demo test check bench install install-docs uninstall clean lint format fuzz \
	mutate unit sim helpers vm-bin bench-bin fuzz-bin deps kmod mlx5-device kunit vm install-kmod deb debian13

all: lib $(TOOLS) $(MAN)
lib: $(B)/libvma.so
unit: $(UNIT)
sim: $(SIM) $(CONFORM)
helpers: $(HELPERS)
vm-bin: $(VM_BIN)
bench-bin: $(BENCH_BIN)
fuzz-bin: $(FUZZ)

# The compiler and its flags, so that a change of either rebuilds.
FLAGS_NOW := $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LIB_CFLAGS) $(CORE_CFLAGS) $(CHECK_PRELOAD) $(SAN) $(LDFLAGS_ALL)
ifneq ($(MAKECMDGOALS),clean)
$(shell mkdir -p $(B); echo '$(FLAGS_NOW)' | cmp -s - $(B)/.flags || echo '$(FLAGS_NOW)' > $(B)/.flags)
endif

# What programs and tests may be using meanwhile gets its name when it is whole: -o $(NEW) ... $(PUT)
NEW = $@.new
PUT = && mv $@.new $@

# --- the steering programs

$(B)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF)
	$(Q)$(CLANG) -std=gnu11 -O2 -g -Wall -Wextra -Werror -fno-strict-aliasing -target bpf -mcpu=v3 \
		-Iinclude -Ibpf -I/usr/include/$(shell uname -m)-linux-gnu -MMD -MP -c $< -o $@

# Made under another name first: a skeleton must never be seen half written. clang-tidy does not see that
# bpf_object__destroy_skeleton() frees what the skeleton's own functions allocate.
$(B)/bpf/%.skel.h: $(B)/bpf/%.bpf.o
	$(call say,SKEL)
	$(Q){ echo '/* NOLINTBEGIN(clang-analyzer-unix.Malloc) */'; \
		$(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf && \
		echo '/* NOLINTEND(clang-analyzer-unix.Malloc) */'; } > $@.tmp
	@mv $@.tmp $@

# --- the library

$(B)/obj/%.o: %.c $(B)/.flags | $(SKEL)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LIB_CFLAGS) $(EXTRA_CFLAGS) $(SAN) -MMD -MP -c $< -o $@

$(CORE_OBJ): EXTRA_CFLAGS := $(CORE_CFLAGS)
$(PRELOAD_OBJ): EXTRA_CFLAGS := $(CHECK_PRELOAD)

# -Wno-maybe-uninitialized: seen whole, a loop over a number of words that is never 0 seems to be able to leave them unset.
$(B)/core.o: $(CORE_OBJ) $(B)/.core
	$(call say,LTO)
	$(Q)$(CC) $(CFLAGS_ALL) $(LIB_CFLAGS) $(CORE_CFLAGS) -flto=auto -Wno-maybe-uninitialized \
		-r -flinker-output=nolto-rel -o $@ $(CORE_OBJ)

SO_OBJ := $(PRELOAD_OBJ) $(if $(CAN_LTO),$(B)/core.o,$(CORE_OBJ))

# No undefined symbol may be left for the application to answer (the sanitizers' own are).
$(B)/libvma.so: $(SO_OBJ) $(MAP) $(B)/.flags
	$(call say,LINK)
	$(Q)$(CC) -shared $(SAN) $(LDFLAGS_ALL) $(if $(SAN),,-Wl,-z,defs) -Wl,-z,nodelete -Wl,-soname,libvma.so \
		$(if $(MAP),-Wl$(comma)--version-script=$(MAP)) -o $(NEW) $(SO_OBJ) -Wl,--as-needed $(LIBS) $(PUT)

# Everything but the libc entry points: for the unit tests and the tools, which take what they need.
# The list of members is a prerequisite too: a source that went away must leave the archive.
$(B)/libcore.a: $(CORE_OBJ) $(B)/.core
	@rm -f $@
	$(Q)$(AR) rcs $@ $(CORE_OBJ)
ifneq ($(MAKECMDGOALS),clean)
$(shell echo '$(CORE_OBJ)' | cmp -s - $(B)/.core || echo '$(CORE_OBJ)' > $(B)/.core)
endif

$(B)/vma_stats: $(STATS_OBJ) $(B)/libcore.a
	$(call say,LINK)
	$(Q)$(CC) $(SAN) $(LDFLAGS_ALL) -o $(NEW) $(STATS_OBJ) $(B)/libcore.a -Wl,--as-needed -lncursesw -ltinfo -lpcap $(LIBS) $(PUT)

$(B)/vmad: $(VMAD_OBJ) $(B)/libcore.a
	$(call say,LINK)
	$(Q)$(CC) $(SAN) $(LDFLAGS_ALL) -o $(NEW) $(VMAD_OBJ) $(B)/libcore.a -Wl,--export-dynamic-symbol=vma_serves_itself $(LIBS) $(PUT)

$(B)/gen_man: tools/gen_man.c $(B)/.flags
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) -o $@ $<

$(B)/libvma.7: $(B)/gen_man docs/libvma.7.in
	$(call say,MAN)
	$(Q)$< docs/libvma.7.in > $@.tmp
	@mv $@.tmp $@

# --- tests and benchmarks

$(B)/tests/unit/%: tests/unit/%.c $(B)/libcore.a $(B)/.flags | $(SKEL)
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) -Itests/unit $(CFLAGS_ALL) $(SAN) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(B)/libcore.a -Wl,--as-needed -lcmocka $(LIBS) -lm $(PUT)

# These count the engine's steps: lib/tcp and lib/proto once more, with a call at each basic block.
STEPS_OBJ := $(patsubst %.c,$(B)/steps/%.o,$(sort $(shell find lib/tcp lib/proto -name '*.c')))
$(B)/steps/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,STEPS)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -O1 -fsanitize-coverage=trace-pc $(SAN) -MMD -MP -c $< -o $@

$(B)/tests/unit/test_tcp_hostile_%: tests/unit/test_tcp_hostile_%.c $(STEPS_OBJ) $(B)/libcore.a $(B)/.flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(STEPS_OBJ) $(B)/libcore.a -Wl,--as-needed -lcmocka $(LIBS) -lm $(PUT)

# These run the mlx5 ring on a device in software.
MLX5_DEVICE_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/mlx5_device/*.c))
$(MLX5_DEVICE_OBJ): $(B)/tests/%.o: tests/%.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -c $< -o $@

$(B)/tests/unit/test_mlx5_%: tests/unit/test_mlx5_%.c $(MLX5_DEVICE_OBJ) $(B)/libcore.a $(B)/.flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(MLX5_DEVICE_OBJ) $(B)/libcore.a -Wl,--as-needed -lcmocka $(LIBS) -lm $(PUT)

$(B)/tests/sim/%.o $(B)/tests/conform/%.o: $(B)/.flags

$(B)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -c $< -o $@

$(SIM): $(SIM_SRC:%.c=$(B)/%.o) $(B)/libcore.a
	$(call say,TEST)
	$(Q)$(CC) $(SAN) $(LDFLAGS_ALL) -o $(NEW) $(SIM_SRC:%.c=$(B)/%.o) $(B)/libcore.a -Wl,--as-needed $(LIBS) -lm $(PUT)

$(CONFORM): $(CONFORM_SRC:%.c=$(B)/%.o) $(B)/libcore.a
	$(call say,TEST)
	$(Q)$(CC) $(SAN) $(LDFLAGS_ALL) -o $(NEW) $(CONFORM_SRC:%.c=$(B)/%.o) $(B)/libcore.a -Wl,--as-needed $(LIBS) -lm $(PUT)

$(B)/tests/integration/%: tests/integration/%.c $(B)/libcore.a $(B)/.flags | $(SKEL)
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(B)/libcore.a -Wl,--as-needed $(LIBS) -lm -luring $(PUT)

$(B)/tests/integration/exits.so: tests/integration/exits.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CFLAGS_ALL) -D_GNU_SOURCE= -fPIC -shared -o $(NEW) $< $(PUT)

$(B)/tests/vm/%: tests/vm/%.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(SAN) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) -o $(NEW) $< $(PUT)

$(B)/bench/bin/%: tests/bench/%.c $(B)/libcore.a $(B)/.flags | $(SKEL)
	@mkdir -p $(@D)
	$(call say,BENCH)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(B)/libcore.a -Wl,--as-needed $(LIBS) -lm $(PUT)

# The whole library in one program, with the device in software in the place of the verbs objects.
MLX5_CORE_OBJ := $(filter-out %/ring/mlx5/verbs.o,$(CORE_OBJ))
$(B)/bench/mlx5_core.o: $(MLX5_CORE_OBJ) $(B)/.core
	@mkdir -p $(@D)
	$(call say,LTO)
	$(Q)$(CC) $(CFLAGS_ALL) $(LIB_CFLAGS) $(CORE_CFLAGS) -flto=auto -Wno-maybe-uninitialized \
		-r $(if $(CAN_LTO),-flinker-output=nolto-rel) -o $@ $(MLX5_CORE_OBJ)

$(addprefix $(B)/bench/bin/,mlx5 mlx5_ports mlx5_rings): $(B)/bench/bin/%: tests/bench/%.c $(B)/bench/mlx5_core.o $(PRELOAD_OBJ) $(MLX5_DEVICE_OBJ) $(B)/.flags
	@mkdir -p $(@D)
	$(call say,BENCH)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -MF $@.d -MT $@ $(LDFLAGS_ALL) \
		-o $(NEW) $< $(B)/bench/mlx5_core.o $(PRELOAD_OBJ) $(MLX5_DEVICE_OBJ) -Wl,--as-needed $(LIBS) -lm $(PUT)

# libFuzzer is clang's; the library is compiled once more for it, with coverage.
FUZZ_SAN := address,undefined
FUZZ_CC := $(CLANG) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -O2 -fno-omit-frame-pointer -fno-sanitize-recover=undefined

$(B)/fuzz/obj/%.o: %.c $(B)/.flags | $(SKEL)
	@mkdir -p $(@D)
	$(call say,FUZZ)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer-no-link,$(FUZZ_SAN) $(FUZZ_COV) -MMD -MP -c $< -o $@

# The engine's input is a program, not text: comparisons teach the fuzzer little and cost it a third of its time.
$(B)/fuzz/obj/lib/tcp/%.o: FUZZ_COV := -fno-sanitize-coverage=trace-cmp

$(B)/fuzz/libcore.a: $(FUZZ_OBJ) $(B)/.core
	@rm -f $@
	$(Q)$(AR) rcs $@ $(FUZZ_OBJ)

# The target's own code is not what is to be covered.
$(B)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(B)/fuzz/libcore.a
	$(call say,FUZZ)
	$(Q)$(FUZZ_CC) -Itests/fuzz -fsanitize=$(FUZZ_SAN) -MMD -MP -MF $@.d -MT $@ -c -o $@.o $<
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,$(FUZZ_SAN) -o $@ $@.o $(filter %.o,$^) $(B)/fuzz/libcore.a -Wl,--as-needed $(LIBS) -lm

$(B)/fuzz/fuzz_http: $(B)/fuzz/obj/tools/vma_stats/request.o
$(B)/fuzz/fuzz_capture: $(patsubst %,$(B)/fuzz/obj/tools/vma_stats/%.o,capture_ring capture_text pcapng)

# --- what a person runs

deps:
	@scripts/deps.sh

demo:
	@scripts/deps.sh
	@$(MAKE) --no-print-directory all
	@scripts/demo.sh $(B)

test:
	@scripts/deps.sh
	@scripts/test.sh

check: all unit
	@scripts/check.sh $(B)

mutate:
	@scripts/deps.sh
	@ONLY=$(ONLY) scripts/mutate

bench:
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory all bench-bin
	@$(PYTHON) tests/bench/bench.py --build $(B) $(if $(ONLY),--only '$(ONLY)') $(if $(README),--readme)

fuzz: fuzz-bin
	@scripts/fuzz.sh $(B) $(SECONDS_EACH) $(ONLY)

LIBRARY_VERSION = $(shell awk '/define VMA_LIBRARY_(MAJOR|MINOR|REVISION)/ { printf "%s%s", dot, $$3; dot = "." }' include/vma/version.h)
LIBRARY_RELEASE = $(shell awk '/define VMA_LIBRARY_RELEASE/ { print $$3 }' include/vma/version.h)
SHARE = $(DESTDIR)$(PREFIX)/share

install: all install-docs
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(SYSCONFDIR) \
		$(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/lib/systemd/system \
		$(DESTDIR)$(PREFIX)/include/mellanox $(SHARE)/libvma $(SHARE)/bash-completion/completions
	install -m 755 $(B)/libvma.so $(DESTDIR)$(LIBDIR)/libvma.so
	install -m 755 $(B)/vma_stats $(DESTDIR)$(PREFIX)/bin/vma_stats
	install -m 755 $(B)/vmad $(DESTDIR)$(PREFIX)/sbin/vmad
	sed 's|@PREFIX@|$(PREFIX)|' etc/vmad@.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/vmad@.service
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/mellanox
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(LIBRARY_VERSION)|' etc/libvma.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/libvma.pc
	install -m 644 docs/vma_stats.grafana.json docs/vma_stats.schema.json $(SHARE)/libvma
	install -m 644 etc/vma_stats.bash $(SHARE)/bash-completion/completions/vma_stats
	[ -e $(DESTDIR)$(SYSCONFDIR)/libvma.conf ] || install -m 644 $(CONF) $(DESTDIR)$(SYSCONFDIR)/libvma.conf || \
		{ [ -z '$(DESTDIR)' ] && [ "$$(id -u)" != 0 ] && \
		echo 'install: $(SYSCONFDIR)/libvma.conf is not made: that is for root. Without it the built-in rule holds.'; }
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || $(LDCONFIG))

# All that `install` makes but libvma.conf, which may have been changed.
uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/libvma.so $(DESTDIR)$(LIBDIR)/pkgconfig/libvma.pc $(DESTDIR)$(PREFIX)/bin/vma_stats \
		$(DESTDIR)$(PREFIX)/sbin/vmad $(DESTDIR)$(PREFIX)/lib/systemd/system/vmad@.service \
		$(addprefix $(DESTDIR)$(PREFIX)/include/mellanox/,$(notdir $(HEADERS))) \
		$(SHARE)/bash-completion/completions/vma_stats $(SHARE)/man/man7/libvma.7 \
		$(foreach page,$(DOCS),$(SHARE)/man/man$(lastword $(subst ., ,$(page)))/$(notdir $(page)))
	rm -rf $(SHARE)/libvma $(SHARE)/doc/libvma
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || $(LDCONFIG))

install-docs: $(MAN)
	install -d $(SHARE)/man/man3 $(SHARE)/man/man5 $(SHARE)/man/man7 $(SHARE)/man/man8 $(SHARE)/doc/libvma/docs
	install -m 644 $(MAN) $(SHARE)/man/man7/libvma.7
	for page in $(DOCS); do \
		install -m 644 $$page $(SHARE)/man/man$${page##*.}/$${page##*/} || exit 1; \
	done
	install -m 644 README.md $(SHARE)/doc/libvma
	install -m 644 docs/*.md docs/*.svg $(SHARE)/doc/libvma/docs
	echo 'VMA_VERSION: $(LIBRARY_VERSION)-$(LIBRARY_RELEASE)' > $(SHARE)/doc/libvma/VMA_VERSION

# In a copy: nothing of it stands in the tree, and nothing of the tree's build in it.
deb:
	@scripts/deps.sh deb
	@scripts/deb.sh

# --- the kernel module

kmod:
	@$(MAKE) --no-print-directory -C kmod

# The mlx5 device in software, for the virtual machine.
mlx5-device:
	@$(MAKE) --no-print-directory -C tests/mlx5_device/module

kunit:
	@scripts/kunit.sh $(ONLY)

# The tests that need no other kernel, in a system of that release.
debian13:
	@scripts/debian13.sh

# With NIC or KERNEL: emulated cards on those kernels, as in `make vm NIC=virtio4,igb KERNEL=6.12,6.18`.
CARDS = virtio$(comma)virtio4$(comma)e1000e$(comma)vmxnet3$(comma)igb
vm:
	@scripts/deps.sh
	@$(MAKE) --no-print-directory all helpers vm-bin kmod mlx5-device
ifneq ($(NIC)$(KERNEL),)
	@scripts/vm_matrix $(or $(NIC),$(CARDS)) $(or $(KERNEL),6.1$(comma)6.12)
else
	@scripts/vm -t 2400 -m 6144 $(or $(subst $(comma), ,$(ONLY)),tests/vm)
endif

# The sources where dkms looks for them; it builds them for the kernel that runs.
KMOD_VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' kmod/dkms.conf)
KMOD_DIR = $(DESTDIR)/usr/src/vma-$(KMOD_VERSION)

install-kmod:
	install -d $(KMOD_DIR)/kmod $(KMOD_DIR)/include/vma $(DESTDIR)/usr/lib/udev/rules.d
	install -m 644 kmod/dkms.conf $(KMOD_DIR)
	install -m 644 $(filter-out %.mod.c,$(wildcard kmod/*.[ch])) kmod/Kbuild kmod/Makefile $(KMOD_DIR)/kmod
	install -m 644 $(wildcard include/vma/*.h) $(KMOD_DIR)/include/vma
	install -m 644 kmod/60-vma.rules $(DESTDIR)/usr/lib/udev/rules.d

clean:
	rm -rf build
	rm -rf $(foreach d,kmod tests/mlx5_device tests/mlx5_device/module,$(addprefix $(d)/,*.o *.ko *.mod *.mod.c .*.cmd Module.symvers modules.order))

lint:
	@$(MAKE) --no-print-directory all
	@scripts/lint.sh $(B)

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

-include $(B)/gen_man.d $(STEPS_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(STATS_OBJ:.o=.d) $(VMAD_OBJ:.o=.d) $(BPF_SRC:bpf/%.bpf.c=$(B)/bpf/%.bpf.d) \
	$(UNIT:=.d) $(MLX5_DEVICE_OBJ:.o=.d) $(SIM_SRC:%.c=$(B)/%.d) $(CONFORM_SRC:%.c=$(B)/%.d) $(HELPERS:=.d) $(VM_BIN:=.d) $(BENCH_BIN:=.d) $(FUZZ_OBJ:.o=.d) $(FUZZ:=.d)
