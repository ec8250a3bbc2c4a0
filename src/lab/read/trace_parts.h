// A recording, taken apart: its steps, and every piece of work with the step, the pass, the module,
// the op and the kind that it belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/profile/intervals.h"
#include "lab/read/trace_file.h"
#include "lab/read/work_class.h"

namespace tracestep {

enum class StepMarks {
  kProfiler,   // ProfilerStep#, by torch.profiler's own schedule
  kOptimizer,  // the ends of the optimizer's steps
  kNone,       // all of it is one step
};

enum class TracePass : std::uint8_t { kForward, kBackward, kOptimizer, kGraph };
inline constexpr TracePass kAllTracePasses[] = {TracePass::kForward, TracePass::kBackward,
                                                TracePass::kOptimizer, TracePass::kGraph};
std::string_view name_of(TracePass pass);

// A kernel; where there are none, an op for the time that no op within it took.
struct WorkPiece {
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t own_ns = 0;               // of the moments that no other piece has: these add up
  std::uint32_t name = 0;                // in TraceRecording::names
  std::uint32_t op = kNoNumber;          // name of the op that launched it
  std::uint32_t module = 0;              // in TraceParts::modules
  std::int32_t step = -1;                // -1: in none of them
  std::int64_t launched_ns = INT64_MIN;  // when its call began
  std::uint16_t device = 0;
  WorkClass work = WorkClass::kMemoryBound;
  TracePass pass = TracePass::kForward;
  std::uint32_t collective = kNoNumber;
};

struct TraceParts {
  StepMarks marks = StepMarks::kNone;
  Intervals steps;                // of the host, in order
  bool is_of_device = false;      // pieces are kernels
  bool has_modules = false;       // else `modules` are the user's own ranges, or none
  Names modules;                  // paths: "GPT_0/Block_3/Linear_1"; the first is ""
  std::vector<WorkPiece> pieces;  // sorted by start
  std::int64_t unlinked = 0;      // kernels whose call the file lacks
  // What the host did, each united.
  Intervals waits, loading, busy;  // for the device; for data; in any op or call
};

TraceParts parts_of(const TraceRecording& recording);

}  // namespace tracestep
