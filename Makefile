# SPDX-License-Identifier: MIT
# cellgate: `make help` lists what can be done here.
#
# Everything is found by wildcard: a new spoa/base/x.c is built, a new tests/unit/ROOM/test_x.c is run.
# Files named main*.c hold a main() and become a program; all others of their folders become a library.

CC        ?= cc
PREFIX    ?= /usr/local
LIBDIR    ?= $(PREFIX)/lib
DESTDIR   ?=
VERSION   := 0.1.0

# Variants live in folders of their own: make SAN=address,undefined, make SAN=thread, make COV=1, make FUZZ=1.
comma   := ,
VARIANT := $(if $(FUZZ),-fuzz)$(if $(SAN),-san-$(subst $(comma),-,$(SAN)))$(if $(COV),-cov)
B       := build$(VARIANT:-%=/%)

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Werror
HARD := -fstack-protector-strong -fPIE $(if $(SAN)$(FUZZ)$(COV),,-D_FORTIFY_SOURCE=2)
OPT  := $(if $(COV),-O0 --coverage,-O2) -g
ifneq ($(FUZZ),)
CC   := clang
OPT  += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
endif
ifneq ($(SAN),)
OPT  += -fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
endif

# Link-time optimisation for the two daemons, where it is worth a fifth of the time; objects are fit for both ways.
LTO := $(if $(SAN)$(FUZZ)$(COV)$(findstring clang,$(CC)),,-flto=auto)
# -isystem: uthash and libev are other people's headers, our warnings are not for them
CPPFLAGS += $(if $(SAN)$(FUZZ)$(COV),-DWITHOUT_SECCOMP) -D_GNU_SOURCE -DCELLGATE_VERSION='"$(VERSION)"' -I. -isystem /usr/include
CFLAGS   += -std=c11 $(OPT) $(HARD) $(WARN) -pthread -MMD -MP $(if $(LTO),$(LTO) -ffat-lto-objects)
LDFLAGS  += -pie -Wl,-z,relro,-z,now -pthread $(filter -fsanitize% --coverage,$(OPT))
LDLIBS   += -lev -lcjson -lssl -lcrypto -lm
# what only the agent's library needs: the directory kinds
AGENT_LIBS := -lcurl -lcares

# ---- what is built of what ----
obj       = $(patsubst %.c,$(B)/obj/%.o,$(1))
sources   = $(shell find $(1) -name '*.c' ! -name 'main*.c' | sort)
LIB      := $(B)/libcellgate.a
AGENT    := $(B)/libagent.a
RELAY    := $(B)/librelay.a
WORKER   := $(B)/libworker.a
PROGRAMS := $(patsubst spoa/agent/serve/main.c,$(B)/bin/cellgate-agent,$(wildcard spoa/agent/serve/main.c)) \
            $(patsubst spoa/relay/serve/main.c,$(B)/bin/cellgate-relay,$(wildcard spoa/relay/serve/main.c)) \
            $(patsubst spoa/ctl/main.c,$(B)/bin/cellgate,$(wildcard spoa/ctl/main.c)) \
            $(patsubst examples/worker/main_%.c,$(B)/bin/cell-%,$(wildcard examples/worker/main_*.c)) $(B)/bin/cell-plane
