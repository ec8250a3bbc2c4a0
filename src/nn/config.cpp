#include "nn/config.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "captured/captured_model.h"
#include "nn/families.h"
#include "ops/rope_frequency.h"

namespace tracestep {
namespace {

bool same_but_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

std::string name_of(const RopeScaling& s) {
  const std::string name(name_of(s.kind));
  switch (s.kind) {
    case RopeScalingKind::kNone: return name;
    case RopeScalingKind::kLinear: return fmt::format("{}:{}", name, s.factor);
    case RopeScalingKind::kLlama3:
      return fmt::format("{}:{}:{}:{}:{}", name, s.factor, s.low, s.high, s.original);
    case RopeScalingKind::kYarn:
      return fmt::format("{}:{}:{}:{}:{}:{}", name, s.factor, s.low, s.high, s.original,
                         s.magnitude);
    case RopeScalingKind::kLongRope:
      return fmt::format("{}:{}:{}:{}:{}", name, s.original, s.magnitude, fmt::join(s.near, ":"),
                         fmt::join(s.far, ":"));
  }
  return name;
}

std::int64_t ModelConfig::rotated_width() const {
  if (positions != Positions::kRotary) return 0;
  return static_cast<std::int64_t>(std::floor(static_cast<double>(head_width()) * rope_share));
}

std::int64_t ModelConfig::window_of(std::int64_t layer) const {
  const auto at = static_cast<std::size_t>(layer) % window_layers.size();
  return window_layers[at] == 'w' ? window : 0;
}

bool ModelConfig::rotates(std::int64_t layer) const {
  return rotated_width() > 0 &&
         rope_layers[static_cast<std::size_t>(layer) % rope_layers.size()] == 'r';
}

bool ModelConfig::takes_tiles() const {
  return score_cap == 0.0;
}

namespace {

// Returns the shortest pattern that gives the same letter to each layer when it is repeated.
std::string shortest_pattern(std::string letters, std::int64_t layers) {
  if (layers > 0 && std::ssize(letters) > layers) letters.resize(static_cast<std::size_t>(layers));
  const auto repeats = [&](std::size_t size) {
    const bool is_whole = std::ssize(letters) == layers || letters.size() % size == 0;
    return is_whole && std::equal(letters.begin() + static_cast<std::ptrdiff_t>(size),
                                  letters.end(), letters.begin());
  };
  for (std::size_t size = 1; size < letters.size(); ++size) {
    if (repeats(size)) return letters.substr(0, size);
  }
  return letters;
}

}  // namespace

ModelConfig normalised(ModelConfig c) {
  if (c.kv_heads == c.heads) c.kv_heads = 0;
  if (c.head_size * c.heads == c.d_model) c.head_size = 0;
  c.window_layers = shortest_pattern(std::move(c.window_layers), c.layers);
  const bool has_windows = c.window > 0 && c.window_layers.find('w') != std::string::npos;
  if (!has_windows) {
    c.window = 0;
    c.window_layers = ModelConfig().window_layers;
  }
  // If the other layers have scaling, the same base is a different rotation.
  const bool is_scaled = c.rope_scaling.kind != RopeScalingKind::kNone;
  const bool is_same = c.rope_theta_windowed == c.rope_theta && !is_scaled;
  if (!has_windows || is_same) c.rope_theta_windowed = 0.0;
  if (c.positions == Positions::kRotary) c.max_positions = 0;
  c.rope_layers = shortest_pattern(std::move(c.rope_layers), c.layers);
  if (c.positions == Positions::kLearned) c.rope_layers = ModelConfig().rope_layers;
  return c;
}

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

const ModelConfig* find_model(std::string_view name) {
  const auto is_named = [&](const ModelConfig& config) { return same_but_case(config.name, name); };
  const auto own = std::ranges::find_if(model_presets(), is_named);
  if (own != model_presets().end()) return &*own;
  for (const KnownModel& known : known_models()) {
    if (is_named(known.config)) return &known.config;
  }
  return nullptr;
}

ModelConfig preset(std::string_view name) {
  if (const ModelConfig* found = find_model(name)) return *found;
  if (const std::string_view type = type_that_is_not_read(name); !type.empty()) {
    // No name is suggested: the nearest one is that of another architecture.
    const std::vector<std::string> families = known_families();
    if (std::ranges::find(families, type) != families.end()) {
      throw Error(ErrorCode::kUsage, "size"_field,
                  fmt::format("the sizes of \"{}\", a {}, are not known by name", name, type),
                  "give its folder or its config.json by " TRACESTEP_OPTION(model));
    }
    throw Error(ErrorCode::kUsage, "size"_field,
                fmt::format("\"{}\" is a model of the type {}, which is not known", name, type),
                fmt::format("known are {}", fmt::join(families, ", ")));
  }
  std::vector<std::string> own, all;
  for (const ModelConfig& config : model_presets()) own.push_back(config.name);
  all = own;
  for (const KnownModel& known : known_models()) all.push_back(known.config.name);
  throw Error(
      ErrorCode::kUsage, "size"_field,
      fmt::format("there is no \"{}\"{}", name, did_you_mean(name, all)),
      fmt::format("one of {}; tracestep models lists published ones", fmt::join(own, ", ")));
}

namespace {

void validate_heads(const ModelConfig& c) {
  if (c.head_size == 0 && c.d_model % c.heads != 0) {
    fail_usage("heads"_field, "{} heads do not divide a model width of {}", c.heads, c.d_model);
  }
  if (c.heads % c.key_heads() != 0) {
    fail_usage("kv_heads"_field, "{} heads of keys and values do not divide {} heads",
               c.key_heads(), c.heads);
  }
  if (c.positions == Positions::kLearned) return;
  if (c.rope_share <= 0.0 || c.rope_share > 1.0) {
    fail_usage("rope_share"_field,
               "{} of a head cannot be rotated; it is more than 0 and at most 1", c.rope_share);
  }
  if (c.rotated_width() % 2 == 0 && c.rotated_width() > 0) return;
  if (c.rope_share == 1.0 && c.head_size == 0) {
    fail_usage("heads"_field, "the head width {}/{} = {} is odd; rotary embedding works on pairs",
               c.d_model, c.heads, c.head_width());
  }
  fail_usage(c.rope_share == 1.0 ? "head_width"_field : "rope_share"_field,
             "{} of a head's {} elements would be rotated; rotation works on pairs",
             c.rotated_width(), c.head_width());
}

void validate_pattern(const About& field, const std::string& pattern, const char* letters) {
  if (!pattern.empty() && pattern.find_first_not_of(letters) == std::string::npos) return;
  fail_usage(field, "\"{}\" is no pattern of layers; give a letter for each, {} or {}", pattern,
             letters[0], letters[1]);
}

// Checks longrope's factors. `pairs`: how many pairs of elements of a head are rotated.
void validate_longrope(const RopeScaling& s, std::int64_t pairs) {
  if (std::ssize(s.near) != pairs || std::ssize(s.far) != pairs) {
    fail_usage("rope_scaling"_field,
               "{} and {} factors are given; each of {} pairs takes one of both", s.near.size(),
               s.far.size(), pairs);
  }
  if (pairs > ops::kMostRopeFactors) {
    fail_usage("rope_scaling"_field, "a head has {} pairs; longrope takes {} at most", pairs,
               ops::kMostRopeFactors);
  }
  for (const std::vector<double>* factors : {&s.near, &s.far}) {
    const auto bad = std::ranges::find_if(*factors, [](double x) { return !(x > 0.0); });
    if (bad != factors->end()) {
      fail_usage("rope_scaling"_field, "a factor of {} is given; it is more than 0", *bad);
    }
  }
}

void validate_rope_scaling(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeScalingKind::kNone) return;
  if (s.kind == RopeScalingKind::kLongRope && c.positions == Positions::kRotary) {
    validate_longrope(s, c.rotated_width() / 2);
  }
  if (s.factor < 1.0) {
    fail_usage("rope_scaling"_field, "a factor of {} is given; it is at least 1", s.factor);
  }
  if (s.kind == RopeScalingKind::kLinear) return;
  if (s.low <= 0.0 || s.high <= s.low) {
    fail_usage("rope_scaling"_field,
               "{} is low and {} high; low is more than 0 and high more than low", s.low, s.high);
  }
  if (s.magnitude <= 0.0) {
    fail_usage("rope_scaling"_field, "a magnitude of {} is given; it is more than 0", s.magnitude);
  }
}

// Returns the number of elements in the weights, biases and norms of a layer.
std::int64_t parameters_of_layer(const ModelConfig& c) {
  const std::int64_t q = c.query_width(), k = c.key_width();
  const std::int64_t norm = c.d_model * (c.norm_bias ? 2 : 1);
  std::int64_t out = c.d_model * (2 * q + 2 * k) + (c.is_gated ? 3 : 2) * c.d_model * c.d_ff;
  out += (c.norm_place == NormPlace::kBoth ? 4 : 2) * norm;
  if (c.qkv_bias) out += q + 2 * k;
  if (c.output_bias) out += c.d_model;
  if (c.ffn_bias) out += (c.is_gated ? 2 : 1) * c.d_ff + c.d_model;
  if (c.qk_norm == QkNorm::kHead) out += 2 * c.head_width();
  if (c.qk_norm == QkNorm::kToken) out += q + k;
  return out;
}

}  // namespace

void validate(const ModelConfig& c) {
  if (c.captured != nullptr) return;  // its reader has checked it
  const auto positive = [](const About& field, std::int64_t value) {
    if (value < 1) fail_usage(field, "{} is not positive", value);
  };
  positive("vocab"_field, c.vocab);
  positive("d_model"_field, c.d_model);
  positive("d_ff"_field, c.d_ff);
  positive("layers"_field, c.layers);
  positive("heads"_field, c.heads);
  if (c.positions == Positions::kLearned) positive("max_positions"_field, c.max_positions);
  validate_heads(c);
  validate_pattern("window_layers"_field, c.window_layers, "wf");
  validate_pattern("rope_layers"_field, c.rope_layers, "rn");
  validate_rope_scaling(c);
  if (c.norm_eps < 0.0) fail_usage("norm_eps"_field, "{} is negative", c.norm_eps);
  if (c.score_cap < 0.0) fail_usage("score_cap"_field, "{} is negative", c.score_cap);
  if (c.logit_cap < 0.0) fail_usage("logit_cap"_field, "{} is negative", c.logit_cap);
  if (c.norm_bias && c.norm == NormKind::kRms) {
    fail_usage("norm_bias"_field,
               "a root-mean-square norm has none; give " TRACESTEP_OPTION(norm_kind) " layer");
  }
}

std::int64_t parameter_formula(const ModelConfig& c) {
  if (c.captured != nullptr) return parameter_count(*c.captured);
  std::int64_t out = (c.is_tied ? 1 : 2) * c.vocab * c.d_model + c.layers * parameters_of_layer(c) +
                     c.d_model * (c.norm_bias ? 2 : 1);
  if (c.positions == Positions::kLearned) out += c.max_positions * c.d_model;
  return out;
}

double forward_flops(const ModelConfig& c, double batch, double context) {
  if (c.captured != nullptr) {
    return forward_flops(*c.captured) * batch / static_cast<double>(c.captured->batch);
  }
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  const double width = real(c.d_model), rows = batch * context;
  const double projections = width * (2 * real(c.query_width()) + 2 * real(c.key_width()));
  const double feed_forward = (c.is_gated ? 3 : 2) * width * real(c.d_ff);
  return real(c.layers) * (2 * rows * (projections + feed_forward) +
                           4 * rows * context * real(c.query_width())) +
         2 * rows * width * real(c.vocab);
}

}  // namespace tracestep
