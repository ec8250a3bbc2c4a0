#include "passes/optimizer.h"

#include "ir/rewrite.h"
#include "passes/autograd.h"

namespace tracestep {
namespace {

// "layers.0.attn.q_proj.weight" → "layers.0.attn.q_proj"
std::string component_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

struct Pair {
  Val parameter, gradient;
  std::string name;
};

class OptimizerPass {
 public:
  OptimizerPass(const Program& program, const OptimizerOptions& options)
      : program_(program), options_(options) {}

  Program run() {
    // The gradients become updates: they are outputs no more.
    Program body = program_;
    std::erase_if(body.outputs, [](const Output& o) { return o.name.starts_with("grad."); });
    Rewriter r(body, "optimizer");
    for (const Node& node : body.nodes) r.copy(node);
    Builder& b = r.builder();
    const auto phase = b.phase(Phase::kOptimizer);
    const auto pass = b.made_by("optimizer");
    const std::vector<Pair> pairs = collect(r);
    lr_ = b.input("lr", {DType::kF32, {}});
    if (options_.kind == OptimizerKind::kAdamw) step_size_ = b.input("step_size", lr_.type());
    const Val scale = clip_scale(b, pairs);
    for (const Pair& pair : pairs) update(b, pair, scale);
    return r.finish();
  }

 private:
  std::vector<Pair> collect(Rewriter& r) const {
    std::vector<Pair> out;
    for (ValueId id : program_.leaves) {
      const Value& leaf = program_.value(id);
      if (leaf.leaf != LeafKind::kParameter) continue;
      const ValueId gradient = gradient_of(leaf.name);
      if (gradient == kNoValue) {
        fail_usage("optimizer", "parameter {} has no gradient; run autograd first", leaf.name);
      }
      out.push_back({r.map(id), r.map(gradient), leaf.name});
    }
    return out;
  }

  // The output, or the state leaf: its new value where this very program makes one.
  ValueId gradient_of(const std::string& parameter) const {
    const std::string name = gradient_name(parameter);
    const ValueId output = program_.find_output(name);
    if (output != kNoValue) return output;
    const ValueId state = program_.find_leaf(name);
    for (const Update& u : program_.updates) {
      if (u.leaf == state) return u.value;
    }
    return state;
  }

  // min(1, clip / (norm + 1e-6)), or "no value".
  Val clip_scale(Builder& b, const std::vector<Pair>& pairs) const {
    if (options_.clip <= 0.0 && !options_.report_norm) return {};
    const auto guard = b.scope("grad_norm");
    std::vector<Val> gradients;
    for (const Pair& pair : pairs) gradients.push_back(pair.gradient);
    const Val norm = b.call1("global_norm", gradients);
    b.output("grad_norm", norm);
    if (options_.clip <= 0.0) return {};
    const Val padded = b.call1("affine", {norm}, {{"shift", 1e-6}});
    const Val ratio =
        b.call1("affine", {b.call1("reciprocal", {padded})}, {{"scale", options_.clip}});
    const Val one =
        b.call1("fill", {}, {{"value", 1.0}, {"dtype", norm.dtype()}, {"shape", Dims{}}});
    return b.call1("minimum", {ratio, one});
  }

  void update(Builder& b, const Pair& pair, Val scale) const {
    const auto guard = b.scope(component_of(pair.name));
    if (options_.kind == OptimizerKind::kSgd) return sgd(b, pair, scale);
    const DType state_dtype = DType::kF32;
    const Type type{pair.parameter.dtype() == DType::kF64 ? DType::kF64 : state_dtype,
                    pair.parameter.shape()};
    const Val m = b.state("adamw.m." + pair.name, type);
    const Val v = b.state("adamw.v." + pair.name, type);
    std::vector<Val> operands{pair.parameter, pair.gradient, m, v, lr_, step_size_};
    if (scale) operands.push_back(scale);
    const auto out = b.call(find_op("adamw"), operands,
                            {{"beta1", options_.beta1},
                             {"beta2", options_.beta2},
                             {"eps", options_.eps},
                             {"weight_decay", options_.weight_decay}});
    b.update(pair.parameter, out[0]);
    b.update(m, out[1]);
    b.update(v, out[2]);
  }

  // p ← p - lr·(scale·g)
  void sgd(Builder& b, const Pair& pair, Val scale) const {
    const auto spread = [&](Val x) {
      const Val same = x.dtype() == pair.parameter.dtype()
                           ? x
                           : b.call1("cast", {x}, {{"dtype", pair.parameter.dtype()}});
      if (pair.parameter.shape().empty()) return same;
      return b.call1("broadcast", {same}, {{"shape", pair.parameter.shape()}});
    };
    Val step = b.call1("mul", {pair.gradient, spread(lr_)});
    if (scale) step = b.call1("mul", {step, spread(scale)});
    b.update(pair.parameter, b.call1("sub", {pair.parameter, step}));
  }

  const Program& program_;
  OptimizerOptions options_;
  Val lr_, step_size_;
};

}  // namespace

Program optimizer(const Program& program, const OptimizerOptions& options) {
  return OptimizerPass(program, options).run();
}

}  // namespace tracestep
