#include "nn/config.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"

namespace tracestep {

const std::vector<ModelConfig>& model_presets() {
  static const std::vector<ModelConfig> presets{
      {.name = "tiny", .d_model = 256, .d_ff = 1024, .layers = 4, .heads = 4},
      {.name = "small", .d_model = 768, .d_ff = 3072, .layers = 12, .heads = 12},
      {.name = "medium", .d_model = 1024, .d_ff = 4096, .layers = 24, .heads = 16},
      {.name = "large", .d_model = 1280, .d_ff = 5120, .layers = 36, .heads = 20},
      {.name = "xl", .d_model = 1600, .d_ff = 6400, .layers = 48, .heads = 25},
      {.name = "2.7B", .d_model = 2560, .d_ff = 10240, .layers = 32, .heads = 32},
      {.name = "xl-2026", .d_model = 2560, .d_ff = 10240, .layers = 32, .heads = 32},
      {.name = "10B", .d_model = 4608, .d_ff = 12288, .layers = 50, .heads = 36},
  };
  return presets;
}

ModelConfig preset(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelConfig& config : model_presets()) {
    if (config.name == name) return config;
    names.push_back(config.name);
  }
  const auto close = closest(name, names);
  throw Error(ErrorCode::kUsage, "size", fmt::format("there is no model size '{}'", name),
              close ? fmt::format("did you mean '{}'?", *close)
                    : fmt::format("sizes are {}", fmt::join(names, ", ")));
}

void validate(const ModelConfig& c) {
  const auto positive = [](std::string_view flag, std::int64_t value) {
    if (value < 1) fail_usage(std::string(flag), "{} is not positive", value);
  };
  positive("vocab", c.vocab);
  positive("d_model", c.d_model);
  positive("d_ff", c.d_ff);
  positive("layers", c.layers);
  positive("heads", c.heads);
  if (c.d_model % c.heads != 0) {
    fail_usage("heads", "{} heads do not divide a model width of {}", c.heads, c.d_model);
  }
  if (c.head_width() % 2 != 0) {
    fail_usage("heads", "the head width {}/{} = {} is odd; rotary embedding works on pairs",
               c.d_model, c.heads, c.head_width());
  }
}

std::int64_t parameter_formula(const ModelConfig& c) {
  return 2 * c.vocab * c.d_model +
         c.layers * (4 * c.d_model * c.d_model + 3 * c.d_model * c.d_ff + 2 * c.d_model) +
         c.d_model;
}

double forward_flops(const ModelConfig& c, double batch, double context) {
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  const double width = real(c.d_model), layers = real(c.layers), rows = batch * context;
  return 2 * rows * (4 * width * width + 3 * width * real(c.d_ff)) * layers +
         2 * rows * width * real(c.vocab) + 4 * rows * context * width * layers;
}

}  // namespace tracestep
