// A step of several ranks as one Executor: measurements, which know only that, see the first rank,
// and the others run beside it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "exec/rank_threads.h"
#include "run/parallel.h"
#include "runtime/communicator.h"

namespace tracestep {

class RankedExecutor final : public Executor {
 public:
  // The executors of the same program on the devices of a group, in the order of the ranks; fewer
  // than those of `choice` where the others are processes of their own, or need not run (the null
  // device). `group` is the first executor's end of the group, nullptr if it has none.
  // `only_issues`: their devices are asynchronous.
  RankedExecutor(std::vector<std::unique_ptr<Executor>> executors, const Parallel& choice,
                 Communicator* group, bool only_issues);

  // A tensor with as many times the rows of the input as there are replicas is shared out among
  // them, in the order of the ranks; any other is the same for all of them.
  void set_input(std::string_view name, const TensorView& value) override;
  // Runs all ranks, and returns when the last one does. If one throws, the others end too, and the
  // first error is thrown with its rank in front. Where ranks are processes, an OutOfMemory becomes
  // an Error: the others cannot go on.
  void run() override;
  void release_outputs() override;

  // The members below answer for the first rank.
  const Program& program() const override { return first().program(); }
  const BufferPlan& buffer_plan() const override { return first().buffer_plan(); }
  void observe(RunObserver observer) override { first().observe(std::move(observer)); }
  const RunObserver& observer() const override { return first().observer(); }
  std::int64_t device_span_ns() override { return first().device_span_ns(); }
  HostTensor output(std::string_view name) const override { return first().output(name); }
  std::optional<HostTensor> value(ValueId id) const override { return first().value(id); }
  bool is_captured() const override { return first().is_captured(); }
  std::optional<std::int64_t> kernels() const override { return first().kernels(); }
  std::int64_t launches() const override { return first().launches(); }
  std::int64_t predicted_peak_bytes() const override { return first().predicted_peak_bytes(); }

 private:
  Executor& first() const { return *executors_.front(); }
  [[noreturn]] void rethrow(const RankThreads::Failure& failure) const;

  const std::vector<std::unique_ptr<Executor>> executors_;
  const Parallel choice_;
  Communicator* const group_;
  const int first_rank_;  // of this process
  const bool only_issues_;
  RankThreads threads_;
};

// The executor of a program on the store of each rank in this process: a RankedExecutor, or that of
// the one store where `choice` has one rank. Errors as make_executor(); where ranks are processes,
// also Error{kFailed} when their programs differ, and Error{kOutOfMemory} when only some have no
// memory.
std::unique_ptr<Executor> make_executor(ExecutorKind kind,
                                        std::span<const std::unique_ptr<Store>> stores,
                                        const Program& program, const Parallel& choice,
                                        Communicator* group);

}  // namespace tracestep
