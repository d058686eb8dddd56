# SPDX-License-Identifier: MIT
#
# The front door; the build itself is CMake's. `make help` lists what there is.
#
#   CC=clang       the compiler, when BUILD is first made
#   BUILD=folder   where to build
#   PREFIX=folder  where to install
#   SANITIZE=...   address,undefined or thread
#   TYPE=Debug     the build type, Release unless told
#   TESTS=regex    the test programs to run

BUILD  ?= build
PREFIX ?= /usr/local
WERROR ?= OFF
JOBS   ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

# `make test` turns the tests on; they need packages that the rest does not.
MB_TESTS  ?= OFF
CONFIGURE := -DMB_TESTS=$(MB_TESTS) -DMB_SANITIZE=$(SANITIZE) -DMB_WERROR=$(WERROR)
ifneq ($(origin CC),default)
CONFIGURE += -DCMAKE_C_COMPILER=$(CC)
endif
ifdef TYPE
CONFIGURE += -DCMAKE_BUILD_TYPE=$(TYPE)
endif

.PHONY: all help deps build demo test check-all check-clang check-address check-thread \
        install clean

all: build ## build build/monobolt and the library (the default)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the Debian packages that are missing
	@scripts/install-deps build test

# MAKEFLAGS is set anew so that the inner build sets its own number of jobs.
build:
	@command -v cmake >/dev/null || \
	    { echo "cmake is not installed" >&2; scripts/install-deps --check build; exit 1; }
	@mkdir -p $(BUILD)
	@MAKEFLAGS= cmake -S . -B $(BUILD) $(CONFIGURE) >$(BUILD)/configure.log 2>&1 || \
	    { cat $(BUILD)/configure.log; exit 1; }
	@MAKEFLAGS=--no-print-directory cmake --build $(BUILD) --parallel $(JOBS)

demo: ## install what is missing, build, and complete digits: out/demo/index.html
	@scripts/install-deps build
	@$(MAKE) --no-print-directory build
	@$(BUILD)/monobolt demo

test: ## install what is missing, build, and run all tests
	@scripts/install-deps build test
	@$(MAKE) --no-print-directory build MB_TESTS=ON
	@scripts/run-tests $(BUILD) $(if $(TESTS),-R '$(TESTS)')

check-all: check-clang check-address check-thread ## the tests with clang and with sanitizers

check-clang: ## the tests, built by clang
	@scripts/install-deps build test check
	@$(MAKE) --no-print-directory test BUILD=$(BUILD)-clang CC=clang WERROR=ON

check-address: ## the tests, with the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory test BUILD=$(BUILD)-address SANITIZE=address,undefined

check-thread: ## the tests, with the thread sanitizer
	@$(MAKE) --no-print-directory test BUILD=$(BUILD)-thread SANITIZE=thread

install: all ## install to PREFIX (default /usr/local); DESTDIR is honoured
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove what was built
	rm -rf $(BUILD) $(BUILD)-clang $(BUILD)-address $(BUILD)-thread
