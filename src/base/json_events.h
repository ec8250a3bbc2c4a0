// A JSON text as the events of its reading, for texts that are too large to be held as values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tracestep {

// What parse_json() calls, in the order of the text. A text or a key may be moved from. Whoever
// finds the content wrong throws.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  // Also an integer beyond 64 bits, and -0, which no integer is.
  virtual void real(double value) = 0;
  virtual void text(std::string& value) = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

// Deeper nesting is an attack or an accident, and refused.
inline constexpr std::size_t kMaxJsonDepth = 256;

// Takes no more memory than the longest text in it, three times. Errors: kInput with the byte, for
// what is not JSON in UTF-8, for text behind it and for deep nesting; `where` names the file.
void parse_json(std::string_view text, const std::string& where, JsonEvents& events);

}  // namespace tracestep
