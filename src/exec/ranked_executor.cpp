#include "exec/ranked_executor.h"

#include "runtime/allocator.h"

namespace tracestep {
namespace {

// The rows of rank `rank`; the value itself where it is not to be shared out.
TensorView share_of(const TensorView& value, const Type& type, int rank, int ranks) {
  const bool has_rows = !type.shape.empty() && !value.shape.empty();
  if (!has_rows || value.shape[0] != type.shape[0] * ranks) return value;
  Shape shape = value.shape;
  shape[0] = type.shape[0];
  const std::size_t bytes = value.bytes.size() / static_cast<std::size_t>(ranks);
  return {value.dtype, shape, value.bytes.subspan(static_cast<std::size_t>(rank) * bytes, bytes)};
}

[[noreturn]] void rethrow_with_rank(const RankThreads::Failure& failure) {
  const auto named = [&](const std::string& where) {
    return fmt::format("rank {}: {}", failure.rank, where);
  };
  try {
    std::rethrow_exception(failure.error);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(named(e.where()), e.requested_bytes(), e.limit_bytes(), e.live());
  } catch (const Error& e) {
    throw Error(e.code(), named(e.where()), e.message(), e.hint());
  }
}

}  // namespace

RankedExecutor::RankedExecutor(std::vector<std::unique_ptr<Executor>> executors, int ranks,
                               Communicator* group)
    : executors_(std::move(executors)),
      ranks_(ranks),
      group_(group),
      threads_(static_cast<int>(executors_.size())) {}

void RankedExecutor::set_input(std::string_view name, const TensorView& value) {
  const ValueId id = program().find_leaf(name);
  for (std::size_t rank = 0; rank < executors_.size(); ++rank) {
    const bool is_shared = id != kNoValue;
    executors_[rank]->set_input(
        name,
        is_shared ? share_of(value, program().type(id), static_cast<int>(rank), ranks_) : value);
  }
}

void RankedExecutor::run(Recorder* recorder) {
  const RankThreads::Failure failure = threads_.run(
      [&](int rank) {
        executors_[static_cast<std::size_t>(rank)]->run(rank == 0 ? recorder : nullptr);
      },
      [&] {
        if (group_ != nullptr) group_->end();
      });
  if (!failure.error) return;
  if (group_ != nullptr) group_->restart();
  rethrow_with_rank(failure);
}

void RankedExecutor::release_outputs() {
  for (const auto& executor : executors_) executor->release_outputs();
}

std::unique_ptr<Executor> make_executor(ExecutorKind kind,
                                        std::span<const std::unique_ptr<Store>> stores,
                                        const Program& program, int ranks, Communicator* group) {
  std::vector<std::unique_ptr<Executor>> out;
  for (const auto& store : stores) out.push_back(make_executor(kind, *store, program));
  if (ranks == 1) return std::move(out.front());
  return std::make_unique<RankedExecutor>(std::move(out), ranks, group);
}

}  // namespace tracestep
