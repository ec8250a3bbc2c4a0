// The fields of a RunSpec as one table, which is the only list of them. From a field's role and
// properties follow the flags of a command, what a grid can vary, what tells rows of results apart,
// and what a resumed run must not change.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "spec/run_spec.h"
#include "spec/spec_field.h"

namespace tracestep {

using RunField = SpecField<RunSpec>;
using RunChange = RunField::Change;

// In the order of keys, of columns and of a grid's rows: the first varies slowest.
std::span<const RunField> run_fields();
// nullptr when no field has this name.
const RunField* find_field(std::string_view name);
const RunField& field_named(std::string_view name);

// Whether tables have a column for the field.
inline bool is_column(const RunField& field) {
  return field.show != FieldShow::kKey && field.show != FieldShow::kNowhere;
}

// Every field that results show, by name.
Json key_of(const RunSpec& spec);
// A text that is equal for keys of the same run: members in a fixed order, with the default for
// fields that did not exist when the key was written. Members that are not fields are included.
std::string canonical_text(const Json& key);

// The values of all axes: "small context 128 step fp32 fused naive", or without `names` "small 128
// …". Of axes that are shown where they vary, only values other than the default.
std::string label_of(const RunSpec& spec, bool names = true);

}  // namespace tracestep
