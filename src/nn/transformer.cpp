#include "nn/transformer.h"

#include "nn/captured_programs.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

using namespace ops;

// A block of memory with weights [out, in] side by side that are multiplied by the same input.
class BlockOf {
 public:
  BlockOf(std::string name, std::int64_t in, std::initializer_list<std::int64_t> rows)
      : name_(std::move(name)), in_(in), rows_(rows) {}

  BlockPart part(std::size_t index) const {
    std::uint64_t before = 0, all = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (i < index) before += count(i);
      all += count(i);
    }
    return {name_, static_cast<std::int64_t>(before), static_cast<std::int64_t>(all)};
  }
  std::int64_t rows(std::size_t index) const { return rows_[index]; }

 private:
  // Returns the elements of a part; unsigned, as too many are refused only when the weight is made.
  std::uint64_t count(std::size_t i) const {
    return static_cast<std::uint64_t>(rows_[i]) * static_cast<std::uint64_t>(in_);
  }

  std::string name_;
  std::int64_t in_;
  std::vector<std::int64_t> rows_;
};

// Returns a bias's part of a block: biases lie as their weights do. `in`: the length of a row.
BlockPart of_bias(const BlockPart& weight, std::int64_t in) {
  if (weight.block.empty()) return {};
  constexpr std::string_view kWeight = ".weight";
  const std::string block = weight.block.substr(0, weight.block.size() - kWeight.size());
  return {block + ".bias", weight.offset / in, weight.count / in};
}

// What the attention of all layers shares: tables of rotation, documents, positions, caches.
struct AttentionContext {
  RopeTable table = {}, windowed_table = {};  // the second: of layers with a window
  Val rows = {};  // of the tables of positions, for each token: [T], or [B,T] of packed rows
  ops::DocumentBounds documents = {};  // of packed rows
  std::int64_t length = 0;             // of the text
  // While decoding: the caches' length and the position in them of the first new token; the
  // windowed ones are those of layers with a window.
  std::int64_t cached = 0, windowed_cached = 0;
  Val position = {}, windowed_position = {};
};

Type cache_type(const ModelConfig& config, std::int64_t batch, std::int64_t length, DType dtype) {
  return {dtype, {batch, config.key_heads(), length, config.head_width()}};
}

std::string cache_name(std::int64_t layer, char which) {
  return fmt::format("cache.{}.{}", layer, which);
}

class Model {
 public:
  Model(Builder& b, const ModelConfig& config, DType weights)
      : b_(b), c_(config), weights_(weights) {
    register_all();
    validate(config);
  }

  Val run(Val tokens, const AttentionContext& attention) {
    const Val table = [&] {
      const auto scope = b_.scope(scope::kEmbedding);
      return weight("token_embeddings.weight", {c_.vocab, c_.d_model});
    }();
    Val x = embed(table, tokens, attention);
    for (std::int64_t i = 0; i < c_.layers; ++i) x = layer(i, x, attention);
    if (attention.position) x = slice(x, 1, x.dim(1) - 1, x.dim(1));  // what comes next
    x = norm("ln_final", x, "ln_final");
    const auto scope = b_.scope(scope::kHead);
    const Val head = c_.is_tied ? table : weight("lm_head.weight", {c_.vocab, c_.d_model});
    return capped(linear(x, head), c_.logit_cap);
  }

  AttentionContext full_context(std::int64_t length) {
    if (c_.positions == Positions::kLearned && length > c_.max_positions) {
      fail_usage("context"_field,
                 "{} tokens are more than the {} positions that the model has learned", length,
                 c_.max_positions);
    }
    AttentionContext out{.length = length};
    if (!rotates_any()) return out;
    const auto scope = b_.scope("rope");
    const std::int64_t width = c_.rotated_width();
    const RopeScaling& s = c_.rope_scaling;
    out.table = rope_table(b_, length, width,
                           {.theta = c_.rope_theta,
                            .scaling = std::string(name_of(s.kind)),
                            .factor = s.factor,
                            .low = s.low,
                            .high = s.high,
                            .original = s.original,
                            .magnitude = s.magnitude,
                            .factors = length > s.original ? s.far : s.near});
    const bool is_same = c_.rope_theta_windowed == 0.0;
    out.windowed_table =
        is_same ? out.table : rope_table(b_, length, width, {.theta = c_.rope_theta_windowed});
    return out;
  }

