#include "cli/options.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/cuda.h"
#include "cli/devices.h"
#include "lab/measure/environment.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kMaxThreads = 4096;
// Far beyond any model.
constexpr IntRange kSizeRange{1, std::int64_t{1} << 20};
constexpr IntRange kVocabRange{1, std::int64_t{1} << 24};
constexpr double kMaxStepBytes = 0x1p60;

// What is known but cannot be chosen, and why.
struct Unavailable {
  std::string_view name, why;
};

void refuse(const std::string& where, const std::string& text,
            std::span<const Unavailable> unavailable, std::span<const std::string> names) {
  for (const Unavailable& u : unavailable) {
    if (text != u.name) continue;
    throw Error(ErrorCode::kUsage, where, std::string(u.why),
                fmt::format("{} {}", names.size() > 1 ? "one of" : "use", fmt::join(names, ", ")));
  }
  check_choice(where, text, names);
}

void add_implementations(OptionSet& set, RunOptions& run) {
  set.choices("--ops", run.ops, {"primitive", "fused"},
              "composites in parts, as plain framework code, or with their own kernels");
  set.choices("--attention", run.attention, kAttentionNames,
              "two matrix products around a softmax, or one kernel that goes tile by tile and "
              "keeps no matrix of scores");
  set.value("--executor", "eager", "op by op, each its own kernel",
            [&run](const std::string& where, const std::string& text) {
              static const std::vector<std::string> names{"eager"};
              static constexpr Unavailable kOthers[] = {
                  {"compiled", "the compiled executor is not available"}};
              refuse(where, text, kOthers, names);
              run.executor = text;
            });
}

ModelConfig custom_model(const ModelOptions& o) {
  const auto need = [](const char* flag, const std::optional<std::int64_t>& value) {
    if (value) return *value;
    throw Error(ErrorCode::kUsage, flag, "a model given by its sizes needs this one as well",
                "give --d-model, --d-ff, --layers and --heads, or --size");
  };
  ModelConfig config;
  config.d_model = need("--d-model", o.d_model);
  config.d_ff = need("--d-ff", o.d_ff);
  config.layers = need("--layers", o.layers);
  config.heads = need("--heads", o.heads);
  return config;
}

}  // namespace

void add_model_options(OptionSet& set, ModelOptions& model) {
  std::vector<std::string> names;
  for (const ModelConfig& config : model_presets()) names.push_back(config.name);
  set.group("Model");
  set.choices("--size", model.sizes, names, "presets");
  set.integer("--d-model", model.d_model, kSizeRange, "model width C, instead of --size");
  set.integer("--d-ff", model.d_ff, kSizeRange, "feed-forward width F");
  set.integer("--layers", model.layers, {1, 4096}, "layers L");
  set.integer("--heads", model.heads, kSizeRange, "attention heads H; they divide C");
  set.integer("--vocab", model.vocab, kVocabRange, "vocabulary V; 10000");
}

void add_run_options(OptionSet& set, RunOptions& run, std::string devices) {
  set.group("How it runs");
  set.text("--device", "NAME", run.device, std::move(devices));
  set.integer("--threads", run.threads, {1, kMaxThreads},
              "CPU threads; OMP_NUM_THREADS, else all allowed cores");
  set.value("--precision", "NAME[,NAME]",
            "fp32; tf32 (cuda alone) rounds what products read; bf16 or fp16 for matrix products "
            "alone, over float32 weights; bf16-pure or "
            "fp16-pure for all that is stored; fp32",
            [&run](const std::string& where, const std::string& text) {
              run.precisions = split_list(where, text);
              for (const std::string& p : run.precisions) check_choice(where, p, precision_names());
            });
  add_implementations(set, run);
  set.bytes("--memory-limit", run.memory_limit_bytes,
            "behave like a device with this much memory, as 16GiB");
  set.integer("--seed", run.seed, {0}, "of weights, batches and sampling; 0");
  set.toggle("--deterministic", run.deterministic,
             "refuse what may give other bits when run again: --tune for a product that has no "
             "choice yet");
  set.toggle("--tune", run.tune,
             "cuda: time the algorithms for each new matrix product, keep the fastest");
  set.path("--tune-file", "FILE", run.tune_file,
           "where choices are kept and found; tracestep-tuning.json with --tune");
}

