// Communicator: one rank's end of a group of ranks that run the same program. Device::group()
// carries it to the kernels of collectives. Every rank makes the same calls in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "ops/rank_group.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

class Device;
class Processes;

// Thrown by calls of a group after one of its ranks ended it.
class GroupEnded : public Error {
 public:
  GroupEnded() : Error(ErrorCode::kFailed, "group", "another rank ended the run") {}
};

// One rank's end of a group. **Shapes**: tensors are dense; `whole` has the same shape on
// all ranks, and `part` is [part_count(whole, ranks)] (ops/collective_sizes.h).
// **Dtypes**: floating, the same everywhere; float16 and bfloat16 are added up in float32
// and rounded once; those of 8 bits are gathered only. **Order**: sums in host memory are
// x₀ + x₁ + … in the order of the ranks, whichever rank is first. **Memory**: none of its
// device's allocator. **Errors**: GroupEnded; Error{kFailed} where ranks call differently.
// A call returns when its result is there; on an asynchronous device, when it has been
// issued.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Sums x: [whole] over all ranks into y: [whole], which may be the same memory.
  virtual void all_reduce(const TensorRef& x, const TensorRef& y) = 0;
  // Sums x: [whole] over all ranks; each rank gets its part, padded with zeros.
  virtual void reduce_scatter(const TensorRef& x, const TensorRef& part) = 0;
  // Joins the parts of all ranks into y: [whole].
  virtual void all_gather(const TensorRef& part, const TensorRef& y) = 0;

  // Returns this rank's communicator in its subgroup; this communicator itself if the subgroup has
  // all ranks. All ranks must ask for the same groups in the same order, and not while one is in a
  // call. Bytes that the subgroup receives count here too, and it ends with this group.
  virtual Communicator& among(const RankGroup& group) = 0;

  // Sets the device's lane on which the next calls are issued; it is 0 except while a step is
  // issued.
  virtual void use_lane(int /*lane*/) {}
  // Begin and end a batch of calls, which may be issued together, at its end; their operands must
  // live until then.
  virtual void begin_batch() {}
  virtual void end_batch() {}

  // Returns the bytes that this rank has received from the others.
  virtual std::int64_t received_bytes() const = 0;
  // Ends the calls of all ranks, waiting and future ones, with GroupEnded.
  virtual void end() = 0;
  // Makes an ended group usable again. No rank may be in a call.
  virtual void restart() = 0;
  // Returns all processes of the group; nullptr if its ranks are threads of this process.
  virtual Processes* processes() const { return nullptr; }
};

// Makes the communicators of the ranks that this process has, in their order, in a new group of
// `ranks` ranks: of all, if it is the only process, or of one. `first`: the device of the first.
using GroupFactory =
    std::function<std::vector<std::unique_ptr<Communicator>>(Device& first, int ranks)>;

// Returns rank 0's `own`; every process of the group must call this. In a single process: `own`.
bool agree(Communicator* group, bool own);

}  // namespace tracestep
