// An error of one rank among several.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace tracestep {

// Says that a rank failed, or is waited for in vain: `[rank 3] message; hint`.
class RankError : public Error {
 public:
  RankError(std::int64_t rank, std::string message, std::string hint = {},
            ErrorCode code = ErrorCode::kFailed)
      : Error(code, fmt::format("rank {}", rank), std::move(message), std::move(hint)) {}
};

}  // namespace tracestep
