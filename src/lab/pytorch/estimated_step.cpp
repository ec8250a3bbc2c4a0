// An estimate by rules, where no step was recorded: a buffer of our eager program, whose values,
// casts and saved tensors are those of autocast and autograd, lives as long in PyTorch. What an op
// of PyTorch holds beside them is added.
#include <map>

#include <fmt/format.h>

#include "ir/op_def.h"
#include "lab/memory/run.h"
#include "lab/pytorch/allocation_list.h"

namespace tracestep {
namespace {

PytorchPart part_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return PytorchPart::kForward;
    case Phase::kRecompute: return PytorchPart::kRecompute;
    case Phase::kOptimizer: return PytorchPart::kOptimizer;
    case Phase::kBackward:
    case Phase::kCommunication: break;
  }
  return PytorchPart::kBackward;
}

class Estimate {
 public:
  Estimate(const MemoryRun& run, bool has_sources) : run_(run), has_sources_(has_sources) {
    const std::size_t nodes = run.program.nodes.size();
    born_.resize(nodes);
    dead_.resize(nodes);
    for (const MappedBuffer& b : run.map.buffers) {
      if (b.bytes == 0 || b.category == Category::kWorkspace) continue;
      if (b.first == kNoNode) {
        birth({.module = number(b.path), .op = number(b.op)}, b.bytes);
        if (b.category == Category::kParameter) parameters_.push_back(b.bytes);
      } else {
        born_[static_cast<std::size_t>(b.first)].push_back(&b);
      }
    }
  }

  AllocationList make(bool is_fused) {
    out_.steps = {out_.events.size()};
    for (std::size_t i = 0; i < born_.size(); ++i) {
      const Node& node = run_.program.nodes[i];
      if (node.origin().phase == Phase::kOptimizer && !has_lists_) {
        has_lists_ = true;
        if (!is_fused) add_lists();
      }
      add(node, i);
    }
    for (std::uint32_t block : lists_) death(block);
    return std::move(out_);
  }

 private:
  void add(const Node& node, std::size_t at) {
    const Origin& origin = node.origin();
    AllocationEvent e{.part = part_of(origin.phase),
                      .site = number(has_sources_ && !origin.file.empty()
                                         ? fmt::format("{}:{}", origin.file, origin.line)
                                         : std::string()),
                      .module = number(origin.path),
                      .op = number(node.op->name)};
    const bool is_product = node.op->kernel_class == KernelClass::kGemm;
    bool& has_workspace = e.part == PytorchPart::kForward ? has_forward_ : has_backward_;
    if (is_product && !has_workspace) birth(e, kLibraryWorkspace);
    has_workspace |= is_product;
    for (const MappedBuffer* b : born_[at]) {
      const std::uint32_t block = birth(e, b->bytes);
      const auto last = static_cast<std::size_t>(b->last);
      if (last < dead_.size()) dead_[last].push_back(block);
    }
    // log_softmax beside its input, and beside two gradients: the loss is two ops in PyTorch.
    if (node.op->name.starts_with("cross_entropy")) {
      for (ValueId input : node.inputs) {
        const Type& type = run_.program.type(input);
        if (type.shape.rank() != 2) continue;
        dead_[at].push_back(birth(e, 4 * type.count()));
        break;
      }
    }
    for (std::uint32_t block : dead_[at]) death(block);
  }
  // Adds the root of every second moment, which foreach kernels take before they divide by it.
  void add_lists() {
    const AllocationEvent e{.part = PytorchPart::kOptimizer, .op = number("_foreach_sqrt")};
    for (std::int64_t bytes : parameters_) lists_.push_back(birth(e, bytes));
  }
  std::uint32_t birth(AllocationEvent e, std::int64_t bytes) {
    e.block = out_.blocks++;
    e.bytes = bytes;
    out_.events.push_back(e);
    return e.block;
  }
  void death(std::uint32_t block) { out_.events.push_back({.block = block}); }
  std::uint32_t number(const std::string& name) {
    if (name.empty()) return 0;
    const auto [found, is_new] =
        numbers_.try_emplace(name, static_cast<std::uint32_t>(out_.names.size()));
    if (is_new) out_.names.push_back(name);
    return found->second;
  }

  const MemoryRun& run_;
  bool has_sources_;
  AllocationList out_;
  std::vector<std::vector<const MappedBuffer*>> born_;  // by node
  std::vector<std::vector<std::uint32_t>> dead_;
  std::vector<std::int64_t> parameters_;
  std::vector<std::uint32_t> lists_;
  std::map<std::string, std::uint32_t> numbers_;
  bool has_forward_ = false, has_backward_ = false, has_lists_ = false;
};

}  // namespace

AllocationList estimated_step(const MemoryRun& run, bool is_fused, bool has_sources) {
  return Estimate(run, has_sources).make(is_fused);
}

}  // namespace tracestep
