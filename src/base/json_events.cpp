// The SAX parser of nlohmann-json: it checks UTF-8, and is iterative, so that hostile nesting costs
// no stack.
#include "base/json_events.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxMessageBytes = 200;

// Returns the library's message without its "[json.exception...] parse error at line...: " head,
// and cut: it quotes the last token, which may be as long as the file.
std::string short_message(std::string_view message) {
  if (const std::size_t end = message.find("column "); end != std::string_view::npos) {
    if (const std::size_t colon = message.find(": ", end); colon != std::string_view::npos) {
      message.remove_prefix(colon + 2);
    }
  }
  return message_line(message, kMaxMessageBytes);
}

// Forwards the library's events; each callback returns true, which tells the parser to go on.
class Adapter : public nlohmann::json_sax<nlohmann::json> {
 public:
  Adapter(const std::string& where, JsonEvents& events) : where_(where), events_(events) {}

  bool null() override { return events_.null(), true; }
  bool boolean(bool v) override { return events_.boolean(v), true; }
  // Passes an integer on; called only for numbers with a minus sign.
  bool number_integer(number_integer_t v) override {
    v == 0 ? events_.real(-0.0) : events_.integer(v);
    return true;
  }
  bool number_unsigned(number_unsigned_t v) override {
    // Beyond int64 only a double can hold it, rather than wrapping.
    if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      events_.real(static_cast<double>(v));
    } else {
      events_.integer(static_cast<std::int64_t>(v));
    }
    return true;
  }
  bool number_float(number_float_t v, const string_t&) override { return events_.real(v), true; }
  bool string(string_t& v) override { return events_.text(v), true; }
  bool binary(binary_t&) override { fail_input(where_, "binary values are not JSON"); }
  bool key(string_t& v) override { return events_.key(v), true; }

  bool start_object(std::size_t) override { return open(), events_.begin_object(), true; }
  bool start_array(std::size_t) override { return open(), events_.begin_array(), true; }
  bool end_object() override { return --depth_, events_.end_object(), true; }
  bool end_array() override { return --depth_, events_.end_array(), true; }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    fail_input(where_, "not valid JSON at byte {}: {}", position, short_message(e.what()));
  }

 private:
  void open() {
    if (++depth_ > kMaxJsonDepth) {
      fail_input(where_, "JSON nested deeper than {} levels", kMaxJsonDepth);
    }
  }

  const std::string& where_;
  JsonEvents& events_;
  std::size_t depth_ = 0;
};

}  // namespace

void parse_json(std::string_view text, const std::string& where, JsonEvents& events) {
  // The library takes a NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail_input(where, "not valid JSON at byte {}: a NUL byte", nul + 1);
  }
  Adapter adapter(where, events);
  nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
}

}  // namespace tracestep
