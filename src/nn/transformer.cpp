#include "nn/transformer.h"

#include "ops/functions.h"

namespace tracestep {
namespace {

using namespace ops;

// One of `parts` weights [out, in] that are multiplied by the same input: they lie side by side.
BlockPart part_of(std::string block, std::int64_t index, std::int64_t parts, std::int64_t out,
                  std::int64_t in) {
  // Unsigned, since a product too large is refused only when the weight is made.
  const auto count = static_cast<std::uint64_t>(out) * static_cast<std::uint64_t>(in);
  return {std::move(block), static_cast<std::int64_t>(static_cast<std::uint64_t>(index) * count),
          static_cast<std::int64_t>(static_cast<std::uint64_t>(parts) * count)};
}

// What the attention of all layers shares.
struct AttentionContext {
  RopeTable table;
  Val position;  // set while decoding
  std::int64_t cache_length = 0;
};

class Model {
 public:
  Model(Builder& b, const ModelConfig& config, DType weights)
      : b_(b), c_(config), weights_(weights) {
    register_all();
    validate(config);
  }

  Val run(Val tokens, const AttentionContext& attention) {
    Val x;
    {
      const auto scope = b_.scope(scope::kEmbedding);
      x = gather(weight("token_embeddings.weight", {c_.vocab, c_.d_model}), tokens);
    }
    for (std::int64_t i = 0; i < c_.layers; ++i) x = layer(i, x, attention);
    x = norm("ln_final", x, "ln_final.weight");
    const auto scope = b_.scope(scope::kHead);
    return linear(x, weight("lm_head.weight", {c_.vocab, c_.d_model}));
  }

  AttentionContext full_context(std::int64_t length) {
    const auto scope = b_.scope("rope");
    return {rope_table(b_, length, c_.head_width(), {.theta = c_.rope_theta}), {}, 0};
  }

  // The table's row for the one position that is decoded.
  AttentionContext one_position(Val position, std::int64_t length) {
    const auto scope = b_.scope("rope");
    const RopeTable all = rope_table(b_, length, c_.head_width(), {.theta = c_.rope_theta});
    const Val row = reshape(position, {1});
    return {{gather(all.cos, row), gather(all.sin, row)}, position, length};
  }

 private:
  Val weight(const std::string& name, Shape shape, BlockPart part = {}) {
    return b_.parameter(name, {weights_, shape}, std::move(part));
  }

  Val norm(std::string_view scope_name, Val x, const std::string& name) {
    const auto scope = b_.scope(scope_name);
    return rms_norm(x, weight(name, {c_.d_model}), c_.norm_eps);
  }

  Val project(std::string_view scope_name, Val x, const std::string& prefix, std::int64_t out,
              std::int64_t in, BlockPart part = {}) {
    const auto scope = b_.scope(scope_name);
    return linear(
        x, weight(prefix + "." + std::string(scope_name) + ".weight", {out, in}, std::move(part)));
  }

  Val layer(std::int64_t index, Val x, const AttentionContext& context) {
    const std::string prefix = scope::layer(index);
    const auto scope = b_.scope(prefix);
    const Val attended = attend(index, norm(scope::kFirstNorm, x, prefix + ".ln1.weight"), context);
    {
      const auto residual = b_.scope("attn.residual");
      x = add(x, attended);
    }
    const Val fed = feed_forward(norm("ln2", x, prefix + ".ln2.weight"), prefix + ".ffn");
    const auto residual = b_.scope("ffn.residual");
    return add(x, fed);
  }

  // [B,T,C] → [B,H,T,D]
  Val heads(Val x) {
    return permute(reshape(x, {x.dim(0), x.dim(1), c_.heads, c_.head_width()}), {0, 2, 1, 3});
  }