UNIT     := $(patsubst %.c,$(B)/tests/%,$(notdir $(wildcard tests/unit/*/test_*.c)))
FUZZERS  := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES  := $(patsubst tests/bench/%.c,$(B)/bench/%,$(wildcard tests/bench/bench_*.c))
SOAK     := $(B)/soak/traffic $(B)/soak/session $(B)/soak/fault_injection.so $(B)/bench/bench_tunnel

.PHONY: all help run egress test check bench install uninstall install-lib lib deb rpm chart clean unit fault-injection shim soak fuzz format
.SECONDARY:
# A program that is built with a sanitizer wants objects, not a library of them.
all: $(PROGRAMS) $(if $(VARIANT),,lib)

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# Each program reads the whole configuration, so the keys of each room are in the library that all programs have.
KEYS     := $(filter %_keys.c,$(call sources,spoa/agent spoa/relay))
$(LIB):    $(call obj,$(call sources,spoa/base spoa/net spoa/proto spoa/spop spoa/service) $(KEYS))
$(AGENT):  $(call obj,$(filter-out $(KEYS),$(call sources,spoa/agent)))
$(RELAY):  $(call obj,$(filter-out $(KEYS),$(call sources,spoa/relay)))
$(WORKER): $(call obj,$(call sources,examples/worker))
# q: two folders may each have an http.o, of which r would keep the last
$(B)/%.a:
	@mkdir -p $(@D); rm -f $@
	$(AR) qcs $@ $^

link = @mkdir -p $(@D); echo "$(CC) -o $@"; $(CC) $(CFLAGS) $(1) -o $@ $^ $(LDFLAGS) $(2) $(LDLIBS)
NO_LTO := $(if $(LTO),-fno-lto)
$(B)/bin/cellgate-agent: $(B)/obj/spoa/agent/serve/main.o $(AGENT) $(LIB)
	$(call link,,$(AGENT_LIBS))
$(B)/bin/cellgate-relay: $(B)/obj/spoa/relay/serve/main.o $(RELAY) $(LIB)
	$(call link)
$(B)/bin/cellgate: $(B)/obj/spoa/ctl/main.o $(call obj,$(call sources,spoa/ctl)) $(AGENT) $(LIB)
	$(call link,$(NO_LTO),$(AGENT_LIBS))
$(B)/bin/cell-plane: $(call obj,$(wildcard examples/control-plane/*.c)) $(WORKER) $(LIB)
	$(call link,$(NO_LTO))
$(B)/bin/cell-%: $(B)/obj/examples/worker/main_%.o $(WORKER) $(LIB)
	$(call link,$(NO_LTO))

# ---- the SPOP library: spoa/spop/spop_agent.h, and of spoa what that needs ----
SPOP_LIB := $(B)/lib/libspop-agent.a $(B)/lib/libspop-agent.so.$(VERSION)
SONAME   := libspop-agent.so.$(firstword $(subst ., ,$(VERSION)))
lib: $(SPOP_LIB)

$(B)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fno-lto -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -c $< -o $@
$(B)/pic/sources.a: $(patsubst %.c,$(B)/pic/%.o,$(call sources,spoa/base spoa/net spoa/spop))
# One object, in which nothing but the header's functions has a name for others: also a static library takes no names away.
$(B)/pic/spop-agent.o: $(B)/pic/spoa/spop/spop_agent.o $(B)/pic/sources.a
	$(LD) -r --gc-sections --gc-keep-exported -o $@.part $^
	objcopy --localize-hidden $@.part $@
$(B)/lib/libspop-agent.a: $(B)/pic/spop-agent.o
$(B)/lib/libspop-agent.so.$(VERSION): $(B)/pic/spop-agent.o
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,$(SONAME) -o $@ $< $(filter-out -pie,$(LDFLAGS)) -Wl,-z,defs -lev

# ---- tests ----
# Unit tests may make any allocation fail: malloc and friends are wrapped (tests/unit/support.h).
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=strndup
.SECONDEXPANSION:
$(B)/tests/%: $$(addprefix $(B)/obj/,$$(addsuffix .o,$$(basename $$(wildcard tests/unit/*/$$*.c)))) $(B)/obj/tests/unit/support.o $(AGENT) $(RELAY) $(WORKER) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(NO_LTO) -o $@ $^ $(WRAP) $(LDFLAGS) -lcmocka $(AGENT_LIBS) $(LDLIBS)
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(AGENT) $(RELAY) $(WORKER) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(NO_LTO) -o $@ $^ $(LDFLAGS) -fsanitize=fuzzer $(AGENT_LIBS) $(LDLIBS)
# oracles: other people's parsers, for tests only
$(B)/fuzz/fuzz_ws_wslay:    LDLIBS += -lwslay
$(B)/fuzz/fuzz_http_parser: LDLIBS += -lhttp_parser
$(B)/bench/%: $(B)/obj/tests/bench/%.o $(AGENT) $(RELAY) $(LIB)
	$(call link,,$(AGENT_LIBS))
