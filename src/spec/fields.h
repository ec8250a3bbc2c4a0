// The fields of a RunSpec as one table. What a command takes as flags, what a grid varies, what
// tells rows of results apart and what a resumed run must not change follow from it, each by a rule
// over roles: nobody else lists the fields.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "spec/run_spec.h"

namespace tracestep {

// What another value of a field changes.
enum class FieldRole : std::uint8_t {
  kProgram,  // what is computed
  kBits,     // the same program on other numbers
  kSpeed,    // how fast the same bits come
  kPlace,    // where it runs
};

// The heading of a flag.
enum class FieldGroup : std::uint8_t { kModel, kStep, kHow };

// Where a result says the field.
enum class FieldShow : std::uint8_t {
  kPeople,   // in a column
  kData,     // in a column that people are not shown
  kKey,      // only in the structured parameters of a row
  kNowhere,  // it is told from the environment, if at all
};

using RunChange = std::function<void(RunSpec&)>;

struct RunField {
  std::string name = {};  // of its column and key
  std::string flag = {};  // the name's unless said
  FieldGroup group = FieldGroup::kHow;
  FieldRole role = FieldRole::kProgram;
  FieldShow show = FieldShow::kPeople;
  bool is_axis = false;      // a grid may have several values
  bool is_optional = false;  // the default goes without saying, as in results older than the field
  std::string value_name = "N";           // of the flag; empty: a switch
  std::vector<std::string> choices = {};  // empty: not one of a few
  std::string help = {};                  // of the flag
  std::string about = {};                 // of the column
  std::function<Json(const RunSpec&)> value = {};
  // Error{kUsage} naming `where`.
  std::function<RunChange(const std::string& where, const std::string& text)> parse = {};
};

// In the order of keys, of columns and of a grid's rows: the first varies slowest.
std::span<const RunField> run_fields();
// nullptr: none of this name.
const RunField* find_field(std::string_view name);
const RunField& field_named(std::string_view name);

// Whether tables have a column for it.
inline bool is_column(const RunField& field) {
  return field.show == FieldShow::kPeople || field.show == FieldShow::kData;
}

// The value as its flag reads it.
std::string text_of(const RunField& field, const RunSpec& spec);
// Likewise, but empty for a value that the flag would refuse: it stands for "not given".
std::string default_text(const RunField& field, const RunSpec& spec);

// Every field that results say, by name.
Json key_of(const RunSpec& spec);
// The same text for keys of the same run: members in a fixed order, and what the version that wrote
// them did not know yet at its default. Members that are no fields count too.
std::string canonical_text(const Json& key);

// The values of all axes: "small context 128 step fp32 fused naive"; without `names`, "small 128
// …".
std::string label_of(const RunSpec& spec, bool names = true);

// "max-steps" for "max_steps".
std::string with_dashes(std::string_view name);

}  // namespace tracestep
