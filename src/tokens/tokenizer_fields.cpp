#include "tokens/tokenizer_fields.h"

#include <algorithm>

namespace tracestep {

TokenizerFields::TokenizerFields(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) refuse("an object is needed here");
}

void TokenizerFields::allow(std::initializer_list<std::string_view> known) const {
  for (const auto& [name, value] : object_->members()) {
    if (name == "type" || std::ranges::find(known, name) != known.end()) continue;
    refuse("its field \"{}\" is not known", name);
  }
}

const Json* TokenizerFields::find(std::string_view name) const {
  const Json* found = object_->find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json& TokenizerFields::at(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) refuse("it has no field \"{}\"", name);
  return *found;
}

bool TokenizerFields::flag(std::string_view name, bool fallback) const {
  const Json* found = find(name);
  if (found == nullptr) return fallback;
  if (!found->is_bool()) refuse("\"{}\" is {}, neither true nor false", name, found->dump());
  return found->as_bool();
}

std::string TokenizerFields::text(std::string_view name) const {
  const Json& found = at(name);
  if (!found.is_string()) refuse("\"{}\" is no string", name);
  return found.as_string();
}

const Json::Array& TokenizerFields::array(std::string_view name) const {
  const Json& found = at(name);
  if (!found.is_array()) refuse("\"{}\" is no array", name);
  return found.items();
}

const Json::Object& TokenizerFields::object(std::string_view name) const {
  const Json& found = at(name);
  if (!found.is_object()) refuse("\"{}\" is no object", name);
  return found.members();
}

std::int32_t TokenizerFields::id(const Json& value, std::string_view name) const {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > kMostTokenId) {
    refuse("the id of \"{}\" is no whole number from 0 to {}", name, kMostTokenId);
  }
  return static_cast<std::int32_t>(value.as_int());
}

void TokenizerFields::check_token(std::string_view text) const {
  if (text.size() <= kMostTokenBytes) return;
  refuse("a token has {} bytes, more than {}", text.size(), kMostTokenBytes);
}

TokenizerFields TokenizerFields::part(std::string_view name) const {
  return {at(name), fmt::format("{}: {}", where_, name)};
}

}  // namespace tracestep
