#include "nn/config_fields.h"

#include <cmath>

#include "base/error.h"
#include "nn/harmless_fields.h"

namespace tracestep {

const Json* ConfigFields::find(std::string_view key) {
  used_.emplace(key);
  const Json* value = json_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::int64_t ConfigFields::integer(std::string_view key, std::int64_t usual, std::int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_int()) fail(key, "a whole number");
  if (value->as_int() < 1 || value->as_int() > most) fail(key, "a size of a model");
  return value->as_int();
}

double ConfigFields::real(std::string_view key, double usual) {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_number() || !std::isfinite(value->as_double())) fail(key, "a number");
  return value->as_double();
}

bool ConfigFields::flag(std::string_view key, bool usual) {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_bool()) fail(key, "true or false");
  return value->as_bool();
}

std::string ConfigFields::text(std::string_view key, std::string usual) {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_string()) fail(key, "a name");
  return value->as_string();
}

void ConfigFields::expect(std::string_view key, bool value) {
  if (flag(key, value) != value) fail(key, value ? "true" : "false");
}

void ConfigFields::fail(std::string_view key, std::string_view expected) const {
  const Json* value = json_.find(key);
  std::string seen = value == nullptr ? "missing" : value->dump();
  if (seen.size() > 80) seen = seen.substr(0, 77) + "...";
  fail_input(where_, "\"{}\" is {}; {} is expected", key, seen, expected);
}

void ConfigFields::finish() {
  for (const auto& [key, value] : json_.members()) {
    if (used_.contains(key) || is_harmless_field(key, value, json_)) continue;
    unknown_.push_back(key.size() > 60 ? key.substr(0, 57) + "..." : key);
  }
}

}  // namespace tracestep
