// Errors that are reported to the user, and TRACESTEP_CHECK for bugs of our own. Every message
// reads `[where] what is wrong with the values seen; what would be right`.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tracestep {

// Kinds of failure; each code is an exit status of the process (docs/cli.md).
enum class ErrorCode {
  kFailed,       // 1: the run failed
  kUsage,        // 2: unknown flag or value, impossible shape
  kInput,        // 3: an input is missing, not a regular file, or malformed
  kOutOfMemory,  // 4: a single run out of memory
  kOutput,       // 5: an output cannot be written
  kDevice,       // 6: the device is missing
  kUndecided,    // 7: a gate that cannot be judged: rows are missing, invalid or unclear
  kNotFinite,    // 8: training met an infinity or a NaN
};

// The process exit status for `code`.
int exit_code(ErrorCode code);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string where, std::string message, std::string hint = {});

  ErrorCode code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // The whole message: `[where] message; hint`.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorCode code_;
  std::string where_, message_, hint_, what_;
};

// A device call that failed: names the device, and the call or the op being run.
class DeviceError : public Error {
 public:
  DeviceError(std::string device, std::string call, std::string message)
      : Error(ErrorCode::kFailed, device + ": " + call, std::move(message)) {}
};

// Throws Error{kUsage}: the common case while a program or a command is being built.
template <class... Args>
[[noreturn]] void fail_usage(std::string where, fmt::format_string<Args...> format,
                             Args&&... args) {
  throw Error(ErrorCode::kUsage, std::move(where),
              fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error{kInput}: a file that is missing or malformed.
template <class... Args>
[[noreturn]] void fail_input(std::string where, fmt::format_string<Args...> format,
                             Args&&... args) {
  throw Error(ErrorCode::kInput, std::move(where),
              fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace detail

}  // namespace tracestep

// For bugs of our own: ends the command with the source line, the condition and the message.
#define TRACESTEP_CHECK(condition, ...)                                 \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::tracestep::detail::check_failed(__FILE__, __LINE__, #condition, \
                                        ::fmt::format("" __VA_ARGS__)); \
  } while (false)
