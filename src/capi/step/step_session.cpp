#include "capi/step/step_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "analysis/plan.h"
#include "base/error.h"
#include "capi/step/devices.h"
#include "capi/step/ranks.h"
#include "exec/executor.h"
#include "run/memory_limit.h"
#include "session/room.h"
#include "spec/micro_batches.h"
#include "train/schedule.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"

namespace tracestep::capi {
namespace {

tracestep_role role_of(LeafKind kind) {
  switch (kind) {
    case LeafKind::kInput: return TRACESTEP_IN;
    case LeafKind::kParameter: return TRACESTEP_PARAMETER;
    case LeafKind::kConstant: return TRACESTEP_CONSTANT;
    default: return TRACESTEP_STATE;
  }
}

void check_bytes(const std::string& name, std::int64_t given, std::int64_t own) {
  if (given != own) fail_usage("bytes", "{} has {} bytes, not {}", name, own, given);
}

void copy_out(const HostTensor& from, const std::string& name, void* to, std::int64_t bytes) {
  check_bytes(name, bytes, static_cast<std::int64_t>(from.bytes.size()));
  if (bytes > 0) std::memcpy(to, from.bytes.data(), from.bytes.size());
}

TensorView view_of(const Type& type, const std::string& name, const void* data,
                   std::int64_t bytes) {
  check_bytes(name, bytes, type.bytes());
  return {type.dtype,
          type.shape,
          {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)}};
}

RunSpec spec_of(const StepSession& session, const std::shared_ptr<const CapturedModel>& module) {
  RunSpec out = run_of_words(session.options().words, module);
  out.parallel.ranks = session.ranks();
  return out;
}

}  // namespace

StepRun::StepRun(StepSession& session, std::shared_ptr<const CapturedModel> module,
                 tracestep_kind kind)
    : session_(session),
      module_(std::move(module)),
      spec_(spec_of(session, module_)),
      program_(program_of_kind(kind, spec_, session.options(), session.store())) {
  const DeviceTraits& traits = session_.device().traits();
  peak_bytes_ = predicted_peak_bytes(spec_.executor, program_, traits);
  if (has_arena(spec_.executor)) arena_bytes_ = plan_step(program_, traits).arena_bytes;
  list_tensors();
}

void StepRun::add_tensor(const std::string& name, const Type& type, tracestep_role role,
                         const BlockPart& part) {
  const auto size = static_cast<std::int64_t>(size_of(type.dtype));
  tracestep_tensor out{.name = texts_.emplace_back(name).c_str(),
                       .dtype = name_of(type.dtype).data(),
                       .role = role,
                       .rank = type.shape.rank(),
                       .shape = {},
                       .bytes = type.bytes(),
                       .block = texts_.emplace_back(part.block).c_str(),
                       .offset = part.offset * size};
  for (int i = 0; i < type.shape.rank(); ++i) out.shape[i] = type.shape[i];
  tensors_.push_back(out);
}

void StepRun::list_tensors() {
  for (const ValueId id : program_.leaves) {
    const Value& leaf = program_.value(id);
    add_tensor(leaf.name, leaf.type, role_of(leaf.leaf), leaf.part);
  }
  if (arena_bytes_ > 0) {
    add_tensor(std::string(kArenaLabel), {DType::kU8, {arena_bytes_}}, TRACESTEP_ARENA);
  }
  for (const Output& output : program_.outputs) {
    add_tensor(output.name, program_.type(output.value), TRACESTEP_OUT);
  }
}

tracestep_bytes StepRun::size() const {
  tracestep_bytes out{.peak = peak_bytes_, .lent = 0, .shared = 0, .own = 0};
  const LentMemory& lent = session_.lent();
  for (const tracestep_tensor& tensor : tensors_) {
    if (tensor.role == TRACESTEP_OUT) continue;
    const bool is_of_store = tensor.role != TRACESTEP_IN && tensor.role != TRACESTEP_ARENA;
    if (lent.find(tensor.name) != nullptr) {
      out.lent += tensor.bytes;
    } else if (is_of_store && session_.store().find(tensor.name) != nullptr) {
      out.shared += tensor.bytes;
    }
  }
  out.own = out.peak - out.lent - out.shared;
  return out;
}

