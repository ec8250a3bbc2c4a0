#include "passes/memory_passes.h"

#include <fmt/format.h>

#include "analysis/saved.h"
#include "passes/autograd.h"
#include "passes/pass_rules.h"

namespace tracestep {

Program keep_saved(const Program& program) {
  Program body = program;
  body.updates.clear();
  std::erase_if(body.outputs, [](const Output& o) { return o.name.starts_with(kGradientPrefix); });
  int index = 0;
  for (const Saved& saved : saved_for_backward(program)) {
    body.outputs.push_back({fmt::format("{}{}", kSavedOutput, index++), saved.value});
  }
  return remove_dead_nodes(body);
}

bool keeps_saved(const PassOptions& o) {
  return o.run.mode == Mode::kForward;
}

}  // namespace tracestep
