// Sends results that the host needs before the step has ended. The loss and the gradients' norm
// decide whether and how training continues, and are known before the weights are updated. Each is
// sent right after the launch that completes it, the loss even before backward.
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
  // Makes an object that sends these rank-0 outputs. nullptr if the device cannot send, and for
  // steps with several lanes, in which the order of launches does not say what is done. Throws
  // Error{kUsage} if there is no such output.
  static std::unique_ptr<EarlyResults> make(Device& device, const Program& program,
                                            const BufferPlan& plan,
                                            std::span<const Launch> launches,
                                            std::span<const std::string> outputs);

  // Sends results that this launch completed. `buffers`: addresses, by index in the buffer plan.
  void send_behind(const Launch& launch, std::span<void* const> buffers);
  void count_replay();
  // Begins another run, of which nothing has been sent yet.
  void restart();

  // Waits for a result; nullopt if `id` is not sent early, or was not sent in this run.
  std::optional<HostTensor> read(ValueId id);
  // True if the host has read a result of this run, and no launch after that result reads the
  // buffer.
  bool is_free(int buffer) const;

 private:
  struct Result {
    ValueId id = kNoValue;
    Type type;
    Slot slot;
  };
  // The results that one launch completes, which are sent together.
  struct Letter {
    std::vector<Result> results;
    std::unique_ptr<Outbox> outbox;
    std::vector<bool> is_read_later;  // For each buffer, whether a launch after this one reads it.
    bool has_sent = false, was_read = false;
  };
  explicit EarlyResults(std::map<NodeId, Letter> letters) : letters_(std::move(letters)) {}

  std::map<NodeId, Letter> letters_;  // Letters by the node whose launch completes them.
};

}  // namespace tracestep
