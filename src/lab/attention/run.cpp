#include "lab/attention/run.h"

namespace tracestep {
namespace {

void set_values(Store& store, Executor& executor, std::uint64_t seed) {
  const Program& program = executor.program();
  for (const char* name : {"q", "k", "v", "upstream"}) {
    const HostTensor value = random_tensor(program.type(program.find_leaf(name)), seed, name);
    if (std::string_view(name) == "upstream") {
      executor.set_input(name, value);
    } else {
      store.set(name, value);
    }
  }
}

}  // namespace

AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop) {
  AttentionResult out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.run);
  const PartsProgram program = attention_program(spec, *device);
  out.saved_bytes = square_bytes_saved(program, spec);
  measure_parts(
      *device,
      {.program = program,
       .run = spec.run,
       .protocol = spec.protocol,
       .set_values = [&](Store& store,
                         Executor& executor) { set_values(store, executor, spec.run.seed); }},
      stop, out);
  return out;
}

std::vector<double> beside_samples(const AttentionResult& result) {
  return result.status == Status::kOk ? result.whole.samples_ms : std::vector<double>();
}

AttentionResult visit(const DeviceFactory& make_device, const AttentionSpec& spec,
                      const StopSignal* stop) {
  return measure_attention(make_device, spec, stop);
}

double visit_weight(const AttentionSpec& spec) {
  const auto tokens = static_cast<double>(spec.run.shape.context);
  return tokens * tokens * static_cast<double>(spec.run.shape.batch * spec.heads * spec.width);
}

}  // namespace tracestep
