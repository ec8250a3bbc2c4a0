// The ladder: from a step as plain framework code runs it, rung by rung to the compiled one. Each
// rung changes the specification of the run in one respect, so every rung is a run that `bench` can
// repeat.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/compile/run.h"
#include "spec/fields.h"

namespace tracestep {

struct Rung {
  std::string_view name;  // "softmax"
  std::string_view what;  // the change of the step from here on
  void (*climb)(RunSpec& run);
};

// Rungs in the usual order; any other order is a ladder as well.
std::span<const Rung> all_rungs();
// Error{kUsage} naming `where` and the nearest rung when there is no such rung.
const Rung& rung_named(const About& where, const std::string& name);

// True if the ground or a rung sets this field of a run.
bool is_set_by_rungs(const RunField& field);
// Identifies the whole ladder by the fields that no rung sets.
Json key_of_ladder(const RunSpec& run);

// The ground below the first rung: composites in parts, naive attention, float32, the eager
// executor, no pass that compiles.
RunSpec naive_run(RunSpec run);

// The effect of a rung, compared with the one below it.
enum class RungEffect : std::uint8_t {
  kProgram,    // other ops
  kExecution,  // the same ops, executed in another way
  kNothing,    // its change does not apply here
};
std::string_view name_of(RungEffect effect);

struct LadderStep {
  const Rung* rung = nullptr;  // nullptr: the ground
  CompileCell cell;
  std::optional<StepError> error = {};    // against float64
  std::optional<RungEffect> effect = {};  // nullopt: the ground, or one of the two did not run
};

// The ground and the run of every rung.
std::vector<RunSpec> ladder_runs(const RunSpec& run, std::span<const Rung* const> rungs);
// The ladder of such runs as far as they were measured: `results` has some of them, in any order.
// `errors`: by the runs' keys.
std::vector<LadderStep> ladder_of(std::span<const Rung* const> rungs, std::span<const RunSpec> runs,
                                  std::span<const CellResult> results,
                                  const std::map<std::string, std::optional<StepError>>& errors);

}  // namespace tracestep
