#include "base/error.h"

#include <stdexcept>
#include <utility>

#include "base/option_names.h"

namespace tracestep {
namespace {

constexpr char kMark = TRACESTEP_OPTION()[0];
constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789_";

OptionNames& names() {
  static OptionNames now;
  return now;
}

std::string plain(std::string_view text) {
  return with_options(text, [](std::string_view name) {
    return names() ? names()(name) : fmt::format("option {}", name);
  });
}

}  // namespace

NamedOptions::NamedOptions(OptionNames given) {
  names() = std::move(given);
}
NamedOptions::~NamedOptions() {
  names() = nullptr;
}

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

std::string with_options(std::string_view text,
                         const std::function<std::string(std::string_view)>& name_of) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text[0] == kMark ? text.find_first_not_of(kOfNames, 1) : 0;
    const bool is_mark = end > 1 && end != text.npos && text[end] == kMark;
    out += is_mark ? name_of(text.substr(1, end - 1)) : std::string(1, text[0]);
    text.remove_prefix(is_mark ? end + 1 : 1);
  }
  return out;
}

Error::Error(ErrorCode code, About about, std::string message, std::string hint)
    : code_(code),
      kind_(about.kind),
      where_(std::move(about.text)),
      message_(std::move(message)),
      hint_(std::move(hint)),
      what_("[" + where_ + "] " + text() +
            (hint_.empty() ? "" : (message_.ends_with('?') ? " " : "; ") + plain(hint_))) {}

std::string Error::text() const {
  return plain(message_);
}

namespace detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw std::logic_error(fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line,
                                     condition, message.empty() ? "" : ": ", message));
}

}  // namespace detail
}  // namespace tracestep
