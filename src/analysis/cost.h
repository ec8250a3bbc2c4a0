// FLOPs and bytes of nodes and programs, from the op records.
#pragma once

#include <cstdint>

#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// The work of nodes. A multiply, add, compare or transcendental is one operation, a matrix
// product of [M,K]·[K,N] has 2·M·N·K. Every distinct element is read once and written once.
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
// Returns the FLOPs of matrix products alone, without updates', which are the usual "model FLOPs".
std::int64_t gemm_flops(const Program& program);

// Returns the bytes of a node's workspace on a device with these traits (planning/needs.h).
std::int64_t workspace_bytes(const Program& program, const Node& node, const DeviceTraits& traits);

// Returns the number of nodes that launch a kernel, which are all but views and assemblies.
std::int64_t launch_count(const Program& program);

// Returns the bytes that rank `rank` receives from the other ranks in one run of the program
// (ops/collective_sizes.h).
std::int64_t received_bytes(const Program& program, std::int64_t rank);
// Returns the bytes that rank `rank` receives for one node; 0 if the node is no collective.
std::int64_t received_bytes(const Program& program, const Node& node, std::int64_t rank);

}  // namespace tracestep
