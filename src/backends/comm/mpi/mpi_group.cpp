// Every collective begins with a small message between all ranks, which says what they called. A
// sum is made by the rank that owns the part, in the order of the ranks, so that its bits are those
// of any other communicator of host memory.
#include "backends/comm/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "backends/comm/mpi/mpi_world.h"
#include "base/error.h"
#include "ops/collective_sizes.h"
#include "runtime/ordered_sum.h"

namespace tracestep {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;  // of each rank's part at a time

enum class Collective : std::int64_t { kAllReduce, kReduceScatter, kAllGather };

const char* name_of(Collective call) {
  switch (call) {
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllGather: return "all_gather";
  }
  return "?";
}

// A rank's call of a collective, sent to the others so that they can compare it with theirs.
struct Posted {
  Collective call = Collective::kAllReduce;
  std::int64_t dtype = 0, count = 0;

  friend bool operator==(const Posted&, const Posted&) = default;
};

// Cuts the parts of a tensor, one for each rank, into chunks of at most kChunkBytes.
class Chunks {
 public:
  Chunks(const TensorRef& whole, int ranks)
      : count_(whole.count()),
        ranks_(ranks),
        size_(static_cast<std::int64_t>(size_of(whole.dtype))),
        most_(std::max<std::int64_t>(1, kChunkBytes / size_)) {}

  std::int64_t size() const { return (part_count(count_, ranks_) + most_ - 1) / most_; }
  OwnPart of(std::int64_t chunk, int rank) const {
    const OwnPart part = own_part_of(count_, ranks_, rank);
    const std::int64_t start = std::min(part.count, chunk * most_);
    return {part.first + start, std::min(most_, part.count - start)};
  }
  std::byte* at(void* tensor, std::int64_t element) const {
    return static_cast<std::byte*>(tensor) + element * size_;
  }
  std::size_t bytes(OwnPart part) const { return static_cast<std::size_t>(part.count * size_); }

 private:
  const std::int64_t count_;
  const int ranks_;
  const std::int64_t size_, most_;
};

class MpiGroup final : public Communicator {
 public:
  MpiGroup(MpiWorld& world, const RankGroup& kind)
      : world_(world), kind_(kind), first_(kind.first_of(world.rank())) {}

  int rank() const override { return static_cast<int>(kind_.index_of(world_.rank())); }
  int ranks() const override { return static_cast<int>(kind_.ranks); }

  Communicator& among(const RankGroup& kind) override {
    if (kind.ranks == ranks()) return *this;
    auto& part = parts_[kind];
    if (!part) part = std::make_unique<MpiGroup>(world_, kind);
    return *part;
  }

  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    const Chunks chunks(x, ranks());
    post(Collective::kAllReduce, x);
    for (std::int64_t c = 0; c < chunks.size(); ++c) {
      add(chunks, c, x, chunks.at(y.data, chunks.of(c, rank()).first));
      spread(chunks, c, y);
    }
    const std::int64_t own = own_part_of(x.count(), ranks(), rank()).count;
    count_bytes(x.dtype, (ranks() - 1) * own + (x.count() - own));
  }

  void reduce_scatter(const TensorRef& x, const TensorRef& part) override {
    const Chunks chunks(x, ranks());
    post(Collective::kReduceScatter, x);
    const OwnPart own = own_part_of(x.count(), ranks(), rank());
    for (std::int64_t c = 0; c < chunks.size(); ++c) {
      add(chunks, c, x, chunks.at(part.data, chunks.of(c, rank()).first - own.first));
    }
    const OwnPart padding{own.count, part.count() - own.count};
    if (padding.count > 0) {
      std::memset(chunks.at(part.data, padding.first), 0, chunks.bytes(padding));
    }
    count_bytes(x.dtype, (ranks() - 1) * own.count);
  }

  void all_gather(const TensorRef& part, const TensorRef& y) override {
    const Chunks chunks(y, ranks());
    post(Collective::kAllGather, y);
    const OwnPart own = own_part_of(y.count(), ranks(), rank());
    if (own.count > 0) std::memcpy(chunks.at(y.data, own.first), part.data, chunks.bytes(own));
    for (std::int64_t c = 0; c < chunks.size(); ++c) spread(chunks, c, y);
    count_bytes(y.dtype, y.count() - own.count);
  }

