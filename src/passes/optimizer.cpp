#include "passes/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "ops/moment_codes.h"
#include "passes/autograd.h"
#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

struct Pair {
  Val parameter, gradient;
  std::string name;
  std::size_t group = 0;
};

// Values that the updates of all parameters use; "no value" where one is not needed.
struct Use {
  Val scale;  // factor on the gradients
  Val apply;  // rank-0 bool: whether the step counts
  Val count;  // steps so far, where moments or weights are rounded at random
};

struct Rates {
  Val lr, step_size;  // the latter for AdamW alone
};

class OptimizerPass {
 public:
  OptimizerPass(const Program& program, const OptimizerOptions& options,
                const UpdateContext& context)
      : program_(program), options_(options), context_(context) {}

  Program run() {
    if (options_.moments == Moments::k8Bit && (context_.shards > 1 || context_.tensor > 1)) {
      fail_usage("moments"_field,
                 "blocks of 8-bit moments are of whole tensors, not of a rank's parts");
    }
    // The gradients become updates, so they are no longer outputs.
    Program body = program_;
    std::erase_if(body.outputs, [](const Output& o) { return o.name.starts_with("grad."); });
    Rewriter r(body, "optimizer");
    for (const Node& node : body.nodes) r.copy(node);
    Builder& b = r.builder();
    const auto phase = b.phase(Phase::kOptimizer);
    const auto pass = b.made_by("optimizer");
    const std::vector<Pair> pairs = collect(r);
    for (std::size_t k = 0; k < std::max<std::size_t>(1, context_.groups.size()); ++k)
      add_rates(b, k);
    const ValueId own = program_.find_output("loss");
    const ValueId loss = own != kNoValue ? own : program_.find_leaf(kAccumulatedLoss);
    const Use shared = prepare(b, pairs, loss == kNoValue ? Val{} : r.map(loss));
    const bool rounds = options_.moments != Moments::kF32 ||
                        std::ranges::any_of(pairs, [&](const Pair& p) { return rounds_weight(p); });
    const bool counts = options_.kind != OptimizerKind::kSgd && rounds;
    share_rates(b, pairs);
    const Use use = counts ? with_count(b, shared) : shared;
    for (const Pair& pair : pairs) {
      if (!is_matrix(pair)) update(b, pair, use);
    }
    for (const std::vector<Pair>& batch : batches_of(pairs)) update_matrices(b, batch, use);
    if (use.count) update_count(b, use.count, shared.apply);
    if (options_.loss_scaling.enabled) update_loss_scale(b, options_.loss_scaling, use.apply);
    return r.finish();
  }

 private:
  // Fills shares_: the rates for each UpdateShare::rate that some parameter has.
  void share_rates(Builder& b, const std::vector<Pair>& pairs) {
    const auto scope = b.scope("lr");
    for (const Pair& pair : pairs) {
      const double share = share_of(pair).rate;
      const auto [rates, is_new] = shares_.try_emplace(share, rates_.front());
      if (!is_new || share == 1.0) continue;
      rates->second.lr = ops::affine(lr(), share);
      Val& step_size = rates->second.step_size;
      if (step_size) step_size = ops::affine(step_size, share);
    }
  }

  UpdateShare share_of(const Pair& pair) const {
    const auto found = context_.shares.find(pair.name);
    return found == context_.shares.end() ? UpdateShare() : found->second;
  }

  const Rates& rates_of(const Pair& pair) const {
    return context_.groups.empty() ? shares_.at(share_of(pair).rate) : rates_[pair.group];
  }

  std::vector<Pair> collect(Rewriter& r) const {
    std::vector<Pair> out;
    for (ValueId id : program_.leaves) {
      const Value& leaf = program_.value(id);
      if (leaf.leaf != LeafKind::kParameter) continue;
      const ValueId gradient = gradient_of(leaf.name);
      if (gradient == kNoValue) {
        fail_usage("optimizer", "parameter {} has no gradient; run autograd first", leaf.name);
      }
      out.push_back({r.map(id), r.map(gradient), leaf.name, group_of(leaf.name)});
    }
    return out;
  }

