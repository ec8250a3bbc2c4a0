// Results of a step that the host wants before the step has ended: the loss and the gradients'
// norm decide whether and how training goes on, and are known before the weights are updated. Each
// is sent behind the launch that completes it: the loss in front of backward.
#pragma once

#include <map>
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

  // Sends what this launch completed. `buffers`: addresses, by index of the buffer plan.
  void send_behind(const Launch& launch, std::span<void* const> buffers);
  void count_replay();
  // Begins another run.
  void restart();

  // Waits for the result; nullopt when `id` is not sent early, or nothing was sent in this run.
  std::optional<HostTensor> read(ValueId id);
  // True if the host has read results of this run behind which no launch reads the buffer.
  bool is_free(int buffer) const;

 private:
  struct Result {
    ValueId id = kNoValue;
    Type type;
    Slot slot;
  };
  // Holds the results that one launch completes, which are sent together.
  struct Letter {
    std::vector<Result> results;
    std::unique_ptr<Outbox> outbox;
    std::vector<bool> is_read_later;  // by buffer: by a launch behind this one
    bool has_sent = false, was_read = false;
  };
  explicit EarlyResults(std::map<NodeId, Letter> letters) : letters_(std::move(letters)) {}

  std::map<NodeId, Letter> letters_;  // by the node whose launch completes them
};

}  // namespace tracestep
