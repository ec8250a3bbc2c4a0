# Shortcuts; CMake does the work. Every target may be run twice: the second time is quick and
# needs no network. Variables: JOBS (compile jobs), CUDA_ARCHITECTURES (of the kernels), CUDA_PRESET
# (cuda-check: only to see that they compile), ALL=1 (lint:
# all files, not only changed ones; sanitize: also the end-to-end tests).
JOBS ?= $(shell nproc)
CTEST_JOBS ?= 2
CTEST = ctest --output-on-failure -j$(CTEST_JOBS)
NVCC := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ARCHITECTURES ?= 80-real;90a-real;90-virtual
CUDA_PRESET ?= cuda
CONFIGURE_CUDA = cmake --preset $(CUDA_PRESET) -DCMAKE_CUDA_COMPILER=$(NVCC) \
                 "-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)"

.PHONY: help build study test build-cuda test-gpu bench-gpu gpu-bundle bench soak fmt lint sanitize \
        wheel install uninstall clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## the program, at build/tracestep
	@tools/bootstrap build
	@cmake --preset release --log-level=WARNING
	@cmake --build build -j $(JOBS) --target program

study: build ## every experiment in some minutes, with the questions answered: out/study.html
	./build/tracestep study --output-dir out

test: ## everything, built and tested
	@tools/bootstrap test
	@cmake --preset release
	@cmake --build build -j $(JOBS)
	@$(CTEST) --test-dir build

build-cuda: ## the CUDA back end, in build-cuda/ (needs nvcc, no GPU)
ifeq ($(NVCC),)
	@echo "build-cuda: nvcc is missing; install the CUDA toolkit (Debian: nvidia-cuda-toolkit)" >&2
	@exit 1
else
	@tools/bootstrap build
	@echo "build-cuda: architectures $(CUDA_ARCHITECTURES), $(NVCC)"
	@$(CONFIGURE_CUDA)
	@cmake --build build-$(CUDA_PRESET) -j $(JOBS) --target program
endif

.PHONY: gpu-tests
gpu-tests: build-cuda
	@tools/bootstrap test
	@$(CONFIGURE_CUDA) --log-level=WARNING
	@cmake --build build-cuda -j $(JOBS) --target gpu_tests bench tracestep_attention

test-gpu: gpu-tests ## what needs a GPU: back ends, steps, memory checkers; out/test-gpu.json
	@tools/test_gpu

bench-gpu: build-cuda ## PyTorch and tracestep in turns on a GPU; out/gpu.md
	@mkdir -p out
	@python3 bench/peers/compare_gpu.py --markdown out/gpu.md --json out/gpu.json

gpu-bundle: gpu-tests ## all of that in one archive for another machine: out/tracestep-gpu.tar.xz
	@tools/gpu_bundle

wheel: $(if $(CUDA),build-cuda,build) ## a wheel, an archive and the sources, checked, in out/dist (CUDA=1: with the GPU back end)
	@python3 -c 'import ensurepip, venv' 2>/dev/null || tools/bootstrap wheel  # that of any system does
	@python3 tools/wheel $(if $(CUDA),--cuda)

bench: ## build and run the benchmarks of bench/
	@tools/bootstrap build
	@cmake --preset release --log-level=WARNING
	@cmake --build build -j $(JOBS) --target program bench
	@for program in build/bench/bench_*; do \
	  if [ -x "$$program" ]; then echo "== $$program" && "$$program" || exit 1; fi; done

SCALE ?= 1
soak: build ## signals, kills, damaged folders, full disks, random tables, fuzzers: hours at SCALE=1; out/soak.md
	@tools/bootstrap fuzz
	@tools/soak/run.py --scale $(SCALE) --jobs $(JOBS)

fmt: ## format all C++ in place
	@tools/bootstrap lint
	@tools/format

lint: ## format check, layering, pages, clang-tidy on changed files (ALL=1: on all)
	@tools/bootstrap lint
	@tools/format --check
	@python3 tools/check_layering.py
	@python3 tools/check_docs.py
	@cmake --preset release --log-level=WARNING
	@tools/tidy $(if $(ALL),--all)

sanitize: ## the library's tests under the address and undefined-behaviour sanitizers (ALL=1: end-to-end tests too)
	@tools/bootstrap test
	@cmake --preset sanitize --log-level=WARNING
	@cmake --build build-sanitize -j $(JOBS) --target $(if $(ALL),all,library_tests)
	@$(CTEST) --test-dir build-sanitize -L 'unit|backend|golden$(if $(ALL),|e2e)'

# What `make install` writes under PREFIX: the program, its manual page, completions of three shells, and the library.
PREFIX ?= /usr/local
INSTALLED = bin/tracestep share/man/man1/tracestep.1 \
            share/bash-completion/completions/tracestep share/zsh/site-functions/_tracestep \
            share/fish/vendor_completions.d/tracestep.fish include/tracestep/tracestep.h \
            lib/libtracestep.so lib/libtracestep.so.0 lib/libtracestep.so.0.1.0 \
            lib/pkgconfig/tracestep.pc lib/cmake/tracestep/tracestepConfig.cmake \
            lib/cmake/tracestep/tracestepConfig-release.cmake \
            lib/cmake/tracestep/tracestepConfigVersion.cmake

install: build ## the program, its manual page and completions, under PREFIX (/usr/local)
	@cmake --install build --prefix $(PREFIX)

uninstall: ## remove what install wrote
	@rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))

clean: ## remove the build folders (out/ stays)
	rm -rf build build-wheel build-sanitize build-tsan build-cuda build-cuda-check