  void add_rates(Builder& b, std::size_t group) {
    Rates& rates = rates_.emplace_back();
    rates.lr = b.input(rate_name("lr", group), {DType::kF32, {}});
    if (options_.kind == OptimizerKind::kSgd) return;
    const Shape shape = context_.groups.empty() ? Shape{} : Shape{2};
    rates.step_size = b.input(rate_name("step_size", group), {DType::kF32, shape});
  }

  std::size_t group_of(const std::string& parameter) const {
    const auto& groups = context_.groups;
    if (groups.empty()) return 0;
    const auto found = std::ranges::find_if(
        groups, [&](const UpdateGroup& group) { return group.parameters.contains(parameter); });
    if (found == groups.end())
      fail_usage("optimizer", "{} is in no group of parameters", parameter);
    return static_cast<std::size_t>(found - groups.begin());
  }

  const Val& lr() const { return rates_.front().lr; }

  // Returns a parameter's gradient: the output, else the state's new value, else the state itself.
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

  // Computes what updates use: norm, scale, `apply`. `loss`: "no value" if another program has it.
  Use prepare(Builder& b, const std::vector<Pair>& pairs, Val loss) const {
    const bool scaled = options_.loss_scaling.enabled, guarded = options_.guard_finite;
    if (options_.clip <= 0.0 && !options_.report_norm && !scaled && !guarded) return {};
    const auto scope = b.scope("grad_norm");
    Val norm = norm_of(b, pairs);
    Use out;
    if (scaled) {
      if (!guarded) out.apply = is_below(norm, std::numeric_limits<double>::infinity());
      out.scale = b.call1("reciprocal", {loss_scale_state(b)});
      norm = ops::mul(norm, out.scale);
    }
    b.output("grad_norm", norm);
    if (guarded) out.apply = is_finite(norm, loss);
    if (options_.clip > 0.0) {
      const Val clipping = clip_factor(b, norm);
      out.scale = out.scale ? ops::mul(out.scale, clipping) : clipping;
    }
    // adamw tells its optional operands apart by position: `apply` needs a scale before it.
    const bool by_place = options_.kind != OptimizerKind::kSgd;
    if (by_place && out.apply && !out.scale) out.scale = ops::fill(b, 1.0, norm.type());
    return out;
  }

  // Sets the step count, and scale and `apply` if they are missing: adamw has them by position.
  Use with_count(Builder& b, Use use) const {
    const auto scope = b.scope(kStepCount);
    if (!use.scale) use.scale = ops::fill(b, 1.0, lr().type());
    if (!use.apply) use.apply = ops::fill(b, 1.0, {DType::kBool, {}});
    use.count = b.state(kStepCount, lr().type());
    return use;
  }

  // Adds one to the count of steps if the step is applied; `apply` as "no value": it always is.
  static void update_count(Builder& b, Val count, Val apply) {
    const auto scope = b.scope(kStepCount);
    const Val next = ops::affine(count, 1.0, 1.0);
    b.update(count, apply ? ops::select(apply, next, count) : next);
  }

  Val norm_of(Builder& b, const std::vector<Pair>& pairs) const {
    std::vector<Val> own, shared;
    for (const Pair& pair : pairs) {
      const bool is_own = context_.tensor == 1 || split_axis(pair.name);
      (is_own ? own : shared).push_back(pair.gradient);
    }
    const RankGroup all{context_.shards * context_.tensor};
    if (all.ranks == 1) return b.call1("global_norm", own);
    return ops::unary("sqrt", collective(b, all, "all_reduce", {own_square(b, own, shared)}));
  }

  // Returns the term that this rank adds to the square of the norm, a sum over all ranks. Of
  // gradients that all ranks of a replica have, each of these ranks adds a share.
  Val own_square(Builder& b, const std::vector<Val>& own, const std::vector<Val>& shared) const {
    const auto square = [&](const std::vector<Val>& gradients) {
      const Val norm = b.call1("global_norm", gradients);
      return ops::mul(norm, norm);
    };
    if (shared.empty()) return square(own);
    const Val fair = ops::affine(square(shared), 1.0 / context_.tensor);
    return own.empty() ? fair : ops::add(square(own), fair);
  }