  // Returns the context for rows of documents: positions begin anew with each. Bounds: i64 [B,T].
  AttentionContext packed(const DocumentBounds& documents) {
    const Type type = documents.starts.type();
    AttentionContext out = full_context(type.shape[1]);
    out.documents = documents;
    out.rows = sub(iota(b_, type, 1), documents.starts);
    const Val flat = reshape(out.rows, {type.count()});
    if (rotates_any()) take_rows(out, flat);
    return out;
  }

  // Returns the context for decoding, with the tables' rows of the decoded positions.
  // `windowed_position`: the position in caches of layers with a window; "no value": `position`.
  AttentionContext decoded(Val position, Val windowed_position, Val rows, std::int64_t length) {
    AttentionContext out = full_context(length);
    out.position = position;
    out.windowed_position = windowed_position ? windowed_position : position;
    out.cached = length;
    out.windowed_cached = windowed_cache(c_, length).length;
    out.rows = rows;
    if (rotates_any()) take_rows(out, rows);
    return out;
  }

 private:
  // Replaces the context's tables of rotation by their rows at the positions `rows`.
  void take_rows(AttentionContext& context, Val rows) {
    const auto scope = b_.scope("rope");
    const bool is_same = context.windowed_table.cos.id == context.table.cos.id;
    context.table = {gather(context.table.cos, rows), gather(context.table.sin, rows)};
    context.windowed_table = is_same ? context.table
                                     : RopeTable{gather(context.windowed_table.cos, rows),
                                                 gather(context.windowed_table.sin, rows)};
  }

  Val weight(const std::string& name, Shape shape, BlockPart part = {}) {
    return b_.parameter(name, {weights_, shape}, std::move(part));
  }

  // Returns x if `cap` is 0, else cap · tanh(x/cap).
  static Val capped(Val x, double cap) {
    return cap == 0.0 ? x : affine(unary("tanh", affine(x, 1.0 / cap)), cap);
  }

  Val embed(Val table, Val tokens, const AttentionContext& context) {
    Val x;
    {
      const auto scope = b_.scope(scope::kEmbedding);
      x = gather(table, tokens);
      if (c_.embedding_scale != 1.0) x = affine(x, c_.embedding_scale);
    }
    if (c_.positions != Positions::kLearned) return x;
    const auto scope = b_.scope("position_embeddings");
    const Val rows = weight("position_embeddings.weight", {c_.max_positions, c_.d_model});
    return add(x, context.rows ? gather(rows, context.rows) : slice(rows, 0, 0, context.length));
  }

  // Returns x normalised by the tensors `name`.weight (or `name`.deviation) and `name`.bias.
  Val norm(std::string_view scope_name, Val x, const std::string& name) {
    const auto scope = b_.scope(scope_name);
    return normalised(x, name, c_.d_model);
  }

  Val normalised(Val x, const std::string& name, std::int64_t width) {
    const bool is_offset = c_.norm_offset != 0.0;
    Val w = weight(name + (is_offset ? ".deviation" : ".weight"), {width});
    if (is_offset) w = affine(w, 1.0, c_.norm_offset);
    if (c_.norm == NormKind::kRms) return rms_norm(x, w, c_.norm_eps);
    const Val bias = c_.norm_bias ? weight(name + ".bias", {width}) : Val{};
    return layer_norm(x, w, bias, c_.norm_eps);
  }

  Val project(std::string_view scope_name, Val x, const std::string& prefix, std::int64_t out,
              bool has_bias, const BlockPart& part = {}) {
    const auto scope = b_.scope(scope_name);
    const std::string name = prefix + "." + std::string(scope_name);
    const Val w = weight(name + ".weight", {out, x.dim(-1)}, part);
    return linear(x, w, has_bias ? weight(name + ".bias", {out}, of_bias(part, x.dim(-1))) : Val{});
  }

  // Returns the branch's result for x, with norms before and after it as the model has them.
  template <class Branch>
  Val branch_of(Val x, const std::string& layer, std::string_view norm_name, Branch branch) {
    const std::string name = layer + "." + std::string(norm_name);
    const bool is_before = c_.norm_place != NormPlace::kAfter;
    const Val y = branch(is_before ? norm(norm_name, x, name) : x);
    if (c_.norm_place == NormPlace::kBefore) return y;
    return norm(std::string(norm_name) + "_after", y, name + "_after");
  }

