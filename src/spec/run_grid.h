// Several values of some fields, and the runs that come of every combination of them.
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

  RunSpec base;  // says every field that has no values here

  // The values of a field, as texts; they take the place of those before. Error{kUsage} naming
  // `where`. What is only offered does not count as given.
  void give(const RunField& field, const std::string& where, std::vector<std::string> texts);
  void offer(std::string_view name, std::vector<std::string> texts);
  bool is_given(std::string_view name) const { return given_.contains(std::string(name)); }
  // A model given by its sizes instead of a preset.
  bool is_custom() const;

  // The values as texts; those of `base` for a field without.
  std::vector<std::string> texts(const RunField& field) const;
  // The values as what each does to a specification; none for a field without.
  std::vector<RunChange> changes(std::string_view name) const;

  // Every combination, in the order of the fields: the first varies slowest.
  std::vector<RunSpec> combinations() const;
  // The same, checked; errors are those of check_run(), and a model that is given both ways or
  // lacks a size.
  std::vector<RunSpec> runs() const;
  // The only one.
  RunSpec run() const { return runs().front(); }

 private:
  struct Value {
    std::string text;
    RunChange change;
  };
  void check_model() const;

  std::map<std::string, std::vector<Value>, std::less<>> values_;
  std::set<std::string> given_;
};

// Error{kUsage}: sizes of a model that do not fit together, a step beyond what 64 bits can count.
void check_run(const RunSpec& spec);

}  // namespace tracestep