const tracestep_tensor* StepRun::tensor(std::int64_t index) const {
  const bool is_there = index >= 0 && index < std::ssize(tensors_);
  return is_there ? &tensors_[static_cast<std::size_t>(index)] : nullptr;
}

std::int64_t HeldByRuns::bytes() const {
  std::int64_t out = kept_bytes(leaves) + input_bytes(leaves) + most_temporary_bytes;
  for (const auto& [arena, bytes] : arena_bytes) out += bytes;
  return out;
}

void StepRun::add_to(HeldByRuns& held) const {
  std::vector<Value> leaves = leaves_of(program_);
  const std::int64_t temporary_bytes = peak_bytes_ - kept_bytes(leaves) - input_bytes(leaves);
  std::ranges::move(leaves, std::back_inserter(held.leaves));
  std::int64_t& bytes =
      has_arena(spec_.executor) ? held.arena_bytes[arena_] : held.most_temporary_bytes;
  bytes = std::max(bytes, temporary_bytes);
}

void StepRun::start() {
  if (executor_ != nullptr) fail_usage("start", "the run has been started");
  Device& device = session_.device();
  const LentMemory::Place* const arena = session_.lent().find(kArenaLabel);
  arena_ = arena != nullptr ? arena->data : this;
  const std::int64_t limit = limit_in_bytes(spec_.place);
  const std::int64_t peak_bytes = session_.peak_bytes_with(*this);
  if (limit > 0 && peak_bytes > limit) {  // of lent memory, too, which no allocator counts
    throw DoesNotFit(device.name(), peak_bytes, limit, !device.traits().has_own_memory(),
                     Bound::kLimit);
  }
  const Wanted wanted{&device, size().own, 0};
  check_room(spec_.place, std::span(&wanted, 1), session_.processes());
  const bool has_scale = session_.store().find(kLossScale) != nullptr;
  RunSpec run = spec_;
  run.place.memory_limit_bytes = kAnyMemory;  // looked at above, without what is lent
  executor_ = session_.stores().executor(run, program_);
  if (!has_scale) initialize_states(session_.store());
  observe_early();
}

void StepRun::observe_early() {
  std::vector<std::string> early;
  for (const char* name : {kLossOutput, "grad_norm"}) {
    if (program_.find_output(name) != kNoValue) early.emplace_back(name);
  }
  executor_->observe({.early = early});
}

Executor& StepRun::executor() {
  if (executor_ == nullptr) fail_usage("start", "the run has not been started");
  return *executor_;
}

void StepRun::load() {
  executor();
  if (module_ == nullptr) fail_usage("load", "an update has no folder");
  start_captured(WholeTensors(session_.store()), spec_);
}

void StepRun::save(const std::string& path) {
  executor();
  if (module_ == nullptr) fail_usage("save", "an update has no folder");
  const auto broken = save_captured(WholeTensors(session_.store()), *module_, path);
  if (broken) {
    throw Error(ErrorCode::kNotFinite, "save", "a weight is infinite or NaN, and nothing is saved");
  }
}

void StepRun::set(const std::string& name, const void* data, std::int64_t bytes) {
  Executor& executor = this->executor();
  const ValueId id = program_.find_leaf(name);
  if (id == kNoValue) fail_usage("name", "the run has no tensor {}", name);
  const TensorView view = view_of(program_.type(id), name, data, bytes);
  if (program_.value(id).leaf == LeafKind::kInput) {
    executor.set_input(name, view);
  } else {
    session_.store().set(name, view);
  }
}

void StepRun::get(const std::string& name, void* data, std::int64_t bytes) {
  Executor& executor = this->executor();
  if (program_.find_output(name) != kNoValue) {
    if (!has_run_) fail_usage("name", "{} is there when the run has gone", name);
    return copy_out(executor.output(name), name, data, bytes);
  }
  const ValueId id = program_.find_leaf(name);
  if (id == kNoValue) fail_usage("name", "the run has no tensor {}", name);
  if (program_.value(id).leaf != LeafKind::kInput) {
    return copy_out(session_.store().get(name), name, data, bytes);
  }
  copy_out(executor.value(id).value(), name, data, bytes);
}

