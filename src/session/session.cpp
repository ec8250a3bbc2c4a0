#include "session/session.h"

#include "exec/ranked_executor.h"
#include "runtime/communicator.h"
#include "session/devices.h"
#include "session/room.h"

namespace tracestep {

RankStores::RankStores(Device& device) {
  stores_.push_back(std::make_unique<Store>(device));
}

RankStores::RankStores(const RankDevices& devices) : group_(devices.group()) {
  for (Device* rank : devices.all()) stores_.push_back(std::make_unique<Store>(*rank));
}

std::unique_ptr<Executor> RankStores::executor(const RunSpec& run, const Program& program) const {
  std::vector<Wanted> wanted;
  for (const auto& store : stores_) wanted.push_back(wanted_by(run, *store, program));
  check_room(run.place, wanted, group_ == nullptr ? nullptr : group_->processes());
  return make_executor(run.executor, stores_, program, run.parallel, group_);
}

std::unique_ptr<Executor> RankStores::executor_of_first(const RunSpec& run,
                                                        const Program& program) const {
  std::vector<Wanted> wanted{wanted_by(run, first(), program)};
  // The other ranks need nothing more, but may not have touched all that they have allocated.
  for (int rank = 1; rank < ranks(); ++rank) wanted.push_back({&at(rank).device()});
  check_room(run.place, wanted, group_ == nullptr ? nullptr : group_->processes());
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
