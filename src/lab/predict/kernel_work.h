// Describes the work of each kernel of a program by a few quantities that its time grows with:
// operations, bytes by the cache that holds them, elements that a product packs. They are derived
// from the program alone.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/buffer_plan.h"
#include "base/enum_words.h"
#include "ir/op_def.h"
#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

enum class Effort : std::uint8_t {
  kLaunches,     // always 1
  kOperations,   // FLOPs, or elements for a kernel without FLOPs.
  kNearBytes,    // Bytes read and written that are still in a core's own cache.
  kSharedBytes,  // Bytes read and written that are in the cache shared by the cores.
  kMemoryBytes,  // Bytes that are in memory and in no cache.
  kPackedA,      // Elements that a product, or tiled attention, copies into its own order.
  kPackedB,
  // Elements of a product's result, counted once for each block of K that is added to them; the
  // scores that tiled attention computes.
  kResults,
  kDepth,  // On a GPU, how many terms each element of a product's result sums one after the other.
  // Rows of a reduction or of attention, counted once for each part into which a row is cut.
  kRows,
};
TRACESTEP_WORDS(Effort, "launches", "operations", "near bytes", "shared bytes", "memory bytes",
                "packed a", "packed b", "results", "depth", "rows");

// The suffix in names of kernels that multiply float32 as float16 parts (passes/by_parts.cpp).
inline constexpr std::string_view kByParts = " by parts";

using Efforts = std::array<double, std::size(kAll<Effort>)>;
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

// Returns the kernel's name: op, dtypes, and whatever else its speed depends on, as in "matmul
// f32,f32>f32 kk".
std::string work_name(const Program& program, const Node& node);

struct KernelWork {
  NodeId node = kNoNode;
  std::string kernel;  // The name from work_name().
  KernelClass kernel_class = KernelClass::kElementwise;
  Efforts amounts{};
  ProductShape product = {};
  double host_bytes = 0;  // The bytes of bytes_over_link(), which `amounts` does not include.
  // Kernels whose times, added up, stand for this one if it was not measured. Empty: there are
  // none.
  std::vector<KernelWork> parts = {};
};

// Returns the bytes that the node reads from leaves in the host's memory, or writes there,
// whichever is more: the link to the host carries both at once.
double bytes_over_link(const Program& program, const BufferPlan& buffer_plan, const Node& node);

// Sizes of a device's caches, which are closer than its memory; 0: there is no such cache.
struct CacheSizes {
  std::int64_t near_bytes = 0;  // The near caches of all cores together.
  // The shared cache, which also holds the contents of the near ones.
  std::int64_t shared_bytes = 0;
};

// Returns the work of every launch, in order. Whether bytes are in a cache depends on how many
// other bytes the repeated step touched since. With several threads, operations are those of the
// busiest thread.
std::vector<KernelWork> kernel_work(const Program& program, const DeviceTraits& traits,
                                    const CacheSizes& caches);

// Returns the sizes of a device's caches. On a CPU they come from /sys under `root`, or are usual
// sizes: level 2 of as many cores as there are threads, and level 3. For a GPU, one size is assumed
// for its shared cache; the fitted rates of a calibration absorb the error.
CacheSizes cache_sizes(const DeviceTraits& traits, const std::filesystem::path& root = "/");

}  // namespace tracestep
