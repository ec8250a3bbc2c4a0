#include <algorithm>
#include <map>
#include <vector>

#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "passes/form_passes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kWhole = 16;  // sizes are multiples of this
// The least multiply-adds for each element of operands and result: fewer take less time in bf16
// than is spent on quantizing (docs/decisions/passes.md).
constexpr std::int64_t kLeastPaying = 700;

// The largest magnitude of a dtype's numbers.
double largest_of(DType codes) {
  return codes == DType::kF8E4M3 ? 448.0 : 57344.0;
}

class Quantizer {
 public:
  Quantizer(const Program& program, Float8Products products)
      : program_(program), products_(products), r_(program, "quantize") {}

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_chosen(node)) {
        multiply(node);
        ++count_;
      } else {
        r_.copy(node);
      }
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

  // Backward's products have a gradient as their first operand.
  void multiply(const Node& node) {
    const bool is_backward = node.origin().phase == Phase::kBackward;
    const Codes a = codes_of(node, 0, is_backward ? DType::kF8E5M2 : DType::kF8E4M3),
                b = codes_of(node, 1, DType::kF8E4M3);
    const bool ta = node.attrs.flag("transpose_a"), tb = node.attrs.flag("transpose_b");
    const auto guard = r_.from(node);
    r_.replace(node, {r_.builder().call1("scaled_matmul",
                                         {ta ? a.transposed : a.plain, tb ? b.plain : b.transposed,
                                          a.scale, b.scale},
                                         {{"dtype", program_.type(node.outputs[0]).dtype}})});
  }

  // Those of the same elements are shared, whichever view leads to them.
  Codes codes_of(const Node& reader, std::size_t operand, DType dtype) {
    const ValueId id = reader.inputs[operand];
    const Value& value = program_.value(id);
    Key key{value.layout.base, value.layout.offset, static_cast<std::int64_t>(dtype)};
    std::ranges::copy(value.type.shape, std::back_inserter(key));
    std::ranges::copy(value.layout.strides, std::back_inserter(key));
    if (const auto found = codes_.find(key); found != codes_.end()) return found->second;
    const auto guard = r_.from(reader);
    Builder& b = r_.builder();
    const std::vector<Val> made =
        b.call(find_op("quantize"), {r_.map(id)},
               {{"dtype", dtype}, {"largest", AttrValue(largest_of(dtype))}});
    const Role role = program_.value(value.layout.base).role;
    if (role == Role::kWeightCast) {
      for (const Val& v : made) b.set_role(v, role);
    }
    return codes_.emplace(key, Codes{made[0], made[1], made[2]}).first->second;
  }

  const Program& program_;
  const Float8Products products_;
  Rewriter r_;
  std::map<Key, Codes> codes_;
  std::int64_t count_ = 0;
};

}  // namespace

Program quantize(const Program& program, const QuantizeOptions& options,
                 const std::function<bool(const OpDef&)>& has_kernel) {
  Quantizer pass(program, options.products);
  Program out = pass.run();
  if (pass.count() == 0 && !options.may_have_none) {
    const bool may_all = options.products == Float8Products::kPaying;
    throw Error(ErrorCode::kUsage, "precision",
                fmt::format("fp8: no product of the layers {}",
                            may_all ? "is large enough to gain by 8 bits"
                                    : "has sizes that are multiples of 16"),
                may_all ? "use bf16, or option fp8_products all" : "use bf16");
  }
  return decompose(out, [&](const OpDef& op) { return op.only_on_gpus && !has_kernel(op); });
}

}  // namespace tracestep
