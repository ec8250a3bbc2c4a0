// Results of a step that the host wants before the step has ended: the loss and the gradients'
// norm decide whether and how training goes on, and are known before the weights are updated. They
// are sent behind the launch that completes them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/buffer_plan.h"
#include "base/host_tensor.h"
#include "exec/launches.h"
#include "runtime/device.h"

namespace tracestep {

class EarlyResults {
 public:
  // Sends rank-0 outputs of the program. nullptr where the device does not send, and for steps
  // of several lanes, in which the order of launches does not say what is done.
  // Throws Error{kUsage}: no such output.
  static std::unique_ptr<EarlyResults> make(Device& device, const Program& program,
                                            const BufferPlan& plan,
                                            std::span<const Launch> launches,
                                            std::span<const std::string> outputs);

  // True if the results are to be sent behind this launch.
  bool is_completed_by(const Launch& launch) const { return launch.node == last_node_; }
  // `buffers`: addresses, by index of the buffer plan.
  void send(std::span<void* const> buffers);
  void count_replay();
  // Begins another run.
  void restart() { has_sent_ = was_read_ = false; }

  // Waits for the result; nullopt when `id` is not sent early, or nothing was sent in this run.
  std::optional<HostTensor> read(ValueId id);
  // True if the host has read the results of this run, and no launch behind them reads the buffer.
  bool is_free(int buffer) const;

 private:
  struct Result {
    ValueId id = kNoValue;
    Type type;
    Slot slot;
  };
  EarlyResults(std::vector<Result> results, std::unique_ptr<Outbox> outbox, NodeId last_node,
               std::vector<bool> is_read_later);

  const std::vector<Result> results_;
  const std::unique_ptr<Outbox> outbox_;
  const NodeId last_node_;
  const std::vector<bool> is_read_later_;  // by buffer: by a launch behind them
  bool has_sent_ = false, was_read_ = false;
};

}  // namespace tracestep
