// Chooses the operands of random calls, and keeps their results.
#include <algorithm>

#include <fmt/format.h>

#include "base/integers.h"
#include "ops/functions.h"
#include "support/random_ops.h"

namespace tracestep::testing {

Dims RandomOps::all_axes(const Shape& shape) {
  Dims out;
  for (int i = 0; i < shape.rank(); ++i) out.push_back(i);
  return out;
}

// --- outputs and the loss, of values that nothing reads -----------------------------------------
std::vector<Val> RandomOps::unread() const {
  std::vector<bool> is_read(b_.program().values.size(), false);
  for (const Node& node : b_.program().nodes) {
    for (ValueId id : node.inputs) is_read[static_cast<std::size_t>(id)] = true;
  }
  for (const Update& u : b_.program().updates) is_read[static_cast<std::size_t>(u.value)] = true;
  std::vector<Val> out;
  const auto add = [&](Val v) {
    if (!is_read[static_cast<std::size_t>(v.id)] && !is_of_leaf(v)) out.push_back(v);
  };
  for (const Item& i : items_) add(i.value);
  for (Val v : flags_) add(v);
  for (Val v : numbers_) add(v);
  return out;
}

void RandomOps::add_outputs() {
  int number = 0;
  for (Val v : unread()) {
    if (number < 6) b_.output(fmt::format("y{}", number++), v);
  }
  if (number > 0) return;
  b_.output("y0", ops::copy(item().value));
}

void RandomOps::add_loss() {
  std::vector<Val> results = unread();
  std::erase_if(results, [&](Val v) { return !is_floating(v.dtype()) || !is_smooth(v); });
  if (results.empty()) results.push_back(ops::copy(item().value));
  if (results.size() > 4) results.erase(results.begin(), results.end() - 4);
  Val loss;
  for (Val v : results) {
    const Val sum = ops::sum(in_dtype(v, DType::kF32), all_axes(v.shape()));
    const Val mean =
        ops::affine(sum, 1.0 / static_cast<double>(std::max<std::int64_t>(v.shape().product(), 1)));
    loss = loss ? ops::add(loss, mean) : mean;
  }
  b_.output("loss", loss);
}

// --- operands -----------------------------------------------------------------------------------
Val RandomOps::new_leaf(LeafKind kind, const Type& type, LeafRange range) {
  const char* const kinds[] = {"", "x", "w", "s"};
  const std::string name =
      fmt::format("{}{}", kinds[static_cast<int>(kind)], b_.program().leaves.size());
  ranges_[name] = range;
  return b_.leaf(kind, name, type);
}

Val RandomOps::indices(const Shape& shape, std::int64_t size) {
  return new_leaf(LeafKind::kInput, {DType::kI64, shape}, {0.0, static_cast<double>(size - 1)});
}

Shape RandomOps::new_shape(int least_rank) {
  Shape out;
  for (std::int64_t rank = dice_.between(least_rank, 4); rank > 0; --rank) {
    const std::int64_t room = kMostElements / std::max<std::int64_t>(out.product(), 1);
    out.push_back(dice_.between(1, std::min<std::int64_t>(7, room)));
  }
  return out;
}

RandomOps::Item RandomOps::item() {
  // The latest results are read most.
  const auto count = static_cast<std::int64_t>(items_.size());
  const std::int64_t from = dice_.chance(0.6) ? std::max<std::int64_t>(count - 5, 0) : 0;
  Item out = items_[static_cast<std::size_t>(dice_.between(from, count - 1))];
  if (differentiable_ && !is_smooth(out.value)) out.value = ops::stop_gradient(out.value);
  return out;
}

Val RandomOps::operand(const Type& type, double reach) {
  return fit(in_dtype(within(item(), reach), type.dtype), type.shape);
}

Val RandomOps::positive(const Type& type) {
  return ops::affine(ops::unary("sigmoid", operand(type)), 1.5, 0.5);
}

Val RandomOps::within(Item x, double reach) {
  return x.reach <= reach ? x.value : ops::affine(x.value, reach / x.reach);
}

Val RandomOps::in_dtype(Val x, DType dtype) {
  return x.dtype() == dtype ? x : ops::cast(x, dtype);
}

Val RandomOps::fit(Val x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const std::int64_t have = x.shape().product(), want = shape.product();
  Val flat = ops::reshape(x, {have});
  std::int64_t length = have;
  if (have < want) {
    const std::int64_t times = ceil_div(want, have);
    length = times * have;
    flat = ops::reshape(ops::broadcast_to(ops::reshape(flat, {1, have}), {times, have}), {length});
  }
  if (length > want) {
    const std::int64_t start = dice_.between(0, length - want);
    flat = ops::slice(flat, 0, start, start + want);
  }
  return ops::reshape(flat, shape);
}

void RandomOps::keep(Val value, double reach) {
  if (reach > kReach) {
    value = ops::affine(value, 4.0 / reach);
    reach = 4.0;
  }
  items_.push_back({value, reach});
}

bool RandomOps::is_smooth(Val value) {
  const Program& p = b_.program();
  for (auto id = static_cast<ValueId>(smooth_.size()); id <= value.id; ++id) {
    const NodeId maker = p.value(id).producer;
    bool all = true;
    if (maker != kNoNode) {
      const Node& node = p.node(maker);
      for (ValueId input : node.inputs) all = all && smooth_[static_cast<std::size_t>(input)];
      all = all && (node.inputs.empty() || node.op->gradient || node.op->decompose);
      all = all || node.op->name == "stop_gradient" || !is_floating(p.type(id).dtype);
    }
    smooth_.push_back(all);
  }
  return smooth_[static_cast<std::size_t>(value.id)];
}

bool RandomOps::is_of_leaf(Val value) const {
  const LeafKind kind = b_.program().value(b_.program().value(value.id).layout.base).leaf;
  return kind == LeafKind::kState || kind == LeafKind::kParameter;
}

}  // namespace tracestep::testing
