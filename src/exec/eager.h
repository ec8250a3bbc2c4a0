// The eager executor: runs nodes in program order, each as its own kernel launch; buffers come from
// the device's allocator and are freed after their last reader.
#pragma once

#include "exec/step_executor.h"

namespace tracestep {

class EagerExecutor final : public StepExecutor {
 public:
  // Throws as StepExecutor does.
  EagerExecutor(Store& store, Program program);
  ~EagerExecutor() override;

  void run() override;
  void release_outputs() override { free_temporaries(); }
  std::int64_t predicted_peak_bytes() const override { return predicted_peak_bytes_; }

 private:
  void begin(Launch& launch) override;
  void end(Launch& launch) override;
  bool is_alive(int buffer) const override {
    return addresses_[static_cast<std::size_t>(buffer)] != nullptr;
  }
  void free_temporaries();
  void free_workspace();

  const std::int64_t predicted_peak_bytes_;
  void* workspace_ = nullptr;  // The workspace of the current launch.
};

}  // namespace tracestep
