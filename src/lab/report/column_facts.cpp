#include "lab/report/column_facts.h"

#include <array>
#include <string_view>
#include <utility>

namespace tracestep {
namespace {

template <class T, std::size_t n>
using Names = std::array<std::pair<T, std::string_view>, n>;

constexpr Names<Timing, 3> kTimings{
    {{Timing::kNone, ""}, {Timing::kSampled, "sampled"}, {Timing::kSingle, "single"}}};

template <class T, std::size_t n>
std::string name_in(const Names<T, n>& names, T value) {
  for (const auto& [known, name] : names) {
    if (known == value) return std::string(name);
  }
  return {};
}

template <class T, std::size_t n>
T value_in(const Names<T, n>& names, std::string_view name) {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  return names.front().first;
}

std::string text_in(const Json& facts, std::string_view name) {
  const Json* text = facts.is_object() ? facts.find(name) : nullptr;
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

}  // namespace

Json facts_of(const Column& column) {
  Json out = Json::object();
  const auto say = [&](const char* name, const std::string& text) {
    if (!text.empty()) out[name] = text;
  };
  say("kind", std::string(name_of(column.kind)));
  say("unit", column.unit.empty() && column.kind == ColumnKind::kBytes ? "bytes" : column.unit);
  say("title", column.title);
  say("description", column.description);
  if (column.role != ColumnRole::kShown) say("role", std::string(name_of(column.role)));
  say("part_of", column.whole);
  if (column.digits >= 0) out["digits"] = column.digits;
  say("timing", name_in(kTimings, column.timing));
  say("shown", column.data_only ? "no" : column.if_varies ? "if it varies" : "");
  for (const auto& [text, shown] : column.words) out["words"][text] = shown;
  return out;
}

Column column_of(const std::string& name, const Json& facts) {
  Column out{.name = name,
             .title = text_in(facts, "title"),
             .unit = text_in(facts, "unit"),
             .kind = kind_named(text_in(facts, "kind")),
             .description = text_in(facts, "description"),
             .timing = value_in(kTimings, text_in(facts, "timing")),
             .role = role_named(text_in(facts, "role")),
             .whole = text_in(facts, "part_of")};
  if (out.role == ColumnRole::kSamples && !name.ends_with("samples_ms")) {
    out.role = ColumnRole::kShown;
  }
  if (out.kind == ColumnKind::kBytes) out.unit.clear();
  out.data_only = text_in(facts, "shown") == "no";
  out.if_varies = text_in(facts, "shown") == "if it varies";
  const Json* digits = facts.is_object() ? facts.find("digits") : nullptr;
  if (digits != nullptr && digits->is_int()) out.digits = static_cast<int>(digits->as_int());
  const Json* words = facts.is_object() ? facts.find("words") : nullptr;
  if (words == nullptr || !words->is_object()) return out;
  for (const auto& [text, shown] : words->members()) {
    if (shown.is_string()) out.words.emplace_back(text, shown.as_string());
  }
  return out;
}

}  // namespace tracestep
