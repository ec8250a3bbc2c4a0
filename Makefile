# Shortcuts; CMake does the work. Every target may be run twice: the second time is quick and
# needs no network. Variables: JOBS (compile jobs), ALL=1 (lint all files, not only changed ones).
JOBS ?= $(shell nproc)
CTEST_JOBS ?= 2
NVCC := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_SOURCES := $(wildcard src/backends/cuda/*.cu src/backends/cuda/*/*.cu)

.PHONY: help build study test test-gpu build-cuda bench fmt lint sanitize clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## the program, at build/tracestep
	@tools/bootstrap build
	@cmake --preset release --log-level=WARNING
	@cmake --build build -j $(JOBS) --target program

study: build ## train, time and explain a small model; the report goes to out/
	./build/tracestep study --output-dir out

test: ## everything, built and tested
	@tools/bootstrap test
	@cmake --preset release
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build --output-on-failure -j$(CTEST_JOBS)

build-cuda: ## the CUDA back end, in build-cuda/ (needs nvcc, no GPU)
ifeq ($(CUDA_SOURCES),)
	@echo "build-cuda: src/backends/cuda holds no .cu file, so there is nothing to compile"
else ifeq ($(NVCC),)
	@echo "build-cuda: nvcc is missing; install the CUDA toolkit (Debian: nvidia-cuda-toolkit)" >&2
	@exit 1
else
	@tools/bootstrap build
	@echo "build-cuda: architectures 80-real 90a-real 90-virtual, $(NVCC)"
	@cmake --preset cuda -DCMAKE_CUDA_COMPILER=$(NVCC)
	@cmake --build build-cuda -j $(JOBS)
endif

test-gpu: build-cuda ## the back end tests on a GPU
ifeq ($(CUDA_SOURCES),)
	@echo "test-gpu: no CUDA back end in this version, so there is nothing to test on a GPU"
else
	@nvidia-smi -L || { echo "test-gpu: no GPU or no driver on this machine" >&2; exit 1; }
	@ctest --test-dir build-cuda --output-on-failure -L backend
endif

bench: ## build and run the benchmarks of bench/
	@tools/bootstrap bench
	@cmake --preset release --log-level=WARNING
	@cmake --build build -j $(JOBS) --target program bench
	@for program in build/bench/bench_*; do \
	  if [ -x "$$program" ]; then echo "== $$program" && "$$program" || exit 1; fi; done

fmt: ## format all C++ in place
	@tools/bootstrap lint
	@tools/format

lint: ## format check, layering, clang-tidy on changed files (ALL=1: on all)
	@tools/bootstrap lint
	@tools/format --check
	@python3 tools/check_layering.py
	@cmake --preset release --log-level=WARNING
	@tools/tidy $(if $(ALL),--all)

sanitize: ## the unit tests under the address and undefined-behaviour sanitizers
	@tools/bootstrap test
	@cmake --preset sanitize --log-level=WARNING
	@cmake --build build-sanitize -j $(JOBS) --target unit_tests
	@ctest --test-dir build-sanitize --output-on-failure -j$(CTEST_JOBS) -L unit

clean: ## remove the build folders (out/ stays)
	rm -rf build build-sanitize build-cuda