void StepRun::set_rate(std::int64_t group, double rate, std::int64_t step) {
  Executor& executor = this->executor();
  const StepOptions& options = session_.options();
  const auto groups = std::max<std::int64_t>(1, std::ssize(options.groups));
  if (group < 0 || group >= groups) fail_usage("group", "{}; there are {}", group, groups);
  const auto k = static_cast<std::size_t>(group);
  const std::string lr = rate_name("lr", k), size = rate_name("step_size", k);
  if (program_.find_leaf(lr) == kNoValue) fail_usage("rate", "the run updates nothing");
  executor.set_scalar(lr, rate);
  const ValueId id = program_.find_leaf(size);
  if (id == kNoValue) return;
  if (step < 1) fail_usage("step", "{}; steps are counted from 1", step);
  const UpdateGroup numbers = options.groups.empty() ? UpdateGroup() : options.groups[k];
  const double pair[] = {step_size(rate, numbers.beta1, numbers.beta2, step),
                         std::sqrt(1.0 - std::pow(numbers.beta2, static_cast<double>(step)))};
  const HostTensor wide = HostTensor::of<double>(DType::kF64, {2}, pair);
  const DType dtype = program_.type(id).dtype;
  executor.set_input(size, dtype == DType::kF64 ? wide : as_dtype(wide, dtype));
}

void StepRun::go(void* stream) {
  Executor& executor = this->executor();
  Device& device = session_.device();
  session_.mend_copies();
  begin_behind_stream(device, stream);
  has_run_ = false;
  try {
    executor.run();
  } catch (...) {
    session_.suspect_copies();
    throw;
  }
  has_run_ = true;
  let_stream_wait(device, stream);
}

StepSession::StepSession(StepOptions options) : process_(::getpid()), options_(std::move(options)) {
  const RunSpec run = run_of_words(options_.words, nullptr);
  const OnDevice here(run.place.device);
  device_ = make_session_device(run, lent_);
  group_ = std::make_unique<RankDevices>(*device_);
  stores_ = std::make_unique<RankStores>(*group_);
}

bool StepSession::is_of_parent() const {
  return ::getpid() != process_;
}

void StepSession::join(const tracestep_ranks& ranks) {
  if (processes_ != nullptr || !runs_.empty()) {
    fail_usage("join", "ranks join once, and before the first plan");
  }
  processes_ = processes_of(ranks);
  std::vector<std::unique_ptr<Communicator>> own;
  try {
    own.push_back(connected(*processes_, ranks, *device_));
  } catch (...) {
    processes_.reset();
    throw;
  }
  stores_.reset();
  group_ = std::make_unique<RankDevices>(*device_, std::vector<std::unique_ptr<Device>>(),
                                         std::move(own));
  stores_ = std::make_unique<RankStores>(*group_);
}

void StepSession::close() {
  runs_.clear();
  stores_.reset();
  group_.reset();
  processes_.reset();
  device_.reset();
}

StepRun* StepSession::plan(const char* program, int number) {
  if (number < TRACESTEP_FORWARD || number > TRACESTEP_UPDATE) {
    fail_usage("kind", "{} is none", number);
  }
  const auto kind = static_cast<tracestep_kind>(number);
  std::shared_ptr<const CapturedModel> module;
  if (kind != TRACESTEP_UPDATE) {
    if (program == nullptr) fail_usage("program", "a folder or a file is needed");
    module = program_at(program);
  }
  return runs_.emplace_back(std::make_unique<StepRun>(*this, std::move(module), kind)).get();
}

void StepSession::end(StepRun* run) {
  std::erase_if(runs_, [&](const auto& own) { return own.get() == run; });
}

std::int64_t StepSession::peak_bytes_with(const StepRun& next) const {
  HeldByRuns held;
  next.add_to(held);
  for (const auto& run : runs_) {
    if (run->has_started()) run->add_to(held);
  }
  return held.bytes();
}

void StepSession::lend(const std::string& name, void* data, std::int64_t bytes) {
  if (bytes < 0) fail_usage("lend", "{} with {} bytes", name, bytes);
  lent_.lend(name, data, bytes);
}

void StepSession::mend_copies() {
  if (!has_suspect_copies_) return;
  for (const std::string& name : store().names(LeafKind::kParameter)) refresh(name);
  has_suspect_copies_ = false;
}

void StepSession::refresh(const std::string& name) {
  store().set(name, store().get(name));
}

}  // namespace tracestep::capi
