// Predicts a published cell without running it: the bytes of this program's own step, and the
// times that a roofline of a device gives for its kernels. Programs are those of plain code, op by
// op (--ops primitive), with batch 4. Every layer adds the same, so figures of many layers follow
// from programs of two and three.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "course/tables.h"
#include "run/run_spec.h"

namespace tracestep {

// Returns the peak bytes of our program's forward pass, with the values saved for backward.
double forward_program_bytes(std::string_view size, std::int64_t context,
                             std::string_view precision);

// A published cell. `pass` is "inference", "forward", "backward", "forward+backward" or "step".
struct PassOfCell {
  std::string size;
  std::int64_t context = 0;
  std::string precision, pass;

  auto operator<=>(const PassOfCell&) const = default;
};

// Returns the run of plain code whose figures the cell has. "backward" has no run of its own: it
// takes that of "forward+backward".
RunSpec run_of(const PassOfCell& cell);

// Kernel times of a pass in ms, by a roofline with the device's peaks, and its numbers of kernels.
struct ModelledPass {
  double product_ms = 0, other_ms = 0;
  // The parts of these times that belong to attention.
  double softmax_ms = 0, attention_product_ms = 0;
  double products = 0, launches = 0;  // The number of matrix products, and of all kernels.

  double ms() const { return product_ms + other_ms; }
};
ModelledPass modelled_pass(const PassOfCell& cell, const PublishedDevice& device);

// The least share of a device's peaks that kernels are assumed to reach.
inline constexpr double kLeastOfPeak = 0.5;

// Bounds, in percent, on the share of a pass's kernel time that matrix products take, if products
// and other kernels each reach at least the share `least` of the device's peaks.
struct ShareRange {
  double low = 0, high = 0;

  bool has(double percent) const { return percent >= low && percent <= high; }
};
ShareRange share_range(double part_ms, double rest_ms, double least);

}  // namespace tracestep
