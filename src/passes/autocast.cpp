#include "passes/form_passes.h"
#include "passes/pass_rules.h"

#include <map>

#include "ir/rewrite.h"

namespace tracestep {
namespace {

// Returns the dtype with more bytes; float32 for two dtypes of equal size (bf16 and f16).
DType wider(DType a, DType b) {
  if (a == b) return a;
  if (size_of(a) == size_of(b)) return DType::kF32;
  return size_of(a) > size_of(b) ? a : b;
}

// True if operands of this dtype are cast; codes in 8 bits are not: their reader asked for them.
bool is_cast(DType dtype) {
  return is_floating(dtype) && !is_float8(dtype);
}

class Autocast {
 public:
  Autocast(const Program& program, DType low)
      : program_(program), low_(low), rewriter_(program, "autocast") {
    for (const Update& u : program.updates) updated_to_[u.value] = program.type(u.leaf).dtype;
  }

  Program run() {
    for (const Node& node : program_.nodes) rewrite(node);
    return rewriter_.finish();
  }

 private:
  void rewrite(const Node& node) {
    std::vector<Val> inputs = rewriter_.inputs(node);
    const std::optional<DType> common = widest(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const DType from = inputs[i].dtype();
      if (!is_cast(from) || from == DType::kF64) continue;
      const DType to = wanted(node.op->precision_class, from, common);
      if (to != from) inputs[i] = cast(node, i, inputs[i], to);
    }
    restore_updates(node, rewriter_.copy(node, inputs));
  }

  static std::optional<DType> widest(const std::vector<Val>& inputs) {
    std::optional<DType> out;
    for (const Val& v : inputs) {
      if (is_cast(v.dtype())) out = out ? wider(*out, v.dtype()) : v.dtype();
    }
    return out;
  }

  DType wanted(PrecisionClass precision_class, DType from, std::optional<DType> common) const {
    switch (precision_class) {
      case PrecisionClass::kLow: return low_;
      case PrecisionClass::kFull: return DType::kF32;
      case PrecisionClass::kPromote:
      case PrecisionClass::kKeep: return common.value_or(from);
    }
    return from;
  }

  Val cast(const Node& reader, std::size_t operand, Val value, DType to) {
    if (is_low_precision(to)) {
      if (const Val shared = weight_cast(reader.inputs[operand], to, reader)) return shared;
    }
    const auto guard = rewriter_.from(reader);
    return rewriter_.builder().call1("cast", {value}, {{"dtype", to}});
  }

  // Returns the shared cast of a weight, or a view of it where the program reads a view of the
  // weight; else "no value". The cast is made before the first reader, with the weight's path.
  Val weight_cast(ValueId id, DType to, const Node& reader) {
    const auto found = weight_casts_.find(id);
    if (found != weight_casts_.end()) return found->second;
    const Value& value = program_.value(id);
    Val out;
    if (value.leaf == LeafKind::kParameter || value.leaf == LeafKind::kConstant) {
      Node place = reader;
      const Origin& line = reader.origin();
      place.origins = {Origin{component_path(value.name), Phase::kForward, line.file, line.line}};
      const auto guard = rewriter_.from(place);
      out = rewriter_.builder().call1("cast", {rewriter_.map(id)}, {{"dtype", to}});
      rewriter_.builder().set_role(out, Role::kWeightCast);
    } else if (value.producer != kNoNode && program_.node(value.producer).op->is_view()) {
      const Node& view = program_.node(value.producer);
      const Val base = weight_cast(view.inputs[0], to, reader);
      if (!base) return {};
      const auto guard = rewriter_.from(view);
      out = rewriter_.builder().call(*view.op, {base}, view.attrs).front();
    } else {
      return {};
    }
    weight_casts_.emplace(id, out);
    return out;
  }

  void restore_updates(const Node& node, std::vector<Val> results) {
    bool changed = false;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto leaf = updated_to_.find(node.outputs[i]);
      if (leaf == updated_to_.end() || results[i].dtype() == leaf->second) continue;
      const auto guard = rewriter_.from(node);
      results[i] = rewriter_.builder().call1("cast", {results[i]}, {{"dtype", leaf->second}});
      changed = true;
    }
    if (changed) rewriter_.replace(node, results);
  }

  const Program& program_;
  DType low_;
  Rewriter rewriter_;
  std::map<ValueId, DType> updated_to_;  // by new value: the dtype of its leaf
  std::map<ValueId, Val> weight_casts_;  // by weight, or view of one
};

}  // namespace

Program autocast(const Program& program, DType low) {
  TRACESTEP_CHECK(is_low_precision(low), "autocast to {}", name_of(low));
  return Autocast(program, low).run();
}

Program autocast(const Program& p, const PassOptions& o) {
  return autocast(p, *o.run.precision.autocast);
}

}  // namespace tracestep
