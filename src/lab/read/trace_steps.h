// Finds the steps of a recording: by its marks, or by what repeats in it.
#pragma once

#include "base/enum_words.h"
#include "lab/read/trace_file.h"

namespace tracestep {

enum class StepMarks {
  kProfiler,   // By ProfilerStep# ranges, which torch.profiler's schedule writes.
  kOptimizer,  // By the ends of the optimizer's steps.
  kRepeats,    // By an op after each of whose calls the same ops follow.
  kNone,       // The whole recording counts as one step.
};
TRACESTEP_WORDS(StepMarks, "ProfilerStep", "ends of Optimizer.step", "an op that repeats",
                "none: the whole file");

struct TraceSteps {
  StepMarks marks = StepMarks::kNone;
  Intervals spans;        // The spans of the steps on the host, in order.
  std::string mark = {};  // With kRepeats: the op that begins each step.

  // The step at a moment of the host; -1: it is in no step.
  std::int32_t at(std::int64_t moment) const;
};

TraceSteps steps_of(const TraceFacts& facts, EventOrder& events);

}  // namespace tracestep
