// The sizes of a model, and the presets of the field's reference study.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct ModelConfig {
  std::string name = "custom";
  std::int64_t vocab = 10000;  // V
  std::int64_t d_model = 768;  // C
  std::int64_t d_ff = 3072;    // F
  std::int64_t layers = 12;    // L
  std::int64_t heads = 12;     // H
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;

  std::int64_t head_width() const { return d_model / heads; }  // D
};

// small, medium, large, xl, 2.7B (2025), xl-2026, 10B (2026), and tiny (4 layers, 256 wide).
const std::vector<ModelConfig>& model_presets();
// The preset called `name`; Error{kUsage} with the closest name when there is none.
ModelConfig preset(std::string_view name);

// Error{kUsage} naming the size: sizes must be positive, heads divide d_model, and the head width
// be even (rotation works on pairs).
void validate(const ModelConfig& config);

// 2VC + L(4C² + 3CF + 2C) + C
std::int64_t parameter_formula(const ModelConfig& config);
// FLOPs of a forward pass's matrix products: 2BT(4C² + 3CF)L + 2BTCV + 4BT²CL.
double forward_flops(const ModelConfig& config, double batch, double context);

}  // namespace tracestep
