// The fields of a RunSpec as one table, which is the only list of them. From a field's role and
// properties follow the flags of a command, what a grid can vary, what tells rows of results apart,
// and what a resumed run must not change.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/run_spec.h"
#include "spec/spec_field.h"

namespace tracestep {

using RunField = SpecField<RunSpec>;
using RunChange = RunField::Change;

// In the order of keys, of columns and of a grid's rows: the first varies slowest.
std::span<const RunField> run_fields();
// nullptr when no field has this name.
const RunField* find_field(std::string_view name);
const RunField& field_named(std::string_view name);

// True if tables have a column for the field.
inline bool is_column(const RunField& field) {
  return field.show != FieldShow::kKey && field.show != FieldShow::kNowhere;
}

// True for one of the sizes that describe a model instead of a preset.
inline bool is_own_size(const RunField& field) {
  return field.group == FieldGroup::kModel && field.show == FieldShow::kKey && !field.is_optional;
}

// True for the folder of a captured module, which stands for all other fields of the model.
inline bool is_captured(const RunField& field) {
  return field.group == FieldGroup::kModel && field.role == FieldRole::kPlace;
}

// True for a field that tells architectures apart: part of a preset too, and the reference
// Transformer's value unless it is given.
inline bool is_of_architecture(const RunField& field) {
  return field.group == FieldGroup::kModel && field.is_optional && !is_captured(field);
}

// True if the field decides the program or its speed, and so tells runs of one device apart.
inline bool tells_apart(const RunField& field) {
  return field.role == FieldRole::kProgram || field.role == FieldRole::kSpeed;
}

// True for a number of the model or the batch: more of it is more of the same work.
inline bool is_extent(const RunField& field) {
  return field.group != FieldGroup::kHow && field.value(RunSpec()).is_int();
}
// True for an extent of the batch.
inline bool is_shape(const RunField& field) {
  return field.group == FieldGroup::kStep && is_extent(field);
}

// True if the field says what is trained, from which rows or among how many ranks: a caller that
// has a program and a loop of its own has decided that.
inline bool is_of_task(const RunField& field) {
  constexpr std::string_view kTask[] = {"lora", "freeze", "packed", "parallel"};
  return field.group != FieldGroup::kHow || std::ranges::find(kTask, field.name) != std::end(kTask);
}

// True if the field means something for attention by itself, without a model and a step around it.
inline bool is_of_attention(const RunField& field) {
  const bool is_of_program = field.is_form || field.name == "precision" || is_shape(field);
  const bool is_elsewhere = is_captured(field) || field.show == FieldShow::kNowhere;
  return is_of_program || (!tells_apart(field) && !is_elsewhere);
}

// The names of the fields for which `is` holds.
template <class Is>
std::vector<std::string_view> fields_that(Is is) {
  std::vector<std::string_view> out;
  for (const RunField& field : run_fields()) {
    if (std::invoke(is, field)) out.push_back(field.name);
  }
  return out;
}

// The value that a result without the field has, because it is older; nullptr: all results have it.
const Json* default_of(const RunField& field);

// The fields of the architecture in which a model is not the reference study's Transformer, with
// their values; and the model that has these and the sizes of `sizes`. Error{kUsage} naming the
// field for a value that its flag would refuse.
Json architecture_of(const ModelConfig& model);
ModelConfig with_architecture(const ModelConfig& sizes, const Json& architecture);
// The architecture fields of the model that change more than numbers: closed forms of the reference
// Transformer do not hold for a model that has any.
std::vector<std::string> variations_of(const ModelConfig& model);
// Error{kUsage} naming `where` for a model that has any; `what`: "the formulas of this topic are".
void require_reference(const ModelConfig& model, const About& where, std::string_view what);

// Every field that results show, by name; of these, those for which `is` holds.
Json key_of(const RunSpec& spec);
Json part_of_key(const RunSpec& spec, const std::function<bool(const RunField&)>& is);
// A text that is equal for keys of the same run: members in a fixed order, with the default for
// fields that did not exist when the key was written. Members that are not fields are included.
std::string canonical_text(const Json& key);

// The run that a key describes; fields that it lacks have their defaults, and members that are no
// fields are ignored. Error{kUsage} naming the field for a value that its flag would refuse.
RunSpec run_of_key(const Json& key);

// True if the field has the value that a reader assumes: that of the preset called `size`, if it is
// one and has the field, else that of RunSpec().
bool is_usual(const RunField& field, const Json& value, const Json& size);

// A short name of a run: the values of the axes, then of every other field that decides the program
// or its speed, by name, where it is not the usual one (that of the preset or of RunSpec):
// "small context 128 step fp32 fused", "tiny context 128 vocab 256 step fp32 fused executor
// compiled". Two runs of one device have the same label if their programs are the same, and only
// then.
std::string label_of(const RunSpec& spec);
// The label by a key, or by another place where fields are found by name (nullptr: not there).
std::string label_of(const Json& key);
std::string label_of(const std::function<const Json*(const std::string& name)>& value_of);

}  // namespace tracestep
