#include "spec/run_flags.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "planning/device_traits.h"
#include "spec/fields.h"
#include "spec/planned.h"

namespace tracestep {
namespace {

constexpr std::string_view kLimit = "memory_limit_bytes";

// Values by field, as a command takes them: every combination is a run.
using Grid = std::map<std::string, std::vector<std::string>, std::less<>>;

// Returns the preset that the key names, if all sizes in the key are the preset's, else nullopt.
std::optional<ModelConfig> preset_of(const Json& key) {
  const Json* size = key.find("size");
  const ModelConfig* found =
      size != nullptr && size->is_string() ? find_model(size->as_string()) : nullptr;
  if (found == nullptr) return std::nullopt;
  const RunSpec usual{.model = *found};
  const bool is_whole = std::ranges::all_of(run_fields(), [&](const RunField& field) {
    const Json* own = is_own_size(field) ? key.find(field.name) : nullptr;
    return own == nullptr || *own == field.value(usual);
  });
  return is_whole ? std::optional(*found) : std::nullopt;
}

bool is_on_gpu(const Json& key) {
  const Json* device = key.find("device");
  return device != nullptr && device->is_string() &&
         traits_named(device->as_string()).has_own_memory();
}

// True if a command line must state the field. `usual`: a run with the key's preset, if it has one.
bool is_needed(const RunField& field, const Json& value, const RunSpec& usual, bool has_preset) {
  if (field.name == kLimit) return false;
  if (field.name == "size") return has_preset;
  if (is_own_size(field)) return !has_preset;
  const bool differs_by_command =
      field.role == FieldRole::kProgram && !field.is_optional && field.name != "vocab";
  return differs_by_command || value != field.value(usual);
}

// Returns the optional fields in which the keys differ. Each command must state them, because its
// default for such a field may be several values.
std::vector<std::string_view> varying(std::span<const Json> keys) {
  return fields_that([&](const RunField& field) {
    const auto value_in = [&](const Json& key) {
      const Json* value = key.find(field.name);
      return value == nullptr ? Json() : *value;
    };
    return field.is_optional && field.is_axis && std::ranges::any_of(keys, [&](const Json& key) {
             return value_in(key) != value_in(keys.front());
           });
  });
}

Grid grid_of(const Json& key, std::span<const std::string_view> more,
             std::span<const std::string_view> varying) {
  const std::optional<ModelConfig> preset = preset_of(key);
  const RunSpec usual{.model = preset.value_or(ModelConfig())};
  Grid out;
  for (const auto& [name, value] : key.members()) {
    const RunField* field = find_field(name);
    const bool is_named = std::ranges::find(varying, name) != varying.end() ||
                          std::ranges::find(more, name) != more.end();
    const bool is_flag =
        is_named || (field != nullptr && is_needed(*field, value, usual, preset.has_value())) ||
        (field != nullptr && is_planned(*field) && is_on_gpu(key));
    if (is_flag && !value.is_null()) out[name] = {flag_text(value)};
  }
  return out;
}

bool are_equal_but(const Grid& a, const Grid& b, std::string_view name) {
  return std::ranges::equal(a, b, [name](const auto& x, const auto& y) {
    return x.first == y.first && (x.first == name || x.second == y.second);
  });
}

// Joins grids that differ only in the field `name` into one grid with all values of that field.
void join_along(std::string_view name, std::vector<Grid>& grids) {
  std::vector<Grid> out;
  for (Grid& grid : grids) {
    const auto found =
        std::ranges::find_if(out, [&](const Grid& g) { return are_equal_but(g, grid, name); });
    if (found == out.end()) {
      out.push_back(std::move(grid));
      continue;
    }
    const auto add_to = found->find(name);
    if (add_to == found->end()) continue;  // the same run is there already
    for (std::string& text : grid.find(name)->second) {
      if (std::ranges::count(add_to->second, text) == 0) add_to->second.push_back(std::move(text));
    }
  }
  grids = std::move(out);
}

std::string flags_of_grid(const Grid& grid, std::span<const std::string_view> more) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view name, const auto& flag) {
    const auto found = grid.find(name);
    if (found == grid.end()) return;
    out.push_back(fmt::format("{} {}", flag(found->second), fmt::join(found->second, ",")));
  };
  for (const RunField& field : run_fields()) {
    add(field.name, [&](const auto& texts) { return flag_for(field, texts); });
  }
  for (std::string_view name : more) {
    add(name, [&](const auto&) { return "--" + with_dashes(name); });
  }
  return fmt::format("{}", fmt::join(out, " "));
}

}  // namespace

const std::string& flag_for(const RunField& field, std::span<const std::string> texts) {
  const auto is_choice = [&](const std::string& text) {
    return std::ranges::find(field.choices, text) != field.choices.end();
  };
  return field.alias.empty() || std::ranges::all_of(texts, is_choice) ? field.flag : field.alias;
}

std::vector<std::string> flags_of(std::span<const Json> keys,
                                  std::span<const std::string_view> more) {
  std::vector<Grid> grids;
  const std::vector<std::string_view> differing = varying(keys);
  for (const Json& key : keys) {
    Grid grid = grid_of(key, more, differing);
    if (std::ranges::find(grids, grid) == grids.end()) grids.push_back(std::move(grid));
  }
  for (const RunField& field : run_fields()) {
    if (field.is_axis) join_along(field.name, grids);
  }
  for (std::string_view name : more) join_along(name, grids);
  std::vector<std::string> out;
  for (const Grid& grid : grids) out.push_back(flags_of_grid(grid, more));
  return out;
}

}  // namespace tracestep
