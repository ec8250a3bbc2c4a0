// Every call has three steps: all ranks put down their operands, each computes the part of the
// result that it owns, and all wait until every part is there. A sum is made by one rank, over the
// ranks in their order, so that no result depends on timing.
#include "backends/comm/local/local_group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "backends/comm/launch/launched.h"
#include "base/enum_words.h"
#include "ops/collective_sizes.h"
#include "runtime/ordered_sum.h"
#include "runtime/rank_error.h"

namespace tracestep {
namespace {

enum class Collective : std::uint8_t { kNone, kAllReduce, kReduceScatter, kAllGather };
TRACESTEP_WORDS(Collective, "none", "all_reduce", "reduce_scatter", "all_gather");

// A rank's call of a collective, kept where the other ranks read it.
struct Posted {
  Collective call = Collective::kNone;
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements of the whole tensor
  const void* from = nullptr;
  void* to = nullptr;

  bool matches(const Posted& other) const {
    return call == other.call && dtype == other.dtype && count == other.count;
  }
};

// The state that the ranks of a group share: their calls, and a mutex and signals to wait with.
class Group {
 public:
  Group(const RankGroup& kind, std::int64_t first, double timeout_s)
      : kind_(kind),
        first_(first),
        timeout_s_(timeout_s),
        posted_(static_cast<std::size_t>(kind.ranks)),
        is_here_(posted_.size(), false) {}

  int ranks() const { return static_cast<int>(posted_.size()); }
  const Posted& posted(int rank) const { return posted_[static_cast<std::size_t>(rank)]; }

  // Publishes a rank's call and waits for all ranks. Throws GroupEnded, or Error if calls differ.
  void post(int rank, const Posted& call) {
    {
      std::unique_lock lock(mutex_);
      if (ended_) throw GroupEnded();
      posted_[static_cast<std::size_t>(rank)] = call;
      if (!arrive(rank, lock, [this] { return ended_; })) throw GroupEnded();
    }
    for (int other = 0; other < ranks(); ++other) {
      if (call.matches(posted(other))) continue;
      throw Error(ErrorCode::kFailed, "group",
                  fmt::format("rank {} called a collective of {} {} elements, rank {} one of {} {}",
                              rank, call.count, name_of(call.dtype), other, posted(other).count,
                              name_of(posted(other).dtype)));
    }
  }

  // Waits until every rank has its result. Every rank that has posted a call comes here, even when
  // the group has ended, because the ranks' tensors are read and written until then.
  void finish(int rank) {
    std::unique_lock lock(mutex_);
    arrive(rank, lock, [] { return false; });
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    all_arrived_.notify_all();
  }

  void restart() {
    const std::lock_guard lock(mutex_);
    ended_ = false;
    is_here_.assign(posted_.size(), false);
  }

 private:
  // Waits until all ranks called this; false: gives_up() came first. Ends the process at timeout.
  template <class GivesUp>
  bool arrive(int rank, std::unique_lock<std::mutex>& lock, GivesUp&& gives_up) {
    is_here_[static_cast<std::size_t>(rank)] = true;
    if (std::ranges::all_of(is_here_, [](bool here) { return here; })) {
      is_here_.assign(posted_.size(), false);
      ++round_;
      all_arrived_.notify_all();
      return true;
    }
    const std::int64_t round = round_;
    const auto is_over = [&] { return gives_up() || round_ != round; };
    if (timeout_s_ == kNoTimeout) {
      all_arrived_.wait(lock, is_over);
    } else if (!wait_for_timeout(lock, is_over)) {
      end_process(rank);
    }
    return round_ != round;
  }

  // Waits until is_over() is true; false after the time limit. Waits in short pieces, so that time
  // in which the whole process was stopped does not count.
  template <class IsOver>
  bool wait_for_timeout(std::unique_lock<std::mutex>& lock, const IsOver& is_over) {
    const double step_s = std::min(timeout_s_, 1.0);
    for (double waited_s = 0.0; waited_s < timeout_s_; waited_s += step_s) {
      if (all_arrived_.wait_for(lock, std::chrono::duration<double>(step_s), is_over)) return true;
    }
    return false;
  }

  [[noreturn]] void end_process(int waiting) const {
    const auto late = std::ranges::find(is_here_, false) - is_here_.begin();
    const RankError error(
        rank_of_run(late),
        fmt::format("it did not come to {} of rank {} within {:g} s", name_of(posted(waiting).call),
                    rank_of_run(waiting), timeout_s_),
        fmt::format("it hangs, or {} is too short", env::kCommTimeout.name));
    std::fprintf(stderr, "tracestep: %s\n", error.what());
    std::_Exit(exit_code(error.code()));
  }

  std::int64_t rank_of_run(std::int64_t index) const { return first_ + index * kind_.stride; }

  const RankGroup kind_;
  const std::int64_t first_;  // rank of the run
  const double timeout_s_;
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  std::vector<Posted> posted_;  // by rank
  std::vector<bool> is_here_;   // by rank: in this round
  std::int64_t round_ = 0;
  bool ended_ = false;
};

// The groups of ranks of a run, each made when it is first asked for.
class Groups {
 public:
  explicit Groups(double timeout_s) : timeout_s_(timeout_s) {}

