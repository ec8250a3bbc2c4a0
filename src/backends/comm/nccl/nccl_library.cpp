#include "backends/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "base/shared_library.h"

namespace tracestep::nccl {
namespace {

constexpr const char* kNccl = "libnccl.so.2";
constexpr const char* kDriver = "libcuda.so.1";

Library load() {
  Library out;
  void* const nccl = open_shared_library(kNccl);
  void* const driver = open_shared_library(kDriver);
  if (nccl == nullptr || driver == nullptr) {
    out.problem = fmt::format("{} is not on this machine", nccl == nullptr ? kNccl : kDriver);
    return out;
  }
  const auto find = [&](auto& function, void* from, const char* name) {
    void* const address = ::dlsym(from, name);
    if (address == nullptr) out.problem = fmt::format("there is no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(out.get_version, nccl, "ncclGetVersion");
  find(out.get_error_string, nccl, "ncclGetErrorString");
  find(out.get_unique_id, nccl, "ncclGetUniqueId");
  find(out.comm_init_rank, nccl, "ncclCommInitRank");
  // From 2.18 on; only groups of some of the ranks (tp) need it.
  out.comm_split = reinterpret_cast<decltype(out.comm_split)>(::dlsym(nccl, "ncclCommSplit"));
  find(out.comm_destroy, nccl, "ncclCommDestroy");
  find(out.group_start, nccl, "ncclGroupStart");
  find(out.group_end, nccl, "ncclGroupEnd");
  find(out.all_reduce, nccl, "ncclAllReduce");
  find(out.reduce_scatter, nccl, "ncclReduceScatter");
  find(out.all_gather, nccl, "ncclAllGather");
  find(out.reduce, nccl, "ncclReduce");
  find(out.broadcast, nccl, "ncclBroadcast");
  find(out.memset, driver, "cuMemsetD8Async");
  return out;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace tracestep::nccl
