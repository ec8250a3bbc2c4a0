#include "session/session.h"

#include "session/step_inputs.h"
#include "train/model_store.h"

namespace tracestep {

Session::Session(Device& device, const RunSpec& spec)
    : Session(device, spec, step_program(spec, device)) {}

Session::Session(Device& device, const RunSpec& spec, Program program)
    : device_(device),
      spec_(spec),
      store_(device),
      executor_(make_executor(spec.executor, store_, std::move(program))) {}

void Session::fill_for_timing() {
  if (device_.computes()) initialize_for_timing(store_, spec_.seed);
  set_step_inputs(*executor_, spec_);
}

}  // namespace tracestep
