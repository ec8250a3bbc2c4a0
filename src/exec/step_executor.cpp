#include "exec/step_executor.h"

#include <algorithm>
#include <cstring>

#include "base/indexed.h"

namespace tracestep {
namespace {

// Copies a strided host view into row-major order.
void gather(const TensorRef& from, std::byte* to) {
  const std::size_t size = size_of(from.dtype);
  if (from.contiguous()) {
    if (from.count() > 0) std::memcpy(to, from.data, static_cast<std::size_t>(from.count()) * size);
    return;
  }
  const int rank = from.shape.rank();
  Dims index = Dims::filled(rank, 0);
  const auto* base = static_cast<const std::byte*>(from.data);
  for (std::int64_t n = from.count(); n > 0; --n) {
    std::int64_t offset = 0;
    for (int i = 0; i < rank; ++i) offset += index[i] * from.strides[i];
    std::memcpy(to, base + offset * static_cast<std::int64_t>(size), size);
    to += size;
    for (int i = rank - 1; i >= 0 && ++index[i] == from.shape[i]; --i) index[i] = 0;
  }
}

}  // namespace

StepExecutor::StepExecutor(Store& store, Program program, BufferPlan buffer_plan)
    : addresses_(buffer_plan.buffers.size(), nullptr),
      marks_(store.device().make_marks(2)),
      store_(store),
      device_(store.device()),
      program_(std::move(program)),
      buffer_plan_(std::move(buffer_plan)),
      launches_(prepare_launches(program_, buffer_plan_, device_)),
      lanes_(device_, buffer_plan_.turns) {
  TRACESTEP_CHECK(updates_out_of_place(program_, buffer_plan_).empty(),
                  "{}: an update does not end in its leaf", program_.name);
  if (RangeSink* sink = device_.ranges()) ranges_ = std::make_unique<StepRanges>(*sink, program_);
  allocate_leaves();
}

StepExecutor::~StepExecutor() {
  free_inputs();
}

void StepExecutor::allocate_leaves() {
  store_.bind(program_);
  try {
    for (ValueId id : program_.leaves) {
      const Value& leaf = program_.value(id);
      void*& data = addresses_[at(buffer_plan_.buffer_of[at(id)])];
      data = leaf.leaf == LeafKind::kInput
                 ? device_.allocator().allocate(leaf.type.bytes(),
                                                {Category::kInput, kWholeStep, leaf.name})
                 : store_.at(leaf.name).data;
    }
  } catch (...) {
    free_inputs();
    throw;
  }
}

void StepExecutor::free_inputs() {
  for (ValueId id : program_.leaves) {
    if (program_.value(id).leaf != LeafKind::kInput) continue;
    device_.allocator().free(addresses_[at(buffer_plan_.buffer_of[at(id)])]);
  }
}

void StepExecutor::set_input(std::string_view name, const TensorView& value) {
  const ValueId id = program_.find_leaf(name);
  if (id == kNoValue || program_.value(id).leaf != LeafKind::kInput) {
    fail_usage("input", "program {} has no input '{}'", program_.name, name);
  }
  const Type& type = program_.type(id);
  if (type != Type{value.dtype, value.shape}) {
    fail_usage("input", "{} is {}, the new value {}", name, type.str(),
               Type{value.dtype, value.shape}.str());
  }
  if (type.bytes() == 0) return;
  const int buffer = buffer_plan_.buffer_of[at(id)];
  void* const data = addresses_[at(buffer)];
  if (early_ != nullptr && early_->is_free(buffer)) {
    device_.copy_in_beside(data, value.bytes.data(), type.bytes());
  } else {
    device_.copy_in(data, value.bytes.data(), type.bytes());
  }
}

void StepExecutor::observe(RunObserver observer) {
  if (observer.early != observer_.early) {
    early_ = observer.early.empty()
                 ? nullptr
                 : EarlyResults::make(device_, program_, buffer_plan_, launches_, observer.early);
  }
  observer_ = std::move(observer);
}

void StepExecutor::send_behind(const Launch& launch) {
  if (early_ != nullptr) early_->send_behind(launch, addresses_);
}

void StepExecutor::issue() {
  if (early_ != nullptr) early_->restart();
  try {
    if (records_spans()) {
      issue_with_spans();
    } else {
      issue_with_pauses();
    }
  } catch (...) {
    postponed_.clear();
    device_.release();
    lanes_.join();
    if (ranges_ != nullptr) ranges_->leave();
    throw;
  }
  lanes_.join();
  if (ranges_ != nullptr) ranges_->leave();
}

void StepExecutor::launch_all() {
  if (early_ != nullptr) early_->restart();
  try {
    for (const Launch& launch : launches_) {
      launch_one(launch, false);
      send_behind(launch);
    }
    lanes_.join();
  } catch (...) {
    lanes_.forget();
    throw;
  }
}

void StepExecutor::replay(CapturedWork& work) {
  if (early_ != nullptr) early_->restart();
  work.launch();
  if (early_ != nullptr) early_->count_replay();
}

// Issues each launch between two marks. The device is held while a group of launches is issued, so
// that the marks measure the device alone.
void StepExecutor::issue_with_spans() {
  constexpr std::size_t kGroup = 64;
  if (span_marks_ == nullptr) span_marks_ = device_.make_marks(2 * launches_.size());
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    if (i % kGroup == 0) device_.hold();
    issue_one(launches_[i], span_marks_.get(), 2 * i);
    if (i % kGroup == kGroup - 1) device_.release();
  }
  device_.release();
  if (launches_.empty()) return;
  const std::int64_t overhead = device_.mark_overhead_ns();
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const std::int64_t begin = span_marks_->between_ns(0, 2 * i);
    const std::int64_t end = span_marks_->between_ns(0, 2 * i + 1);
    observer_.recorder->add(Span{launches_[i].node, begin, std::max(begin, end - overhead)});
  }
}

