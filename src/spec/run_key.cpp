// The identity of a run from the table of fields: writes and reads its key, and makes its label.
#include <algorithm>

#include <fmt/ranges.h>

#include "base/utf8.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

bool is_preset(const std::string& name) {
  return find_model(name) != nullptr;
}

}  // namespace

const Json* default_of(const RunField& field) {
  static const Json all = [] {
    Json out = Json::object();
    for (const RunField& f : run_fields()) {
      if (f.is_optional) out[f.name] = f.value(RunSpec());
    }
    return out;
  }();
  return all.find(field.name);
}

Json architecture_of(const ModelConfig& model) {
  const RunSpec usual, own{.model = model};
  Json out = Json::object();
  for (const RunField& field : run_fields()) {
    if (!is_of_architecture(field)) continue;
    Json value = field.value(own);
    if (value != field.value(usual)) out[field.name] = std::move(value);
  }
  return out;
}

ModelConfig with_architecture(const ModelConfig& sizes, const Json& architecture) {
  RunSpec out{.model = sizes};
  if (!architecture.is_object()) fail_usage("model"_field, "its fields are no object");
  for (const auto& [name, value] : architecture.members()) {
    const RunField* field = find_field(name);
    if (field == nullptr || !is_of_architecture(*field)) {
      fail_usage("model"_field, "no field of a model is called {}", printable(name));
    }
    if (value.is_array() || value.is_object())
      fail_usage({About::Kind::kField, name}, "it is no single value");
    field->parse(field->where(), flag_text(value))(out);
  }
  return out.model;
}

std::vector<std::string> variations_of(const ModelConfig& model) {
  if (model.captured != nullptr) return {"program"};
  std::vector<std::string> out;
  const Json architecture = architecture_of(model);
  for (const auto& [name, value] : architecture.members()) {
    if (name != "rope_theta" && name != "norm_eps") out.push_back(name);
  }
  return out;
}

void require_reference(const ModelConfig& model, const About& where, std::string_view what) {
  const std::vector<std::string> names = variations_of(model);
  if (names.empty()) return;
  throw Error(ErrorCode::kUsage, where,
              fmt::format("{} of the reference Transformer, from which {} differs in {}", what,
                          model.name, fmt::join(names, ", ")),
              "give a preset such as small, or its sizes alone");
}

Json key_of(const RunSpec& spec) {
  return part_of_key(spec, [](const RunField&) { return true; });
}

Json part_of_key(const RunSpec& spec, const std::function<bool(const RunField&)>& is) {
  Json out = Json::object();
  for (const RunField& field : run_fields()) {
    // False for a size that a captured module lacks; others without effect have their default.
    const bool is_there =
        field.group != FieldGroup::kModel || !field.applies || field.applies(spec);
    if (is_there && field.show != FieldShow::kNowhere && is(field)) {
      out[field.name] = field.value(spec);
    }
  }
  return out;
}

std::string canonical_text(const Json& key) {
  Json::Object members = key.members();
  for (const RunField& field : run_fields()) {
    const Json* usual = default_of(field);
    const bool has_usual = usual != nullptr && !usual->is_null();
    if (has_usual && key.find(field.name) == nullptr) members.emplace_back(field.name, *usual);
  }
  std::ranges::sort(members, {}, &std::pair<std::string, Json>::first);
  return Json(std::move(members)).dump();
}

RunSpec run_of_key(const Json& key) {
  RunSpec out;
  for (const RunField& field : run_fields()) {
    const Json* value = key.find(field.name);
    if (value == nullptr || value->is_null() || *value == field.value(out)) continue;
    if (field.name == "size" && !is_preset(value->as_string())) {
      out.model.name = value->as_string();
    } else {
      field.parse(field.where(), text_of_value(field, *value))(out);
    }
  }
  return out;
}

bool is_usual(const RunField& field, const Json& value, const Json& size) {
  const bool has_preset = size.is_string() && is_preset(size.as_string());
  if (!has_preset) return !is_own_size(field) && value == field.value(RunSpec());
  return value == field.value(RunSpec{.model = preset(size.as_string())});
}

namespace {

// Cuts the text of a long list of numbers (rope_scaling longrope), which would fill a label.
std::string shortened(std::string text) {
  constexpr std::size_t kMost = 60;
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

}  // namespace

std::string label_of(const std::function<const Json*(const std::string& name)>& value_of) {
  const Json* size = value_of("size");
  std::string out;
  for (const RunField& field : run_fields()) {
    if (!tells_apart(field)) continue;
    const Json* value = value_of(field.name);
    if (value == nullptr || value->is_null()) continue;
    const bool is_in_all = field.is_axis && !field.is_optional;
    if (!is_in_all && is_usual(field, *value, size == nullptr ? Json() : *size)) continue;
    if (!out.empty()) out += " ";
    if (!is_in_all || value->is_number()) out += field.name + " ";
    out += is_of_architecture(field) ? shortened(flag_text(*value)) : flag_text(*value);
  }
  return out;
}

std::string label_of(const Json& key) {
  return label_of([&key](const std::string& name) { return key.find(name); });
}

std::string label_of(const RunSpec& spec) {
  return label_of(key_of(spec));
}

}  // namespace tracestep
