// Converts CUPTI's buffers to an ActivityTrace; cupti_tracer.h starts and stops the recording.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/toolkit/cupti.h"
#include "record/activity.h"
#include "record/graph_nodes.h"

namespace tracestep::cuda {

class CuptiRecords {
 public:
  explicit CuptiRecords(const Cupti& cupti) : cupti_(cupti) {}

  // Reads the valid part of a buffer.
  void read(std::uint8_t* buffer, std::size_t valid_bytes);
  void add_dropped(std::size_t count) { trace_.dropped += static_cast<std::int64_t>(count); }
  // Returns everything read up to now with its nodes, sorted by start, and empties the records. An
  // external id is a node + 1; work of a graph belongs to the node that `graph_nodes` names.
  ActivityTrace take(const GraphNodes& graph_nodes);

 private:
  void add(const CUpti_Activity& record);
  void add_kernel(const CUpti_ActivityKernel10& k);
  void add_copy(const CUpti_ActivityMemcpy6& m);
  void add_fill(const CUpti_ActivityMemset4& m);
  void add_call(const CUpti_ActivityAPI& a);
  // Returns the node of a launch, or -1; node_of_ must already have the calls that have no node.
  std::int32_t node_at(std::uint32_t correlation) const;
  std::int32_t name(std::string text);
  // Returns the index of a kernel's readable name; each raw name is converted once.
  std::int32_t kernel_name(const char* mangled);
  std::int32_t call_name(CUpti_CallbackDomain domain, std::uint32_t id);

  const Cupti& cupti_;
  ActivityTrace trace_;
  std::map<std::string, std::int32_t> names_;
  std::map<std::string, std::int32_t> kernels_;  // Kernels by their mangled name.
  std::map<std::pair<int, std::uint32_t>, std::int32_t> calls_;
  // The node of each correlation id; -1: the call belongs to no node.
  std::map<std::uint32_t, std::int32_t> node_of_;
};

// Returns the name of a call without its version, "cudaLaunchKernelExC" for
// "cudaLaunchKernelExC_v11060": readers of traces look for the short one.
std::string plain_call_name(std::string name);

}  // namespace tracestep::cuda
