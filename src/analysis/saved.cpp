#include "analysis/saved.h"

#include <map>

#include "ir/op_def.h"

namespace tracestep {

std::vector<Saved> saved_for_backward(const Program& program) {
  std::map<ValueId, Saved> by_base;
  const auto saved = [&](ValueId id) -> Saved* {
    const ValueId base = program.value(id).layout.base;
    const Value& v = program.value(base);
    if (v.producer == kNoNode) return nullptr;
    const Node& maker = program.node(v.producer);
    if (maker.origin().phase != Phase::kForward || maker.epoch != 0) return nullptr;
    return &by_base.try_emplace(base, Saved{base, v.producer, v.type.bytes()}).first->second;
  };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    const Phase phase = node.origin().phase;
    const bool is_later = phase == Phase::kBackward || phase == Phase::kRecompute;
    if (!is_later || makes_views(program, node)) continue;
    const auto reader = static_cast<NodeId>(i);
    for (ValueId input : node.inputs) {
      Saved* const s = saved(input);
      if (s != nullptr && (s->readers.empty() || s->readers.back() != reader)) {
        s->readers.push_back(reader);
      }
    }
  }
  for (const Output& o : program.outputs) {
    if (o.name.starts_with(kSavedOutput)) saved(o.value);
  }
  std::vector<Saved> out;
  out.reserve(by_base.size());
  for (auto& [base, s] : by_base) out.push_back(std::move(s));
  return out;
}

std::int64_t saved_bytes(const Program& program) {
  std::int64_t total = 0;
  for (const Saved& s : saved_for_backward(program)) total += s.bytes;
  return total;
}

}  // namespace tracestep