  Val layer(std::int64_t index, Val x, const AttentionContext& context) {
    const std::string prefix = scope::layer(index);
    const auto scope = b_.scope(prefix);
    const Val attended =
        branch_of(x, prefix, scope::kFirstNorm, [&](Val y) { return attend(index, y, context); });
    const auto fed = [&](Val y) {
      return branch_of(y, prefix, "ln2", [&](Val z) { return feed_forward(z, prefix + ".ffn"); });
    };
    const auto sum = [&](std::string_view path, Val a, Val b) {
      const auto residual = b_.scope(path);
      return add(a, b);
    };
    if (c_.is_parallel) {
      const Val beside = fed(x);
      return sum("ffn.residual", sum("attn.residual", x, attended), beside);
    }
    x = sum("attn.residual", x, attended);
    return sum("ffn.residual", x, fed(x));
  }

  // Separates `count` heads: [B,T,n·D] → [B,n,T,D].
  Val heads(Val x, std::int64_t count) {
    return permute(reshape(x, {x.dim(0), x.dim(1), count, c_.head_width()}), {0, 2, 1, 3});
  }

  Val attend(std::int64_t index, Val x, const AttentionContext& context) {
    const std::string prefix = scope::path({scope::layer(index), scope::kAttention});
    const auto scope = b_.scope(scope::kAttention);
    const std::int64_t window = c_.window_of(index);
    const RopeTable& rotation = window > 0 ? context.windowed_table : context.table;
    const RopeTable table = c_.rotates(index) ? rotation : RopeTable{};
    const BlockOf block(prefix + ".qkv_proj.weight", c_.d_model,
                        {c_.query_width(), c_.key_width(), c_.key_width()});
    const auto projected = [&](std::string_view name, std::size_t i) {
      return project(name, x, prefix, block.rows(i), c_.qkv_bias, block.part(i));
    };
    const auto normed = [&](std::string_view name, std::string_view norm, std::size_t i,
                            std::int64_t count) {
      const std::string norm_name = prefix + "." + std::string(norm);
      Val y = projected(name, i);
      if (c_.qk_norm == QkNorm::kToken) y = qk_normed(norm, y, norm_name);
      y = reshape(y, {x.dim(0), x.dim(1), count, c_.head_width()});
      if (c_.qk_norm == QkNorm::kHead) y = qk_normed(norm, y, norm_name);
      return permute(y, {0, 2, 1, 3});
    };
    const auto key_of = [&] { return normed("k_proj", "k_norm", 1, c_.key_heads()); };
    const auto value_of = [&] { return heads(projected("v_proj", 2), c_.key_heads()); };
    const AttentionOptions options{.scale = c_.score_scale,
                                   .cap = c_.score_cap,
                                   .window = window < context.length ? window : 0};
    Val mixed = normed("q_proj", "q_norm", 0, c_.heads);
    if (context.position) {
      const Val k = key_of(), v = value_of();
      mixed = over_cache(index, mixed, k, v, context, table, options);
    } else {
      const bool is_packed = static_cast<bool>(context.documents.starts);
      mixed = rotate(mixed, table, is_packed);
      const Val k = rotate(key_of(), table, is_packed), v = value_of();
      const Val y = is_packed ? attention_of_documents(mixed, k, v, context.documents, options)
                              : attention(mixed, k, v, options);
      mixed = permute(y, {0, 2, 1, 3});
    }
    const Val joined = reshape(mixed, {x.dim(0), x.dim(1), c_.query_width()});
    return project("output_proj", joined, prefix, c_.d_model, c_.output_bias);
  }

  // Returns the attention of new tokens, [B,n,H,D]; their keys and values are added to the cache.
  Val over_cache(std::int64_t index, Val q, Val k, Val v, const AttentionContext& context,
                 const RopeTable& table, const AttentionOptions& options) {
    const bool is_windowed = c_.window_of(index) > 0;
    const Type type =
        cache_type(c_, k.dim(0), is_windowed ? context.windowed_cached : context.cached, k.dtype());
    const auto state = [&](char which) {
      return b_.state(cache_name(index, which), type, Role::kCache);
    };
    const KeyValueCache cache{state('k'), state('v'),
                              is_windowed ? context.windowed_position : context.position};
    const CachedAttention out = attention_with_cache(q, k, v, cache, table, options);
    b_.update(cache.k, out.k_cache);
    b_.update(cache.v, out.v_cache);
    return out.y;
  }

