// The published tables as they were printed, as structs; data/README.md describes the files.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "lab/predict/devices.h"

namespace tracestep {

inline constexpr std::int64_t kPublishedBatch = 4;  // The batch of every published model.

enum class PublishedClock {
  kWall,        // A wall clock that is read after waiting for the device.
  kProfiled,    // A clock while a profiler is attached.
  kHostRange,   // Ranges on the host, without a wait inside a step.
  kDeviceSpan,  // From the first kernel's start to the last one's end.
};
TRACESTEP_WORDS(PublishedClock, "wall", "profiled", "host range", "device span");

// A time of plain PyTorch on an NVIDIA GPU, batch 4, vocabulary 10000.
struct PublishedTime {
  std::string study;   // "B"
  std::string table;   // The table's heading: "5 warm-up steps".
  std::string device;  // empty: not stated
  PublishedClock clock = PublishedClock::kWall;
  std::string precision = "fp32";
  int warmup = -1;           // The number of warm-up steps; -1: not stated.
  std::string pass = {};     // "forward", "backward", "forward+backward" or "step"
  std::string size = {};     // empty: not stated
  std::int64_t context = 0;  // 0: not stated
  double ms = 0, std_ms = NAN;
  bool is_oom = false;
  // If stated: the time of all steps including warm-up, that of the warm-up, and those of the first
  // two steps. NAN: not stated.
  double total_ms = NAN, warmup_ms = NAN, first_ms = NAN, second_ms = NAN;
};

// A published peak of memory; of a phase if `pass` is "forward of a step" or "backward of a step".
struct PublishedPeak {
  std::string study, table, pass, size, precision;
  std::int64_t context = 0;
  // The number as printed; whether it counts 10^9 or 2^30 bytes must be decided.
  double gigabytes = 0;
};

// A benchmark of attention alone: batch 8, no heads, float32.
struct PublishedAttention {
  std::string study, device;
  std::int64_t width = 0, context = 0;
  double forward_ms = 0, backward_ms = 0;
  double before_backward_mib = 0;
  // NAN: not stated. `per_square`: the study's figure for bytes over S².
  double forward_std_ms = NAN, backward_std_ms = NAN, peak_mib = NAN, per_square = NAN;
};

// Times of one piece of work in eager PyTorch and compiled: a model at batch 4 and vocabulary
// 10000, or attention alone at batch 8 without heads; float32.
struct PublishedPair {
  std::string study, device;
  std::string size;          // The model's size; empty: attention.
  std::int64_t width = 0;    // The width of attention; 0: a model.
  std::int64_t context = 0;  // 0: not stated
  std::string pass;          // "forward", "backward" or "step"
  double eager_ms = 0, compiled_ms = 0;
  double eager_gb = NAN, compiled_gb = NAN;  // Gigabytes at the peak; NAN: not stated.

  double gain() const { return eager_ms / compiled_ms; }
};

// A kernel of a profile: its share of the pass, and how often it ran in all profiled passes.
struct PublishedKernel {
  std::string study, table, device, pass, size;  // An empty size is not stated.
  std::int64_t context = 0;
  std::string kernel, kind;  // "product", "elementwise", "reduction", "copy", "lookup"
  double percent = NAN, total_ms = NAN;
  std::int64_t count = 0;  // 0: not stated
  bool is_oom = false;
};

// The share of matrix products in the time of a pass's kernels. "step": with AdamW.
struct PublishedShare {
  std::string study, device, pass, size;
  std::int64_t context = 0;
  double percent = NAN;
  bool is_oom = false;
};

// Attention's softmax and its products in one forward pass, of one layer or of the whole model.
struct PublishedParts {
  std::string study, table, device, precision;
  bool is_layer = false;
  std::string size;
  std::int64_t context = 0;
  // NAN: not stated. `products_ms`: scores and values; `model_products_ms`: all of the model.
  double softmax_ms = NAN, scores_ms = NAN, values_ms = NAN, products_ms = NAN;
  double ratio_percent = NAN, model_products_ms = NAN, softmax_percent = NAN;
  bool is_oom = false;
};

// The largest allocation of a category, in float32 and under autocast to bfloat16.
struct PublishedAllocation {
  std::string study, pass, size;
  std::int64_t context = 0;
  std::string category;
  double fp32_mib = 0, bf16_mib = 0, difference_mib = 0;
};

// A number that a study computed from others of its tables, and how many digits it prints.
struct PublishedArithmetic {
  std::string study, quantity, pass, size;
  std::int64_t context = 0;
  double printed = 0;
  int digits = 0;
};

struct PublishedStudy {
  std::string id, about;
  int saved_scores = 2;  // How many tensors of B·H·T² each layer keeps, as the study says.
};

struct Published {
  std::vector<PublishedStudy> studies;
  std::vector<PublishedTime> times;
  std::vector<PublishedPeak> peaks;
  std::vector<PublishedAttention> attention;
  std::vector<PublishedPair> pairs;
  std::vector<PublishedKernel> kernels;
  std::vector<PublishedShare> product_shares;
  std::vector<PublishedParts> parts;
  std::vector<PublishedAllocation> allocations;
  std::vector<PublishedArithmetic> arithmetic;

  // The saved_scores of a study; 2, as plain code keeps, for a study without an entry.
  int saved_scores(std::string_view study) const;
};
Published published_tables();

}  // namespace tracestep
