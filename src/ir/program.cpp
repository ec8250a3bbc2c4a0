#include "ir/program.h"

#include <algorithm>
#include <tuple>

namespace tracestep {
namespace {

// Returns a number for each value, by which programs are compared: leaves first, then results.
std::vector<std::int32_t> numbers_of(const Program& program) {
  std::vector<std::int32_t> out(program.values.size(), -1);
  std::int32_t next = 0;
  for (ValueId id : program.leaves) out[static_cast<std::size_t>(id)] = next++;
  for (const Node& node : program.nodes) {
    for (ValueId id : node.outputs) out[static_cast<std::size_t>(id)] = next++;
  }
  return out;
}

class Comparison {
 public:
  Comparison(const Program& a, const Program& b)
      : a_(a), b_(b), number_in_a_(numbers_of(a)), number_in_b_(numbers_of(b)) {}

  bool equal() const {
    const auto leaf = [&](ValueId x, ValueId y) { return same_leaf(a_.value(x), b_.value(y)); };
    const auto node = [&](const Node& x, const Node& y) { return same_node(x, y); };
    const auto update = [&](const Update& x, const Update& y) {
      return same_place(x.leaf, y.leaf) && same_place(x.value, y.value);
    };
    const auto output = [&](const Output& x, const Output& y) {
      return x.name == y.name && same_place(x.value, y.value);
    };
    return a_.name == b_.name && std::ranges::equal(a_.leaves, b_.leaves, leaf) &&
           std::ranges::equal(a_.nodes, b_.nodes, node) &&
           std::ranges::equal(a_.updates, b_.updates, update) &&
           std::ranges::equal(a_.outputs, b_.outputs, output);
  }

 private:
  bool same_place(ValueId x, ValueId y) const {
    return number_in_a_[static_cast<std::size_t>(x)] == number_in_b_[static_cast<std::size_t>(y)];
  }

  static bool same_leaf(const Value& x, const Value& y) {
    return std::tie(x.leaf, x.name, x.type, x.role, x.part, x.memory) ==
           std::tie(y.leaf, y.name, y.type, y.role, y.part, y.memory);
  }

  static bool same_attribute(const Attrs::Entry& x, const Attrs::Entry& y) {
    if (x == y) return true;
    const Region *p = std::get_if<Region>(&x.second), *q = std::get_if<Region>(&y.second);
    return x.first == y.first && p != nullptr && q != nullptr && **p == **q;
  }

  bool same_node(const Node& x, const Node& y) const {
    const auto place = [&](ValueId p, ValueId q) { return same_place(p, q); };
    const auto result = [&](ValueId p, ValueId q) {
      return a_.type(p) == b_.type(q) && a_.value(p).role == b_.value(q).role;
    };
    return std::tie(x.op, x.epoch, x.made_by, x.origins) ==
               std::tie(y.op, y.epoch, y.made_by, y.origins) &&
           std::ranges::equal(x.inputs, y.inputs, place) &&
           std::ranges::equal(x.outputs, y.outputs, result) &&
           std::ranges::equal(x.attrs.entries(), y.attrs.entries(), same_attribute);
  }

  const Program &a_, &b_;
  std::vector<std::int32_t> number_in_a_, number_in_b_;
};

}  // namespace

bool operator==(const Program& a, const Program& b) {
  return Comparison(a, b).equal();
}

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
