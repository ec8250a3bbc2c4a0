// Published tables of the same experiments (data/), and their replay: each cell beside our
// measurement, with a verdict and the reason that the figures support.
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
  double usable_gib = 0;  // memory that a program can use

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
  double gigabytes = 0;  // as printed; 10^9 or 2^30 bytes is to be decided
};

// Attention alone: batch 8, no heads, float32.
struct PublishedAttention {
  std::string study, device;
  std::int64_t width = 0, context = 0;
  double forward_ms = 0, backward_ms = 0;
  double before_backward_mib = 0;
};

// The same work twice: in eager PyTorch, and compiled. A model at batch 4 and vocabulary 10000, or
// attention alone at batch 8 without heads; float32.
struct PublishedPair {
  std::string study, device;
  std::string size;          // of a model; empty: attention
  std::int64_t width = 0;    // of attention; 0: a model
  std::int64_t context = 0;  // 0: not stated
  std::string pass;          // "forward", "backward" or "step"
  double eager_ms = 0, compiled_ms = 0;
  double eager_gb = NAN, compiled_gb = NAN;  // at the peak; NAN: not stated

  double gain() const { return eager_ms / compiled_ms; }
};

// Published shares of one whole, in percent.
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
  std::vector<PublishedPair> pairs;

  // The entry of a study; 2, as plain code keeps, for a study without one.
  int saved_scores(std::string_view study) const;
};
Published published_tables();

enum class Agreement {
  kAgree,        // the same up to the speed ratio of the two devices
  kExplainable,  // not what its label says, and the data show what it is
  kSuspicious,   // impossible as labelled, or different without a reason in the data
  kNotCompared,  // nothing to compare it with
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
// Error{kInput} as for read_result(), or for a CSV file whose columns identify no cell.
ReplayInput read_replay_input(const std::filesystem::path& path);
ReplayInput replay_input(std::vector<ResultRow> rows, const Json& environment);

// Tables: `published` (one row per table of theirs), `published_times`, `published_statuses`,
// `published_peaks`, `published_attention`, `published_shares`, `published_compiled`. Rows of bench
// and of attention may be mixed; without any, the published tables are only checked against
// themselves.
std::vector<Table> replay_published(const Published& published, const ReplayInput& ours);

// --- the parts -----------------------------------------------------------------------------------

// The ratio of their time to ours, over cells that neither the host nor a profiler slows down.
struct Pace {
  double ratio = 0;                // median; 0: too few cells
  std::size_t cells = 0;           // in the median
  double by_low = 0, by_high = 0;  // expected from both devices' peaks; 0: unknown
};

struct TimeReplay {
  ReplayVerdict verdict;
  double our_ms = 0;         // 0: none
  bool is_compared = false;  // the verdict comes from our time and the pace
  Pace pace;                 // of its study, device and precision, by the other cells
  Pace device_pace;          // by all cells
};
// One per cell of `published.times`.
std::vector<TimeReplay> judge_times(const Published& published, const ReplayInput& ours);

// The verdict on a cell that ran out of memory, by the closed forms of lab/memory/accounting.h.
ReplayVerdict judge_out_of_memory(const Published& published, const PublishedTime& cell);

Table time_replay_table(const Published& published, std::span<const TimeReplay> judged);
Table status_replay_table(const Published& published);
Table peak_replay_table(const Published& published, const ReplayInput& ours);
Table attention_replay_table(const Published& published, const ReplayInput& ours);
Table share_replay_table(const Published& published);
// Ours: what a plain step takes (primitive ops, eager) over the fused and compiled one.
Table pair_replay_table(const Published& published, const ReplayInput& ours);

}  // namespace tracestep