void StepExecutor::issue_with_pauses() {
  const std::vector<RunObserver::Pause>& pauses = observer_.pauses;
  std::size_t next = 0;
  for (Launch& launch : launches_) {
    // Results of a batch are there at its end.
    const bool may_pause = buffer_plan_.turns[at(launch.node)].opens_batch;
    while (may_pause && next < pauses.size() && launch.node >= pauses[next].node) {
      issue_postponed(launch.node);
      pauses[next++].act();
    }
    issue_one(launch, nullptr, 0);
    send_behind(launch);
  }
  issue_postponed(static_cast<NodeId>(program_.nodes.size()));
  while (next < pauses.size()) pauses[next++].act();
}

bool StepExecutor::is_postponed(const Launch& launch) const {
  return buffer_plan_.turns[at(launch.node)].lane != 0 && device_.allocator().is_guarded() &&
         !device_.is_asynchronous();
}

void StepExecutor::issue_postponed(NodeId last) {
  while (!postponed_.empty() && postponed_.front()->node <= last) {
    Launch& launch = *postponed_.front();
    postponed_.pop_front();
    launch_one(launch, false);
    end(launch);
  }
}

void StepExecutor::issue_one(Launch& launch, Marks* marks, std::size_t mark) {
  if (ranges_ != nullptr) [[unlikely]]
    ranges_->enter(launch.node);
  const bool postpones = marks == nullptr && is_postponed(launch);
  // Postponed work that no launch waits for is issued with the last node.
  const bool is_last = &launch == &launches_.back();
  if (!postpones)
    issue_postponed(is_last ? launch.node : buffer_plan_.turns[at(launch.node)].last_wait());
  begin(launch);
  if (postpones) {
    postponed_.push_back(&launch);
    return;
  }
  if (marks != nullptr) marks->set(mark);
  // A launch that is checked right after it ends cannot wait for the end of its batch.
  const bool is_checked = device_.allocator().is_guarded() && device_.is_asynchronous();
  launch_one(launch, marks != nullptr || is_checked);
  if (marks != nullptr) marks->set(mark + 1);
  end(launch);
}

void StepExecutor::launch_one(const Launch& launch, bool alone) {
  ActivityTracer* const tracer = observer_.tracer;
  if (tracer != nullptr) [[unlikely]]
    tracer->enter(launch.node);
  try {
    lanes_.launch(launch, alone);
  } catch (...) {
    if (tracer != nullptr) tracer->leave();
    throw;
  }
  if (tracer != nullptr) [[unlikely]]
    tracer->leave();
}

HostTensor StepExecutor::output(std::string_view name) const {
  const ValueId id = program_.find_output(name);
  if (id == kNoValue) fail_usage("output", "program {} has no output '{}'", program_.name, name);
  if (early_ != nullptr) {
    if (std::optional<HostTensor> out = early_->read(id)) return *std::move(out);
  }
  std::optional<HostTensor> out = value(id);
  TRACESTEP_CHECK(out.has_value(), "output {} read before a run", name);
  return *std::move(out);
}

// True if the value lies in a narrow copy of weights only until the update writes the copy again.
bool StepExecutor::is_only_in_between(const Value& v, int buffer) const {
  const Value& owner = program_.value(buffer_plan_.buffers[at(buffer)].owner);
  return owner.leaf != LeafKind::kNone && owner.role == Role::kWeightCast &&
         program_.value(v.layout.base).role != Role::kWeightCast;
}

// Copies memory from the value's first to its last element, and picks its elements on the host.
std::optional<HostTensor> StepExecutor::value(ValueId id) const {
  const Value& v = program_.value(id);
  const std::optional<Layout> layout = buffer_plan_.layout_of(program_, id);
  if (!layout) return std::nullopt;
  const auto size = static_cast<std::int64_t>(size_of(v.type.dtype));
  const std::int64_t extent = extent_of(v.type.shape, layout->strides);
  const int buffer = buffer_plan_.buffer_of[at(id)];
  if ((buffer < 0 || !is_alive(buffer)) && extent > 0) return std::nullopt;
  if (buffer >= 0 && is_only_in_between(v, buffer)) return std::nullopt;
  std::vector<std::byte> bytes(static_cast<std::size_t>(extent * size));
  device_.synchronize();
  if (!bytes.empty()) {
    const auto* first = static_cast<const std::byte*>(addresses_[at(buffer)]);
    device_.copy_out(bytes.data(), first + layout->offset * size, extent * size);
  }
  HostTensor out = HostTensor::zeros(v.type.dtype, v.type.shape);
  gather({bytes.data(), v.type.dtype, v.type.shape, layout->strides}, out.bytes.data());
  return out;
}

}  // namespace tracestep
