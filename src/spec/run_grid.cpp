#include "spec/run_grid.h"

#include <algorithm>

#include "base/error.h"
#include "spec/axes.h"
#include "spec/check_run.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr const char* kSize = TRACESTEP_OPTION(size);
constexpr const char* kSizes = TRACESTEP_OPTION(d_model) ", " TRACESTEP_OPTION(
    d_ff) ", " TRACESTEP_OPTION(layers) " and " TRACESTEP_OPTION(heads);

// Returns `model`, without its name if it differs from the preset or file `named` by more than the
// vocabulary; the name is then kept as its source, which is the text of its "size".
ModelConfig renamed_if_changed(ModelConfig model, const ModelConfig& named) {
  ModelConfig same = named;
  same.vocab = model.vocab;
  if (model == same || model.name == ModelConfig().name) return model;
  if (model.source.empty()) model.source = model.name;
  model.name = ModelConfig().name;
  return model;
}

// Returns the context of a run that was given none: its default, at most the learned positions.
std::int64_t usual_context(const RunSpec& spec) {
  if (spec.model.positions != Positions::kLearned) return spec.shape.context;
  return std::min(spec.shape.context, spec.model.max_positions);
}

}  // namespace

void RunGrid::give(const RunField& field, const About& where, std::vector<std::string> texts) {
  std::vector<Value> values;
  for (std::string& text : texts) {
    RunChange change = field.parse(where, text);
    if (!field.value_name.empty()) {
      RunSpec changed = base;
      change(changed);
      text = text_of(field, changed);
    }
    if (std::ranges::find(values, text, &Value::text) != values.end()) {
      fail_usage(where, "{} is there twice", text);
    }
    values.push_back({std::move(text), std::move(change)});
  }
  values_[field.name] = std::move(values);
  given_.insert(field.name);
}

void RunGrid::offer(std::string_view name, std::vector<std::string> texts) {
  give(field_named(name), field_named(name).where(), std::move(texts));
  given_.erase(std::string(name));
}

bool RunGrid::is_custom() const {
  return std::ranges::any_of(run_fields(), [this](const RunField& field) {
    return is_own_size(field) && is_given(field.name);
  });
}

std::vector<std::string> RunGrid::texts(const RunField& field) const {
  const auto found = values_.find(field.name);
  if (found == values_.end()) return {text_of(field, base)};
  std::vector<std::string> out;
  for (const Value& value : found->second) out.push_back(value.text);
  return out;
}

std::vector<RunChange> RunGrid::changes(std::string_view name) const {
  std::vector<RunChange> out;
  const auto found = values_.find(name);
  if (found == values_.end()) return out;
  for (const Value& value : found->second) out.push_back(value.change);
  return out;
}

void RunGrid::check_model() const {
  if (!is_custom() || is_given("program")) return;  // a module refuses sizes itself
  if (is_given("size")) {
    throw Error(ErrorCode::kUsage, "size"_field,
                fmt::format("{} comes with its own widths", texts(field_named("size")).front()),
                fmt::format("give {}, or {}", kSize, kSizes));
  }
  for (const RunField& field : run_fields()) {
    if (!is_own_size(field) || is_given(field.name)) continue;
    throw Error(ErrorCode::kUsage, field.where(),
                "a model given by its sizes needs this one as well",
                fmt::format("give {}, or {}", kSizes, kSize));
  }
}

std::vector<RunSpec> RunGrid::combinations() const {
  RunSpec usual = base;
  if (is_custom()) usual.model = {};
  std::vector<Axis<RunSpec>> axes;
  for (const RunField& field : run_fields()) {
    if (Axis<RunSpec> values = changes(field.name); !values.empty()) axes.push_back(values);
  }
  std::vector<RunSpec> out = product<RunSpec>({usual}, axes);
  const std::vector<RunChange> sizes = changes("size");
  for (std::size_t i = 0; i < out.size(); ++i) {
    RunSpec named = base;
    if (!sizes.empty()) sizes[i * sizes.size() / out.size()](named);  // they vary slowest
    if (out[i].model.captured != nullptr) {
      settle_captured(*this, out[i]);
      continue;
    }
    out[i].model = renamed_if_changed(normalised(std::move(out[i].model)), named.model);
    if (!values_.contains("context")) out[i].shape.context = usual_context(out[i]);
    if (is_given("max_positions") && out[i].model.positions == Positions::kRotary) {
      throw Error(
          ErrorCode::kUsage, "max_positions"_field,
          fmt::format("{} has rotary positions, and any number of them",
                      out[i].model.source.empty() ? out[i].model.name : out[i].model.source),
          "leave it out, or give " TRACESTEP_OPTION(positions) " learned as well");
    }
  }
  return out;
}

bool RunGrid::is_usual(const RunField& field) const {
  return texts(field) == std::vector<std::string>{text_of(field, base)};
}

// Throws for a given field that applies in no run: equal results would have different labels.
void RunGrid::check_effects(const std::vector<RunSpec>& runs) const {
  for (const RunField& field : run_fields()) {
    if (field.no_effect == nullptr || is_usual(field)) continue;
    if (std::ranges::any_of(runs, field.applies)) continue;
    throw Error(ErrorCode::kUsage, field.where(), field.no_effect,
                fmt::format("leave it out, or give {}", field.needs));
  }
}

std::vector<RunSpec> RunGrid::without_copies(std::vector<RunSpec> runs) const {
  bool has_change = false;
  for (const RunField& field : run_fields()) {
    if (!field.applies || is_usual(field)) continue;
    for (RunSpec& run : runs) {
      if (field.applies(run)) continue;
      field.parse(field.flag, text_of(field, base))(run);
      has_change = true;
    }
  }
  if (!has_change) return runs;
  std::set<std::string> seen;
  std::erase_if(runs, [&](const RunSpec& run) { return !seen.insert(key_of(run).dump()).second; });
  return runs;
}

std::vector<RunSpec> RunGrid::runs() const {
  check_model();
  std::vector<RunSpec> out = combinations();
  for (const RunSpec& spec : out) check_run(spec);
  check_effects(out);
  return without_copies(std::move(out));
}

}  // namespace tracestep
