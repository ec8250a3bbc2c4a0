#include "spec/spec_field.h"

#include <fmt/format.h>

namespace tracestep {

std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string flag_text(const Json& value) {
  if (value.is_string()) return value.as_string();
  const bool is_real = value.is_number() && !value.is_int();
  return is_real ? fmt::format("{:g}", value.as_double()) : value.dump();
}

}  // namespace tracestep