# the forwarder's second mode, where liburing is there
URING := $(shell pkg-config --libs liburing 2>/dev/null)
$(B)/obj/tests/bench/bench_forward.o: CPPFLAGS += $(if $(URING),-DWITH_LIBURING)
$(B)/bench/bench_forward: LDLIBS += $(URING)
$(B)/soak/%: $(B)/obj/tests/soak/%.o $(B)/obj/tests/soak/record.o $(LIB)
	$(call link,$(NO_LTO))
$(B)/soak/fault_injection.so: tests/soak/fault_injection.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=c11 -O2 $(WARN) -fPIC -shared -o $@ $< -ldl

unit: $(UNIT)
fault-injection: $(B)/soak/fault_injection.so
shim: fault-injection # its former name
soak: $(SOAK)
fuzz: $(FUZZERS)

# ---- what people type ----
help:
	@echo 'make            build build/bin/{cellgate-agent,cellgate-relay,cellgate,cell-worker,cell-sandboxd,cell-plane}'
	@echo 'make run        a cell on this machine: HAProxy, agent, relay, two workers, a terminal in the browser'
	@echo 'make egress     a cell whose sandbox reaches a host outside, by rules that you can change'
	@echo '                HTTP_PORT=8080 HTTPS_PORT=8443 EGRESS_PORT=3128 RUN_DIR=(a new folder)'
	@echo 'make test       unit and end-to-end tests; ends with "N passed, N failed"'
	@echo 'make check      the long run: sanitizers, valgrind, fuzzers, static analysis, faults, soak, other HAProxy versions'
	@echo 'make bench      the benchmarks, each beside what it is compared with; QUICK=1: a first look of two minutes'
	@echo 'make install    into DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) LIBDIR=$(LIBDIR)'
	@echo 'make uninstall  takes away what make install has put there, but /etc/cellgate'
	@echo 'make deb        Debian packages, in build/deb'
	@echo 'make rpm        RPM packages, in build/rpm'
	@echo 'make chart      the Helm chart of examples/kubernetes, in build/chart'
	@echo 'make lib        libspop-agent alone, with which you write HAProxy agents of your own; make install-lib installs it'
	@echo 'make format     clang-format over all C'
	@echo 'make clean      remove build/'
	@echo 'variants        SAN=address,undefined  SAN=thread  COV=1  FUZZ=1, each in a folder of its own below build/'

run:
	@.ci/install build run
	@$(MAKE) --no-print-directory -s all
	@examples/quickstart/run

egress:
	@.ci/install build run
	@$(MAKE) --no-print-directory -s all
	@examples/egress/run

test:
	@.ci/install build run test
	@$(MAKE) --no-print-directory -s -j2 all unit fault-injection
	@BUILD=$(B) tests/run

check:
	@.ci/install build run test check
	@tests/check

bench:
	@.ci/install build run bench
	@$(MAKE) --no-print-directory -s -j2 all $(BENCHES)
	@BUILD=$(B) tests/bench/run $(if $(QUICK),quick)

format:
	git ls-files '*.[ch]' | xargs clang-format -i

clean:
	rm -rf build

