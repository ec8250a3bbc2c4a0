// CUPTI, the profiling library of CUDA, found at run time.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>

#include <string>

namespace tracestep::cuda {

struct Cupti {
  // Why the library cannot be used; empty: it can, and everything below is set.
  std::string problem;

  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableDriverApi) enable_driver_call = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_id = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id = nullptr;
  decltype(&cuptiGetCallbackName) call_name = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;
  decltype(&cuptiGetGraphNodeId) graph_node_id = nullptr;
  decltype(&cuptiGetResultString) result_text = nullptr;

  // Returns the name of a result: "CUPTI_ERROR_NOT_INITIALIZED".
  std::string text_of(CUptiResult result) const;
};

// Returns the library; loads it at the first call, so that unprofiled processes never load it.
const Cupti& cupti();

}  // namespace tracestep::cuda
