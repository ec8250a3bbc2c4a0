// Published tables of the same experiments (data/), and their replay: each cell beside our
// measurement, with a verdict and the reason for it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "course/tables.h"
#include "lab/measure/validity.h"
#include "lab/report/table.h"
#include "lab/study/study.h"

namespace tracestep {

enum class Agreement {
  kAgree,        // The two differ only by the speed ratio of the devices.
  kExplainable,  // The cell is not what its label says, and the data show what it is.
  kSuspicious,   // The cell is impossible as labelled, or it differs without a reason in the data.
  kNotCompared,  // There is nothing to compare it with.
};
TRACESTEP_WORDS(Agreement, "agree", "explainable", "suspicious", "not compared");

struct ReplayVerdict {
  Agreement agreement = Agreement::kNotCompared;
  std::string code, text;  // The code, such as "launch_bound", and the reason with figures.
};

// Rows of results of ours: JSON, or CSV with columns of the same names.
struct ReplayInput {
  std::vector<ResultRow> rows;
  std::string gpu;  // The name of the device; empty: not stated.
};
// Reads rows. Throws Error{kInput} as read_result() does, or if a CSV file's columns name no cell.
ReplayInput read_replay_input(const std::filesystem::path& path);
ReplayInput replay_input(std::vector<ResultRow> rows, const Json& environment);

// Tables: `published` (one row per published table with times), `published_verdicts` (one row per
// table below), then the figures one by one: `published_times`, `published_statuses`,
// `published_peaks`, `published_allocations`, `published_attention`, `published_parts`,
// `published_kernels`, `published_product_shares`, `published_compiled`, `published_arithmetic`.
// Rows of bench, profile, memory and attention may be mixed; without any, the published tables are
// only held against predictions and against themselves.
std::vector<Table> replay_published(const Published& published, const ReplayInput& ours);

// Returns the tables of replay_published() for these rows as a section of a study's report.
StudySection published_section(std::vector<ResultRow> rows, const Json& environment);

// --- the parts -----------------------------------------------------------------------------------

// The ratio of a study's times to ours, over cells that neither the host nor a profiler slows down.
struct Pace {
  double ratio = 0;                // The median ratio; 0: there are too few cells.
  std::size_t cells = 0;           // How many cells the median is of.
  double by_low = 0, by_high = 0;  // The range that both devices' peaks suggest; 0: not known.
};

struct TimeReplay {
  ReplayVerdict verdict;
  double our_ms = 0;          // 0: none
  double modelled_ms = 0;     // The time by a roofline, used if ours does not decide; 0: ours does.
  bool is_compared = false;   // True: the verdict comes from our time and the pace.
  bool is_predicted = false;  // True if the time agrees with the roofline.
  Pace pace;                  // The pace of its study, device and precision, from the other cells.
  Pace device_pace;           // The pace over all cells of the device.
};
// Judges every cell; the results are in the order of `published.times`.
std::vector<TimeReplay> judge_times(const Published& published, const ReplayInput& ours);

// The verdict on a cell that ran out of memory, by the closed forms of lab/memory/accounting.h.
ReplayVerdict judge_out_of_memory(const Published& published, const PublishedTime& cell);

Table time_replay_table(const Published& published, std::span<const TimeReplay> judged);
Table status_replay_table(const Published& published);
Table peak_replay_table(const Published& published, const ReplayInput& ours);
Table attention_replay_table(const Published& published, const ReplayInput& ours);
Table allocation_replay_table(const Published& published);
Table parts_replay_table(const Published& published);
Table kernel_replay_table(const Published& published);
Table product_share_replay_table(const Published& published, const ReplayInput& ours);
Table arithmetic_replay_table(const Published& published);
// Published gains of compiling beside ours: a plain step's time over a fused, compiled one's.
Table pair_replay_table(const Published& published, const ReplayInput& ours);

}  // namespace tracestep
