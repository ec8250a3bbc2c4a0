// The fields of a RunSpec as one table, which is the only list of them. From a field's role and
// properties follow the flags of a command, what a grid can vary, what tells rows of results apart,
// and what a resumed run must not change.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "spec/run_spec.h"

namespace tracestep {

// What changes when a field's value changes.
enum class FieldRole : std::uint8_t {
  kProgram,  // what is computed
  kBits,     // its numbers, with the same program
  kSpeed,    // its speed alone: the results are the same bits
  kPlace,    // where it runs
};

// The heading of a flag.
enum class FieldGroup : std::uint8_t { kModel, kStep, kHow };

// Where a result shows the field.
enum class FieldShow : std::uint8_t {
  kPeople,   // in a column
  kVarying,  // likewise, but for people only where rows differ in it
  kData,     // in a column of csv and json only
  kKey,      // only in the structured parameters of a row
  kNowhere,  // not in a row; at most in the environment
};

using RunChange = std::function<void(RunSpec&)>;

struct RunField {
  std::string name = {};  // of its column and key
  std::string flag = {};  // empty in the table: made from the name
  FieldGroup group = FieldGroup::kHow;
  FieldRole role = FieldRole::kProgram;
  FieldShow show = FieldShow::kPeople;
  bool is_axis = false;                   // a grid may have several values
  bool is_optional = false;               // missing in older results: has its default
  std::string value_name = "N";           // of the flag; empty: a switch
  std::vector<std::string> choices = {};  // empty: any value that `parse` takes
  std::string help = {};                  // of the flag
  std::string about = {};                 // of the column
  std::function<Json(const RunSpec&)> value = {};
  // Error{kUsage} naming `where`.
  std::function<RunChange(const std::string& where, const std::string& text)> parse = {};
};

// In the order of keys, of columns and of a grid's rows: the first varies slowest.
std::span<const RunField> run_fields();
// nullptr when no field has this name.
const RunField* find_field(std::string_view name);
const RunField& field_named(std::string_view name);

// Whether tables have a column for the field.
inline bool is_column(const RunField& field) {
  return field.show != FieldShow::kKey && field.show != FieldShow::kNowhere;
}

// The field's value as the text that its flag takes.
std::string text_of(const RunField& field, const RunSpec& spec);
// The same, but empty for a value that the flag would refuse, which means "not given", and for a
// switch.
std::string default_text(const RunField& field, const RunSpec& spec);

// Every field that results show, by name.
Json key_of(const RunSpec& spec);
// A text that is equal for keys of the same run: members in a fixed order, with the default for
// fields that did not exist when the key was written. Members that are not fields are included.
std::string canonical_text(const Json& key);

// The values of all axes: "small context 128 step fp32 fused naive", or without `names` "small 128
// …". Of axes that are shown where they vary, only values other than the default.
std::string label_of(const RunSpec& spec, bool names = true);

// "max-steps" for "max_steps".
std::string with_dashes(std::string_view name);

}  // namespace tracestep
