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

const std::vector<TableLayout>& layouts() {
  static const std::vector<TableLayout> all = {
      {.table = "cells",
       .keys = keys_of_runs(),
       .measures = {{"samples_ms", ""}},
       .exact = {"peak_bytes", "saved_bytes", "flops", "launches"}},
      {.table = "attention",
       .keys = {"batch", "context", "width", "causal", "attention", "saved", "precision", "ops",
                "executor", "compile_passes", "device"},
       .measures = {{"forward_samples_ms", "forward"},
                    {"backward_samples_ms", "backward"},
                    {"whole_samples_ms", "whole"}},
       .exact = {"before_backward_bytes", "peak_bytes", "saved_bytes", "forward_launches",
                 "backward_launches", "whole_launches"}},
      {.table = "memory",
       .keys = {"size", "context", "batch", "vocab", "mode", "precision", "ops", "attention",
                "executor", "compile_passes"},
       .exact = {"peak_bytes", "saved_bytes", "weight_cast_bytes"}},
      {.table = "memory_grid",
       .keys = {"size", "context", "batch", "vocab", "mode", "precision", "ops", "attention",
                "executor", "compile_passes"},
       .exact = {"peak_bytes", "saved_bytes", "weight_cast_bytes"}},
      {.table = "buffers",
       .keys = {"path", "op", "category", "phase"},
       .exact = {"predicted_bytes"},
       .is_parts = true},
      {.table = "categories",
       .keys = {"category"},
       .exact = {"predicted_bytes", "measured_bytes"},
       .is_parts = true},
      {.table = "saved_by_op",
       .keys = {"component", "op"},
       .exact = {"bytes", "values"},
       .is_parts = true},
      {.table = "phases",
       .keys = {"phase"},
       .exact = {"kernels", "predicted_bytes"},
       .is_parts = true},
      {.table = "passes",
       .keys = {"size", "context", "mode", "precision", "ops", "attention", "pass"},
       .exact = {"launches"}},
      {.table = "matrix",
       .keys = {"component", "phase", "op", "kernel"},
       .exact = {"launches", "flops", "bytes"},
       .shown_ms = "ms",
       .is_parts = true},
      {.table = "kernels", .keys = {"Name", "class"}, .exact = {"per_step"}, .is_parts = true},
      {.table = "steps",
       .keys = {"size", "context", "mode", "precision", "ops", "attention"},
       .exact = {"peak_bytes", "loss_error", "logits_error", "gradient_error"}},
      {.table = "ways",
       .keys = keys_of_runs(),
       .measures = {{"samples_ms", ""}},
       .exact = {"launches", "moved_bytes", "peak_bytes", "arena_bytes", "saved_bytes"}},
      {.table = "ladder",
       .keys = keys_of_runs(),
       .measures = {{"samples_ms", ""}},
       .exact = {"launches", "moved_bytes", "peak_bytes", "arena_bytes", "saved_bytes",
                 "loss_error", "gradient_error"}},
      {.table = "attention_ways",
       .keys = {"batch", "context", "width", "attention", "precision", "ops", "executor",
                "compile_passes", "device"},
       .measures = {{"forward_samples_ms", "forward"},
                    {"backward_samples_ms", "backward"},
                    {"whole_samples_ms", "whole"}},
       .exact = {"launches", "peak_bytes"}},
      {.table = "accumulation", .keys = {"experiment", "count", "term"}, .exact = {"error"}},
      {.table = "norms", .keys = {"norm", "format", "input_scale", "step"}, .exact = {"error"}},
  };
  return all;
}

// Whether a row has the columns that this table is known by: samples of time, or all that is
// compared exactly. Older results lack some of the others.
bool fits(const TableLayout& layout, const Json& row) {
  const auto has = [&](std::string_view column) { return row.find(column) != nullptr; };
  if (!layout.measures.empty()) {
    return std::ranges::any_of(layout.measures, has, &TableLayout::Measure::samples);
  }
  const bool is_of_run = find_field(layout.keys.front()) != nullptr;
  return std::ranges::all_of(layout.exact, has) &&
         (is_of_run ? has(layout.keys.front()) : std::ranges::all_of(layout.keys, has));
}

