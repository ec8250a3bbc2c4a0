#include "ops/functions.h"

#include <cmath>

#include <fmt/ranges.h>

namespace tracestep::ops {
namespace {

Shape broadcast_shape(const Val& a, const Val& b, std::string_view op) {
  const int rank = std::max(a.shape().rank(), b.shape().rank());
  Shape out = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t da = i < a.shape().rank() ? a.shape().back(i) : 1;
    const std::int64_t db = i < b.shape().rank() ? b.shape().back(i) : 1;
    if (da != db && da != 1 && db != 1) {
      fail_usage({About::Kind::kOp, std::string(op)}, "shapes {} and {} do not broadcast",
                 a.shape().str(), b.shape().str());
    }
    out[rank - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace

Val fill(Builder& b, double value, Type type, Here here) {
  return b.call1("fill", {}, {{"value", value}, {"dtype", type.dtype}, {"shape", type.shape}},
                 here);
}

Val iota(Builder& b, Type type, int axis, Here here) {
  return b.call1("iota", {},
                 {{"axis", std::int64_t{axis}}, {"dtype", type.dtype}, {"shape", type.shape}},
                 here);
}

RopeTable rope_table(Builder& b, std::int64_t length, std::int64_t width, const RopeFrequencies& f,
                     DType dtype, Here here) {
  Attrs attrs{{"length", length}, {"width", width}, {"theta", f.theta}, {"dtype", dtype}};
  if (f.scaling != "none") {
    attrs.set("scaling", f.scaling);
    attrs.set("factor", f.factor);
    attrs.set("low", f.low);
    attrs.set("high", f.high);
    attrs.set("original", f.original);
    attrs.set("magnitude", f.magnitude);
    if (!f.factors.empty()) attrs.set("factors", fmt::format("{}", fmt::join(f.factors, ":")));
  }
  const auto out = b.call(find_op("rope_table"), {}, std::move(attrs), here);
  return {out[0], out[1]};
}

Val unary(std::string_view op, Val x, Here here) {
  return x.builder->call1(op, {x}, {}, here);
}

Val binary(std::string_view op, Val a, Val b, Here here) {
  const Shape shape = broadcast_shape(a, b, op);
  return a.builder->call1(op, {broadcast_to(a, shape, here), broadcast_to(b, shape, here)}, {},
                          here);
}

Val add(Val a, Val b, Here here) {
  return binary("add", a, b, here);
}
Val sub(Val a, Val b, Here here) {
  return binary("sub", a, b, here);
}
Val mul(Val a, Val b, Here here) {
  return binary("mul", a, b, here);
}
Val div(Val a, Val b, Here here) {
  return binary("div", a, b, here);
}
Val silu(Val x, Here here) {
  return unary("silu", x, here);
}
Val swiglu(Val gate, Val up, Here here) {
  return binary("swiglu", gate, up, here);
}

Val affine(Val x, double scale, double shift, Here here) {
  return x.builder->call1("affine", {x}, {{"scale", scale}, {"shift", shift}}, here);
}

Val select(Val condition, Val if_true, Val if_false, Here here) {
  Shape shape = broadcast_shape(if_true, if_false, "select");
  if (condition.shape().rank() > shape.rank()) shape = condition.shape();
  return if_true.builder->call1(
      "select",
      {broadcast_to(condition, shape, here), broadcast_to(if_true, shape, here),
       broadcast_to(if_false, shape, here)},
      {}, here);
}

Val cast(Val x, DType dtype, Here here) {
  if (x.dtype() == dtype) return x;
  return x.builder->call1("cast", {x}, {{"dtype", dtype}}, here);
}

Val reshape(Val x, Shape shape, Here here) {
  if (x.shape() == shape) return x;
  return x.builder->call1("reshape", {x}, {{"shape", shape}}, here);
}

Val permute(Val x, Dims axes, Here here) {
  return x.builder->call1("permute", {x}, {{"axes", axes}}, here);
}

Val slice(Val x, int axis, std::int64_t start, std::int64_t stop, Here here) {
  return x.builder->call1("slice", {x},
                          {{"axis", std::int64_t{axis}}, {"start", start}, {"stop", stop}}, here);
}

Val broadcast_to(Val x, Shape shape, Here here) {
  if (x.shape() == shape) return x;
  return x.builder->call1("broadcast", {x}, {{"shape", shape}}, here);
}

Val stop_gradient(Val x, Here here) {
  return unary("stop_gradient", x, here);
}
Val copy(Val x, Here here) {
  return unary("copy", x, here);
}

Val concat(std::vector<Val> xs, int axis, Here here) {
  Builder& b = *xs.at(0).builder;
  return b.call1("concat", std::move(xs), {{"axis", std::int64_t{axis}}}, here);
}

Val write_slice(Val base, Val piece, Val position, int axis, Here here) {
  return base.builder->call1("write_slice", {base, piece, position}, {{"axis", std::int64_t{axis}}},
                             here);
}

Val sum(Val x, Dims axes, bool keepdims, Here here) {
  return x.builder->call1("sum", {x}, {{"axes", axes}, {"keepdims", keepdims}}, here);
}

Val max(Val x, Dims axes, bool keepdims, Here here) {
  return x.builder->call1("max", {x}, {{"axes", axes}, {"keepdims", keepdims}}, here);
}

Val sum_to(Val x, const Shape& shape, Here here) {
  if (x.shape() == shape) return x;
  Dims axes;
  const int extra = x.shape().rank() - shape.rank();
  for (int i = 0; i < x.shape().rank(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && x.shape()[i] != 1)) axes.push_back(i);
  }
  return reshape(sum(x, axes, false, here), shape, here);
}

Val matmul(Val a, Val b, MatmulOptions options, Here here) {
  return a.builder->call1(
      "matmul", {a, b},
      {{"transpose_a", options.transpose_a}, {"transpose_b", options.transpose_b}}, here);
}

Val matmul_bias(Val a, Val b, Val bias, MatmulOptions options, Here here) {
  return a.builder->call1(
      "matmul_bias", {a, b, bias},
      {{"transpose_a", options.transpose_a}, {"transpose_b", options.transpose_b}}, here);
}

Val linear(Val x, Val weight, Val bias, Here here) {
  const Shape shape = x.shape();
  if (shape.empty() || weight.shape().rank() != 2 || shape.back() != weight.shape()[1]) {
    fail_usage("linear", "x {} does not fit weight {} ([out, in])", shape.str(),
               weight.shape().str());
  }
  const std::int64_t rows = shape.back() == 0 ? 0 : shape.product() / shape.back();
  const Val flat = reshape(x, {rows, shape.back()}, here);
  Shape out = shape;
  out[out.rank() - 1] = weight.shape()[0];
  constexpr MatmulOptions kByRows{.transpose_b = true};
  const Val y =
      bias ? matmul_bias(flat, weight, bias, kByRows, here) : matmul(flat, weight, kByRows, here);
  return reshape(y, out, here);
}

Val gather(Val table, Val indices, Here here) {
  return table.builder->call1("gather", {table, indices}, {}, here);
}

Val take_along(Val x, Val indices, Here here) {
  return x.builder->call1("take_along", {x, indices}, {}, here);
}

Val softmax(Val x, SoftmaxOptions options, Val position, Here here) {
  std::vector<Val> operands{x};
  if (position) operands.push_back(position);
  return x.builder->call1("softmax", operands,
                          {{"scale", options.scale}, {"causal", options.causal}}, here);
}

Val log_sum_exp(Val x, Here here) {
  return unary("log_sum_exp", x, here);
}

Val rms_norm(Val x, Val weight, double eps, Here here) {
  return x.builder->call1("rms_norm", {x, weight}, {{"eps", eps}}, here);
}

Val layer_norm(Val x, Val weight, Val bias, double eps, Here here) {
  std::vector<Val> operands{x, weight};
  if (bias) operands.push_back(bias);
  return x.builder->call1("layer_norm", operands, {{"eps", eps}}, here);
}

Val rope(Val x, RopeTable table, bool inverse, Here here) {
  return x.builder->call1("rope", {x, table.cos, table.sin}, {{"inverse", inverse}}, here);
}

namespace {
double scale_of(const AttentionOptions& options, Val q) {
  return options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.dim(-1)));
}
}  // namespace

CachedAttention attention_with_cache(Val q, Val k, Val v, const KeyValueCache& cache,
                                     const RopeTable& table, AttentionOptions options, Here here) {
  std::vector<Val> operands{q, k, v, cache.k, cache.v, cache.position};
  if (table.cos) operands.insert(operands.end(), {table.cos, table.sin});
  const std::vector<Val> out = q.builder->call(
      find_op("attention_with_cache"), operands,
      {{"scale", scale_of(options, q)}, {"cap", options.cap}, {"window", options.window}}, here);
  return {out[0], out[1], out[2]};
}

Val attention(Val q, Val k, Val v, AttentionOptions options, Val position, Here here) {
  std::vector<Val> operands{q, k, v};
  if (position) operands.push_back(position);
  const double scale = scale_of(options, q);
  return q.builder->call1("attention", operands,
                          {{"scale", scale},
                           {"causal", options.causal},
                           {"cap", options.cap},
                           {"window", options.window}},
                          here);
}

Val attention_of_documents(Val q, Val k, Val v, const DocumentBounds& documents,
                           AttentionOptions options, Here here) {
  return q.builder->call1(
      "attention_of_documents", {q, k, v, documents.starts, documents.ends},
      {{"scale", scale_of(options, q)}, {"cap", options.cap}, {"window", options.window}}, here);
}

Val cross_entropy(Val logits, Val targets, Val count, Here here) {
  std::vector<Val> operands{logits, targets};
  if (count) operands.push_back(count);
  return logits.builder->call1("cross_entropy", operands, {}, here);
}

Val global_norm(std::vector<Val> xs, Here here) {
  Builder& b = *xs.at(0).builder;
  return b.call1("global_norm", std::move(xs), {}, here);
}

}  // namespace tracestep::ops
