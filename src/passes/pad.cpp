#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

constexpr std::int64_t kReadBytes = 16, kLineBytes = 128;
constexpr std::int64_t kLongRow = 16 * kLineBytes;
constexpr const char* kColumns = "columns";

ProductAxes axes_of(const Program& p, const Node& product) {
  std::vector<Type> types;
  for (ValueId id : product.inputs) types.push_back(p.type(id));
  return product.op->product({*product.op, product.attrs, types, {}});
}

// True for a loss, or the gradient of a loss, whose rows may be padded and are not yet.
bool is_loss(const Node& node) {
  return node.op->find_attr(kColumns) != nullptr && node.attrs.integer(kColumns) == 0;
}

// True if the node casts each row, or is a view of the same rows in another shape.
bool passes_rows_on(const Program& p, const Node& node) {
  if (node.op->only_converts) return true;
  return node.op->is_view() && node.inputs.size() == 1 && keeps_order(p, node) &&
         p.type(node.inputs[0]).shape.back() == p.type(node.outputs[0]).shape.back();
}

// Finds the products that make logits from a shadow and are to be padded.
class Finder {
 public:
  explicit Finder(const Program& program) : program_(program), readers_(program) {}

  // Returns the products that make logits from a shadow.
  std::set<NodeId> find() const {
    std::set<NodeId> out;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      const bool is_head = node.op->product && node.inputs.size() == 2 &&
                           is_odd_shadow(node.inputs[1]) && axes_of(program_, node).columns == 0 &&
                           goes_into_loss(node.outputs[0]);
      if (is_head) out.insert(static_cast<NodeId>(i));
    }
    return out;
  }

  // True if all readers accept a part of a padded value: updates and norms read any dense tensor. A
  // product that adds to a state does not (passes/epilogue.cpp); collectives want a buffer each.
  bool may_read_part(ValueId id) const {
    if (readers_.at_end[at(id)]) return false;
    return std::ranges::all_of(readers_.nodes[at(id)], [&](NodeId reader) {
      const Node& node = program_.node(reader);
      if (node.op->only_converts) return may_read_part(node.outputs[0]);
      if (node.op->is_sum)
        return std::ranges::none_of(
            node.inputs, [&](ValueId v) { return program_.value(v).leaf != LeafKind::kNone; });
      return !node.op->is_view() && !node.op->is_assembly() &&
             node.op->kernel_class != KernelClass::kCollective;
    });
  }

 private:
  bool is_odd_shadow(ValueId id) const {
    const Value& v = program_.value(id);
    if (v.leaf != LeafKind::kState || v.role != Role::kWeightCast || !v.part.block.empty()) {
      return false;
    }
    const std::int64_t rows = v.type.shape.rank() == 2 ? v.type.shape[0] : 0;
    return padded_columns(rows, static_cast<std::int64_t>(size_of(v.type.dtype))) != rows;
  }

  bool goes_into_loss(ValueId id) const {
    return std::ranges::any_of(readers_.nodes[at(id)], [&](NodeId reader) {
      const Node& node = program_.node(reader);
      return is_loss(node) || (passes_rows_on(program_, node) && goes_into_loss(node.outputs[0]));
    });
  }

  const Program& program_;
  const Readers readers_;
};

// Writes the program with padded heads and logits.
class Pad {
 public:
  explicit Pad(const Program& program)
      : program_(program), finder_(program), heads_(finder_.find()), r_(program, "pad") {}

