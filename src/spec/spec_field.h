// A row in a table of fields: name, flag, text form and role of one member of a specification, and
// functions that make such rows. Tables: spec/fields.h, spec/protocol.h, train/train_fields.h.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/units.h"

namespace tracestep {

// What changes in a run if the field's value changes.
enum class FieldRole : std::uint8_t {
  kProgram,   // The program.
  kBits,      // The values of numbers, with the same program.
  kSpeed,     // Only the speed: results differ at most by rounding.
  kPlace,     // The device or place where it runs.
  kProtocol,  // How long it runs, and which part of that is measured.
};

// The heading in help texts under which the flag stands.
enum class FieldGroup : std::uint8_t { kModel, kStep, kHow };

// Where a result shows the field.
enum class FieldShow : std::uint8_t {
  kPeople,   // In a column that people see.
  kVarying,  // In a column, which people see only if rows differ in it.
  kData,     // In a column of csv and json only.
  kKey,      // Only among the structured parameters of a row ("cell").
  kNowhere,  // Not in a row; at most in the environment.
};

template <class Spec>
struct SpecField {
  using Change = std::function<void(Spec&)>;

  std::string name = {};  // The name of the field, of its column and of its key.
  std::string flag = {};  // The flag; if it is empty in the table, it is made from the name.
  std::string alias = {}, alias_help = {};  // another flag for the same values
  FieldGroup group = FieldGroup::kHow;
  FieldRole role = FieldRole::kProgram;
  FieldShow show = FieldShow::kPeople;
  bool is_axis = false;      // True: a grid may have several values of it.
  bool is_form = false;      // True: the field selects among several ways to compute the same step.
  bool is_optional = false;  // True: older results lack the field and have its default.
  // True: checkpoints hold states that depend on it, so a resumed run must keep its value.
  bool is_kept = false;
  Thousand thousand = Thousand::kDecimal;  // What "k" means after its numbers.
  // The placeholder of the flag's value in help texts; empty: the flag is a switch.
  std::string value_name = "N";
  // The allowed values; empty: any value that `parse` accepts.
  std::vector<std::string> choices = {};
  // If there are more values than can be listed: an example of each form, and the character that
  // joins several of them (0: none does). Random tests draw from these.
  std::vector<std::string> examples = {};
  char joint = 0;
  std::string help = {};   // The help text of the flag.
  std::string about = {};  // The description of the column.
  std::function<Json(const Spec&)> value = {};
  // The text that the flag takes for a value; empty: the value itself as text.
  std::function<std::string(const Spec&)> text = {};
  // Parses the text of a value, and returns the function that sets it. Throws Error{kUsage} naming
  // `where`.
  std::function<Change(const About& where, const std::string& text)> parse = {};
  // True if the field applies, given the other fields. Empty: always.
  std::function<bool(const Spec&)> applies = {};
  // Texts for the error if a grid sets the field although it applies in none of its runs: why it
  // has no effect ("nothing is updated, early or late"), and what would give it one
  // (TRACESTEP_OPTION(mode) " step").
  const char *no_effect = nullptr, *needs = nullptr;

  // Returns what an error about the field's value names: the field.
  About where() const { return {About::Kind::kField, name}; }
};

// The name with dashes for underscores: "max-steps" for "max_steps".
std::string with_dashes(std::string_view name);
// The text of a value as a flag takes it; sizes in bytes, whose flags need a unit, are excluded.
std::string flag_text(const Json& value);
// A number of bytes with a unit: "40GiB".
std::string size_text(const Json& bytes);

constexpr const char* kSizeName = "SIZE";  // The value_name of sizes in bytes.

// A value of the field as the text that its flag takes.
template <class Spec>
std::string text_of_value(const SpecField<Spec>& field, const Json& value) {
  return field.value_name == kSizeName ? size_text(value) : flag_text(value);
}
template <class Spec>
std::string text_of(const SpecField<Spec>& field, const Spec& spec) {
  return field.text ? field.text(spec) : text_of_value(field, field.value(spec));
}

// The text of a default. It is empty for a switch, and for a value that the flag would refuse,
// which means "not given".
template <class Spec>
std::string default_text(const SpecField<Spec>& field, const Spec& spec) {
  if (field.value_name.empty()) return {};
  const std::string out = text_of(field, spec);
  try {
    field.parse(field.flag, out);
  } catch (const Error&) {
    return {};
  }
  return out;
}

template <class Spec>
const SpecField<Spec>& field_named(std::span<const SpecField<Spec>> fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &SpecField<Spec>::name);
  TRACESTEP_CHECK(found != fields.end(), "there is no field {}", name);
  return *found;
}