  std::int64_t received_bytes() const override {
    std::int64_t total = received_bytes_;
    for (const auto& [kind, part] : parts_) total += part->received_bytes();
    return total;
  }
  // Does nothing: a failure ends the process, and with it the others.
  void end() override {}
  void restart() override {}
  Processes* processes() const override { return &world_; }

 private:
  // Returns the number in the MPI job of the process that has number `rank` in the group.
  int process(int rank) const { return static_cast<int>(first_ + rank * kind_.stride); }

  // Waits until all ranks have called a collective; throws Error if they called different ones.
  void post(Collective call, const TensorRef& whole) {
    call_ = name_of(call);
    const Posted own{call, static_cast<std::int64_t>(whole.dtype), whole.count()};
    std::vector<Posted> posted(static_cast<std::size_t>(ranks()), own);
    MpiWorld::Messages messages(world_, call_);
    for (int other = 0; other < ranks(); ++other) {
      if (other == rank()) continue;
      messages.receive(&posted[static_cast<std::size_t>(other)], sizeof own, process(other));
      messages.send(&own, sizeof own, process(other));
    }
    messages.wait();
    for (int other = 0; other < ranks(); ++other) {
      const Posted& theirs = posted[static_cast<std::size_t>(other)];
      if (theirs == own) continue;
      throw Error(
          ErrorCode::kFailed, "group",
          fmt::format("rank {} called {} of {} elements, rank {} {} of {}", world_.rank(), call_,
                      own.count, process(other), name_of(theirs.call), theirs.count));
    }
  }

  // Sums chunk `c` of x: sends each other rank that rank's part, receives the other ranks' values
  // of this rank's part, and writes the sum of all ranks' values of that to `out`.
  void add(const Chunks& chunks, std::int64_t c, const TensorRef& x, void* out) {
    const OwnPart own = chunks.of(c, rank());
    std::vector<const void*> from;
    received_.resize(static_cast<std::size_t>(ranks()));
    MpiWorld::Messages messages(world_, call_);
    for (int other = 0; other < ranks(); ++other) {
      std::vector<std::byte>& theirs = received_[static_cast<std::size_t>(other)];
      theirs.resize(other == rank() ? 0 : chunks.bytes(own));
      from.push_back(other == rank() ? chunks.at(x.data, own.first) : theirs.data());
      if (other == rank()) continue;
      if (own.count > 0) messages.receive(theirs.data(), theirs.size(), process(other));
      const OwnPart sent = chunks.of(c, other);
      if (sent.count > 0) {
        messages.send(chunks.at(x.data, sent.first), chunks.bytes(sent), process(other));
      }
    }
    messages.wait();
    add_in_order(x.dtype, from, own.count, out);
  }

  // Sends this rank's part of chunk `c` of `y` to all other ranks, and receives their parts of it.
  void spread(const Chunks& chunks, std::int64_t c, const TensorRef& y) {
    const OwnPart own = chunks.of(c, rank());
    MpiWorld::Messages messages(world_, call_);
    for (int other = 0; other < ranks(); ++other) {
      if (other == rank()) continue;
      const OwnPart theirs = chunks.of(c, other);
      if (theirs.count > 0) {
        messages.receive(chunks.at(y.data, theirs.first), chunks.bytes(theirs), process(other));
      }
      if (own.count > 0) {
        messages.send(chunks.at(y.data, own.first), chunks.bytes(own), process(other));
      }
    }
    messages.wait();
  }

  void count_bytes(DType dtype, std::int64_t elements) {
    received_bytes_ += elements * static_cast<std::int64_t>(size_of(dtype));
  }

  MpiWorld& world_;
  const RankGroup kind_;
  const std::int64_t first_;  // the process that has place 0
  std::map<RankGroup, std::unique_ptr<MpiGroup>> parts_;
  const char* call_ = "";                         // under way
  std::vector<std::vector<std::byte>> received_;  // chunks of the own part, by rank
  std::int64_t received_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Processes> join_mpi(double timeout_s) {
  return std::make_unique<MpiWorld>(timeout_s);
}

std::unique_ptr<Communicator> make_mpi_group(Processes& processes) {
  auto& world = dynamic_cast<MpiWorld&>(processes);
  return std::make_unique<MpiGroup>(world, RankGroup{world.count()});
}

}  // namespace tracestep