  // Returns the group of the kind `group` that `rank` is in; makes it first if there is none yet.
  Group& of(std::int64_t rank, const RankGroup& group) {
    const std::lock_guard lock(mutex_);
    const std::int64_t first = group.first_of(rank);
    return all_.try_emplace({first, group}, group, first, timeout_s_).first->second;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, group] : all_) group.end();
  }
  void restart() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, group] : all_) group.restart();
  }

 private:
  const double timeout_s_;
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, RankGroup>, Group> all_;  // by first rank and kind
};

class LocalCommunicator final : public Communicator {
 public:
  // Makes the communicator of the run's rank `rank` in its group of the kind `kind`.
  LocalCommunicator(std::shared_ptr<Groups> groups, std::int64_t rank, const RankGroup& kind)
      : groups_(std::move(groups)),
        group_(&groups_->of(rank, kind)),
        run_rank_(rank),
        rank_(static_cast<int>(kind.index_of(rank))) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  Communicator& among(const RankGroup& kind) override {
    if (kind.ranks == ranks()) return *this;
    auto& part = parts_[kind];
    if (!part) part = std::make_unique<LocalCommunicator>(groups_, run_rank_, kind);
    return *part;
  }

  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    const std::int64_t count = x.count();
    group_->post(rank_, {Collective::kAllReduce, x.dtype, count, x.data, y.data});
    const OwnPart own = own_part_of(count, ranks(), rank_);
    void* const sum = element(y.data, y.dtype, own.first);
    sum_own(x.dtype, own, sum);
    for (int r = 0; r < ranks(); ++r) {
      if (r != rank_) copy(element(group_->posted(r).to, y.dtype, own.first), sum, y.dtype, own);
    }
    group_->finish(rank_);
    count_bytes(x.dtype, (ranks() - 1) * own.count + (count - own.count));
  }

  void reduce_scatter(const TensorRef& x, const TensorRef& part) override {
    group_->post(rank_, {Collective::kReduceScatter, x.dtype, x.count(), x.data, part.data});
    const OwnPart own = own_part_of(x.count(), ranks(), rank_);
    sum_own(x.dtype, own, part.data);
    const std::int64_t padding = part.count() - own.count;
    if (padding > 0) {
      std::memset(element(part.data, part.dtype, own.count), 0,
                  static_cast<std::size_t>(padding) * size_of(part.dtype));
    }
    group_->finish(rank_);
    count_bytes(x.dtype, (ranks() - 1) * own.count);
  }

  void all_gather(const TensorRef& part, const TensorRef& y) override {
    const std::int64_t count = y.count();
    group_->post(rank_, {Collective::kAllGather, y.dtype, count, part.data, y.data});
    std::int64_t received = 0;
    for (int r = 0; r < ranks(); ++r) {
      const OwnPart theirs = own_part_of(count, ranks(), r);
      copy(element(y.data, y.dtype, theirs.first), group_->posted(r).from, y.dtype, theirs);
      if (r != rank_) received += theirs.count;
    }
    group_->finish(rank_);
    count_bytes(y.dtype, received);
  }

  std::int64_t received_bytes() const override {
    std::int64_t total = received_bytes_;
    for (const auto& [kind, part] : parts_) total += part->received_bytes();
    return total;
  }
  void end() override { groups_->end(); }
  void restart() override { groups_->restart(); }

 private:
  // Returns the address of element `index` of a tensor that begins at `first`.
  static void* element(void* first, DType dtype, std::int64_t index) {
    return static_cast<std::byte*>(first) + index * static_cast<std::int64_t>(size_of(dtype));
  }
  static void copy(void* to, const void* from, DType dtype, OwnPart part) {
    if (part.count == 0) return;
    std::memcpy(to, from, static_cast<std::size_t>(part.count) * size_of(dtype));
  }

  // Writes the sum of all ranks' operands to `out`, as far as it lies in this rank's part `own`.
  void sum_own(DType dtype, OwnPart own, void* out) const {
    std::vector<const void*> from;
    for (int r = 0; r < ranks(); ++r) {
      from.push_back(element(const_cast<void*>(group_->posted(r).from), dtype, own.first));
    }
    add_in_order(dtype, from, own.count, out);
  }

  void count_bytes(DType dtype, std::int64_t elements) {
    received_bytes_ += elements * static_cast<std::int64_t>(size_of(dtype));
  }

  const std::shared_ptr<Groups> groups_;
  Group* const group_;
  const std::int64_t run_rank_;
  const int rank_;
  std::map<RankGroup, std::unique_ptr<LocalCommunicator>> parts_;
  std::int64_t received_bytes_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks, double timeout_s) {
  TRACESTEP_CHECK(ranks >= 1, "a group of {}", ranks);
  const auto groups = std::make_shared<Groups>(timeout_s);
  std::vector<std::unique_ptr<Communicator>> out;
  for (int r = 0; r < ranks; ++r) {
    out.push_back(std::make_unique<LocalCommunicator>(groups, r, RankGroup{ranks}));
  }
  return out;
}

}  // namespace tracestep
