#include "train/small_updates.h"

#include <cmath>

#include "base/log.h"

namespace tracestep {
namespace {

constexpr double kFewest = 0.5;  // of the parameters; below it a line is worth while

// The number of bits of the significand after the leading one.
int fraction_bits(DType dtype) {
  return dtype == DType::kBF16 ? 7 : 10;
}

// The distance of a number to its neighbour that is larger in magnitude.
double spacing_at(double x, DType dtype) {
  const int least =
      dtype == DType::kBF16 ? -126 : -14;  // the exponent of the smallest normal number
  const int exponent = x == 0.0 ? least : std::max(std::ilogb(x), least);
  return std::ldexp(1.0, exponent - fraction_bits(dtype));
}

}  // namespace

double share_that_moves(const Store& store, double rate) {
  std::int64_t all = 0, moving = 0;
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    const HostTensor weights = store.get(name);
    all += weights.shape.product();
    if (!is_low_precision(weights.dtype)) {
      moving += weights.shape.product();
      continue;
    }
    const HostTensor wide = widened(weights);
    for (const double x : wide.as<double>()) {
      moving += rate > spacing_at(x, weights.dtype) / 2 ? 1 : 0;
    }
  }
  return all == 0 ? 1.0 : static_cast<double>(moving) / static_cast<double>(all);
}

void warn_of_small_updates(const Store& store, const TrainOptions& o) {
  const DType dtype = o.run.precision.parameters;
  const double rate = o.schedule.lr;
  if (!is_low_precision(dtype) || rate == 0.0 || o.rounding == Rounding::kRandom) return;
  const double share = share_that_moves(store, rate);
  if (share >= kFewest) return;
  const char* const remedy =
      dtype == DType::kBF16 ? "option rounding random keeps them on average, " : "";
  log_warn(
      "train: at a rate of {0:g} a step moves about {1:.2g} % of the weights; the other updates "
      "are less than half the spacing of {2} there, and lost ({3}option precision {2} keeps "
      "float32 weights)",
      rate, 100 * share, name_of(dtype), remedy);
}

}  // namespace tracestep
