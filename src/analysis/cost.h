// FLOPs and bytes of nodes and programs, from the op records.
#pragma once

#include <cstdint>

#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// Counting convention: one multiply, add, compare or transcendental is one operation; a matrix
// product of [M,K]·[K,N] is 2·M·N·K. Bytes: every distinct element read once and written once.
struct Cost {
  std::int64_t flops = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;

  Cost& operator+=(const Cost& other);
};

Cost cost_of(const Program& program, const Node& node);
Cost total_cost(const Program& program);
// True for matrix products and for kernels made of matrix products (attention).
bool is_product(const Node& node);
// True for a product of float32 that is computed as products of float16 parts
// (passes/by_parts.cpp).
bool is_by_parts(const Node& node);
// FLOPs of matrix products alone: the model FLOPs of the usual formulas.
std::int64_t gemm_flops(const Program& program);

// Scratch bytes of the node on such a device (planning/needs.h).
std::int64_t workspace_bytes(const Program& program, const Node& node, const DeviceTraits& traits);

// Nodes that launch a kernel: all but views and assemblies.
std::int64_t launch_count(const Program& program);

// Bytes that rank `rank` receives from the other ranks in one run of the program
// (ops/collective_sizes.h).
std::int64_t received_bytes(const Program& program, std::int64_t rank);
// Bytes that rank `rank` gets for one node; 0 where it is no collective.
std::int64_t received_bytes(const Program& program, const Node& node, std::int64_t rank);

}  // namespace tracestep