  Val qk_normed(std::string_view scope_name, Val x, const std::string& name) {
    const auto scope = b_.scope(scope_name);
    return normalised(x, name, x.dim(-1));
  }

  bool rotates_any() const {
    return c_.rotated_width() > 0 && c_.rope_layers.find('r') != std::string::npos;
  }

  // Rotates x: [B,n,T,D]; without a table it stays. The table of packed rows has an entry for each
  // of B·T tokens.
  Val rotate(Val x, const RopeTable& table, bool is_packed) {
    const std::int64_t batch = x.dim(0), count = x.dim(1), length = x.dim(2), width = x.dim(3);
    if (!is_packed || !table.cos || batch == 1) return rotate(x, table);
    const Val rows = reshape(permute(x, {1, 0, 2, 3}), {count, batch * length, width});
    return permute(reshape(rotate(rows, table), {count, batch, length, width}), {1, 0, 2, 3});
  }
  Val rotate(Val x, const RopeTable& table) {
    const std::int64_t width = c_.rotated_width();
    if (!table.cos) return x;
    const auto scope = b_.scope("rope");
    if (width == c_.head_width()) return rope(x, table);
    const int last = x.shape().rank() - 1;
    return concat({rope(slice(x, last, 0, width), table), slice(x, last, width, c_.head_width())},
                  last);
  }

  Val activated(Val x) {
    switch (c_.activation) {
      case Activation::kSilu: return silu(x);
      case Activation::kGelu: return unary("gelu_erf", x);
      case Activation::kGeluTanh: return unary("gelu", x);
      case Activation::kRelu: return unary("relu", x);
    }
    return {};
  }

  Val feed_forward(Val x, const std::string& prefix) {
    const auto scope = b_.scope(scope::kFeedForward);
    const BlockOf block(prefix + ".w1_w3.weight", c_.d_model, {c_.d_ff, c_.d_ff});
    const auto wide = [&](std::string_view name, std::size_t i) {
      return project(name, x, prefix, c_.d_ff, c_.ffn_bias,
                     c_.is_gated ? block.part(i) : BlockPart{});
    };
    Val hidden = wide(scope::kGate, 0);
    const Val up = c_.is_gated ? wide("w3", 1) : Val{};
    {
      const bool is_swiglu = c_.is_gated && c_.activation == Activation::kSilu;
      const auto act = b_.scope(scope::of_activation(c_));
      hidden = is_swiglu ? swiglu(hidden, up) : activated(hidden);
      if (c_.is_gated && !is_swiglu) hidden = mul(hidden, up);
    }
    return project("w2", hidden, prefix, c_.d_model, c_.ffn_bias);
  }

  Builder& b_;
  ModelConfig c_;
  DType weights_;
};

Val token_input(Builder& b, std::string_view name, BatchShape shape) {
  return b.input(name, {DType::kI64, {shape.batch, shape.context}});
}

Val packed_lm(Builder& b, const ModelConfig& config, Val tokens, BatchShape shape, DType weights) {
  Model model(b, config, weights);
  const DocumentBounds documents{token_input(b, kDocumentStarts, shape),
                                 token_input(b, kDocumentEnds, shape)};
  return model.run(tokens, model.packed(documents));
}

}  // namespace

Val transformer_lm(Builder& b, const ModelConfig& config, Val tokens, DType weights) {
  Model model(b, config, weights);
  return model.run(tokens, model.full_context(tokens.dim(1)));
}

Program logits_program(const ModelConfig& config, BatchShape shape, DType weights) {
  if (config.captured != nullptr) return captured_logits(config, shape, weights);
  Builder b("logits");
  b.output("logits", transformer_lm(b, config, token_input(b, "tokens", shape), weights));
  return b.finish();
}

