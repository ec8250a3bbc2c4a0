#include "exec/ranked_executor.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "ir/print.h"
#include "runtime/allocator.h"
#include "runtime/host_wait.h"
#include "runtime/processes.h"
#include "runtime/rank_error.h"

namespace tracestep {
namespace {

// Returns share number `share` of the value's rows, or the value if it lacks rows for all shares.
TensorView share_of(const TensorView& value, const Type& type, int share, int shares) {
  const bool has_rows = !type.shape.empty() && !value.shape.empty();
  if (!has_rows || value.shape[0] != type.shape[0] * shares) return value;
  Shape shape = value.shape;
  shape[0] = type.shape[0];
  const std::size_t bytes = value.bytes.size() / static_cast<std::size_t>(shares);
  return {value.dtype, shape, value.bytes.subspan(static_cast<std::size_t>(share) * bytes, bytes)};
}

constexpr std::uint64_t kNoMemory = 0;

std::uint64_t identity_of(const Program& program) {
  const std::string text = print(program);
  return std::stoull(hash_text(std::as_bytes(std::span(text))), nullptr, 16) | 1;
}

// Returns the executor of this process's rank. Throws unless every process has made one, of the
// same program.
std::unique_ptr<Executor> make_with_others(ExecutorKind kind, Store& store, const Program& program,
                                           Processes& processes) {
  std::unique_ptr<Executor> out;
  std::exception_ptr no_memory;
  try {
    out = make_executor(kind, store, program);
  } catch (const OutOfMemory&) {
    no_memory = std::current_exception();
  }
  const std::vector<std::uint64_t> all =
      processes.exchange(no_memory ? kNoMemory : identity_of(program));
  const auto without = std::ranges::find(all, kNoMemory);
  if (without == all.end()) {
    check_same(processes, "its program", identity_of(program));
    return out;
  }
  if (std::ranges::all_of(all, [](std::uint64_t one) { return one == kNoMemory; })) {
    std::rethrow_exception(no_memory);
  }
  throw RankError(without - all.begin(), "it has no memory for the step, and others have",
                  "use a smaller size, batch or context", ErrorCode::kOutOfMemory);
}

}  // namespace

RankedExecutor::RankedExecutor(std::vector<std::unique_ptr<Executor>> executors,
                               const Parallel& choice, Communicator* group, bool only_issues)
    : executors_(std::move(executors)),
      choice_(choice),
      group_(group),
      first_rank_(group == nullptr ? 0 : group->rank()),
      only_issues_(only_issues),
      threads_(static_cast<int>(executors_.size())) {}

void RankedExecutor::set_input(std::string_view name, const TensorView& value) {
  const ValueId id = program().find_leaf(name);
  for (std::size_t i = 0; i < executors_.size(); ++i) {
    const bool is_shared = id != kNoValue;
    const int replica = (first_rank_ + static_cast<int>(i)) / choice_.tensor;
    executors_[i]->set_input(
        name, is_shared ? share_of(value, program().type(id), replica, choice_.replicas()) : value);
  }
}

void RankedExecutor::run() {
  std::optional<HostWait> wait;
  // During a pause, the host may take any time.
  if (only_issues_ && observer().pauses.empty()) wait.emplace("room in the queue of its device");
  const RankThreads::Failure failure =
      threads_.run([&](int rank) { executors_[static_cast<std::size_t>(rank)]->run(); },
                   [&] {
                     if (group_ != nullptr) group_->end();
                   });
  if (!failure.error) return;
  if (group_ != nullptr) group_->restart();
  rethrow(failure);
}

void RankedExecutor::rethrow(const RankThreads::Failure& failure) const {
  const auto named = [&](const std::string& where) {
    return fmt::format("rank {}: {}", first_rank_ + failure.rank, where);
  };
  const bool ends_all = group_ != nullptr && group_->processes() != nullptr;
  try {
    std::rethrow_exception(failure.error);
  } catch (const RankError&) {
    throw;
  } catch (const OutOfMemory& e) {
    const OutOfMemory out(named(e.where()), e.requested_bytes(), e.limit_bytes(), e.live(),
                          e.lack());
    if (ends_all) throw Error(out.code(), out.where(), out.message(), out.hint());
    throw out;
  } catch (const Error& e) {
    throw Error(e.code(), named(e.where()), e.message(), e.hint());
  }
}

void RankedExecutor::release_outputs() {
  for (const auto& executor : executors_) executor->release_outputs();
}

std::unique_ptr<Executor> make_executor(ExecutorKind kind,
                                        std::span<const std::unique_ptr<Store>> stores,
                                        const Program& program, const Parallel& choice,
                                        Communicator* group) {
  std::vector<std::unique_ptr<Executor>> out;
  Processes* const processes = group == nullptr ? nullptr : group->processes();
  for (const auto& store : stores) {
    out.push_back(processes == nullptr ? make_executor(kind, *store, program)
                                       : make_with_others(kind, *store, program, *processes));
  }
  if (!choice.is_on()) return std::move(out.front());
  return std::make_unique<RankedExecutor>(std::move(out), choice, group,
                                          stores.front()->device().is_asynchronous());
}

}  // namespace tracestep
