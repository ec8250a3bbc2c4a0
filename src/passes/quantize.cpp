#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

constexpr std::int64_t kWhole = 16;  // sizes are multiples of this
// The fewest multiply-adds per element of operands and result at which quantizing a product pays:
// fewer take less time in bf16 than is spent on quantizing (docs/decisions/passes.md).
constexpr std::int64_t kLeastPaying = 640;

// Returns the largest number that a code of this dtype can hold.
double largest_of(DType codes) {
  return codes == DType::kF8E4M3 ? 448.0 : 57344.0;
}

// Returns the factor by which magnitudes may be larger or smaller than in the step before. With it
// all numbers lie so far above the smallest codes that these add less to a product's error than 1 %
// of what rounding adds to numbers of root mean square size; gradients change more between steps.
double room_of(DType codes) {
  return codes == DType::kF8E4M3 ? 8.0 : 64.0;
}

// Returns the dtype of an operand's codes: the first operand of backward's products is a gradient.
DType code_dtype(const Node& reader, std::size_t operand) {
  const bool is_gradient = operand == 0 && reader.origin().phase == Phase::kBackward;
  return is_gradient ? DType::kF8E5M2 : DType::kF8E4M3;
}

// Returns, element by element, the largest of `found` over all ranks.
Val largest_of_ranks(Builder& b, Val found, int ranks) {
  if (ranks == 1) return found;
  const Shape all{ranks, found.type().count()};
  const Val gathered = [&] {
    const auto phase = b.phase(Phase::kCommunication);
    return b.call1("all_gather", {found}, in_group({ranks}, {{"shape", all}}));
  }();
  return ops::max(gathered, {0});
}

