// What a profile answers, as tables. Everything is counted from the records and the program: no
// kernel is put into a class by its name, and shares are of the whole step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/profile/work.h"
#include "lab/report/table.h"

namespace tracestep {

struct Question;  // lab/report/question.h

struct ProfiledCell {
  Profile profile;
  Ceilings ceilings;
  StepWork work;
};

// "small context 128 step fp32 fused"
std::string label_of(const Profile& profile);

// --- of several cells -------------------------------------------------------------------------
// Rows: cell and phase, and a row for the whole step; columns: time, share of the step, share of
// matrix products, the kernel that takes most and the one among those that multiply no matrices.
// Notes say why the share of matrix products differs between inference and training.
Table pass_table(std::span<const ProfiledCell> cells);
// Rows: cell; columns: wall, issue, span, busy, gaps, and what recording cost.
Table clock_table(std::span<const ProfiledCell> cells);
// Rows: cell and check: what the program says must run against what ran. `failures` counts the
// rows that are not ok.
Table launch_check_table(std::span<const ProfiledCell> cells, int* failures = nullptr);

// --- of one cell --------------------------------------------------------------------------------
// Rows: kernel; columns: those of `nsys stats --report cuda_gpu_kern_sum` under their names, over
// all profiled steps, then class, launches per step, speeds.
Table kernel_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Rows: component, phase and kernel; then what the filter leaves out, the gaps, and the total,
// which the other rows add up to.
Table matrix_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Rows: op that multiplies no matrices; columns: its time per phase, share, speed.
Table kind_table(const ProfiledCell& cell, const ComponentFilter& filter = {});
// Rows: phase and part of attention (scores, softmax, values), and their ratio; columns: time,
// FLOPs, bytes. Notes state what is counted, with this cell's numbers.
Table attention_table(const ProfiledCell& cell);
// The speeds that rooflines are drawn with.
Table ceiling_table(const Ceilings& ceilings);

// What the study asks of these tables.
std::span<const Question> profile_questions();

}  // namespace tracestep
