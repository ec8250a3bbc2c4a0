// The objects behind the C interface's handles: a session, which is a device with the weights on
// it, and its runs. Methods throw, and capi/step/tracestep.cpp turns exceptions into statuses.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capi/step/step_programs.h"
#include "exec/executor.h"
#include "exec/rank_devices.h"
#include "runtime/lent_memory.h"
#include "runtime/processes.h"
#include "session/session.h"

namespace tracestep::capi {

class StepSession;

// The memory that runs of a session hold. Leaves with the same name are one leaf; arenas exist
// all the time, each in memory of its own or, for several runs, in the same lent memory; other
// temporaries exist while their run is at work.
struct HeldByRuns {
  std::vector<Value> leaves = {};
  std::map<const void*, std::int64_t> arena_bytes = {};  // by what tells arenas apart
  std::int64_t most_temporary_bytes = 0;

  std::int64_t bytes() const;
};

class StepRun {
 public:
  StepRun(StepSession& session, std::shared_ptr<const CapturedModel> module, tracestep_kind kind);

  StepSession& session() const { return session_; }
  const Program& program() const { return program_; }
  tracestep_bytes size() const;
  // Adds what this run holds once it has been started.
  void add_to(HeldByRuns& held) const;
  bool has_started() const { return executor_ != nullptr; }
  // Returns the tensor with this number; nullptr: there is none.
  const tracestep_tensor* tensor(std::int64_t index) const;

  void start();
  void load();
  void save(const std::string& path);
  void set(const std::string& name, const void* data, std::int64_t bytes);
  void get(const std::string& name, void* data, std::int64_t bytes);
  void set_rate(std::int64_t group, double rate, std::int64_t step);
  void go(void* stream);

 private:
  Executor& executor();  // The executor. Throws Error{kUsage} before start().
  void list_tensors();
  void add_tensor(const std::string& name, const Type& type, tracestep_role role,
                  const BlockPart& part = {});
  // Makes the device send the loss and the norm to the host as soon as they are known, before the
  // step has ended.
  void observe_early();

  StepSession& session_;
  const std::shared_ptr<const CapturedModel> module_;  // The module; nullptr for UPDATE.
  RunSpec spec_;
  Program program_;
  std::int64_t peak_bytes_ = 0, arena_bytes_ = 0;
  std::list<std::string> texts_;  // The texts that tensors_ refers to.
  std::vector<tracestep_tensor> tensors_;
  const void* arena_ = nullptr;  // The lent memory of the arena; else the run itself.
  std::unique_ptr<Executor> executor_;
  bool has_run_ = false;
};

class StepSession {
 public:
  explicit StepSession(StepOptions options);

  const StepOptions& options() const { return options_; }
  Device& device() const { return *device_; }
  Store& store() const { return stores_->first(); }
  const RankStores& stores() const { return *stores_; }
  const LentMemory& lent() const { return lent_; }
  // Returns the other processes; nullptr: this one is alone.
  Processes* processes() const { return processes_.get(); }
  int ranks() const { return processes_ == nullptr ? 1 : processes_->count(); }

  void join(const tracestep_ranks& ranks);
  // Plans a run. `kind`: a number from the caller, which need not be a tracestep_kind.
  StepRun* plan(const char* program, int kind);
  void end(StepRun* run);
  // Returns the peak bytes of the device while started runs and `next` run, one after the other.
  std::int64_t peak_bytes_with(const StepRun& next) const;
  void lend(const std::string& name, void* data, std::int64_t bytes);
  void refresh(const std::string& name);
  // Notes after a failed run that narrow copies may hold gradients (analysis/places_in_copies.h);
  // the next run begins by making them anew.
  void suspect_copies() { has_suspect_copies_ = true; }
  void mend_copies();
  // Ends everything; the session accepts no further calls.
  void close();

  std::mutex& mutex() { return mutex_; }
  // True in a forked child of the process that made the session: it has the memory but none of the
  // threads.
  bool is_of_parent() const;

 private:
  std::mutex mutex_;
  const int process_;  // The id of the process that made the session.
  const StepOptions options_;
  LentMemory lent_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Processes> processes_;
  std::unique_ptr<RankDevices> group_;
  std::unique_ptr<RankStores> stores_;
  std::list<std::unique_ptr<StepRun>> runs_;
  bool has_suspect_copies_ = false;
};

}  // namespace tracestep::capi
