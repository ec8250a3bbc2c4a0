#include "ir/program.h"

namespace tracestep {

std::string Type::str() const {
  return fmt::format("{}{}", name_of(dtype), shape.str());
}

ValueId Program::find_leaf(std::string_view wanted) const {
  for (ValueId id : leaves) {
    if (value(id).name == wanted) return id;
  }
  return kNoValue;
}

ValueId Program::find_output(std::string_view wanted) const {
  for (const Output& output : outputs) {
    if (output.name == wanted) return output.value;
  }
  return kNoValue;
}

std::string_view name_of(LeafKind kind) {
  switch (kind) {
    case LeafKind::kNone: return "none";
    case LeafKind::kInput: return "input";
    case LeafKind::kParameter: return "parameter";
    case LeafKind::kState: return "state";
  }
  return "?";
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kNone: return "none";
    case Role::kGradient: return "gradient";
    case Role::kOptimizerState: return "optimizer_state";
    case Role::kWeightCast: return "weight_cast";
    case Role::kCache: return "cache";
  }
  return "?";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kRecompute: return "recompute";
    case Phase::kOptimizer: return "optimizer";
    case Phase::kCommunication: return "communication";
  }
  return "?";
}

bool covers_base(const Program& program, ValueId id) {
  const Value& v = program.value(id);
  return v.layout.offset == 0 && v.type.count() == program.type(v.layout.base).count() &&
         is_contiguous(v.type.shape, v.layout.strides);
}

bool is_view(const Program& program, ValueId id) {
  return program.value(id).layout.base != id;
}

std::int64_t extent_of(const Shape& shape, const Strides& strides) {
  if (shape.product() == 0) return 0;
  std::int64_t out = 1;
  for (int i = 0; i < shape.rank(); ++i) out += (shape[i] - 1) * strides[i];
  return out;
}

std::vector<ValueId> leaves_of(const Program& program, ValueId id) {
  const Value& v = program.value(id);
  const Value& base = program.value(v.layout.base);
  if (base.leaf == LeafKind::kNone) return {};
  const std::int64_t end = v.layout.offset + extent_of(v.type.shape, v.layout.strides);
  if (end <= base.type.count() || base.part.block.empty()) return {v.layout.base};
  std::vector<ValueId> out;
  for (ValueId other : program.leaves) {
    const Value& leaf = program.value(other);
    const std::int64_t begin = leaf.part.offset - base.part.offset;
    const bool overlaps = v.layout.offset < begin + leaf.type.count() && begin < end;
    if (leaf.part.block == base.part.block && overlaps) out.push_back(other);
  }
  return out;
}

std::string component_path(std::string_view parameter) {
  return std::string(parameter.substr(0, std::min(parameter.rfind('.'), parameter.size())));
}

std::string shadow_name(std::string_view parameter) {
  return std::string(kShadowPrefix) + std::string(parameter);
}

std::int64_t parameter_count(const Program& program) {
  std::int64_t total = 0;
  for (ValueId id : program.leaves) {
    if (program.value(id).leaf == LeafKind::kParameter) total += program.type(id).count();
  }
  return total;
}

}  // namespace tracestep