  // Returns the group of ranks each of which updates its part of the same tensors.
  RankGroup part_group() const { return {context_.shards, context_.tensor}; }

  static Val collective(Builder& b, const RankGroup& group, std::string_view op,
                        std::vector<Val> operands, Attrs attrs = {}) {
    const auto phase = b.phase(Phase::kCommunication);
    return b.call1(op, std::move(operands), in_group(group, std::move(attrs)));
  }

  // Returns whether norm < limit: false for an infinite or NaN norm, as any such element makes it.
  static Val is_below(Val norm, double limit) {
    return ops::binary("lt", norm, ops::fill(*norm.builder, limit, norm.type()));
  }

  // Returns whether norm and loss are finite: 0·loss + limit is the limit if the loss is, else NaN.
  static Val is_finite(Val norm, Val loss) {
    if (!loss) return is_below(norm, kGradNormLimit);
    const Val limit = ops::affine(ops::cast(loss, norm.dtype()), 0.0, kGradNormLimit);
    return ops::binary("lt", norm, limit);
  }

  // Returns the factor on gradients: min(1, clip / (norm + 1e-6)).
  Val clip_factor(Builder& b, Val norm) const {
    const Val padded = ops::affine(norm, 1.0, 1e-6);
    const Val ratio = ops::affine(ops::unary("reciprocal", padded), options_.clip);
    return ops::binary("minimum", ratio, ops::fill(b, 1.0, norm.type()));
  }

  // True if the gradient is this rank's part of a parameter that is whole.
  static bool is_part(const Pair& pair) { return pair.gradient.shape() != pair.parameter.shape(); }

  // Returns the tensor to update: the parameter, or the rank's part of it.
  Val own(Builder& b, const Pair& pair) const {
    if (!is_part(pair)) return pair.parameter;
    return b.call1("own_part", {pair.parameter}, in_group(part_group()));
  }

  void set(Builder& b, const Pair& pair, Val updated) const {
    if (is_part(pair)) {
      updated = collective(b, part_group(), "all_gather", {updated, pair.parameter},
                           {{"shape", pair.parameter.shape()}});
    }
    b.update(pair.parameter, updated);
  }

  bool rounds_weight(const Pair& pair) const {
    return context_.rounds_weights && pair.parameter.dtype() == DType::kBF16;
  }

  // True if the parameter's moments are kept in 8 bits; those of float64 parameters are float64.
  bool is_coded(const Pair& pair) const {
    return options_.moments == Moments::k8Bit && pair.parameter.dtype() != DType::kF64;
  }

  Val state(Builder& b, const Pair& pair, std::string_view prefix) const {
    const DType narrow = options_.moments == Moments::kBF16 ? DType::kBF16 : DType::kF32;
    const DType dtype = pair.parameter.dtype() == DType::kF64 ? DType::kF64 : narrow;
    const std::string name = fmt::format("{}.", prefix);
    if (!is_part(pair)) return b.state_of(pair.parameter, name, dtype);
    return b.state(name + pair.name, {dtype, pair.gradient.shape()});
  }

  void update(Builder& b, const Pair& pair, const Use& use) const {
    const auto guard = b.scope(component_path(pair.name));
    const Val parameter = own(b, pair);
    if (options_.kind == OptimizerKind::kSgd) {
      return set(b, pair, sgd(b, pair, parameter, use));
    }
    if (is_coded(pair)) return update_coded(b, pair, use);
    const Val m = state(b, pair, kFirstMoment), v = state(b, pair, kSecondMoment);
    const Rates& rates = rates_of(pair);
    std::vector<Val> operands{parameter, pair.gradient, m, v, rates.lr, rates.step_size};
    for (const Val& more : {use.scale, use.apply, use.count}) {
      if (more) operands.push_back(more);
    }
    const auto out = b.call(find_op("adamw"), operands, factors(pair));
    set(b, pair, out[0]);
    b.update(m, out[1]);
    b.update(v, out[2]);
  }

