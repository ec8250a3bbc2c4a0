// The steps of a recording: as it marks them, or by what repeats in it.
#pragma once

#include "lab/read/trace_file.h"

namespace tracestep {

enum class StepMarks {
  kProfiler,   // ProfilerStep#, by torch.profiler's own schedule
  kOptimizer,  // the ends of the optimizer's steps
  kRepeats,    // an op after whose every call the same ops follow
  kNone,       // all of it is one step
};

struct TraceSteps {
  StepMarks marks = StepMarks::kNone;
  Intervals spans;        // of the host, in order
  std::string mark = {};  // the op that begins each, of kRepeats

  // The step of a moment of the host; -1: in none of them.
  std::int32_t at(std::int64_t moment) const;
};

TraceSteps steps_of(const TraceFacts& facts, EventOrder& events);

}  // namespace tracestep
