#include "base/error.h"

#include <stdexcept>

namespace tracestep {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailed: return 1;
    case ErrorCode::kUsage: return 2;
    case ErrorCode::kInput: return 3;
    case ErrorCode::kOutOfMemory: return 4;
    case ErrorCode::kOutput: return 5;
    case ErrorCode::kDevice: return 6;
    case ErrorCode::kUndecided: return 7;
    case ErrorCode::kNotFinite: return 8;
  }
  return 1;
}

Error::Error(ErrorCode code, std::string where, std::string message, std::string hint)
    : code_(code),
      where_(std::move(where)),
      message_(std::move(message)),
      hint_(std::move(hint)),
      what_("[" + where_ + "] " + message_ +
            (hint_.empty() ? "" : (message_.ends_with('?') ? " " : "; ") + hint_)) {}

namespace detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw std::logic_error(fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line,
                                     condition, message.empty() ? "" : ": ", message));
}

}  // namespace detail
}  // namespace tracestep