class Quantizer {
 public:
  Quantizer(const Program& program, const QuantizeOptions& options)
      : program_(program), options_(options), r_(program, "quantize") {
    for (const Node& node : program.nodes) chosen_ += is_chosen(node) ? 1 : 0;
    if (options.scaling == Float8Scaling::kDelayed && chosen_ > 0) keep_largest();
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_chosen(node)) {
        multiply(node);
        ++count_;
        continue;
      }
      // The largest magnitudes are found beside the last sums of gradients.
      const bool is_update = node.origin().phase == Phase::kOptimizer;
      if (options_.ranks > 1 && is_update && count_ == chosen_) leave_largest();
      r_.copy(node);
    }
    leave_largest();
    return r_.finish();
  }
  std::int64_t count() const { return count_; }

 private:
  struct Codes {
    Val plain, transposed, scale;
  };
  // Equal for operands with the same elements, in the same order, in the same dtype.
  using Key = std::vector<std::int64_t>;
  static constexpr std::int64_t kFirstAxis = 0;

  // Adds states with an element for each operand that will be quantized.
  void keep_largest() {
    std::set<Key> operands;
    for (const Node& node : program_.nodes) {
      if (!is_chosen(node)) continue;
      for (std::size_t i : {0, 1}) operands.insert(key_of(node, i));
    }
    const auto count = static_cast<std::int64_t>(operands.size());
    last_ = r_.builder().state(kLargestMagnitudes, {DType::kF32, {count}}, Role::kNone);
    if (is_whole()) return;
    found_ = r_.builder().state(kFoundMagnitudes, {DType::kF32, {count}}, Role::kNone);
  }

  bool is_whole() const { return options_.gradients == GradientKind::kTransient; }

  void leave_largest() {
    if (largest_.empty()) return;
    Builder& b = r_.builder();
    const auto scope = b.scope("fp8");
    const auto phase = b.phase(Phase::kOptimizer);
    const Val all = [&] {
      const auto before = b.phase(options_.ranks > 1 ? Phase::kCommunication : Phase::kOptimizer);
      return b.call1("assemble", std::exchange(largest_, {}), {{"axis", kFirstAxis}});
    }();
    if (is_whole()) {
      b.update(last_, largest_of_ranks(b, all, options_.ranks));
    } else {
      const bool is_first = options_.gradients == GradientKind::kPersistent;
      b.update(found_, is_first ? all : ops::binary("maximum", found_, all));
    }
  }

  // True for a product in the layers to compute in 8 bits; those of updates (Muon's) do not count.
  bool is_chosen(const Node& node) const {
    if (!node.op->product || layer_of(node.origin().path).empty()) return false;
    if (node.origin().phase == Phase::kOptimizer) return false;
    const Type &a = program_.type(node.inputs[0]), &y = program_.type(node.outputs[0]);
    if (a.dtype != DType::kBF16 || a.shape.rank() != 2) return false;
    const std::int64_t m = y.shape[0], n = y.shape[1], k = a.count() / std::max<std::int64_t>(m, 1);
    if (m == 0 || n == 0 || k == 0 || m % kWhole != 0 || n % kWhole != 0 || k % kWhole != 0) {
      return false;
    }
    return options_.products == Float8Products::kAll ||
           m * n * k >= kLeastPaying * (m * n + m * k + n * k);
  }

  void multiply(const Node& node) {
    const Codes a = codes_of(node, 0), b = codes_of(node, 1);
    const bool ta = node.attrs.flag("transpose_a"), tb = node.attrs.flag("transpose_b");
    const auto guard = r_.from(node);
    const Val y = r_.builder().call1(
        "scaled_matmul",
        {ta ? a.transposed : a.plain, tb ? b.plain : b.transposed, a.scale, b.scale},
        {{"dtype", program_.type(node.outputs[0]).dtype}});
    const bool has_bias = node.inputs.size() == 3;
    r_.replace(node, {has_bias ? ops::add(y, r_.map(node.inputs[2])) : y});
  }

  static bool reads_transposed(const Node& reader, std::size_t operand) {
    return operand == 0 ? reader.attrs.flag("transpose_a") : !reader.attrs.flag("transpose_b");
  }

  // The columns of an assembly (`merge`) that a product reads; they are rows of the assembly's
  // transposed codes. The whole assembly is quantized, as for the product that reads all of it.
  struct Columns {
    std::int64_t first = 0, width = 0;  // width: of the assembly
  };
  std::optional<Columns> columns_of(const Node& reader, std::size_t operand) const {
    const Value& value = program_.value(reader.inputs[operand]);
    const NodeId maker = program_.value(value.layout.base).producer;
    const Columns out{value.layout.offset, value.layout.strides[0]};
    const bool is_part =
        maker != kNoNode && program_.node(maker).op->is_assembly() &&
        value.layout.strides[1] == 1 && out.first < out.width &&
        value.type.shape[0] * out.width == program_.type(value.layout.base).count();
    return is_part && reads_transposed(reader, operand) ? std::optional(out) : std::nullopt;
  }

  // Returns the key of an operand: the same for the same elements, whichever view leads to them.
  Key key_of(const Node& reader, std::size_t operand) const {
    const Value& value = program_.value(reader.inputs[operand]);
    if (const auto columns = columns_of(reader, operand)) {
      return {value.layout.base,
              0,
              static_cast<std::int64_t>(code_dtype(reader, operand)),
              value.type.shape[0],
              columns->width,
              columns->width,
              1};
    }
    Key key{value.layout.base, value.layout.offset,
            static_cast<std::int64_t>(code_dtype(reader, operand))};
    std::ranges::copy(value.type.shape, std::back_inserter(key));
    std::ranges::copy(value.layout.strides, std::back_inserter(key));
    return key;
  }

  Codes codes_of(const Node& reader, std::size_t operand) {
    const auto columns = columns_of(reader, operand);
    Codes out = codes_of_whole(reader, operand, columns);
    const std::int64_t count = program_.type(reader.inputs[operand]).shape[1];
    if (!columns || columns->width == count) return out;
    const auto guard = r_.from(reader);
    out.transposed = ops::slice(out.transposed, 0, columns->first, columns->first + count);
    return out;
  }

  Codes codes_of_whole(const Node& reader, std::size_t operand,
                       const std::optional<Columns>& columns) {
    const Key key = key_of(reader, operand);
    if (const auto found = codes_.find(key); found != codes_.end()) return found->second;
    const auto guard = r_.from(reader);
    const ValueId id = reader.inputs[operand];
    const Value& value = program_.value(id);
    const Val x =
        columns ? ops::reshape(r_.map(value.layout.base), {value.type.shape[0], columns->width})
                : r_.map(id);
    const std::vector<Val> made = quantized(x, code_dtype(reader, operand));
    const Role role = program_.value(program_.value(id).layout.base).role;
    if (role == Role::kWeightCast) {
      for (std::size_t i : {0, 1, 2}) r_.builder().set_role(made[i], role);
    }
    return codes_.emplace(key, Codes{made[0], made[1], made[2]}).first->second;
  }

  std::vector<Val> quantized(Val x, DType dtype) {
    Builder& b = r_.builder();
    Attrs attrs{{"dtype", dtype}, {"largest", AttrValue(largest_of(dtype))}};
    if (!last_) return b.call(find_op("quantize"), {x}, attrs);
    const auto index = static_cast<std::int64_t>(largest_.size());
    attrs.set("room", AttrValue(room_of(dtype)));
    const Val last = ops::slice(last_, 0, index, index + 1);
    std::vector<Val> out = b.call(find_op("quantize_delayed"), {x, last}, attrs);
    largest_.push_back(out[3]);
    return out;
  }

  const Program& program_;
  const QuantizeOptions options_;
  Rewriter r_;
  std::map<Key, Codes> codes_;
  Val last_;                  // the state of largest magnitudes; none where scales are current
  Val found_;                 // those of the micro-batches before this one, in a micro-batch
  std::vector<Val> largest_;  // what is found, in the order of the program
  std::int64_t count_ = 0, chosen_ = 0;
};

}  // namespace

