// An error of one rank in a group of several.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace tracestep {

// Says that a rank failed or did not come in time: `[rank 3] message; hint`.
class RankError : public Error {
 public:
  RankError(std::int64_t rank, std::string message, std::string hint = {},
            ErrorCode code = ErrorCode::kFailed)
      : Error(code, fmt::format("rank {}", rank), std::move(message), std::move(hint)) {}
};

}  // namespace tracestep