  Val attend(std::int64_t index, Val x, const AttentionContext& context) {
    const std::string prefix = scope::path({scope::layer(index), scope::kAttention});
    const auto scope = b_.scope(scope::kAttention);
    const std::int64_t width = c_.d_model;
    const auto part = [&](std::int64_t i) {
      return part_of(prefix + ".qkv_proj.weight", i, 3, width, width);
    };
    const Val q = rotate(heads(project("q_proj", x, prefix, width, width, part(0))), context);
    Val k = rotate(heads(project("k_proj", x, prefix, width, width, part(1))), context);
    Val v = heads(project("v_proj", x, prefix, width, width, part(2)));
    if (context.position) {
      k = cached(fmt::format("cache.{}.k", index), k, context);
      v = cached(fmt::format("cache.{}.v", index), v, context);
    }
    const Val mixed = attention(q, k, v, {.causal = true}, context.position);
    const Val joined = reshape(permute(mixed, {0, 2, 1, 3}), {x.dim(0), x.dim(1), width});
    return project("output_proj", joined, prefix, width, width);
  }

  Val rotate(Val x, const AttentionContext& context) {
    const auto scope = b_.scope("rope");
    return rope(x, context.table);
  }

  Val cached(const std::string& name, Val piece, const AttentionContext& context) {
    const auto scope = b_.scope("cache");
    Shape shape = piece.shape();
    shape[2] = context.cache_length;
    const Val cache = b_.state(name, {piece.dtype(), shape}, Role::kCache);
    const Val updated = write_slice(cache, piece, context.position, 2);
    b_.update(cache, updated);
    return updated;
  }

  Val feed_forward(Val x, const std::string& prefix) {
    const auto scope = b_.scope(scope::kFeedForward);
    const auto part = [&](std::int64_t i) {
      return part_of(prefix + ".w1_w3.weight", i, 2, c_.d_ff, c_.d_model);
    };
    const Val gate = project(scope::kGate, x, prefix, c_.d_ff, c_.d_model, part(0));
    const Val up = project("w3", x, prefix, c_.d_ff, c_.d_model, part(1));
    Val hidden;
    {
      const auto act = b_.scope(scope::kSwiglu);
      hidden = swiglu(gate, up);
    }
    return project("w2", hidden, prefix, c_.d_model, c_.d_ff);
  }

  Builder& b_;
  ModelConfig c_;
  DType weights_;
};

Val token_input(Builder& b, std::string_view name, BatchShape shape) {
  return b.input(name, {DType::kI64, {shape.batch, shape.context}});
}

}  // namespace

std::string_view name_of(LossKind kind) {
  return kind == LossKind::kLogitSum ? "sum-of-logits" : "cross-entropy";
}

Val transformer_lm(Builder& b, const ModelConfig& config, Val tokens, DType weights) {
  Model model(b, config, weights);
  return model.run(tokens, model.full_context(tokens.dim(1)));
}

Program logits_program(const ModelConfig& config, BatchShape shape, DType weights) {
  Builder b("logits");
  b.output("logits", transformer_lm(b, config, token_input(b, "tokens", shape), weights));
  return b.finish();
}

Program loss_program(const ModelConfig& config, BatchShape shape, const LossOptions& options) {
  Builder b("loss");
  const Val tokens = token_input(b, "tokens", shape);
  const bool has_targets = options.kind == LossKind::kCrossEntropy;
  const Val targets = has_targets ? token_input(b, "targets", shape) : Val();
  const Val logits = transformer_lm(b, config, tokens, options.weights);
  const auto scope = b.scope("loss");
  const std::int64_t rows = shape.batch * shape.context;
  Val loss = has_targets
                 ? cross_entropy(reshape(logits, {rows, config.vocab}), reshape(targets, {rows}))
                 : sum(logits, {0, 1, 2});
  if (options.scale != 1.0) loss = affine(loss, options.scale);
  b.output("loss", loss);
  if (options.with_logits) b.output("logits", logits);
  return b.finish();
}

Program decode_program(const ModelConfig& config, BatchShape shape, DType weights) {
  Builder b("decode");
  const Val tokens = b.input("tokens", {DType::kI64, {shape.batch, 1}});
  const Val position = b.input("position", {DType::kI64, {}});
  Model model(b, config, weights);
  b.output("logits", model.run(tokens, model.one_position(position, shape.context)));
  return b.finish();
}

}  // namespace tracestep
