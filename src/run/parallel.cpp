#include "run/parallel.h"

#include <cmath>

namespace tracestep {

Parallel resolve_bucket(Parallel choice, std::int64_t gradient_bytes) {
  if (choice.bucket_bytes != Parallel::kByModel) return choice;
  const double least =
      std::sqrt(static_cast<double>(gradient_bytes) * kLinkBytesPerS * kCallSeconds);
  choice.bucket_bytes =
      choice.shards_optimizer() ? std::int64_t{25} << 20 : static_cast<std::int64_t>(least);
  return choice;
}

}  // namespace tracestep
