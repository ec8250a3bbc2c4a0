// The tables of a profile. Everything is counted from the records and the program: kernels are
// classified by their nodes, never by name, and shares are of the whole step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/measure/validity.h"
#include "lab/profile/work.h"
#include "lab/report/table.h"

namespace tracestep {

// Returns the ratio a / b, or 0 if b is 0.
inline double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

struct LeftOfSpan;  // lab/measure/recorded_times.h

struct ProfiledCell {
  Profile profile;
  Ceilings ceilings;
  StepWork work;
};

// Names a cell: "small context 128 step fp32 fused".
std::string label_of(const Profile& profile);
// Returns the part of the plain steps' span in which no kernel runs; nullopt: the kernel times
// exceed the span.
std::optional<double> plain_gaps_ms(const ProfiledCell& cell);
LeftOfSpan left_of_span(const ProfiledCell& cell);

// Judges each cell by the validity checker: whether its recorded steps agree with each other, with
// the plain ones and with the other cells, and its kernels with the ceilings.
std::vector<std::vector<Verdict>> judge_profiles(std::span<const ProfiledCell> cells);

// --- of several cells -------------------------------------------------------------------------
// Makes a table with a row for each cell and phase, and for the whole step: time, share of the
// step, share of matrix products, the slowest kernel, and the slowest that is no matrix product.
// Notes say why the share of matrix products differs between inference and training.
Table pass_table(std::span<const ProfiledCell> cells);
// Makes a table with a row for each cell: wall, issue, span, busy, gaps, and the cost of recording.
// Kernel times are those of recorded steps; gaps and the time outside the span are those of plain
// steps. Verdicts follow below the table.
Table clock_table(std::span<const ProfiledCell> cells);
// Makes a table with a row for each cell and check: the kernels that the program requires against
// those that ran. `failures` counts the rows that are not ok.
Table launch_check_table(std::span<const ProfiledCell> cells, int* failures = nullptr);

// --- of one cell --------------------------------------------------------------------------------
// Makes a table with a row for each of the eight pairs of op and model part whose kernels take the
// most time: calls, time, share. A note gives the rest.
Table top_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Makes a table with a row for each kernel: columns of `nsys stats --report cuda_gpu_kern_sum`
// under their names, over all profiled steps, then class, launches per step, speeds.
Table kernel_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Makes a table with a row for each component, phase and kernel; then one each for the work that
// the filter leaves out, for the gaps, and for the total, which is the span of the plain steps.
Table matrix_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Makes a table with a row for each op other than a matrix product: time per phase, share, speed.
Table kind_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Makes a table with a row for each phase and part of attention (scores, softmax, values), and
// their ratio: time, FLOPs, bytes. Notes state what is counted, with this cell's numbers.
Table attention_table(const ProfiledCell& cell);
// Makes a table with a row for each lane and phase: launches, and the time that kernels of the
// other lanes hide or leave exposed. Empty if all kernels ran on one lane.
Table lane_table(const ProfiledCell& cell);
// Makes a table of the ceilings with which rooflines are drawn.
Table ceiling_table(const Ceilings& ceilings);

}  // namespace tracestep