  // True if Muon updates the parameter, as it does with the matrices of the context.
  bool is_matrix(const Pair& pair) const {
    return options_.kind == OptimizerKind::kMuon && context_.matrices.contains(pair.name);
  }

  // Returns batches of matrices: Muon's steps for the matrices of one batch are made together.
  std::vector<std::vector<Pair>> batches_of(const std::vector<Pair>& pairs) const {
    std::vector<std::vector<Pair>> out;
    std::map<std::string, std::size_t> open;  // by shape: the batch that is not full
    for (const Pair& pair : pairs) {
      if (!is_matrix(pair)) continue;
      const std::string key = pair.gradient.type().str();
      const std::int64_t count = pair.gradient.shape().product();
      const auto found = open.find(key);
      const bool fits = context_.in_batches && found != open.end() &&
                        (std::ssize(out[found->second]) + 1) * count <= kMostInBatch;
      if (!fits) {
        open[key] = out.size();
        out.emplace_back();
      }
      out[open[key]].push_back(pair);
    }
    return out;
  }

  static Val spread(Val x, Val like) {
    return ops::broadcast_to(ops::cast(x, like.dtype()), like.shape());
  }
  static DType wide_of(Val m) { return m.dtype() == DType::kF64 ? DType::kF64 : DType::kF32; }

  // Muon's momentum: the state, the mean of gradients that replaces it, and the look-ahead.
  struct Motion {
    Val m, mean, ahead;
  };

  // Updates matrices as torch.optim.Muon does, in float32 but for the products.
  void update_matrices(Builder& b, const std::vector<Pair>& batch, const Use& use) const {
    std::vector<Motion> motions;
    for (const Pair& pair : batch) {
      const auto guard = b.scope(component_path(pair.name));
      motions.push_back(motion_of(b, pair, use));
    }
    std::vector<Val> steps;
    if (batch.size() > 1) {
      steps = orthogonal_together(b, motions);
    } else {
      const auto guard = b.scope(component_path(batch.front().name));
      steps = {orthogonal(b, batch.front(), motions.front().ahead)};
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto guard = b.scope(component_path(batch[i].name));
      move(b, batch[i], motions[i], steps[i], use);
    }
  }

  Motion motion_of(Builder& b, const Pair& pair, const Use& use) const {
    const Val m = state(b, pair, kMuonMomentum);
    const DType wide = wide_of(m);
    const double momentum = options_.momentum;
    const Val g = ops::cast(pair.gradient, wide);
    const Val share = use.scale ? ops::mul(g, spread(ops::affine(use.scale, 1.0 - momentum), g))
                                : ops::affine(g, 1.0 - momentum);
    const Val mean = ops::add(ops::affine(ops::cast(m, wide), momentum), share);
    const Val ahead = ops::add(share, ops::affine(mean, momentum));
    return {m, mean, ops::cast(ahead, wide == DType::kF64 ? wide : context_.products)};
  }

  // Returns the orthogonal factors of the motions' look-aheads, all of one shape, by a single node.
  static std::vector<Val> orthogonal_together(Builder& b, const std::vector<Motion>& motions) {
    std::vector<const Node*> makers;
    std::vector<Val> parts;
    for (const Motion& motion : motions) {
      parts.push_back(motion.ahead);
      makers.push_back(&b.program().node(b.program().value(motion.ahead.id).producer));
    }
    const auto count = static_cast<std::int64_t>(parts.size());
    const std::int64_t rows = parts.front().dim(0), columns = parts.front().dim(1);
    const auto guard = b.like(makers);
    const Val all = b.call1("assemble", parts, {{"axis", std::int64_t{0}}});
    const Val y =
        ops::reshape(b.call1("newton_schulz", {ops::reshape(all, {count, rows, columns})}),
                     {count * rows, columns});
    std::vector<Val> out;
    for (std::int64_t i = 0; i < count; ++i)
      out.push_back(ops::slice(y, 0, i * rows, (i + 1) * rows));
    return out;
  }

