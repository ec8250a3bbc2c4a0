#include "passes/keep_saved.h"

#include <fmt/format.h>

#include "analysis/saved.h"
#include "passes/simplify.h"

namespace tracestep {
namespace {

bool is_forward(const Program& program, ValueId id) {
  const NodeId producer = program.value(id).producer;
  return producer != kNoNode && program.node(producer).origin().phase == Phase::kForward;
}

}  // namespace

Program keep_saved(const Program& program) {
  Program body = program;
  body.updates.clear();
  std::erase_if(body.outputs, [&](const Output& o) { return !is_forward(program, o.value); });
  int index = 0;
  for (const Saved& saved : saved_for_backward(program)) {
    body.outputs.push_back({fmt::format("{}{}", kSavedOutput, index++), saved.value});
  }
  return remove_dead_nodes(body);
}

}  // namespace tracestep
