// The sizes of a study's experiments: what two CPU cores, or one large GPU, do in some minutes.
#include "lab/study/study.h"

#include <algorithm>

namespace tracestep {
namespace {

// The vocabulary of the model that is trained on text as bytes; all its cells have it.
constexpr std::int64_t kBytes = 256;

ModelConfig byte_model(std::string_view size) {
  ModelConfig out = preset(size);
  out.vocab = kBytes;
  return out;
}

RunSpec step_of(const ModelConfig& model, BatchShape shape, Granularity ops) {
  return {.model = model, .shape = shape, .mode = Mode::kStep, .ops = ops};
}

// The step under autocast to bfloat16.
RunSpec in_bf16(RunSpec step) {
  step.precision.autocast = DType::kBF16;
  return step;
}

constexpr Precision kFp32{}, kTf32{.tf32 = true}, kSplit{.split = true};
constexpr Precision kBf16{.autocast = DType::kBF16}, kFp16{.autocast = DType::kF16};

}  // namespace

StudySizes cpu_study_sizes() {
  const BatchShape shape{.batch = 4, .context = 128};
  StudySizes out;
  out.models = {byte_model("tiny"), preset("small")};
  out.shape = shape;
  out.scaled = byte_model("tiny");
  out.contexts = {32, 64, 128, 256, 512};
  out.warmups = {0, 1, 2, 5};
  out.precise = {byte_model("tiny"), preset("small")};
  out.precisions = {kFp32, kBf16, kFp16};
  out.compiled = {byte_model("tiny")};
  out.planned = preset("2.7B");
  out.planned_contexts = {128, 256, 512};
  out.recorded = {step_of(byte_model("tiny"), shape, Granularity::kPrimitive),
                  step_of(byte_model("tiny"), shape, Granularity::kFused),
                  step_of(preset("small"), shape, Granularity::kFused)};
  out.profiled = {step_of(byte_model("tiny"), shape, Granularity::kFused),
                  step_of(byte_model("tiny"), shape, Granularity::kPrimitive),
                  step_of(preset("small"), shape, Granularity::kFused),
                  in_bf16(step_of(byte_model("tiny"), shape, Granularity::kFused))};
  out.attention.protocol = {.warmup = 1, .steps = 20, .max_seconds = 1.0};
  out.widths = {16, 64};
  out.attention_contexts = {128, 256, 512, 1024};
  out.variant_contexts = {128, 256, 512};
  out.parallel.ranks = 2;
  return out;
}

StudySizes gpu_study_sizes() {
  const BatchShape shape{.batch = 4, .context = 512};
  StudySizes out;
  out.models = {byte_model("tiny"), preset("small"), preset("medium"), preset("large")};
  out.shape = shape;
  out.scaled = preset("medium");
  out.contexts = {128, 256, 512, 1024};
  out.warmups = {0, 1, 2, 5};
  out.precise = {preset("large"), preset("small"), preset("medium")};
  out.precisions = {kFp32, kTf32, kSplit, kBf16, kFp16};
  out.compiled = {preset("small"), preset("medium"), preset("large")};
  out.planned = preset("2.7B");
  out.planned_contexts = {128, 256, 512};
  out.recorded = {step_of(preset("medium"), shape, Granularity::kPrimitive),
                  step_of(preset("large"), shape, Granularity::kPrimitive),
                  step_of(preset("large"), shape, Granularity::kFused)};
  out.profiled = {step_of(preset("small"), shape, Granularity::kPrimitive),
                  step_of(preset("large"), shape, Granularity::kPrimitive),
                  step_of(preset("large"), shape, Granularity::kFused),
                  in_bf16(step_of(preset("large"), shape, Granularity::kFused))};
  out.attention.protocol = {.warmup = 3, .steps = 30, .max_seconds = 0.5};
  out.widths = {16, 32, 64, 128};
  out.attention_contexts = {256, 1024, 2048, 4096, 8192, 16384};
  out.variant_contexts = {1024, 2048, 4096};
  out.parallel.ranks = 2;
  return out;
}

void add_long_sizes(StudySizes& sizes) {
  for (const char* size : {"xl", "2.7B"}) sizes.precise.push_back(preset(size));
  const ModelConfig& largest = sizes.models.back();
  for (const std::int64_t context : {128, 256, 1024}) {
    const BatchShape shape{.batch = sizes.shape.batch, .context = context};
    sizes.profiled.push_back(step_of(largest, shape, Granularity::kFused));
  }
}

StudySizes quick_study_sizes() {
  const BatchShape shape{.batch = 2, .context = 32};
  StudySizes out = cpu_study_sizes();
  out.models = {byte_model("tiny")};
  out.shape = shape;
  out.steps = 6;
  out.contexts = {16, 32, 64};
  out.warmups = {0, 2};
  out.precise = {byte_model("tiny")};
  out.precisions = {kFp32, kBf16};
  out.error = {.layers = 1, .tokens = 8};
  out.recorded = {step_of(byte_model("tiny"), shape, Granularity::kPrimitive),
                  step_of(byte_model("tiny"), shape, Granularity::kFused)};
  out.profiled = {step_of(byte_model("tiny"), shape, Granularity::kFused),
                  step_of(byte_model("tiny"), shape, Granularity::kPrimitive),
                  in_bf16(step_of(byte_model("tiny"), shape, Granularity::kFused))};
  out.attention.protocol.steps = 3;
  out.widths = {16};
  out.attention_contexts = {64, 128, 256};
  out.variant_contexts = {32, 64, 128};
  return out;
}

void of_model(const ModelConfig& model, StudySizes& sizes) {
  const ModelConfig small = sizes.models.front();
  sizes.models = {small, model};
  // Precisions and compiling are of the model itself where there is a GPU, else also of the small
  // one, whose ladder is climbed in seconds.
  const bool is_small_first = sizes.precise.front().name == small.name;
  sizes.precise = is_small_first ? sizes.models : std::vector{model};
  sizes.compiled = is_small_first ? std::vector{small} : std::vector{model};
  sizes.planned = model;
  const RunSpec step{.model = model, .shape = sizes.shape, .mode = Mode::kStep};
  RunSpec in_parts = step;
  in_parts.ops = Granularity::kPrimitive;
  RunSpec small_in_parts = in_parts;
  small_in_parts.model = small;
  RunSpec small_step = step;
  small_step.model = small;
  sizes.recorded = {small_in_parts, small_step, in_parts, step};
  sizes.profiled = {in_parts, step, in_bf16(step)};
}

void at_shape(const BatchShape& shape, StudySizes& sizes) {
  const double share =
      static_cast<double>(shape.context) / static_cast<double>(sizes.shape.context);
  sizes.shape = shape;
  for (std::int64_t& context : sizes.contexts) {
    context =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(context) * share));
  }
  for (auto* steps : {&sizes.recorded, &sizes.profiled}) {
    for (RunSpec& step : *steps) step.shape = shape;
  }
  // Questions about these do not depend on their sizes.
  const StudySizes quick = quick_study_sizes();
  sizes.attention.protocol = quick.attention.protocol;
  sizes.widths = quick.widths;
  sizes.attention_contexts = quick.attention_contexts;
  sizes.variant_contexts = quick.variant_contexts;
  sizes.error = quick.error;
  sizes.warmups = quick.warmups;
  const bool is_quick = shape.batch == quick.shape.batch && shape.context == quick.shape.context;
  if (is_quick) sizes.contexts = quick.contexts;
}

void at_context(std::int64_t context, StudySizes& sizes) {
  sizes.is_shape_fixed = true;
  sizes.shape.context = context;
  for (auto* steps : {&sizes.recorded, &sizes.profiled}) {
    for (RunSpec& step : *steps) step.shape.context = context;
  }
  const std::size_t count = sizes.contexts.size();
  sizes.contexts.clear();
  for (std::int64_t tokens = context; tokens > 0 && sizes.contexts.size() < count; tokens /= 2) {
    sizes.contexts.insert(sizes.contexts.begin(), tokens);
  }
}

}  // namespace tracestep
