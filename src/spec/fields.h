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

// All fields, in the order of keys, of columns and of a grid's rows, where the first field varies
// slowest.
std::span<const RunField> run_fields();
// The field with this name; nullptr: there is none.
const RunField* find_field(std::string_view name);
const RunField& field_named(std::string_view name);

// True if tables have a column for the field.
inline bool is_column(const RunField& field) {
  return field.show != FieldShow::kKey && field.show != FieldShow::kNowhere;
}

// True if the field is a size of a model that is described by its sizes and not by a preset.
inline bool is_own_size(const RunField& field) {
  return field.group == FieldGroup::kModel && field.show == FieldShow::kKey && !field.is_optional;
}

// True for the folder of a captured module, which replaces all other fields of the model.
inline bool is_captured(const RunField& field) {
  return field.group == FieldGroup::kModel && field.role == FieldRole::kPlace;
}

// True if the field is a property of the architecture. A preset sets it; otherwise it has the value
// of the reference Transformer unless it is given.
inline bool is_of_architecture(const RunField& field) {
  return field.group == FieldGroup::kModel && field.is_optional && !is_captured(field);
}

// True if the field changes the program or its speed, so that it distinguishes runs on one device.
inline bool tells_apart(const RunField& field) {
  return field.role == FieldRole::kProgram || field.role == FieldRole::kSpeed;
}

// True if the field is a size of the model or batch: a larger value means more work of the same
// kind.
inline bool is_extent(const RunField& field) {
  return field.group != FieldGroup::kHow && field.value(RunSpec()).is_int();
}
// True if the field is a size of the batch.
inline bool is_shape(const RunField& field) {
  return field.group == FieldGroup::kStep && is_extent(field);
}

// True if the field says what is trained, on which rows, on how many ranks, or what becomes of
// gradients between micro-batches and in an update; a caller that brings its own program and loop
// decides that itself.
inline bool is_of_task(const RunField& field) {
  constexpr std::string_view kTask[] = {"lora",     "freeze",    "packed",
                                        "parallel", "optimizer", "grad_accum_dtype"};
  return field.group != FieldGroup::kHow || std::ranges::find(kTask, field.name) != std::end(kTask);
}

// True if the field has a meaning for attention alone, without a model and a step.
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

// The value to assume for results that were stored before the field existed; nullptr: all results
// have it.
const Json* default_of(const RunField& field);

// The first returns the architecture fields in which `model` differs from the reference study's
// Transformer, with their values; the second a model with these values and the sizes of `sizes`. It
// throws Error{kUsage} naming the field for a value that the field's flag would refuse.
Json architecture_of(const ModelConfig& model);
ModelConfig with_architecture(const ModelConfig& sizes, const Json& architecture);
// The architecture fields in which the model differs from the reference Transformer by more than
// numbers, so that closed forms do not hold for it.
std::vector<std::string> variations_of(const ModelConfig& model);
// Throws Error{kUsage} naming `where` for a model that has variations_of(). `what` begins the
// message: "the formulas of this topic are".
void require_reference(const ModelConfig& model, const About& where, std::string_view what);

// All fields of a run that results show, by name; the second function only has those for which `is`
// holds.
Json key_of(const RunSpec& spec);
Json part_of_key(const RunSpec& spec, const std::function<bool(const RunField&)>& is);
// A text that is equal for keys of the same run: members in a fixed order, with defaults for fields
// that did not exist when the key was written. Includes members that are not fields.
std::string canonical_text(const Json& key);

// The run that a key describes; fields that it lacks have their defaults, and members that are no
// fields are ignored. Error{kUsage} naming the field for a value that its flag would refuse.
RunSpec run_of_key(const Json& key);

// True if `value` is what a reader of a label assumes: the field's value in the preset called
// `size`, if there is such a preset and it has the field, else that of RunSpec().
bool is_usual(const RunField& field, const Json& value, const Json& size);

// A short name of a run: the values of the axes, then, by name, every other field that changes the
// program or its speed and is not as usual (is_usual()): "small context 128 step fp32 fused", "tiny
// context 128 vocab 256 step fp32 fused executor compiled". Runs on one device have the same label
// exactly if their programs are the same.
std::string label_of(const RunSpec& spec);
// The label of a key, or of any source in which fields are found by name (nullptr: the field is
// missing).
std::string label_of(const Json& key);
std::string label_of(const std::function<const Json*(const std::string& name)>& value_of);

}  // namespace tracestep
