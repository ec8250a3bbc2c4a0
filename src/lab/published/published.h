// Tables that others have published of the same experiments (data/), and their replay: each cell
// beside what a run here measured, with a verdict and the reason that the figures support.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

// A device as its vendor describes it: the peak of dense products with float32 sums.
struct PublishedDevice {
  std::string name;
  double fp32_tflops = 0, bf16_tflops = 0, bandwidth_gb_s = 0;
  double usable_gib = 0;  // what a program gets of its memory

  double tflops(std::string_view precision) const {
    return precision == "fp32" ? fp32_tflops : bf16_tflops;
  }
};
// The device whose name is a part of `name` ("NVIDIA H200"); nullptr: not known.
const PublishedDevice* known_device(std::string_view name);

enum class PublishedClock {
  kWall,       // waits for the device before the clock is read
  kProfiled,   // while a profiler listens
  kHostRange,  // ranges on the host, without a wait inside a step
};

// Plain PyTorch on an NVIDIA GPU, batch 4, vocabulary 10000.
struct PublishedTime {
  std::string study;   // "B"
  std::string table;   // "5 warm-up steps"
  std::string device;  // empty: not stated
  PublishedClock clock = PublishedClock::kWall;
  std::string precision = "fp32";
  int warmup = -1;        // steps; -1: not stated
  std::string pass = {};  // "forward", "backward", "forward+backward" or "step"
  std::string size = {};
  std::int64_t context = 0;  // 0: not stated
  double ms = 0, std_ms = NAN;
  bool is_oom = false;
};

struct PublishedPeak {
  std::string study, pass, size, precision;
  std::int64_t context = 0;
  double gigabytes = 0;  // as printed: whether 10^9 or 2^30 bytes is one of the questions
};

// Attention alone: batch 8, no heads, float32.
struct PublishedAttention {
  std::string study, device;
  std::int64_t width = 0, context = 0;
  double forward_ms = 0, backward_ms = 0;
  double before_backward_mib = 0;
};

// Shares of one whole.
struct PublishedShares {
  std::string study, whole;
  std::vector<double> percent;
};

struct PublishedStudy {
  std::string id, about;
  int saved_scores = 2;  // tensors of B·H·T² per layer that its model keeps, as it says
};

struct Published {
  std::vector<PublishedStudy> studies;
  std::vector<PublishedTime> times;
  std::vector<PublishedPeak> peaks;
  std::vector<PublishedAttention> attention;
  std::vector<PublishedShares> shares;

  // Of a study that has no entry: two saved tensors, as plain code keeps.
  int saved_scores(std::string_view study) const;
};
Published published_tables();

enum class Agreement {
  kAgree,        // the same, but for the pace of the two devices
  kExplainable,  // another figure than its label says, and the data show which
  kSuspicious,   // impossible as labelled, or off without a reason in the data
  kNotCompared,  // nothing to hold it against
};
std::string_view name_of(Agreement agreement);

struct ReplayVerdict {
  Agreement agreement = Agreement::kNotCompared;
  std::string code, text;  // "launch_bound", and why with the figures
};

// Rows of a result of bench or attention: JSON, or CSV with columns of the same names.
struct ReplayInput {
  std::vector<ResultRow> rows;
  std::string gpu;  // the device's name; empty: not said
};
// Error{kInput}: as read_result(), or a CSV whose columns name no cell.
ReplayInput read_replay_input(const std::filesystem::path& path);
ReplayInput replay_input(std::vector<ResultRow> rows, const Json& environment);

// Tables: `published` (one row per table of theirs), `published_times`, `published_statuses`,
// `published_peaks`, `published_attention`, `published_shares`. Rows of bench and of attention may
// be mixed; without any, only what the published tables say of themselves is found.
std::vector<Table> replay_published(const Published& published, const ReplayInput& ours);

// --- the parts -----------------------------------------------------------------------------------

// How many times as long theirs took as ours, for cells that neither host nor profiler holds up.
struct Pace {
  double ratio = 0;                // median; 0: too few cells
  std::size_t cells = 0;           // that it rests on
  double by_low = 0, by_high = 0;  // what the vendors' peaks of both devices give; 0: not known
};

struct TimeReplay {
  ReplayVerdict verdict;
  double our_ms = 0;  // 0: none
  Pace pace;          // of its study, device and precision
};
// One per cell of `published.times`.
std::vector<TimeReplay> judge_times(const Published& published, const ReplayInput& ours);

// Of a cell that ran out of memory, by the closed forms of accounting.h.
ReplayVerdict judge_out_of_memory(const Published& published, const PublishedTime& cell);

Table time_replay_table(const Published& published, std::span<const TimeReplay> judged);
Table status_replay_table(const Published& published);
Table peak_replay_table(const Published& published, const ReplayInput& ours);
Table attention_replay_table(const Published& published, const ReplayInput& ours);
Table share_replay_table(const Published& published);

}  // namespace tracestep
