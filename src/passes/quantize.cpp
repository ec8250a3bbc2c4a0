#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kWhole = 16;  // sizes are multiples of this
// The least multiply-adds for each element of operands and result: fewer take less time in bf16
// than is spent on quantizing (docs/decisions/passes.md).
constexpr std::int64_t kLeastPaying = 640;

// The largest magnitude of a dtype's numbers.
double largest_of(DType codes) {
  return codes == DType::kF8E4M3 ? 448.0 : 57344.0;
}

// How far magnitudes may be from those of the step before. All of the numbers then lie so far from
// the smallest codes that these add less to the error of a product than a hundredth of the rounding
// of what is as large as the root mean square; gradients change more from step to step.
double room_of(DType codes) {
  return codes == DType::kF8E4M3 ? 8.0 : 64.0;
}

// Backward's products have a gradient as their first operand.
DType code_dtype(const Node& reader, std::size_t operand) {
  const bool is_gradient = operand == 0 && reader.origin().phase == Phase::kBackward;
  return is_gradient ? DType::kF8E5M2 : DType::kF8E4M3;
}

class Quantizer {
 public:
  Quantizer(const Program& program, const QuantizeOptions& options)
      : program_(program), products_(options.products), r_(program, "quantize") {
    if (options.scaling == Float8Scaling::kDelayed) keep_largest();
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_chosen(node)) {
        multiply(node);
        ++count_;
      } else {
        r_.copy(node);
      }
    }
    if (!largest_.empty()) {
      const auto scope = r_.builder().scope("fp8");
      const auto phase = r_.builder().phase(Phase::kOptimizer);
      r_.builder().update(last_, r_.builder().call1("assemble", largest_, {{"axis", kFirstAxis}}));
    }
    return r_.finish();
  }
  std::int64_t count() const { return count_; }

 private:
  struct Codes {
    Val plain, transposed, scale;
  };
  // Which elements, in which order, as which dtype.
  using Key = std::vector<std::int64_t>;
  static constexpr std::int64_t kFirstAxis = 0;

  // A state with an element for each operand that will be quantized.
  void keep_largest() {
    std::set<Key> operands;
    for (const Node& node : program_.nodes) {
      if (!is_chosen(node)) continue;
      for (std::size_t i : {0, 1}) operands.insert(key_of(node, i));
    }
    if (operands.empty()) return;
    const auto count = static_cast<std::int64_t>(operands.size());
    last_ = r_.builder().state(kLargestMagnitudes, {DType::kF32, {count}});
  }

  bool is_chosen(const Node& node) const {
    if (!node.op->product || layer_of(node.origin().path).empty()) return false;
    const Type &a = program_.type(node.inputs[0]), &y = program_.type(node.outputs[0]);
    if (a.dtype != DType::kBF16 || a.shape.rank() != 2) return false;
    const std::int64_t m = y.shape[0], n = y.shape[1], k = a.count() / std::max<std::int64_t>(m, 1);
    if (m == 0 || n == 0 || k == 0 || m % kWhole != 0 || n % kWhole != 0 || k % kWhole != 0) {
      return false;
    }
    return products_ == Float8Products::kAll || m * n * k >= kLeastPaying * (m * n + m * k + n * k);
  }

  void multiply(const Node& node) {
    const Codes a = codes_of(node, 0), b = codes_of(node, 1);
    const bool ta = node.attrs.flag("transpose_a"), tb = node.attrs.flag("transpose_b");
    const auto guard = r_.from(node);
    r_.replace(node, {r_.builder().call1("scaled_matmul",
                                         {ta ? a.transposed : a.plain, tb ? b.plain : b.transposed,
                                          a.scale, b.scale},
                                         {{"dtype", program_.type(node.outputs[0]).dtype}})});
  }

  // Operands of the same elements have the same key, whichever view leads to them.
  Key key_of(const Node& reader, std::size_t operand) const {
    const Value& value = program_.value(reader.inputs[operand]);
    Key key{value.layout.base, value.layout.offset,
            static_cast<std::int64_t>(code_dtype(reader, operand))};
    std::ranges::copy(value.type.shape, std::back_inserter(key));
    std::ranges::copy(value.layout.strides, std::back_inserter(key));
    return key;
  }

  Codes codes_of(const Node& reader, std::size_t operand) {
    const Key key = key_of(reader, operand);
    if (const auto found = codes_.find(key); found != codes_.end()) return found->second;
    const auto guard = r_.from(reader);
    const ValueId id = reader.inputs[operand];
    const std::vector<Val> made = quantized(r_.map(id), code_dtype(reader, operand));
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
  const Float8Products products_;
  Rewriter r_;
  std::map<Key, Codes> codes_;
  Val last_;                  // the state of largest magnitudes; none where scales are current
  std::vector<Val> largest_;  // its new elements
  std::int64_t count_ = 0;
};

}  // namespace

Program quantize(const Program& program, const QuantizeOptions& options,
                 const std::function<bool(const OpDef&)>& has_kernel) {
  Quantizer pass(program, options);
  Program out = pass.run();
  if (pass.count() == 0 && !options.may_have_none) {
    const bool may_all = options.products == Float8Products::kPaying;
    throw Error(ErrorCode::kUsage, "precision",
                fmt::format("fp8: no product of the layers {}",
                            may_all ? "is large enough to gain by 8 bits"
                                    : "has sizes that are multiples of 16"),
                may_all ? "use bf16, or option fp8_products all" : "use bf16");
  }
  return decompose(quantize_sources(out),
                   [&](const OpDef& op) { return op.only_on_gpus && !has_kernel(op); });
}

}  // namespace tracestep
