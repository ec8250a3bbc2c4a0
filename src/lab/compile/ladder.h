// The ladder from a step as plain framework code runs it to the compiled step. Each rung changes
// one thing in the run's specification, so every rung is a run that `bench` can repeat.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "lab/compile/run.h"
#include "spec/fields.h"

namespace tracestep {

struct Rung {
  std::string_view name;  // "softmax"
  std::string_view what;  // What changes in the step from this rung on, in words.
  void (*climb)(RunSpec& run);
};

// All rungs in the usual order; they may be climbed in any other order too.
std::span<const Rung> all_rungs();
// The rung with this name. Error{kUsage} naming `where` and the nearest rung if there is none.
const Rung& rung_named(const About& where, const std::string& name);

// True if naive_run() or a rung sets this field of a run.
bool is_set_by_rungs(const RunField& field);
// Identifies the whole ladder by the fields that no rung sets.
Json key_of_ladder(const RunSpec& run);

// The run below the first rung: composites in primitive ops, naive attention, float32, the eager
// executor, and no compile pass.
RunSpec naive_run(RunSpec run);

// What a rung changed compared with the one below it.
enum class RungEffect : std::uint8_t {
  kProgram,    // other ops
  kExecution,  // The same ops are executed in another way.
  kNothing,    // Nothing changed: the rung does not apply to this run.
};
TRACESTEP_WORDS(RungEffect, "program", "execution", "nothing");

struct LadderStep {
  const Rung* rung = nullptr;  // The rung; nullptr: the run below all rungs.
  CompileCell cell;
  std::optional<StepError> error = {};  // The error against float64.
  // The effect; nullopt for the run below all rungs, or if this run or the one below failed.
  std::optional<RungEffect> effect = {};
};

// The run below all rungs, then the run of each rung.
std::vector<RunSpec> ladder_runs(const RunSpec& run, std::span<const Rung* const> rungs);
// Arranges measured runs as a ladder. `results` may have only some of them, in any order; `errors`
// are by the keys of runs.
std::vector<LadderStep> ladder_of(std::span<const Rung* const> rungs, std::span<const RunSpec> runs,
                                  std::span<const CellResult> results,
                                  const std::map<std::string, std::optional<StepError>>& errors);

}  // namespace tracestep
