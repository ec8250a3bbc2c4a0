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

namespace tracestep {

// The peak of forward with what it saves for backward.
double forward_program_bytes(std::string_view size, std::int64_t context,
                             std::string_view precision);

// A pass of a published cell. `pass`: "inference", "forward", "backward", "forward+backward" or
// "step".
struct PassOfCell {
  std::string size;
  std::int64_t context = 0;
  std::string precision, pass;

  auto operator<=>(const PassOfCell&) const = default;
};

// Times of kernels by the roofline of the device's peaks.
struct ModelledPass {
  double product_ms = 0, other_ms = 0;
  double softmax_ms = 0, attention_product_ms = 0;  // of attention, parts of the above
  double products = 0, launches = 0;                // kernels, products among them

  double ms() const { return product_ms + other_ms; }
};
ModelledPass modelled_pass(const PassOfCell& cell, const PublishedDevice& device);

// Kernels reach at least this part of a device's peaks.
inline constexpr double kLeastOfPeak = 0.5;

// A share of products can lie between these when products and other kernels each reach at least
// `least` of the device's peaks; in percent.
struct ShareRange {
  double low = 0, high = 0;

  bool has(double percent) const { return percent >= low && percent <= high; }
};
ShareRange share_range(double part_ms, double rest_ms, double least);

}  // namespace tracestep
