#include "backends/cuda/toolkit/cupti_records.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include <fmt/format.h>

namespace tracestep::cuda {
namespace {

std::string readable(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : std::string(mangled);
}

// Returns the name of a kind of copy as nsys and Kineto write it.
std::string copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "Memcpy HtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "Memcpy PtoP";
    default: return "Memcpy";
  }
}

template <class Record>
Activity placed(const Record& r) {
  Activity out;
  out.start_ns = static_cast<std::int64_t>(r.start);
  out.end_ns = static_cast<std::int64_t>(r.end);
  out.correlation = r.correlationId;
  out.graph_node = r.graphNodeId;
  out.device = r.deviceId;
  out.context = r.contextId;
  out.stream = r.streamId;
  return out;
}

}  // namespace

std::string plain_call_name(std::string name) {
  const std::size_t at = name.rfind("_v");
  if (at == std::string::npos || at + 2 == name.size()) return name;
  const bool is_version = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at) + 2,
                                      name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (is_version) name.resize(at);
  return name;
}

void CuptiRecords::read(std::uint8_t* buffer, std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cupti_.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) add(*record);
}

void CuptiRecords::add(const CUpti_Activity& record) {
  const void* at = &record;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      add_kernel(*static_cast<const CUpti_ActivityKernel10*>(at));
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      add_copy(*static_cast<const CUpti_ActivityMemcpy6*>(at));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      add_fill(*static_cast<const CUpti_ActivityMemset4*>(at));
      break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: add_call(*static_cast<const CUpti_ActivityAPI*>(at)); break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& e = *static_cast<const CUpti_ActivityExternalCorrelation*>(at);
      if (e.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
        node_of_[e.correlationId] = static_cast<std::int32_t>(e.externalId) - 1;
      }
      break;
    }
    default: break;
  }
}

void CuptiRecords::add_kernel(const CUpti_ActivityKernel10& k) {
  // CUPTI gives 0 where it could not take a time; its times are wrong in very long sessions.
  if (k.start == 0 || k.end < k.start) return add_dropped(1);
  Activity a = placed(k);
  a.name = kernel_name(k.name);
  a.grid = {k.gridX, k.gridY, k.gridZ};
  a.block = {k.blockX, k.blockY, k.blockZ};
  a.registers_per_thread = k.registersPerThread;
  a.shared_bytes = std::int64_t{k.staticSharedMemory} + k.dynamicSharedMemory;
  trace_.activities.push_back(a);
}

void CuptiRecords::add_copy(const CUpti_ActivityMemcpy6& m) {
  Activity a = placed(m);
  a.kind = ActivityKind::kCopy;
  a.name = name(copy_name(m.copyKind));
  a.bytes = static_cast<std::int64_t>(m.bytes);
  trace_.activities.push_back(a);
}

void CuptiRecords::add_fill(const CUpti_ActivityMemset4& m) {
  Activity a = placed(m);
  a.kind = ActivityKind::kFill;
  a.name = name("Memset (Device)");
  a.bytes = static_cast<std::int64_t>(m.bytes);
  trace_.activities.push_back(a);
}

void CuptiRecords::add_call(const CUpti_ActivityAPI& a) {
  const auto domain = a.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API
                                                            : CUPTI_CB_DOMAIN_DRIVER_API;
  trace_.calls.push_back({call_name(domain, a.cbid), static_cast<std::int64_t>(a.start),
                          static_cast<std::int64_t>(a.end), a.correlationId, a.threadId});
}

std::int32_t CuptiRecords::name(std::string text) {
  const auto [found, is_new] =
      names_.try_emplace(std::move(text), static_cast<std::int32_t>(trace_.names.size()));
  if (is_new) trace_.names.push_back(found->first);
  return found->second;
}

std::int32_t CuptiRecords::kernel_name(const char* mangled) {
  const std::string key = mangled == nullptr ? "kernel without a name" : mangled;
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return found->second;
  return kernels_[key] = name(readable(key.c_str()));
}

std::int32_t CuptiRecords::call_name(CUpti_CallbackDomain domain, std::uint32_t id) {
  const auto key = std::pair(static_cast<int>(domain), id);
  const auto found = calls_.find(key);
  if (found != calls_.end()) return found->second;
  const char* text = nullptr;
  const bool is_known = cupti_.call_name(domain, id, &text) == CUPTI_SUCCESS && text != nullptr;
  return calls_[key] = name(is_known ? plain_call_name(text) : fmt::format("call {}", id));
}

// Returns the node of a launch. Libraries launch some kernels by calls that CUPTI does not record.
// Ids are given out in the order of calls, and one thread issues a step, so such a launch belongs
// to the node of the recorded call before it: the tracer makes a call where a node begins and ends.
std::int32_t CuptiRecords::node_at(std::uint32_t correlation) const {
  const auto next = node_of_.upper_bound(correlation);
  return next == node_of_.begin() ? -1 : std::prev(next)->second;
}

ActivityTrace CuptiRecords::take(const GraphNodes& graph_nodes) {
  for (const ApiCall& c : trace_.calls) node_of_.try_emplace(c.correlation, -1);
  for (Activity& a : trace_.activities) {
    a.node = a.graph_node != 0 ? graph_nodes.node_of(a.graph_node) : node_at(a.correlation);
  }
  const std::int32_t mark = name("cudaPeekAtLastError");
  std::erase_if(trace_.calls, [&](const ApiCall& c) { return c.name == mark; });
  std::ranges::stable_sort(trace_.activities, {}, &Activity::start_ns);
  std::ranges::stable_sort(trace_.calls, {}, &ApiCall::start_ns);
  // A runtime call may also be recorded as the driver call inside it: only the outer one stays.
  std::set<std::uint32_t> seen;
  std::erase_if(trace_.calls, [&](const ApiCall& c) { return !seen.insert(c.correlation).second; });
  ActivityTrace out = std::move(trace_);
  trace_ = {};
  names_.clear();
  kernels_.clear();
  calls_.clear();
  node_of_.clear();
  return out;
}

}  // namespace tracestep::cuda
