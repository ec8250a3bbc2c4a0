// The identity of a run, from the table of fields: its key, read and written, and its label.
#include <algorithm>

#include "spec/fields.h"

namespace tracestep {
namespace {

bool is_preset(const std::string& name) {
  return std::ranges::find(model_presets(), name, &ModelConfig::name) != model_presets().end();
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

Json key_of(const RunSpec& spec) {
  return part_of_key(spec, [](const RunField&) { return true; });
}

Json part_of_key(const RunSpec& spec, const std::function<bool(const RunField&)>& is) {
  Json out = Json::object();
  for (const RunField& field : run_fields()) {
    if (field.show != FieldShow::kNowhere && is(field)) out[field.name] = field.value(spec);
  }
  return out;
}

std::string canonical_text(const Json& key) {
  Json::Object members = key.members();
  for (const RunField& field : run_fields()) {
    const Json* usual = default_of(field);
    if (usual != nullptr && key.find(field.name) == nullptr)
      members.emplace_back(field.name, *usual);
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
      field.parse(field.name, text_of_value(field, *value))(out);
    }
  }
  return out;
}

bool is_usual(const RunField& field, const Json& value, const Json& size) {
  const bool has_preset = size.is_string() && is_preset(size.as_string());
  if (!has_preset) return !is_own_size(field) && value == field.value(RunSpec());
  return value == field.value(RunSpec{.model = preset(size.as_string())});
}

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
    out += flag_text(*value);
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