// A path to a member of a specification, or to a member of such a member: in(&RunSpec::model,
// &ModelConfig::layers).
template <class... Parts>
auto in(Parts... parts) {
  return [=](auto& spec) -> auto& {
    return (spec.*....*parts);
  };
}

// Builds the rows of a table. Each function completes a row with `value` and `parse` and adds it;
// `at` finds the member in a specification.
template <class Spec>
class FieldRows {
 public:
  using Row = SpecField<Spec>;
  using Change = typename Row::Change;

  template <class Member>
  Row& integer(Row row, std::int64_t min, std::int64_t max, Member at) {
    row.value = [at](const Spec& spec) { return Json(at(spec)); };
    row.parse = [at, min, max, thousand = row.thousand](const About& where,
                                                        const std::string& text) -> Change {
      const std::int64_t value = parse_count(where, text, min, max, thousand);
      return [at, value](Spec& spec) {
        auto& member = at(spec);
        member = static_cast<std::decay_t<decltype(member)>>(value);
      };
    };
    return add(std::move(row));
  }

  template <class Member>
  Row& real(Row row, double min, double max, Member at) {
    row.value_name = "X";
    row.value = [at](const Spec& spec) { return Json(at(spec)); };
    row.parse = [at, min, max](const About& where, const std::string& text) -> Change {
      return [at, value = parse_real(where, text, min, max)](Spec& spec) { at(spec) = value; };
    };
    return add(std::move(row));
  }

  template <class Member>
  Row& toggle(Row row, Member at) {
    row.value_name.clear();
    row.value = [at](const Spec& spec) { return Json(at(spec)); };
    row.parse = [at](const About&, const std::string&) -> Change {
      return [at](Spec& spec) { at(spec) = true; };
    };
    return add(std::move(row));
  }

  template <class Member>
  Row& text(Row row, Member at) {
    row.value = [at](const Spec& spec) { return Json(std::string(at(spec))); };
    row.parse = [at](const About& where, const std::string& text) -> Change {
      if (text.empty()) fail_usage(where, "the value is empty");
      return [at, text](Spec& spec) { at(spec) = text; };
    };
    return add(std::move(row));
  }

  template <class Member>
  Row& bytes(Row row, Member at) {
    row.value_name = kSizeName;
    row.value = [at](const Spec& spec) { return Json(at(spec)); };
    row.parse = [at](const About& where, const std::string& text) -> Change {
      const std::int64_t value = parse_bytes(where, text);
      if (value < 1) fail_usage(where, "\"{}\" leaves no memory at all", text);
      return [at, value](Spec& spec) { at(spec) = value; };
    };
    return add(std::move(row));
  }

  // Adds a field whose value is one of `values`, each with the name that name_of() gives.
  template <class Values, class Member>
  Row& choice(Row row, const Values& values, Member at) {
    using Choice = std::decay_t<decltype(*std::begin(values))>;
    std::vector<Choice> all(std::begin(values), std::end(values));
    for (const Choice& value : all) row.choices.emplace_back(name_of(value));
    row.value = [at](const Spec& spec) { return Json(name_of(at(spec))); };
    row.parse = [at, all, names = row.choices](const About& where,
                                               const std::string& text) -> Change {
      check_choice(where, text, names);
      const auto found = std::ranges::find(names, text) - names.begin();
      return [at, value = all[static_cast<std::size_t>(found)]](Spec& spec) { at(spec) = value; };
    };
    return add(std::move(row));
  }

  // Adds a field with the values "on" and "off".
  template <class Member>
  Row& on_off(Row row, Member at) {
    row.choices = {"off", "on"};
    row.value = [at](const Spec& spec) { return Json(at(spec) ? "on" : "off"); };
    row.parse = [at, names = row.choices](const About& where, const std::string& text) -> Change {
      check_choice(where, text, names);
      return [at, is_on = text == "on"](Spec& spec) { at(spec) = is_on; };
    };
    return add(std::move(row));
  }

  // Adds a field whose text name_of() writes and `parse`, a function of where and text, reads.
  template <class Parse, class Member>
  Row& parsed(Row row, Parse parse, Member at) {
    row.value = [at](const Spec& spec) { return Json(name_of(at(spec))); };
    row.parse = [at, parse](const About& where, const std::string& text) -> Change {
      return [at, value = parse(where, text)](Spec& spec) { at(spec) = value; };
    };
    return add(std::move(row));
  }

  // Adds a row that has its own `value` and `parse`.
  Row& add(Row row) {
    if (row.flag.empty()) row.flag = "--" + with_dashes(row.name);
    if (!row.choices.empty()) row.value_name = "NAME";
    return rows_.emplace_back(std::move(row));
  }

  std::vector<Row> take() { return std::move(rows_); }

 private:
  std::vector<Row> rows_;
};

}  // namespace tracestep
