// Ranks as processes with a GPU each, connected by NCCL, which is found at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep {

// "2.28.9"; empty: it is not on this machine, and `problem` says why.
std::string nccl_version(std::string& problem);

// This process's end of a group of all processes. `streams`: the cudaStream_t of each lane, on
// which collectives are issued; the current device of the calling thread is its device. Sums are in
// NCCL's order: the same bits on all ranks and in every call, which need not be those of sums in
// host memory. Error{kDevice}: there is no NCCL; DeviceError: it cannot connect the ranks.
std::unique_ptr<Communicator> make_nccl_group(Processes& processes, std::vector<void*> streams);

}  // namespace tracestep
