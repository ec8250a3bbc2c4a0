// A step of several ranks behind the interface Executor: measurements see the first rank, and the
// others run along.
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
  // Takes the executors of one program on the devices of a group, by rank: fewer than `choice` has
  // ranks if the others are in other processes, or need not run (the null device). `group`: the
  // first executor's communicator; nullptr: there is none. `only_issues`: the devices are
  // asynchronous.
  RankedExecutor(std::vector<std::unique_ptr<Executor>> executors, const Parallel& choice,
                 Communicator* group, bool only_issues);

  // Sets an input. A tensor with the input's rows times the number of replicas is divided among the
  // replicas in order; any other tensor is the same for all ranks.
  void set_input(std::string_view name, const TensorView& value) override;
  // Runs all ranks, and returns when the last one does. If one throws, the others end too, and the
  // first error is thrown with its rank in front. Where ranks are processes, an OutOfMemory becomes
  // an Error: the others cannot go on.
  void run() override;
  void release_outputs() override;

  // The members below return what the first rank has.
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
  const int first_rank_;  // The first rank of this process.
  const bool only_issues_;
  RankThreads threads_;
};

// Makes the executor of a program over the stores of this process's ranks: a RankedExecutor, or
// with a single rank an executor of its store. Throws as make_executor(); if ranks are processes,
// also Error{kFailed} if their programs differ, and Error{kOutOfMemory} if only some ranks run out
// of memory.
std::unique_ptr<Executor> make_executor(ExecutorKind kind,
                                        std::span<const std::unique_ptr<Store>> stores,
                                        const Program& program, const Parallel& choice,
                                        Communicator* group);

}  // namespace tracestep