  Program run() {
    if (heads_.empty()) return program_;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) emit(static_cast<NodeId>(i));
    for (const Output& output : program_.outputs) read(output.value);
    for (const Update& update : program_.updates) read(update.value);
    return r_.finish();
  }

 private:
  void emit(NodeId id) {
    const Node& node = program_.node(id);
    const auto guard = r_.from(node);
    if (heads_.contains(id)) {
      padded_[node.outputs[0]] =
          call(node, {read(node.inputs[0]), block_of(node.inputs[1])}, node.attrs);
      return;
    }
    const auto found =
        std::ranges::find_if(node.inputs, [&](ValueId v) { return padded_.contains(v); });
    const auto operand = static_cast<std::size_t>(found - node.inputs.begin());
    if (found != node.inputs.end() && emit_padded(node, operand, padded_.at(*found))) return;
    for (ValueId input : node.inputs) read(input);
    r_.copy(node);
  }

  // Emits the node with `rows` as its operand; false: it must read the rows without their padding.
  bool emit_padded(const Node& node, std::size_t operand, Val rows) {
    if (is_loss(node)) return emit_loss(node, operand, rows), true;
    if (node.op->product) return emit_product(node, operand, rows);
    if (!passes_rows_on(program_, node)) return false;
    const ValueId result = node.outputs[0];
    if (node.op->only_converts) {
      padded_[result] = call(node, {rows}, node.attrs);
    } else {
      Shape shape = program_.type(result).shape;
      shape[shape.rank() - 1] = rows.dim(-1);
      padded_[result] = ops::reshape(rows, shape);
    }
    return true;
  }

  void emit_loss(const Node& node, std::size_t operand, Val rows) {
    const ValueId logits = node.inputs[operand];
    std::vector<Val> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == logits ? rows : read(v));
    Attrs attrs = node.attrs;
    attrs.set(kColumns, program_.type(logits).shape.back());
    const std::vector<Val> results = r_.builder().call(*node.op, inputs, attrs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId old = node.outputs[i];
      if (results[i].type() == program_.type(old)) {
        r_.replace(old, results[i]);
      } else {
        r_.builder().set_role(results[i], program_.value(old).role);
        padded_[old] = results[i];
      }
    }
  }

  // Emits a product that reads padded `rows`, the gradient of logits; false: it cannot read them.
  bool emit_product(const Node& node, std::size_t operand, Val rows) {
    if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
    const ProductAxes axes = axes_of(program_, node);
    const int vocabulary = rows.shape().rank() - 1;
    const ValueId other = node.inputs[1 - operand], result = node.outputs[0];
    std::vector<Val> inputs(2, rows);
    if (axes.summed[operand] == vocabulary && blocks_.contains(other)) {
      inputs[1 - operand] = blocks_.at(other);
      r_.replace(result, call(node, inputs, node.attrs));
      return true;
    }
    const bool makes_rows = operand == 0 && axes.rows == vocabulary && vocabulary == 1;
    if (!makes_rows || !finder_.may_read_part(result)) return false;
    inputs[1] = read(other);
    const Val whole = call(node, inputs, node.attrs);
    r_.replace(result, ops::slice(whole, 0, 0, program_.type(result).shape[0]));
    return true;
  }

  // Calls the op of `node`, which has one result, on other inputs. The result has the same role.
  Val call(const Node& node, const std::vector<Val>& inputs, const Attrs& attrs) {
    const Val out = r_.builder().call(*node.op, inputs, attrs).front();
    r_.builder().set_role(out, program_.value(node.outputs[0]).role);
    return out;
  }

  // Returns the value without its padding, by a slice that is made at its first use.
  Val read(ValueId id) {
    if (r_.has(id)) return r_.map(id);
    const auto guard = r_.from(program_.node(program_.value(id).producer));
    const Val rows = padded_.at(id);
    const Shape& shape = program_.type(id).shape;
    const Val out = ops::slice(rows, shape.rank() - 1, 0, shape.back());
    r_.replace(id, out);
    return out;
  }

  // Returns the block of the shadow, followed by rows of zeros; it is made on the first call.
  Val block_of(ValueId shadow) {
    if (const auto found = blocks_.find(shadow); found != blocks_.end()) return found->second;
    const Value& v = program_.value(shadow);
    const std::int64_t rows = v.type.shape[0], width = v.type.shape[1];
    const std::int64_t more =
        padded_columns(rows, static_cast<std::int64_t>(size_of(v.type.dtype))) - rows;
    const std::string name = std::string(kPaddingPrefix) + v.name.substr(kShadowPrefix.size());
    Builder& b = r_.builder();
    const BlockPart whole{"padded." + v.name, 0, (rows + more) * width};
    BlockPart behind = whole;
    behind.offset = rows * width;
    b.set_part(r_.map(shadow), whole);
    const Val zeros =
        b.leaf(LeafKind::kState, name, {v.type.dtype, {more, width}}, Role::kWeightCast, behind);
    return blocks_[shadow] = b.call1("block", {r_.map(shadow), zeros});
  }

  const Program& program_;
  const Finder finder_;
  const std::set<NodeId> heads_;
  Rewriter r_;
  std::map<ValueId, Val> blocks_;  // by shadow
  std::map<ValueId, Val> padded_;  // logits and gradients of them with their padding
};

}  // namespace

std::int64_t padded_columns(std::int64_t columns, std::int64_t bytes_each) {
  const std::int64_t bytes = columns * bytes_each;
  if (bytes % kReadBytes == 0) return columns;
  const std::int64_t unit = bytes < kLongRow ? kReadBytes : kLineBytes;
  return (bytes + unit - 1) / unit * unit / bytes_each;
}

Program pad(const Program& program) {
  return Pad(program).run();
}

bool pads(const PassOptions& o) {
  return keeps_shadows(o) && (o.context.traits.wants_aligned_rows() || o.names("pad"));
}

}  // namespace tracestep