install-lib: lib
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/share/man/man3 \
	    $(DESTDIR)$(PREFIX)/share/doc/spop-agent/examples
	install -m 644 spoa/spop/spop_agent.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(SPOP_LIB) $(DESTDIR)$(LIBDIR)
	ln -sf libspop-agent.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libspop-agent.so
	sed 's#@PREFIX@#$(PREFIX)#; s#@LIBDIR@#$(LIBDIR)#; s#@VERSION@#$(VERSION)#' spoa/spop/spop-agent.pc.in \
	    >$(DESTDIR)$(LIBDIR)/pkgconfig/spop-agent.pc
	install -m 644 docs/man/*.3 $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 644 $(filter-out %/run,$(wildcard examples/agent/*)) $(DESTDIR)$(PREFIX)/share/doc/spop-agent/examples
	install -m 755 examples/agent/run $(DESTDIR)$(PREFIX)/share/doc/spop-agent/examples
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true # the loader finds it by its cache

install: all install-lib
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man8 \
	    $(DESTDIR)$(PREFIX)/share/doc/cellgate/examples $(DESTDIR)$(PREFIX)/share/doc/cellgate/migrate $(DESTDIR)$(PREFIX)/share/doc/cellgate/evidence $(DESTDIR)/etc/cellgate/errors $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	docs/man/make-configuration $(B)/bin/cellgate >$(DESTDIR)$(PREFIX)/share/man/man5/cellgate.json.5
	install -m 644 docs/man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 644 docs/*.md docs/*.svg docs/LICENSE $(DESTDIR)$(PREFIX)/share/doc/cellgate
	install -m 644 docs/migrate/*.md $(DESTDIR)$(PREFIX)/share/doc/cellgate/migrate
	install -m 644 docs/evidence/*.md $(DESTDIR)$(PREFIX)/share/doc/cellgate/evidence
	install -m 644 examples/quickstart/cellgate.json $(DESTDIR)$(PREFIX)/share/doc/cellgate/examples
	install -d $(DESTDIR)$(PREFIX)/share/doc/cellgate/examples/observability
	install -m 644 $(filter-out %/incident,$(wildcard examples/observability/*)) $(DESTDIR)$(PREFIX)/share/doc/cellgate/examples/observability
	for file in haproxy.cfg spoe.conf egress.cfg egress-spoe.conf workers.lst $(notdir $(wildcard haproxy/errors/*.http)); do \
	    case $$file in *.http) file=errors/$$file ;; esac; \
	    [ -e $(DESTDIR)/etc/cellgate/$$file ] || install -m 644 haproxy/$$file $(DESTDIR)/etc/cellgate/$$file; \
	done # what an operator may have changed is left alone
	for unit in $(notdir $(wildcard examples/systemd/*.service)); do \
	    sed 's#/usr/local/bin/#$(PREFIX)/bin/#' examples/systemd/$$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/sysusers.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
	install -m 644 examples/systemd/cellgate.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/cellgate.conf
	install -m 644 examples/systemd/cellgate.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/cellgate.conf

uninstall: all
	@tree=$$(mktemp -d) && $(MAKE) --no-print-directory -s install DESTDIR="$$tree" && \
	    (cd "$$tree" && find . \( -type f -o -type l \) ! -path './etc/*') | while read -r file; do rm -f "$(DESTDIR)/$$file"; done; \
	    rm -rf "$$tree"
	@rm -rf $(DESTDIR)$(PREFIX)/share/doc/cellgate $(DESTDIR)$(PREFIX)/share/doc/spop-agent
	@echo 'left: $(DESTDIR)/etc/cellgate, with your configuration and keys'

deb:
	@examples/packaging/make-deb

rpm:
	@examples/packaging/make-rpm

# A chart can only read what is inside of its folder: the manifests and HAProxy's files are copied into it.
chart:
	@rm -rf $(B)/chart && mkdir -p $(B)/chart && cp -r examples/kubernetes/chart $(B)/chart/cellgate && mkdir $(B)/chart/cellgate/files
	@cp -r examples/kubernetes/base examples/kubernetes/overlays haproxy $(B)/chart/cellgate/files
	@tar -C $(B)/chart --sort=name --owner=0 --group=0 --numeric-owner -czf $(B)/chart/cellgate-$(VERSION).tgz cellgate
	@echo $(B)/chart/cellgate-$(VERSION).tgz

-include $(shell find $(B)/obj $(B)/pic -name '*.d' 2>/dev/null)
