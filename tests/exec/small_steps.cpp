#include "exec/small_steps.h"

#include <fmt/format.h>

#include "support/host_values.h"
#include "weights/model_store.h"

namespace tracestep::testing {

RunSpec small_step(Mode mode, Granularity ops, AttentionForm attention) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.mode = mode;
  spec.ops = ops;
  spec.attention = attention;
  return spec;
}

void set_inputs(Executor& executor, int round) {
  for (ValueId id : executor.program().leaves) {
    const Value& leaf = executor.program().value(id);
    if (leaf.leaf != LeafKind::kInput) continue;
    const std::string seed = fmt::format("{} {}", leaf.name, round);
    executor.set_input(leaf.name, leaf.type.shape.empty()
                                      ? from_doubles(leaf.type.dtype, {}, std::vector{0.01})
                                      : random_tensor(leaf.type, seed, 0.0, 30.0));
  }
}

std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const RunSpec& spec,
                                               Device& device) {
  return results_of(kind, step_program(spec, device), device);
}

std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const Program& program,
                                               Device& device) {
  Store store(device);
  const auto executor = make_executor(kind, store, program);
  initialize_parameters(store, 1);
  std::vector<std::vector<std::byte>> out;
  for (int round = 0; round < 3; ++round) {
    set_inputs(*executor, round);
    executor->run();
    for (const Output& o : executor->program().outputs) {
      out.push_back(executor->output(o.name).bytes);
    }
  }
  for (const auto& [name, tensor] : parameters_of(store)) out.push_back(tensor.bytes);
  return out;
}

}  // namespace tracestep::testing