  void move(Builder& b, const Pair& pair, const Motion& motion, Val orthogonal,
            const Use& use) const {
    const auto& [m, mean, ahead] = motion;
    const DType wide = wide_of(m);
    const Val parameter = own(b, pair), step = ops::cast(orthogonal, wide);
    const Shape& whole = context_.matrices.at(pair.name);
    const Val lr = rates_of(pair).lr;
    Val moved = ops::cast(parameter, wide);
    const double decay = options_.weight_decay * share_of(pair).decay;
    if (decay != 0.0) moved = ops::mul(moved, spread(ops::affine(lr, -decay, 1.0), step));
    moved = ops::sub(moved, ops::mul(step, spread(ops::affine(lr, length_of(whole)), step)));
    const auto rounded = [&](Val x, Val old, bool at_random, bool of_weight) {
      if (!at_random) return ops::cast(x, old.dtype());
      return b.call1("stochastic_round", {x, parameter, pair.gradient, use.count},
                     {{"dtype", old.dtype()}, {"of_weight", of_weight}});
    };
    Val p1 = rounded(moved, parameter, rounds_weight(pair), true);
    Val m1 = rounded(mean, m, m.dtype() == DType::kBF16, false);
    if (use.apply) {
      const Val apply = ops::broadcast_to(use.apply, step.shape());
      p1 = ops::select(apply, p1, parameter);
      m1 = ops::select(apply, m1, m);
    }
    set(b, pair, p1);
    b.update(m, m1);
  }

  // Returns the factor on the learning rate for a matrix [out, in], which depends on its sizes.
  double length_of(const Shape& whole) const {
    const auto out = static_cast<double>(whole[0]), in = static_cast<double>(whole[1]);
    return options_.muon_scale == MuonScale::kOriginal ? std::sqrt(std::max(1.0, out / in))
                                                       : 0.2 * std::sqrt(std::max(out, in));
  }

  // Returns the rank's part of the orthogonal factor of the whole matrix. `x`, the rank's part of
  // that matrix, is gathered in the products' dtype, and transposed if ranks divide columns.
  Val orthogonal(Builder& b, const Pair& pair, Val x) const {
    const auto axis = context_.tensor > 1 ? split_axis(pair.name) : std::nullopt;
    Shape whole = context_.matrices.at(pair.name), block = whole;
    if (axis) block[*axis] /= context_.tensor;
    const bool is_part = x.shape() != block, is_turned = axis == 1;
    Val y = x;
    if (is_part) y = collective(b, part_group(), "all_gather", {y}, {{"shape", block}});
    const RankGroup replica{context_.tensor};
    if (is_turned) {
      y = ops::copy(ops::permute(y, {1, 0}));
      std::swap(whole[0], whole[1]);
      std::swap(block[0], block[1]);
    }
    if (axis) {
      const Val flat = ops::reshape(y, {block.product()});
      y = collective(b, replica, "all_gather", {flat}, {{"shape", whole}});
    }
    y = b.call1("newton_schulz", {y});
    if (axis) y = ops::reshape(b.call1("own_part", {y}, in_group(replica)), block);
    if (is_turned) y = ops::permute(y, {1, 0});
    return is_part ? b.call1("own_part", {y}, in_group(part_group())) : y;
  }

  Attrs factors(const Pair& pair) const {
    UpdateGroup numbers{.beta1 = options_.beta1,
                        .beta2 = options_.beta2,
                        .eps = options_.eps,
                        .weight_decay = options_.weight_decay * share_of(pair).decay};
    if (!context_.groups.empty()) numbers = context_.groups[pair.group];
    return {{"beta1", numbers.beta1},
            {"beta2", numbers.beta2},
            {"eps", numbers.eps},
            {"weight_decay", numbers.weight_decay},
            {"rounds_weight", rounds_weight(pair)}};
  }

