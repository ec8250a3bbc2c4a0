#include "support/run_program.h"

#include <cstdlib>

#include "backends/reference/reference_device.h"
#include "ir/op_def.h"
#include "ir/verify.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "support/host_values.h"

namespace tracestep::testing {
void set_leaves(Executor& executor, Store& store, const Tensors& leaves) {
  const Program& program = executor.program();
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const auto found = leaves.find(leaf.name);
    if (found == leaves.end()) {
      TRACESTEP_CHECK(leaf.leaf == LeafKind::kState, "no value for leaf {}", leaf.name);
      continue;
    }
    const HostTensor value = converted(found->second, leaf.type.dtype);
    if (leaf.leaf == LeafKind::kInput) {
      executor.set_input(leaf.name, value);
    } else {
      store.set(leaf.name, value);
    }
  }
}

Tensors run_once(ExecutorKind kind, Device& device, const Program& program, const Tensors& leaves) {
  const std::int64_t before = device.allocator().stats().requested_bytes;
  Tensors out;
  {
    Store store(device);
    device.allocator().reset_peak();
    const auto executor = make_executor(kind, store, program);
    set_leaves(*executor, store, leaves);
    executor->run();
    const std::int64_t peak = device.allocator().stats().peak_requested_bytes - before;
    TRACESTEP_CHECK(peak == executor->predicted_peak_bytes(),
                    "peak of {}, {}: {} bytes, predicted {}", program.name, name_of(kind), peak,
                    executor->predicted_peak_bytes());
    for (const Output& output : program.outputs) out[output.name] = executor->output(output.name);
    for (const Update& update : program.updates) {
      const std::string& name = program.value(update.leaf).name;
      out[name] = store.get(name);
    }
  }
  TRACESTEP_CHECK(device.allocator().stats().requested_bytes == before, "{} leaks", program.name);
  device.allocator().trim();  // the guarded allocator looks for damage
  return out;
}

Program executable(const Program& program, const Device& device) {
  const auto lacks_kernel = [&](const OpDef& op) {
    return op.has_launches() && !device.has_kernel(op);
  };
  Program out = materialize(decompose(program, lacks_kernel));
  verify(out, VerifyStage::kMaterialized);
  return out;
}

Tensors run_eagerly(Device& device, const Program& program, const Tensors& leaves) {
  return run_once(ExecutorKind::kEager, device, executable(program, device), leaves);
}

Tensors run_program(Device& device, const Program& program, const Tensors& leaves) {
  const Program ready = executable(program, device);
  Tensors out = run_once(ExecutorKind::kEager, device, ready, leaves);
  // tools/test_gpu sets the variable for memory checkers, under which every run takes long.
  const bool repeats = std::getenv("TRACESTEP_TEST_EAGER_ONLY") == nullptr;
  if (!device.allocator().is_guarded() || !repeats) return out;
  for (const auto& [name, tensor] : run_once(ExecutorKind::kCompiled, device, ready, leaves)) {
    TRACESTEP_CHECK(tensor.bytes == out.at(name).bytes, "{} of {} has other bits compiled", name,
                    program.name);
  }
  return out;
}

Tensors reference_values(const Program& program, const Tensors& leaves) {
  const auto device = make_reference_device({.guarded = true});
  return run_eagerly(*device, as_float64(program), leaves);
}

Tensors random_leaves(const Program& program, double low, double high) {
  Tensors out;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool counts = !is_floating(leaf.type.dtype);
    out[leaf.name] = random_tensor(leaf.type, leaf.name, counts ? 0.0 : low, high);
  }
  return out;
}

}  // namespace tracestep::testing
