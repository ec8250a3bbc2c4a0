#include "spec/spec_field.h"

#include <fmt/format.h>

#include "base/units.h"

namespace tracestep {

std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string flag_text(const Json& value) {
  if (value.is_string()) return value.as_string();
  const bool is_real = value.is_number() && !value.is_int();
  return is_real ? fmt::format("{}", value.as_double()) : value.dump();
}

std::string size_text(const Json& bytes) {
  return bytes.is_int() ? exact_bytes(bytes.as_int()) : flag_text(bytes);
}

}  // namespace tracestep