  // Updates a parameter with moments in 8 bits: codes, and a scale for each block of them.
  void update_coded(Builder& b, const Pair& pair, const Use& use) const {
    std::vector<Val> states;
    for (const std::string_view moment : {kFirstMoment, kSecondMoment}) {
      states.push_back(b.state_of(pair.parameter, fmt::format("{}.", moment), DType::kU8));
    }
    const std::int64_t blocks = coded_blocks(pair.parameter.shape().product());
    for (const std::string_view moment : {kFirstMoment, kSecondMoment}) {
      const std::string name = fmt::format("{}.{}.{}", moment, pair.name, kMomentScales);
      states.push_back(b.state(name, {DType::kF32, {blocks}}));
    }
    const Rates& rates = rates_of(pair);
    std::vector<Val> operands{rates.lr,  rates.step_size, use.scale,    use.apply,
                              use.count, pair.parameter,  pair.gradient};
    operands.insert(operands.end(), states.begin(), states.end());
    Attrs attrs = factors(pair);
    attrs.set("scaled", true);
    attrs.set("guarded", true);
    const auto out = b.call(find_op("adamw_8bit"), operands, attrs);
    b.update(pair.parameter, out[0]);
    for (std::size_t i = 0; i < states.size(); ++i) b.update(states[i], out[i + 1]);
  }

  // Returns the new value: p - lr·(scale·g), with a group's decay p - lr·(scale·g + decay·p).
  Val sgd(Builder& b, const Pair& pair, Val parameter, const Use& use) const {
    const auto spread = [&](Val x) {
      const Val same =
          x.dtype() == parameter.dtype() ? x : b.call1("cast", {x}, {{"dtype", parameter.dtype()}});
      if (parameter.shape().empty()) return same;
      return b.call1("broadcast", {same}, {{"shape", parameter.shape()}});
    };
    const Val lr = rates_of(pair).lr;
    Val step = b.call1("mul", {pair.gradient, spread(lr)});
    if (use.scale) step = b.call1("mul", {step, spread(use.scale)});
    const double decay = context_.groups.empty() ? 0.0 : context_.groups[pair.group].weight_decay;
    if (decay != 0.0) {
      step = b.call1("add", {step, b.call1("mul", {parameter, spread(ops::affine(lr, decay))})});
    }
    Val moved = b.call1("sub", {parameter, step});
    if (use.apply) {
      const Val apply = ops::broadcast_to(use.apply, moved.shape());
      moved = ops::select(apply, moved, parameter);
    }
    return moved;
  }

  const Program& program_;
  const OptimizerOptions options_;
  const UpdateContext& context_;
  std::vector<Rates> rates_;        // by group
  std::map<double, Rates> shares_;  // where there are no groups
};

// Returns the dtype of the products of updates: as narrow as the model's, but never float16,
// whose range is too small for them.
DType update_products(const Precision& precision) {
  const bool is_narrow = precision.autocast == DType::kBF16 || precision.parameters == DType::kBF16;
  return is_narrow ? DType::kBF16 : DType::kF32;
}

// True if matrices are updated in batches: not inside backward, where a batch would keep gradients
// until it is complete, nor with states in host memory, nor on ranks, which hold or gather parts.
bool has_matrices_in_batches(const PassOptions& o) {
  return o.updates_at_end() && !o.run.parallel.is_on() && !has_optimizer(o.run.offload);
}

}  // namespace

bool is_optimizer_state(std::string_view state) {
  return state.starts_with(kAdamwStates) || state.starts_with(kMuonStates);
}

std::string rate_name(std::string_view rate, std::size_t group) {
  return group == 0 ? std::string(rate) : fmt::format("{}.{}", rate, group);
}

Program optimizer(const Program& program, const OptimizerOptions& options,
                  const UpdateContext& context) {
  return OptimizerPass(program, options, context).run();
}

bool is_applied(double grad_norm, double loss) {
  return grad_norm < kGradNormLimit && std::isfinite(loss);
}

Program optimizer(const Program& p, const PassOptions& o) {
  OptimizerOptions options = o.run.optimizer;
  options.loss_scaling.enabled = o.scales_gradients();
  const Parallel& parallel = o.run.parallel;
  return optimizer(p, options,
                   {.shares = update_shares(o.run),
                    .shards = parallel.shards_optimizer() ? parallel.replicas() : 1,
                    .tensor = parallel.tensor,
                    .rounds_weights = o.context.rounds_weights,
                    .matrices = muon_matrices(o.run),
                    .products = update_products(o.run.precision),
                    .in_batches = has_matrices_in_batches(o)});
}

}  // namespace tracestep
