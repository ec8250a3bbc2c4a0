#include "exec/eager.h"

#include "analysis/memory_map.h"

namespace tracestep {

EagerExecutor::EagerExecutor(Store& store, Program program)
    : StepExecutor(store, program, plan_buffers(program)),
      predicted_peak_bytes_(
          tracestep::predicted_peak_bytes(this->program(), buffer_plan(), device().traits())) {}

EagerExecutor::~EagerExecutor() {
  free_temporaries();
}

void EagerExecutor::run() {
  free_temporaries();
  marks_->set(kFirst);
  try {
    issue();
  } catch (...) {
    free_workspace();
    free_temporaries();
    throw;
  }
  marks_->set(kLast);
}

void EagerExecutor::begin(Launch& launch) {
  Allocator& allocator = device().allocator();
  for (int b : buffer_plan().allocated_at[static_cast<std::size_t>(launch.node)]) {
    const Buffer& planned = buffer(static_cast<std::size_t>(b));
    addresses_[static_cast<std::size_t>(b)] =
        allocator.allocate(planned.bytes, {planned.category, launch.node, {}});
  }
  if (launch.workspace_bytes > 0) {
    workspace_ =
        allocator.allocate(launch.workspace_bytes, {Category::kWorkspace, launch.node, {}});
  }
  launch.place(addresses_);
  launch.call.workspace = workspace_;
}

void EagerExecutor::end(Launch& launch) {
  free_workspace();
  for (int b : buffer_plan().freed_after[static_cast<std::size_t>(launch.node)]) {
    void*& data = addresses_[static_cast<std::size_t>(b)];
    device().allocator().free(data);
    data = nullptr;
  }
}

void EagerExecutor::free_workspace() {
  device().allocator().free(workspace_);
  workspace_ = nullptr;
}

void EagerExecutor::free_temporaries() {
  for (std::size_t b = 0; b < addresses_.size(); ++b) {
    if (buffer(b).first == kNoNode || addresses_[b] == nullptr) continue;
    device().allocator().free(addresses_[b]);
    addresses_[b] = nullptr;
  }
}

}  // namespace tracestep
