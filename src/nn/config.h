// A model as one record: its sizes, and what tells the architectures of the field apart. The
// defaults are the reference study's Transformer; a family such as Llama or GPT-2 is other values
// of the same fields (nn/families.h), and no code asks for a family by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

enum class NormKind : std::uint8_t { kRms, kLayer };
inline constexpr NormKind kAllNormKinds[] = {NormKind::kRms, NormKind::kLayer};
std::string_view name_of(NormKind kind);  // "rms", "layer"

// Where a block normalises: what its branches read, what they add to the residual stream, or both.
enum class NormPlace : std::uint8_t { kBefore, kAfter, kBoth };
inline constexpr NormPlace kAllNormPlaces[] = {NormPlace::kBefore, NormPlace::kAfter,
                                               NormPlace::kBoth};
std::string_view name_of(NormPlace place);  // "before", "after", "both"

enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
inline constexpr Activation kAllActivations[] = {Activation::kSilu, Activation::kGelu,
                                                 Activation::kGeluTanh, Activation::kRelu};
std::string_view name_of(Activation activation);  // "silu", "gelu", "gelu-tanh", "relu"

// How a model knows where a token stands: rotated queries and keys, or a learned vector for each
// position that is added to the token's.
enum class Positions : std::uint8_t { kRotary, kLearned };
inline constexpr Positions kAllPositions[] = {Positions::kRotary, Positions::kLearned};
std::string_view name_of(Positions positions);  // "rotary", "learned"

// How the frequencies of rotation are changed for contexts longer than those of training.
enum class RopeScalingKind : std::uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope };
inline constexpr RopeScalingKind kAllRopeScalings[] = {
    RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kLlama3,
    RopeScalingKind::kYarn, RopeScalingKind::kLongRope};
// "none", "linear", "llama3", "yarn", "longrope"
std::string_view name_of(RopeScalingKind kind);

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  // llama3: wavelengths above `original`/low are divided by the factor, below `original`/high kept.
  // yarn: pairs that turn less than `low` times within `original` are divided, more than `high`
  // kept.
  double low = 1.0, high = 4.0;
  std::int64_t original = 8192;  // positions of training
  double magnitude = 1.0;        // factor on cos and sin (the attention factor)
  // longrope: what the frequency of each pair is divided by, for contexts up to `original` and for
  // longer ones.
  std::vector<double> near = {}, far = {};

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// "llama3:8:1:4:8192": the name, then factor, low, high, original and magnitude as far as the kind
// has them; "longrope:4096:1.19:1:1:1.5:2": original and magnitude, then the two lists.
std::string name_of(const RopeScaling& scaling);

// Normalised queries and keys: each head by itself, or all heads of a token together.
enum class QkNorm : std::uint8_t { kNone, kHead, kToken };
inline constexpr QkNorm kAllQkNorms[] = {QkNorm::kNone, QkNorm::kHead, QkNorm::kToken};
std::string_view name_of(QkNorm norm);  // "none", "head", "token"

struct CapturedModel;  // captured/captured_model.h
struct ReadModel;      // nn/families.h

struct ModelConfig {
  std::string name = "custom";
  std::string source = {};     // what a flag called it where `name` does not say it: a path
  std::int64_t vocab = 10000;  // V
  std::int64_t d_model = 768;  // C
  std::int64_t d_ff = 3072;    // F
  std::int64_t layers = 12;    // L
  std::int64_t heads = 12;     // H
  std::int64_t kv_heads = 0;   // heads of keys and values; 0: H
  std::int64_t head_size = 0;  // D; 0: C/H
  double norm_eps = 1e-5;
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_bias = false;    // of layer norm
  double norm_offset = 0.0;  // a norm multiplies by its weight plus this
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool is_gated = true;  // the activation of w1's result multiplies w3's
  bool qkv_bias = false, output_bias = false, ffn_bias = false;
  bool is_tied = false;      // the head's weight is the embedding's
  bool is_parallel = false;  // attention and feed-forward read the same residual stream
  Positions positions = Positions::kRotary;
  std::int64_t max_positions = 0;  // rows of the learned vectors
  double rope_theta = 10000.0;
  double rope_theta_windowed = 0.0;  // of layers with a window, which are not scaled; 0: as others
  // Part of a head's width that is rotated. Elements are rotated with their neighbours; published
  // files that pair halves of a head hold the same model with its rows in another order.
  double rope_share = 1.0;
  RopeScaling rope_scaling = {};
  double embedding_scale = 1.0;             // factor on the embedded tokens
  double score_scale = 0.0;                 // factor on q·k; 0: 1/√D
  double score_cap = 0.0, logit_cap = 0.0;  // c · tanh(x/c); 0: none
  std::int64_t window = 0;          // tokens that a windowed layer sees, its own among them; 0: all
  std::string window_layers = "w";  // one letter a layer, repeated: w has the window, f sees all
  // One letter a layer, repeated: r rotates queries and keys, n leaves them as they are.
  std::string rope_layers = "r";
  // The published model in a file, as it was read; nullptr: it is of no file.
  std::shared_ptr<const ReadModel> file = {};
  // A module of a user's own, whose program was read from a folder; nullptr: none. Then of the
  // fields above only name, source, vocab (of its tokens) and layers (blocks of a kind) are its.
  std::shared_ptr<const CapturedModel> captured = {};

  std::int64_t head_width() const { return head_size > 0 ? head_size : d_model / heads; }  // D
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t query_width() const { return heads * head_width(); }
  std::int64_t key_width() const { return key_heads() * head_width(); }
  // Elements of a head that are rotated; even.
  std::int64_t rotated_width() const;
  // The window of a layer; 0: it sees all tokens before its own.
  std::int64_t window_of(std::int64_t layer) const;
  // Says whether a layer rotates its queries and keys.
  bool rotates(std::int64_t layer) const;
  // Says whether tiled attention has a form for the layers: scores have no cap.
  bool takes_tiles() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The reference study's sizes: small, medium, large, xl, 2.7B (2025), xl-2026, 10B (2026), and tiny
// (4 layers, 256 wide).
const std::vector<ModelConfig>& model_presets();
// The model of that name among the presets and the published ones (nn/families.h), in any case;
// nullptr: there is none.
const ModelConfig* find_model(std::string_view name);
// Is find_model(); Error{kUsage} with the closest name when there is none.
ModelConfig preset(std::string_view name);

// Writes the model in one form where several say the same: "as many heads of keys as heads" is 0,
// for example.
ModelConfig normalised(ModelConfig config);

// Error{kUsage} naming the field: sizes must be positive, heads divide d_model unless head_size is
// given, kv_heads divide heads, and what is rotated be even (rotation works on pairs).
void validate(const ModelConfig& config);

// The number of parameters, by the sizes of all tensors; the reference Transformer's is
// 2VC + L(4C² + 3CF + 2C) + C.
std::int64_t parameter_formula(const ModelConfig& config);
// FLOPs of a forward pass's matrix products, with all of each layer's scores: the reference
// Transformer's are 2BT(4C² + 3CF)L + 2BTCV + 4BT²CL.
double forward_flops(const ModelConfig& config, double batch, double context);

}  // namespace tracestep
