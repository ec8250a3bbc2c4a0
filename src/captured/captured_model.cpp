#include "captured/captured_model.h"

#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

// The nodes and leaves that some outputs need.
class Needed {
 public:
  Needed(const Program& program, const std::vector<std::string>& outputs)
      : program_(program), values_(program.values.size(), false) {
    for (const std::string& name : outputs) values_[at(program.find_output(name))] = true;
    for (std::size_t i = program.nodes.size(); i-- > 0;) {
      const Node& node = program.nodes[i];
      if (!has(node)) continue;
      for (ValueId input : node.inputs) values_[at(input)] = true;
    }
  }

  bool has(ValueId id) const { return values_[at(id)]; }
  bool has(const Node& node) const {
    return std::ranges::any_of(node.outputs, [&](ValueId id) { return has(id); });
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

  const Program& program_;
  std::vector<bool> values_;
};

}  // namespace

const CapturedInput* CapturedModel::find_input(std::string_view wanted) const {
  const auto found = std::ranges::find(inputs, wanted, &CapturedInput::name);
  return found == inputs.end() ? nullptr : &*found;
}

bool CapturedModel::takes_text() const {
  const auto is_of_text = [&](const CapturedInput& input) {
    const Type& type = program.type(program.find_leaf(input.name));
    return input.role == InputRole::kBatch ||
           (input.role != InputRole::kGiven && type == Type{DType::kI64, {batch, context}});
  };
  const auto has_tokens = [](const CapturedInput& i) { return i.role == InputRole::kTokens; };
  return std::ranges::all_of(inputs, is_of_text) && std::ranges::any_of(inputs, has_tokens);
}

Program captured_program(const CapturedModel& model, const std::vector<std::string>& outputs) {
  const Program& from = model.program;
  for (const std::string& name : outputs) {
    if (from.find_output(name) != kNoValue) continue;
    fail_usage("program"_field, "{} was captured without {}", model.name, name);
  }
  const Needed needed(from, outputs);
  Builder b(outputs.front());
  std::vector<Val> map(from.values.size());
  const auto at = [&](ValueId id) -> Val& { return map[static_cast<std::size_t>(id)]; };
  for (ValueId id : from.leaves) {
    const Value& leaf = from.value(id);
    if (leaf.leaf == LeafKind::kInput && !needed.has(id)) continue;
    at(id) = b.leaf(leaf.leaf, leaf.name, leaf.type, leaf.role, leaf.part);
  }
  for (const Node& node : from.nodes) {
    if (!needed.has(node)) continue;
    std::vector<Val> inputs;
    for (ValueId id : node.inputs) inputs.push_back(at(id));
    const std::vector<Val> results = b.copy(from, node, inputs);
    for (std::size_t i = 0; i < results.size(); ++i) at(node.outputs[i]) = results[i];
  }
  for (const std::string& name : outputs) b.output(name, at(from.find_output(name)));
  return b.finish();
}

std::int64_t parameter_count(const CapturedModel& model) {
  return parameter_count(model.program);
}

double forward_flops(const CapturedModel& model) {
  const Program& program = model.program;
  double out = 0.0;
  for (const Node& node : program.nodes) {
    const bool is_product = node.op->kernel_class == KernelClass::kGemm ||
                            node.op->kernel_class == KernelClass::kAttention;
    if (!is_product || !node.op->flops) continue;
    std::vector<Type> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(program.type(id));
    for (ValueId id : node.outputs) outputs.push_back(program.type(id));
    out += static_cast<double>(node.op->flops({*node.op, node.attrs, inputs, outputs}));
  }
  return out;
}

bool is_captured_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path / kCapturedProgram, none) &&
         fs::is_regular_file(path / kCapturedIndex, none);
}

}  // namespace tracestep