Program loss_program(const ModelConfig& config, BatchShape shape, const LossOptions& options) {
  if (config.captured != nullptr) return captured_loss(config, shape, options);
  Builder b("loss");
  const Val tokens = token_input(b, "tokens", shape);
  const bool has_targets = options.kind == LossKind::kCrossEntropy;
  const Val targets = has_targets ? token_input(b, "targets", shape) : Val();
  const Val logits = options.packed ? packed_lm(b, config, tokens, shape, options.weights)
                                    : transformer_lm(b, config, tokens, options.weights);
  const auto scope = b.scope("loss");
  const std::int64_t rows = shape.batch * shape.context;
  const bool is_masked = has_targets && (options.packed || options.masks_targets);
  const Val count = is_masked ? b.input(kLossCount, {DType::kF32, {}}) : Val();
  Val loss = has_targets ? cross_entropy(reshape(logits, {rows, config.vocab}),
                                         reshape(targets, {rows}), count)
                         : sum(logits, {0, 1, 2});
  if (options.scale != 1.0) loss = affine(loss, options.scale);
  b.output("loss", loss);
  if (options.with_logits) b.output("logits", logits);
  return b.finish();
}

WindowedCache windowed_cache(const ModelConfig& config, std::int64_t context) {
  bool has_window = false;
  for (std::int64_t i = 0; i < config.layers; ++i) has_window |= config.window_of(i) > 0;
  if (!has_window || config.window > context) return {context, context};
  const std::int64_t kept = (config.window + kDecodedAtOnce - 1) / kDecodedAtOnce * kDecodedAtOnce;
  return 2 * kept < context ? WindowedCache{2 * kept, kept} : WindowedCache{context, context};
}

Program slide_program(const ModelConfig& config, BatchShape shape, DType weights) {
  refuse_captured(config, "text cannot be generated by it");
  Builder b("slide");
  register_all();
  const WindowedCache cache = windowed_cache(config, shape.context);
  const Type type = cache_type(config, shape.batch, cache.length, weights);
  const Val first = fill(b, 0.0, {DType::kI64, {}});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    if (config.window_of(i) == 0) continue;
    for (const char which : {'k', 'v'}) {
      const Val state = b.state(cache_name(i, which), type, Role::kCache);
      b.update(state, write_slice(state, slice(state, 2, cache.length - cache.kept, cache.length),
                                  first, 2));
    }
  }
  return b.finish();
}

Program decode_program(const ModelConfig& config, BatchShape shape, DType weights,
                       std::int64_t count) {
  refuse_captured(config, "text cannot be generated by it");
  Builder b("decode");
  const Val tokens = b.input("tokens", {DType::kI64, {shape.batch, count}});
  const Val position = b.input("position", {DType::kI64, {}});
  const bool slides = windowed_cache(config, shape.context).slides();
  const Val windowed = slides ? b.input("windowed_position", position.type()) : Val();
  const Val rows =
      count == 1 ? reshape(position, {1}) : b.input("positions", {DType::kI64, {count}});
  Model model(b, config, weights);
  b.output("logits", model.run(tokens, model.decoded(position, windowed, rows, shape.context)));
  return b.finish();
}

Program greedy_program(const ModelConfig& config, BatchShape shape, DType weights) {
  refuse_captured(config, "text cannot be generated by it");
  Builder b("greedy");
  const Val token = b.state(kGreedyToken, {DType::kI64, {1, 1}}, Role::kCache);
  const Val position = b.state(kGreedyPosition, {DType::kI64, {}}, Role::kCache);
  const Val text = b.state(kGreedyText, {DType::kI64, {shape.context}}, Role::kCache);
  Model model(b, config, weights);
  const bool slides = windowed_cache(config, shape.context).slides();
  const Val windowed =
      slides ? b.state(kGreedyWindowedPosition, position.type(), Role::kCache) : Val();
  const Val logits = model.run(
      token, model.decoded(position, windowed, ops::reshape(position, {1}), shape.context));
  const std::vector<Val> next = b.call(find_op("greedy_token"), {logits});
  b.update(text, write_slice(text, reshape(next[1], {1}), position, 0));
  b.update(token, next[0]);
  const Val one = fill(b, 1.0, position.type());
  b.update(position, add(position, one));
  if (slides) b.update(windowed, add(windowed, one));
  b.output("logits", logits);
  return b.finish();
}

}  // namespace tracestep
