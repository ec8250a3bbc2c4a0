#include "lab/compare/rows.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// What decides the program, and what else has a column.
std::vector<std::string_view> keys_of_runs() {
  std::vector<std::string_view> out;
  for (const RunField& field : run_fields()) {
    if (field.role == FieldRole::kProgram || is_column(field)) out.push_back(field.name);
  }
  return out;
}

const std::vector<ResultLayout>& layouts() {
  static const std::vector<ResultLayout> all = {
      {"tracestep.bench/1", keys_of_runs(), {{"samples_ms", ""}}},
      {"tracestep.attention/1",
       {"batch", "context", "width", "causal", "attention", "saved", "precision", "device"},
       {{"forward_samples_ms", "forward"},
        {"backward_samples_ms", "backward"},
        {"whole_samples_ms", "whole"}}},
  };
  return all;
}

// The value of a field in results that are older than it; nullptr: they cannot be.
const Json* older_value(std::string_view key) {
  static const Json all = [] {
    Json out = Json::object();
    for (const RunField& field : run_fields()) {
      if (field.is_optional) out[field.name] = field.value(RunSpec());
    }
    return out;
  }();
  return all.find(key);
}

const Json* key_of(const ResultRow& row, std::string_view key) {
  if (const Json* cell = row.find(key)) return cell;
  const Json* parameters = row.parameters();
  const Json* value = parameters == nullptr ? nullptr : parameters->find(key);
  return value == nullptr ? older_value(key) : value;
}

// Whether a label leaves out this key when both rows have this value.
bool goes_without_saying(std::string_view key, const Json& value) {
  const RunField* field = find_field(key);
  if (field == nullptr) return false;
  const Json* usual = older_value(key);
  return field->show != FieldShow::kPeople || (usual != nullptr && value == *usual);
}

bool varies(const ResultFile& file, std::string_view key) {
  return std::ranges::any_of(file.rows, [&](const ResultRow& row) {
    const Json *first = key_of(file.rows.front(), key), *value = key_of(row, key);
    return (first == nullptr) != (value == nullptr) || (first != nullptr && !(*first == *value));
  });
}

}  // namespace

std::vector<std::string_view> compared_schemas() {
  std::vector<std::string_view> out;
  for (const ResultLayout& layout : layouts()) out.push_back(layout.schema);
  return out;
}

const ResultLayout* layout_of(std::string_view schema) {
  const auto found = std::ranges::find(layouts(), schema, &ResultLayout::schema);
  return found == layouts().end() ? nullptr : &*found;
}

std::string words(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

std::string identity(const ResultRow& row, const ResultLayout& layout,
                     const std::vector<std::string>& ignored) {
  std::string out;
  for (std::string_view key : layout.keys) {
    if (std::ranges::find(ignored, key) != ignored.end()) continue;
    const Json* value = key_of(row, key);
    out += fmt::format("{}={};", key, value == nullptr ? "" : value->dump());
  }
  return out;
}

std::string pair_label(const ResultRow& a, const ResultRow& b, const ResultLayout& layout) {
  std::string out;
  for (std::string_view key : layout.keys) {
    const Json *left = key_of(a, key), *right = key_of(b, key);
    if (left == nullptr || right == nullptr) continue;
    const bool same = *left == *right;
    if (same && goes_without_saying(key, *left)) continue;
    std::string text = same ? words(*left) : fmt::format("{} → {}", words(*left), words(*right));
    if (left->is_number() || left->is_bool()) text = fmt::format("{} {}", key, text);
    out += (out.empty() ? "" : " ") + text;
  }
  return out.empty() ? "row" : out;
}

std::vector<std::string> ignored_keys(const ResultFile& a, const ResultFile& b,
                                      const std::vector<std::string>& asked) {
  std::vector<std::string> out = asked;
  for (const RunField& field : run_fields()) {
    if (field.role != FieldRole::kSpeed) continue;
    if (!varies(a, field.name) && !varies(b, field.name)) out.push_back(field.name);
  }
  return out;
}

std::map<std::string, const ResultRow*> by_identity(const ResultFile& file,
                                                    const ResultLayout& layout,
                                                    const std::vector<std::string>& ignored) {
  std::map<std::string, const ResultRow*> out;
  for (const ResultRow& row : file.rows) {
    const auto [found, is_new] = out.emplace(identity(row, layout, ignored), &row);
    if (is_new) continue;
    throw Error(ErrorCode::kUsage, file.name,
                fmt::format("two rows are the same but for what is ignored: {} and {}",
                            pair_label(*found->second, *found->second, layout),
                            pair_label(row, row, layout)),
                "ignore fewer columns, or give files in which the others tell all rows apart");
  }
  return out;
}

void check_ignored(const ResultLayout& layout, const std::vector<std::string>& ignored) {
  const std::vector<std::string> keys(layout.keys.begin(), layout.keys.end());
  for (const std::string& name : ignored) {
    if (std::ranges::find(keys, name) != keys.end()) continue;
    throw Error(ErrorCode::kUsage, "ignore",
                fmt::format("rows of {} have no key \"{}\"{}", layout.schema, name,
                            did_you_mean(name, keys)),
                fmt::format("one of {}", fmt::join(keys, ", ")));
  }
}

}  // namespace tracestep
