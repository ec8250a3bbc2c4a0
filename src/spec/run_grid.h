// Several values for some fields, and the runs of every combination of them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "spec/fields.h"

namespace tracestep {

class RunGrid {
 public:
  explicit RunGrid(RunSpec usual = {}) : base(std::move(usual)) {}

  RunSpec base;  // The values of all fields that have no list of their own.

  // give() sets a field's values from texts and replaces earlier ones; offer() sets defaults, for
  // which is_given() stays false. Both throw Error{kUsage} naming `where` for a text that the field
  // refuses, and for two texts with one value.
  void give(const RunField& field, const About& where, std::vector<std::string> texts);
  void offer(std::string_view name, std::vector<std::string> texts);
  bool is_given(std::string_view name) const { return given_.contains(std::string(name)); }
  // True if the model is given by its sizes instead of a preset.
  bool is_custom() const;

  // The field's values as the field writes them ("4096" for "4k"); for a field without values, that
  // of `base`.
  std::vector<std::string> texts(const RunField& field) const;
  // For each of the field's values, the function that sets it in a specification; empty for a field
  // without values.
  std::vector<RunChange> changes(std::string_view name) const;

  // Every combination of values, in the order of the fields; the first field varies slowest. A
  // preset with a changed architecture gets the name "custom".
  std::vector<RunSpec> combinations() const;
  // Returns combinations() after checks. Throws as check_run(), and Error{kUsage} for a model given
  // by preset and sizes, for a missing size, and for a field that has values but no effect in any
  // run. In runs where a field has no effect it gets its default, and runs that become equal are
  // merged.
  std::vector<RunSpec> runs() const;
  // The first of runs(), for a grid with one value per field.
  RunSpec run() const { return runs().front(); }

 private:
  struct Value {
    std::string text;
    RunChange change;
  };
  void check_model() const;
  // True if the field has no values other than that of `base`.
  bool is_usual(const RunField& field) const;
  void check_effects(const std::vector<RunSpec>& runs) const;
  std::vector<RunSpec> without_copies(std::vector<RunSpec> runs) const;

  std::map<std::string, std::vector<Value>, std::less<>> values_;
  std::set<std::string> given_;
};

// --- captured modules (captured/captured_model.h, spec/captured_run.cpp) ---

// Gives the run of a captured module the module's shape, and the precision of its parameters if
// none is given. With replicas, each has a batch of that shape. Throws Error{kUsage} naming the
// field for sizes, a shape or a division of the model that the module does not have.
void settle_captured(const RunGrid& grid, RunSpec& run);
// Throws Error{kUsage} naming the field if the run's shape is not that of its captured module.
void check_captured_shape(const RunSpec& run);

}  // namespace tracestep
