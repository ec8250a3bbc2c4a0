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

  RunSpec base;  // for every field without values of its own

  // give() sets a field's values from texts, replacing earlier ones; offer() sets defaults, for
  // which is_given() is false. Error{kUsage} naming `where` for a text that the field refuses, and
  // for two texts of one value.
  void give(const RunField& field, const About& where, std::vector<std::string> texts);
  void offer(std::string_view name, std::vector<std::string> texts);
  bool is_given(std::string_view name) const { return given_.contains(std::string(name)); }
  // True if the model is given by its sizes instead of a preset.
  bool is_custom() const;

  // The values as the field writes them, "4096" for "4k"; that of `base` for a field without any.
  std::vector<std::string> texts(const RunField& field) const;
  // For each value, the function that applies it to a specification; empty for a field without
  // values.
  std::vector<RunChange> changes(std::string_view name) const;

  // Every combination, in the order of the fields: the first varies slowest. A preset whose
  // architecture is changed is called custom.
  std::vector<RunSpec> combinations() const;
  // Returns combinations() after checks: errors of check_run(), and Error{kUsage} for a model given
  // both by preset and by sizes, or without one of the sizes, and for a field that has values and
  // no effect in any run. In runs where a field has no effect it is as usual, and runs that are
  // then the same are one.
  std::vector<RunSpec> runs() const;
  // The first of runs(), for a grid with one value per field.
  RunSpec run() const { return runs().front(); }

 private:
  struct Value {
    std::string text;
    RunChange change;
  };
  void check_model() const;
  // True if the field has no values but that of `base`.
  bool is_usual(const RunField& field) const;
  void check_effects(const std::vector<RunSpec>& runs) const;
  std::vector<RunSpec> without_copies(std::vector<RunSpec> runs) const;

  std::map<std::string, std::vector<Value>, std::less<>> values_;
  std::set<std::string> given_;
};

// --- captured modules (captured/captured_model.h, spec/captured_run.cpp) ---

// Gives the run of a captured module the module's shape, and the precision of its parameters where
// none is given. With replicas each has a batch of that shape. Error{kUsage} naming the field for
// sizes, a shape or a division of the model that the module does not have.
void settle_captured(const RunGrid& grid, RunSpec& run);
// Error{kUsage} naming the field for another shape than that of the run's captured module.
void check_captured_shape(const RunSpec& run);

}  // namespace tracestep