struct SchemaTable {
  std::string_view schema, table;
};
constexpr SchemaTable kPrimary[] = {
    {"tracestep.bench/1", "cells"},   {"tracestep.attention/1", "attention"},
    {"tracestep.memory/2", "memory"}, {"tracestep.profile/1", "passes"},
    {"tracestep.precision/1", ""},    {"tracestep.compile/1", ""},
    {"tracestep.study/2", "cells"}};

// The default of a field that older results lack; nullptr: all results have it.
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

bool varies(std::span<const ResultRow> rows, std::string_view key) {
  return std::ranges::any_of(rows, [&](const ResultRow& row) {
    const Json *first = key_of(rows.front(), key), *value = key_of(row, key);
    return (first == nullptr) != (value == nullptr) || (first != nullptr && !(*first == *value));
  });
}

}  // namespace

const TableLayout* layout_of(std::string_view table, const Json& first_row) {
  const std::string_view name = table.substr(0, table.find('@'));
  for (const TableLayout& layout : layouts()) {
    if (!name.empty() && layout.table != name) continue;
    const bool is_empty = first_row.is_null() && !name.empty();
    if (is_empty || (first_row.is_object() && fits(layout, first_row))) return &layout;
  }
  return nullptr;
}

std::string_view primary_table(std::string_view schema) {
  const auto* const found = std::ranges::find(kPrimary, schema, &SchemaTable::schema);
  return found == std::end(kPrimary) ? std::string_view() : found->table;
}

std::vector<std::string_view> compared_schemas() {
  std::vector<std::string_view> out;
  for (const SchemaTable& known : kPrimary) out.push_back(known.schema);
  return out;
}

std::string words(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

std::string identity(const ResultRow& row, const TableLayout& layout,
                     const std::vector<std::string>& ignored) {
  std::string out;
  for (std::string_view key : layout.keys) {
    if (std::ranges::find(ignored, key) != ignored.end()) continue;
    const Json* value = key_of(row, key);
    out += fmt::format("{}={};", key, value == nullptr ? "" : value->dump());
  }
  return out;
}

std::string pair_label(const ResultRow& a, const ResultRow& b, const TableLayout& layout) {
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

std::vector<std::string> ignored_keys(std::span<const ResultRow> a, std::span<const ResultRow> b,
                                      const std::vector<std::string>& asked) {
  std::vector<std::string> out = asked;
  for (const RunField& field : run_fields()) {
    if (field.role != FieldRole::kSpeed) continue;
    if (!varies(a, field.name) && !varies(b, field.name)) out.push_back(field.name);
  }
  return out;
}

std::map<std::string, const ResultRow*> by_identity(std::span<const ResultRow> rows,
                                                    const std::string& file,
                                                    const TableLayout& layout,
                                                    const std::vector<std::string>& ignored) {
  std::map<std::string, const ResultRow*> out;
  for (const ResultRow& row : rows) {
    const auto [found, is_new] = out.emplace(identity(row, layout, ignored), &row);
    if (is_new) continue;
    throw Error(ErrorCode::kUsage, file,
                fmt::format("two rows are the same but for what is ignored: {} and {}",
                            pair_label(*found->second, *found->second, layout),
                            pair_label(row, row, layout)),
                "ignore fewer columns, or give files in which the others tell all rows apart");
  }
  return out;
}

void check_ignored(std::span<const TableLayout* const> tables,
                   const std::vector<std::string>& ignored) {
  std::vector<std::string> keys;
  for (const TableLayout* layout : tables) {
    for (std::string_view key : layout->keys) {
      if (std::ranges::find(keys, key) == keys.end()) keys.emplace_back(key);
    }
  }
  for (const std::string& name : ignored) {
    if (std::ranges::find(keys, name) != keys.end()) continue;
    throw Error(
        ErrorCode::kUsage, "ignore",
        fmt::format("rows of these results have no key \"{}\"{}", name, did_you_mean(name, keys)),
        fmt::format("one of {}", fmt::join(keys, ", ")));
  }
}

}  // namespace tracestep
