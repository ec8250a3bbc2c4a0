// The one place that names the executors.
#include "analysis/memory_map.h"
#include "exec/compiled.h"
#include "exec/eager.h"

namespace tracestep {

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Store& store, Program program) {
  if (has_arena(kind)) {
    return std::make_unique<CompiledExecutor>(store, program, kind == ExecutorKind::kCompiled);
  }
  return std::make_unique<EagerExecutor>(store, std::move(program));
}

std::int64_t predicted_peak_bytes(ExecutorKind kind, const Program& program,
                                  const DeviceTraits& traits) {
  if (has_arena(kind)) return plan_step(program, traits).peak_bytes();
  return predicted_peak_bytes(program, plan_buffers(program), traits);
}

}  // namespace tracestep
