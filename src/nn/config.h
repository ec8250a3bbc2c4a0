// A model as one record: its sizes and its architecture. The defaults are the reference study's
// Transformer; a family such as Llama or GPT-2 is other values of the same fields (nn/families.h),
// and no code depends on the name of a family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"

namespace tracestep {

enum class NormKind : std::uint8_t { kRms, kLayer };
TRACESTEP_WORDS(NormKind, "rms", "layer");

// Where a block normalises: the input of its branches, their output before it is added to the
// residual stream, or both.
enum class NormPlace : std::uint8_t { kBefore, kAfter, kBoth };
TRACESTEP_WORDS(NormPlace, "before", "after", "both");

enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
TRACESTEP_WORDS(Activation, "silu", "gelu", "gelu-tanh", "relu");

// How a model knows the position of a token: by rotating queries and keys, or by adding a learned
// vector for each position to the token's.
enum class Positions : std::uint8_t { kRotary, kLearned };
TRACESTEP_WORDS(Positions, "rotary", "learned");

// How rotation frequencies are changed for contexts longer than those of training.
enum class RopeScalingKind : std::uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope };
TRACESTEP_WORDS(RopeScalingKind, "none", "linear", "llama3", "yarn", "longrope");

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  // llama3: frequencies of wavelengths above `original`/low are divided by the factor, and those
  // below `original`/high are kept. yarn: frequencies of pairs that turn fewer than `low` times
  // within `original` positions are divided, and those that turn more than `high` times are kept.
  double low = 1.0, high = 4.0;
  std::int64_t original = 8192;  // The number of positions in training.
  double magnitude = 1.0;        // factor on cos and sin (the attention factor)
  // longrope: the divisor of each pair's frequency, for contexts up to `original` and for longer
  // ones.
  std::vector<double> near = {}, far = {};

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// Returns the scaling as text. "llama3:8:1:4:8192": the name, then factor, low, high, original and
// magnitude as far as the kind has them; "longrope:4096:1.19:1:1:1.5:2": original and magnitude,
// then the two lists.
std::string name_of(const RopeScaling& scaling);

// Whether queries and keys are normalised: each head separately, or all heads of a token together.
enum class QkNorm : std::uint8_t { kNone, kHead, kToken };
TRACESTEP_WORDS(QkNorm, "none", "head", "token");

struct CapturedModel;  // captured/captured_model.h
struct ReadModel;      // nn/families.h

struct ModelConfig {
  std::string name = "custom";
  std::string source = {};     // What the user named, if `name` does not say it: a path.
  std::int64_t vocab = 10000;  // V
  std::int64_t d_model = 768;  // C
  std::int64_t d_ff = 3072;    // F
  std::int64_t layers = 12;    // L
  std::int64_t heads = 12;     // H
  std::int64_t kv_heads = 0;   // The number of heads of keys and values; 0: as many as of queries.
  std::int64_t head_size = 0;  // D; 0: C/H
  double norm_eps = 1e-5;
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_bias = false;    // True: a layer norm has a bias.
  double norm_offset = 0.0;  // A norm multiplies by its weight plus this.
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool is_gated = true;  // True: the activation of w1's result is multiplied with w3's.
  bool qkv_bias = false, output_bias = false, ffn_bias = false;
  bool is_tied = false;      // True: the head's weight is the embedding's.
  bool is_parallel = false;  // True: attention and feed-forward read the same residual stream.
  Positions positions = Positions::kRotary;
  std::int64_t max_positions = 0;  // The number of learned vectors for positions.
  double rope_theta = 10000.0;
  // The base of rotation in layers with a window, which have no scaling; 0: that of the other
  // layers.
  double rope_theta_windowed = 0.0;
  // The share of a head's width that is rotated. Each element is rotated with its neighbour;
  // published files that pair the halves of a head have the same rows in another order.
  double rope_share = 1.0;
  RopeScaling rope_scaling = {};
  double embedding_scale = 1.0;  // A factor on embedded tokens.
  double score_scale = 0.0;      // A factor on q·k; 0: 1/√D.
  // The bound c in c · tanh(x/c), for scores and logits; 0: none.
  double score_cap = 0.0, logit_cap = 0.0;
  // The number of tokens that a layer with a window sees, including the token itself; 0: all.
  std::int64_t window = 0;
  // A letter for each layer, repeated: w has the window, f sees all tokens.
  std::string window_layers = "w";
  // A letter for each layer, repeated: r rotates queries and keys, n does not.
  std::string rope_layers = "r";
  // The config.json from which the model was read; nullptr: none.
  std::shared_ptr<const ReadModel> file = {};
  // A user's module whose program was read from a folder; nullptr: none. With a module, only these
  // of the fields above are used: name, source, vocab (of its tokens) and layers (the number of
  // repeated blocks).
  std::shared_ptr<const CapturedModel> captured = {};

  std::int64_t head_width() const { return head_size > 0 ? head_size : d_model / heads; }  // D
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t query_width() const { return heads * head_width(); }
  std::int64_t key_width() const { return key_heads() * head_width(); }
  // Returns the number of elements of a head that are rotated, which is even.
  std::int64_t rotated_width() const;
  // Returns the window of a layer; 0: it sees all tokens up to its own.
  std::int64_t window_of(std::int64_t layer) const;
  // True if the layer rotates queries and keys.
  bool rotates(std::int64_t layer) const;
  // True if flash attention can compute the layers, which it cannot if scores have a cap.
  bool takes_tiles() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Returns the reference study's sizes: small, medium, large, xl, 2.7B (2025), xl-2026, 10B (2026),
// and tiny (4 layers, 256 wide).
const std::vector<ModelConfig>& model_presets();
// Returns the preset or published model (nn/families.h) with this name, in any case; nullptr: there
// is none.
const ModelConfig* find_model(std::string_view name);
// Returns a copy of what find_model() finds; throws Error{kUsage} with the closest name if nothing.
ModelConfig preset(std::string_view name);

// Rewrites fields that can say the same in several ways into one: for example, as many heads of
// keys as of queries becomes 0.
ModelConfig normalised(ModelConfig config);

// Throws Error{kUsage} naming a field that is wrong: sizes must be positive, heads divide d_model
// unless head_size is given, kv_heads divide heads, and the rotated width be even, because rotation
// works on pairs.
void validate(const ModelConfig& config);

// Returns the number of parameters, by the sizes of all tensors; the reference Transformer's is 2VC
// + L(4C² + 3CF + 2C) + C.
std::int64_t parameter_formula(const ModelConfig& config);
// Returns the FLOPs of a forward pass's matrix products, with all of each layer's scores: for the
// reference Transformer 2BT(4C² + 3CF)L + 2BTCV + 4BT²CL.
double forward_flops(const ModelConfig& config, double batch, double context);

}  // namespace tracestep