void add_output_options(OptionSet& set, OutputOptions& output) {
  set.group("Output");
  set.value("--format", "NAME", fmt::format("{}; text", kFormatNames),
            [&output](const std::string& where, const std::string& text) {
              output.format = parse_format(where, text);
            });
  set.path("--output", "FILE", output.path, "write the result here instead of to stdout");
}

void add_shape_options(OptionSet& set, BatchShape& shape) {
  set.integer("--batch", shape.batch, kShapeRange,
              fmt::format("sequences in a batch, B; {}", shape.batch));
  set.integer("--context", shape.context, kShapeRange,
              fmt::format("tokens in a sequence, T; {}", shape.context));
}

void check_shape(const ModelConfig& m, BatchShape shape) {
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  const double rows = real(shape.batch) * real(shape.context);
  const double weights = 2.0 * real(m.vocab) * real(m.d_model) +
                         real(m.layers) * (4.0 * real(m.d_model) * real(m.d_model) +
                                           3.0 * real(m.d_model) * real(m.d_ff));
  const double activations =
      rows * (real(m.layers) * (20.0 * real(m.d_model) + 10.0 * real(m.d_ff) +
                                10.0 * real(m.heads) * real(shape.context)) +
              10.0 * real(m.vocab));
  if ((weights * 4.0 + activations) * 8.0 < kMaxStepBytes) return;
  throw Error(ErrorCode::kUsage, "--batch",
              fmt::format("batch {} with context {} and this model is more than an exbibyte",
                          shape.batch, shape.context),
              "give smaller sizes");
}

Mode mode_of(std::string_view name) {
  for (Mode mode : kAllModes) {
    if (name == name_of(mode)) return mode;
  }
  fail_usage("--mode", "there is no mode \"{}\"", name);
}

Granularity granularity_of(std::string_view name) {
  return name == "primitive" ? Granularity::kPrimitive : Granularity::kFused;
}

AttentionForm attention_of(std::string_view name) {
  return name == "flash" ? AttentionForm::kFlash : AttentionForm::kNaive;
}

std::vector<ModelConfig> models_of(const ModelOptions& options, std::string_view fallback) {
  const bool is_custom = options.d_model || options.d_ff || options.layers || options.heads;
  if (is_custom && !options.sizes.empty()) {
    throw Error(ErrorCode::kUsage, "--size",
                fmt::format("{} comes with its own widths", options.sizes.front()),
                "give --size, or --d-model --d-ff --layers --heads");
  }
  std::vector<ModelConfig> out;
  if (is_custom) {
    out.push_back(custom_model(options));
  } else if (options.sizes.empty()) {
    out.push_back(preset(fallback));
  }
  for (const std::string& size : options.sizes) out.push_back(preset(size));
  for (ModelConfig& config : out) {
    if (options.vocab) config.vocab = *options.vocab;
    validate(config);
  }
  return out;
}

ModelConfig model_of(const ModelOptions& options, std::string_view fallback) {
  if (options.sizes.size() > 1) only("--size", options.sizes);
  return models_of(options, fallback).front();
}

const std::string& only(const std::string& flag, std::span<const std::string> values) {
  if (values.size() == 1) return values.front();
  throw Error(ErrorCode::kUsage, flag,
              fmt::format("{} values are given; this command takes one", values.size()),
              fmt::format("give {} {}", flag, values.front()));
}

Json environment_of(std::span<const std::string> arguments, const RunOptions& run) {
  Json out = capture_environment(arguments, threads_of(run));
  out["device_memory_limit_bytes"] =
      run.memory_limit_bytes > 0 ? Json(run.memory_limit_bytes) : Json();
  out["seed"] = run.seed;
  add_cuda_environment(run, out);
  return out;
}

}  // namespace tracestep::cli
