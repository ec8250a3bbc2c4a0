// A component of tokenizer.json: fields of known names and types. Readers must name every field
// that they know, because ignoring an unknown field or kind could change the tokens.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace tracestep {

class TokenizerFields {
 public:
  // The fields of a component, which `where` names, file first. Errors, here and below: kInput.
  TokenizerFields(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  // The field `type`; empty where it is missing.
  std::string type() const { return find("type") == nullptr ? "" : text("type"); }
  // Throws if the component has a field with another name; `type` is always allowed.
  void allow(std::initializer_list<std::string_view> known) const;

  // The value of a field; nullptr: it is missing or null.
  const Json* find(std::string_view name) const;
  const Json& at(std::string_view name) const;
  bool flag(std::string_view name, bool fallback) const;
  std::string text(std::string_view name) const;
  const Json::Array& array(std::string_view name) const;
  const Json::Object& object(std::string_view name) const;
  // Reads the number of a token, at most kMostTokenId.
  std::int32_t id(const Json& value, std::string_view name) const;
  // Throws if a token has more than kMostTokenBytes, which bounds the text that ids decode to.
  void check_token(std::string_view text) const;
  // The component in field `name`.
  TokenizerFields part(std::string_view name) const;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail_input("tokenizer"_field, "{}: {}", where_,
               fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const Json* object_;
  std::string where_;
};

inline constexpr std::int32_t kMostTokenId = 10'000'000;
inline constexpr std::size_t kMostTokenBytes = 65536;

// Calls `add(component)` for `component`, or for each part if it is a Sequence, whose list is the
// field `list`. Nested sequences are opened too, to a limited depth.
template <class Add>
void for_each_component(const TokenizerFields& component, std::string_view list, Add&& add,
                        int depth = 0) {
  constexpr int kMostDepth = 8;
  if (component.type() != "Sequence") return add(component);
  if (depth == kMostDepth) component.refuse("sequences lie in each other {} deep", depth);
  component.allow({list});
  int index = 0;
  for (const Json& item : component.array(list)) {
    const std::string where = fmt::format("{}[{}]", component.where(), index++);
    for_each_component(TokenizerFields(item, where), list, add, depth + 1);
  }
}

}  // namespace tracestep
