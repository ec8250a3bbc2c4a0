#include "session/session.h"

#include "exec/ranked_executor.h"
#include "session/devices.h"

namespace tracestep {

RankStores::RankStores(Device& device) {
  stores_.push_back(std::make_unique<Store>(device));
}

RankStores::RankStores(const RankDevices& devices) : group_(devices.group()) {
  for (Device* rank : devices.all()) stores_.push_back(std::make_unique<Store>(*rank));
}

std::unique_ptr<Executor> RankStores::executor(const RunSpec& run, const Program& program) const {
  return make_executor(run.executor, stores_, program, run.parallel, group_);
}

std::unique_ptr<Executor> RankStores::executor_of_first(const RunSpec& run,
                                                        const Program& program) const {
  return make_executor(run.executor, first(), program);
}

Session::Session(Device& device, const RunSpec& spec)
    : Session(device, spec, step_program(spec, device)) {}

Session::Session(Device& device, const RunSpec& spec, Program program)
    : spec_(spec),
      devices_(make_rank_devices(device, spec)),
      stores_(devices_),
      executor_(stores_.executor(spec, program)) {}

}  // namespace tracestep
