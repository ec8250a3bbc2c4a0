#include "capi/step/ranks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/half.h"
#include "capi/step/devices.h"
#include "ops/collective_sizes.h"

namespace tracestep::capi {
namespace {

void check(int status, const char* function) {
  if (status != 0) {
    throw Error(ErrorCode::kFailed, "ranks",
                fmt::format("the caller's {} ended with {}", function, status));
  }
}

class CallersProcesses final : public Processes {
 public:
  explicit CallersProcesses(const tracestep_ranks& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank; }
  int count() const override { return ranks_.count; }
  int local_rank() const override { return ranks_.rank; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override {
    std::vector<std::uint64_t> out(static_cast<std::size_t>(count()));
    gather(&own, out.data(), sizeof own);
    return out;
  }
  void broadcast(std::span<std::byte> bytes) override {
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(count()));
    gather(bytes.data(), all.data(), bytes.size());
    std::copy_n(all.begin(), bytes.size(), bytes.begin());
  }
  void wait_for_first() override { exchange(0); }
  // Throws the line as an error: whoever started the processes ends them.
  [[noreturn]] void end_all(const std::string& line, int /*status*/) override {
    throw Error(ErrorCode::kFailed, "ranks", line);
  }

 private:
  void gather(const void* own, void* all, std::size_t bytes) const {
    check(ranks_.gather(ranks_.context, own, all, static_cast<std::int64_t>(bytes)), "gather");
  }

  const tracestep_ranks ranks_;
};

// The group of all ranks, which sums whole tensors by a function of the caller.
class CallersGroup final : public Communicator {
 public:
  CallersGroup(Processes& processes, const tracestep_ranks& ranks)
      : processes_(processes), ranks_(ranks) {}
  int rank() const override { return ranks_.rank; }
  int ranks() const override { return ranks_.count; }

  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    const std::int64_t count = x.count();
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(x.dtype);
    if (y.data != x.data && bytes > 0) std::memcpy(y.data, x.data, bytes);
    switch (x.dtype) {
      case DType::kF64: sum(y.data, count, "f64"); break;
      case DType::kF32: sum(y.data, count, "f32"); break;
      case DType::kBF16: sum_widened(y.as<BF16>(), count, to_bf16); break;
      case DType::kF16: sum_widened(y.as<F16>(), count, to_f16); break;
      default: TRACESTEP_CHECK(false, "sums over ranks of {}", name_of(x.dtype));
    }
    const std::int64_t own = own_part_of(count, ranks(), rank()).count;
    received_bytes_ +=
        ((ranks() - 1) * own + (count - own)) * static_cast<std::int64_t>(size_of(x.dtype));
  }
  void reduce_scatter(const TensorRef& /*x*/, const TensorRef& /*part*/) override { no_parts(); }
  void all_gather(const TensorRef& /*part*/, const TensorRef& /*y*/) override { no_parts(); }
  Communicator& among(const RankGroup& kind) override {
    TRACESTEP_CHECK(kind.ranks == ranks(), "a group of {} ranks of {}", kind.ranks, ranks());
    return *this;
  }
  std::int64_t received_bytes() const override { return received_bytes_; }
  void end() override {}  // the error of a rank ends its process, and what waits for it
  void restart() override {}
  Processes* processes() const override { return &processes_; }

 private:
  void sum(void* data, std::int64_t count, const char* dtype) const {
    if (count > 0) check(ranks_.sum(ranks_.context, data, count, dtype), "sum");
  }
  // Sums 16-bit numbers over the ranks in float32, rounded once.
  template <class T>
  void sum_widened(T* data, std::int64_t count, T (*narrow)(float)) {
    wide_.resize(static_cast<std::size_t>(count));
    std::transform(data, data + count, wide_.begin(), [](T x) { return to_float(x); });
    sum(wide_.data(), count, "f32");
    std::ranges::transform(wide_, data, narrow);
  }
  [[noreturn]] static void no_parts() {
    fail_usage("ranks", "those of a caller's hold whole tensors");
  }

  Processes& processes_;
  const tracestep_ranks ranks_;
  std::vector<float> wide_;
  std::int64_t received_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Processes> processes_of(const tracestep_ranks& ranks) {
  if (ranks.size != static_cast<std::int64_t>(sizeof ranks)) {
    fail_usage("ranks", "their size is {}; this library's is {}", ranks.size, sizeof ranks);
  }
  if (ranks.count < 2 || ranks.rank < 0 || ranks.rank >= ranks.count) {
    fail_usage("ranks", "there is no rank {} of {}", ranks.rank, ranks.count);
  }
  if (ranks.gather == nullptr || ranks.sum == nullptr) fail_usage("ranks", "a function is NULL");
  return std::make_unique<CallersProcesses>(ranks);
}

std::unique_ptr<Communicator> connected(Processes& processes, const tracestep_ranks& ranks,
                                        Device& device) {
  if (device.traits().has_own_links()) return connected_by_nccl(processes, device);
  return std::make_unique<CallersGroup>(processes, ranks);
}

}  // namespace tracestep::capi
