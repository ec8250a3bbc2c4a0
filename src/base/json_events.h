// Event-based (SAX) JSON parsing, for texts that are too large to be held as values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tracestep {

// The callbacks of parse_json(), called in the order of the text. Strings and keys may be moved
// from. An implementation that rejects the content throws.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  // Takes a real number, an integer beyond 64 bits, or -0, which has no integer form.
  virtual void real(double value) = 0;
  virtual void text(std::string& value) = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

// The levels of nested arrays and objects that parse_json() accepts.
inline constexpr std::size_t kMaxJsonDepth = 256;

// Parses a text in at most three times the memory of its longest string. Errors: kInput with the
// byte position, for text that is not JSON in UTF-8, for trailing text and for nesting beyond
// kMaxJsonDepth; `where` names the file.
void parse_json(std::string_view text, const std::string& where, JsonEvents& events);

}  // namespace tracestep
