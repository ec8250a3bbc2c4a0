#include "session/session.h"

#include "exec/ranked_executor.h"
#include "session/devices.h"
#include "session/step_inputs.h"
#include "train/model_store.h"

namespace tracestep {

Session::Session(Device& device, const RunSpec& spec)
    : Session(device, spec, step_program(spec, device)) {}

Session::Session(Device& device, const RunSpec& spec, Program program)
    : spec_(spec), devices_(make_rank_devices(device, spec)) {
  for (Device* rank : devices_.all()) stores_.push_back(std::make_unique<Store>(*rank));
  executor_ = make_executor(spec.executor, stores_, program, spec.parallel, devices_.group());
}

void Session::fill_for_timing() {
  for (const auto& store : stores_) {
    if (store->device().computes()) initialize_for_timing(*store, spec_.seed);
  }
  set_step_inputs(*executor_, spec_);
}

}  // namespace tracestep
