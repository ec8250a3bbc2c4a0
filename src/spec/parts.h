// Choices that are written as several parts, such as "dp=2,bucket=25MiB,sp". Each kind has its own
// table of fields.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "spec/spec_field.h"

namespace tracestep {

// The syntax of the parts, for help texts: "shard=0|1|2|3, tp=N, sp".
template <class Spec>
std::string forms_of(std::span<const SpecField<Spec>> fields) {
  std::vector<std::string> out;
  for (const SpecField<Spec>& field : fields) {
    const bool is_switch = field.value_name.empty();
    out.push_back(is_switch ? field.name
                  : field.choices.empty()
                      ? fmt::format("{}={}", field.name, field.value_name)
                      : fmt::format("{}={}", field.name, fmt::join(field.choices, "|")));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

// Sets in `out` the parts that the text names; each may occur once. `fail`, which must not return,
// is called for an unknown part.
template <class Spec, class Fail>
void set_parts(const About& where, std::string_view text, std::span<const SpecField<Spec>> fields,
               Spec& out, const Fail& fail) {
  std::set<std::string> seen;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string part(text.substr(start, end - start));
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const auto field = std::ranges::find(fields, name, &SpecField<Spec>::name);
    const bool has_value = equals != std::string::npos;
    if (field == fields.end() || has_value == field->value_name.empty()) fail(part);
    if (!seen.insert(name).second) fail_usage(where, "{} is there twice", name);
    field->parse(where, has_value ? part.substr(equals + 1) : "")(out);
    start = end + 1;
  }
}

// The parts in which the choice differs from `usual`, as text.
template <class Spec>
std::string text_of_parts(std::span<const SpecField<Spec>> fields, const Spec& choice,
                          const Spec& usual) {
  std::vector<std::string> parts;
  for (const SpecField<Spec>& field : fields) {
    if (field.value(choice) == field.value(usual)) continue;
    const bool is_switch = field.value_name.empty();
    parts.push_back(is_switch ? field.name
                              : fmt::format("{}={}", field.name, text_of(field, choice)));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace tracestep