Program quantize(const Program& program, const QuantizeOptions& options,
                 const std::function<bool(const OpDef&)>& has_kernel) {
  Quantizer pass(program, options);
  const Program out = remove_dead_nodes(pass.run());
  if (pass.count() == 0 && !options.may_have_none) {
    const bool may_all = options.products == Float8Products::kPaying;
    throw Error(ErrorCode::kUsage, "precision"_field,
                fmt::format("fp8: no product of the layers {}",
                            may_all ? "is large enough to gain by 8 bits"
                                    : "has sizes that are multiples of 16"),
                may_all ? "use bf16, or " TRACESTEP_OPTION(fp8_products) " all" : "use bf16");
  }
  return decompose(quantize_sources(gather_codes(out)),
                   [&](const OpDef& op) { return op.only_on_gpus && !has_kernel(op); });
}

void take_found_magnitudes(Builder& b, const Type& type, int ranks) {
  const auto scope = b.scope("fp8");
  const auto phase = b.phase(Phase::kOptimizer);
  const Val last = b.state(kLargestMagnitudes, type, Role::kNone),
            found = b.state(kFoundMagnitudes, type, Role::kNone);
  b.update(last, largest_of_ranks(b, found, ranks));
}

bool quantizes(const PassOptions& o) {
  return o.run.precision.float8;
}

// Quantizes as the run says; without backward there may be no product that is worth it.
Program quantize(const Program& p, const PassOptions& o) {
  const bool may_have_none = !o.differentiates() || o.run.mode == Mode::kForward;
  return quantize(p,
                  {.products = o.run.fp8_products,
                   .scaling = o.trains() ? o.run.fp8_scaling : Float8Scaling::kCurrent,
                   .may_have_none = may_have_none,
                   .gradients = o.updates() ? GradientKind::kTransient : o.run.gradients,
                   .ranks = o.run.parallel.ranks},
                  [&](const OpDef& op) { return o.has_kernel(op); });
}

}  // namespace tracestep
