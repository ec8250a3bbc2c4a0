// The options that commands share, as plain values, and what they mean.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/option_set.h"
#include "lab/report/table.h"
#include "nn/transformer.h"
#include "passes/pipeline.h"

namespace tracestep::cli {

// Which model. With `--size` one or more presets, with the four sizes one model of one's own.
struct ModelOptions {
  std::vector<std::string> sizes;
  std::optional<std::int64_t> d_model, d_ff, layers, heads;
  std::optional<std::int64_t> vocab;

  bool is_given() const { return !sizes.empty() || d_model || d_ff || layers || heads; }
};

// How programs run.
struct RunOptions {
  std::string device = "cpu";
  int threads = 0;  // 0: OMP_NUM_THREADS, else all allowed cores
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> ops = {"fused"};
  std::vector<std::string> attention = {"naive"};
  std::string executor = "eager";
  std::int64_t memory_limit_bytes = 0;  // 0: none
  std::uint64_t seed = 0;
  bool deterministic = false;
  bool tune = false;  // time the candidates of matrix products that have no choice yet
  std::filesystem::path tune_file;  // empty: the one of tuning_path()

  // Where choices are kept.
  std::filesystem::path tuning_path() const {
    return tune_file.empty() ? "tracestep-tuning.json" : tune_file;
  }
};

struct OutputOptions {
  Format format = Format::kText;
  std::filesystem::path path;  // empty: stdout
};

void add_model_options(OptionSet& set, ModelOptions& model);
// `devices`: what --device can be for this command.
void add_run_options(OptionSet& set, RunOptions& run, std::string devices);
void add_output_options(OptionSet& set, OutputOptions& output);
// --batch and --context of commands that take one of each.
void add_shape_options(OptionSet& set, BatchShape& shape);
inline constexpr IntRange kShapeRange{1, std::int64_t{1} << 20};
// Error{kUsage} when a step of this shape is beyond what 64 bits can count.
void check_shape(const ModelConfig& model, BatchShape shape);

inline const std::vector<std::string> kModeNames = {"inference", "forward", "forward-backward",
                                                    "step"};
Mode mode_of(std::string_view name);
Granularity granularity_of(std::string_view name);
inline const std::vector<std::string> kAttentionNames = {"naive", "flash"};
AttentionForm attention_of(std::string_view name);

// The models asked for; `fallback` when none was. Error{kUsage}: both ways at once, a size of the
// four missing, sizes that do not fit together.
std::vector<ModelConfig> models_of(const ModelOptions& options, std::string_view fallback);
// The same for commands that take one model.
ModelConfig model_of(const ModelOptions& options, std::string_view fallback);
// The one entry of a list option. Error{kUsage} naming `flag` when there are more.
const std::string& only(const std::string& flag, std::span<const std::string> values);

// The environment of every result, with the threads and limits of this run. Taken before anything
// runs: afterwards this thread is bound to one core, and the count of cores would be wrong.
Json environment_of(std::span<const std::string> arguments, const RunOptions& run);

}  // namespace tracestep::cli
