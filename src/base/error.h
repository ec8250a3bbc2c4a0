// Errors that are reported to the user, and TRACESTEP_CHECK for bugs of our own. Every message
// reads `[where] what is wrong with the values seen; what would be right`.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
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

// Returns the process exit status for `code`.
int exit_code(ErrorCode code);

// What an error is about: `kind` for code that has to decide, and the text for people.
struct About {
  enum class Kind : std::uint8_t {
    kText,    // none of the others: a part of the program, a place in a file, an element
    kField,   // an option by its name in the tables of fields: "token_dtype"
    kFile,    // a file or a folder by its path
    kOp,      // an op by its name
    kDevice,  // a device by its name, perhaps with the call that failed
  };
  About(Kind of, std::string what) : kind(of), text(std::move(what)) {}
  About(std::string what) : About(Kind::kText, std::move(what)) {}
  About(const char* what) : About(std::string(what)) {}
  About(const std::filesystem::path& path) : About(Kind::kFile, path.string()) {}

  Kind kind = Kind::kText;
  std::string text;
};

// Makes an About of a field: "token_dtype"_field.
inline About operator""_field(const char* name, std::size_t size) {
  return {About::Kind::kField, std::string(name, size)};
}

// Marks the name of an option in a string literal: "give " TRACESTEP_OPTION(size) ", or less".
// with_options() replaces the marks in a text that is shown.
#define TRACESTEP_OPTION(name) "\x1f" #name "\x1f"

// Returns `text` with each TRACESTEP_OPTION mark replaced by `name_of(option)`, such as its flag.
std::string with_options(std::string_view text,
                         const std::function<std::string(std::string_view)>& name_of);

class Error : public std::exception {
 public:
  // `message` and `hint` may contain marks of options.
  Error(ErrorCode code, About about, std::string message, std::string hint = {});

  ErrorCode code() const { return code_; }
  About about() const { return {kind_, where_}; }
  const std::string& where() const { return where_; }
  // Returns the message with its TRACESTEP_OPTION marks, for building another error from this one.
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // Returns the message for people, without the hint. Each TRACESTEP_OPTION mark is replaced by the
  // name of its option, by default "option size".
  std::string text() const;
  // Returns the whole message for people: `[where] text; hint`.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorCode code_;
  About::Kind kind_;
  std::string where_, message_, hint_, what_;
};

// A device call that failed: names the device, and the call or the op being run.
class DeviceError : public Error {
 public:
  DeviceError(std::string device, std::string call, std::string message)
      : Error(ErrorCode::kFailed, {About::Kind::kDevice, device + ": " + call},
              std::move(message)) {}
};

// Throws Error{kUsage}, the usual error while a program or a command is built.
template <class... Args>
[[noreturn]] void fail_usage(About about, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kUsage, std::move(about),
              fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error{kInput}, for a file that is missing or malformed.
template <class... Args>
[[noreturn]] void fail_input(About about, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kInput, std::move(about),
              fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace detail

}  // namespace tracestep

// Checks a condition whose failure is a bug of ours: ends the command with the source line, the
// condition and the message.
#define TRACESTEP_CHECK(condition, ...)                                 \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::tracestep::detail::check_failed(__FILE__, __LINE__, #condition, \
                                        ::fmt::format("" __VA_ARGS__)); \
  } while (false)
