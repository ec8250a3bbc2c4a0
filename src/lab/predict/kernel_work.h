// Describes the work of each kernel of a program by a few quantities that its time grows with:
// operations, bytes by how far away they are, elements that a product packs. Derived from the
// program alone.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/buffer_plan.h"
#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

enum class Effort : std::uint8_t {
  kLaunches,     // always 1
  kOperations,   // FLOPs, or the elements of a kernel that has none
  kNearBytes,    // read and written, where each core's own cache still has them
  kSharedBytes,  // in the cache that the cores share
  kMemoryBytes,  // in memory
  kPackedA,      // elements that a product copies into its own order
  kPackedB,
  kResults,  // elements of a product's result, once for each stretch of K that is added to them
  kDepth,    // on a GPU, the elements that each result of a product adds up one after the other
  kRows,     // of a reduction or of attention, once for each part that a row is cut into
};
inline constexpr Effort kAllEfforts[] = {
    Effort::kLaunches,    Effort::kOperations, Effort::kNearBytes, Effort::kSharedBytes,
    Effort::kMemoryBytes, Effort::kPackedA,    Effort::kPackedB,   Effort::kResults,
    Effort::kDepth,       Effort::kRows};
std::string_view name_of(Effort effort);

// In the names of kernels that multiply float32 by parts (passes/by_parts.cpp).
inline constexpr std::string_view kByParts = " by parts";

using Efforts = std::array<double, std::size(kAllEfforts)>;
inline double& at(Efforts& all, Effort q) {
  return all[static_cast<std::size_t>(q)];
}
inline double at(const Efforts& all, Effort q) {
  return all[static_cast<std::size_t>(q)];
}

// The sizes of a product of two matrices; all 0: the kernel is no such product.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  auto operator<=>(const ProductShape&) const = default;
};
ProductShape product_shape(const Program& program, const Node& node);

// "matmul f32,f32>f32 kk": op, dtypes, and what else its speed depends on.
std::string work_name(const Program& program, const Node& node);

struct KernelWork {
  NodeId node = kNoNode;
  std::string kernel;  // work_name()
  KernelClass kernel_class = KernelClass::kElementwise;
  Efforts amounts{};
  ProductShape product = {};
  double host_bytes = 0;  // bytes_over_link(); not among `amounts`
  // Kernels whose times, added up, stand for this one if it was not measured. Empty: there are
  // none.
  std::vector<KernelWork> parts = {};
};

// Bytes that the node reads from leaves in the host's memory, or writes there, whichever is more:
// the link to the host carries both at once.
double bytes_over_link(const Program& program, const BufferPlan& buffer_plan, const Node& node);

// Bytes that a device keeps closer than its memory; 0: there is no such cache.
struct CacheSizes {
  std::int64_t near_bytes = 0;    // of all cores together
  std::int64_t shared_bytes = 0;  // also holds what the near ones hold
};

// An entry for every launch, in order. How near bytes are depends on how many others were touched
// since, in a step that runs again and again. With several threads, operations are those of the
// thread with the most.
std::vector<KernelWork> kernel_work(const Program& program, const DeviceTraits& traits,
                                    const CacheSizes& caches);

// How much of a device's memory its caches hold. Of the CPU, from /sys under `root` or else usual
// sizes: the second level of as many cores as there are threads, and the third. Of a GPU one size
// is assumed for the cache that all its cores share; the rates of a calibration make up for what it
// lacks.
CacheSizes cache_sizes(const DeviceTraits& traits, const std::filesystem::path& root = "/");

}  // namespace tracestep
