#include "exec/compiled.h"

#include <algorithm>
#include <bit>

#include "base/indexed.h"
#include "base/integers.h"
#include "base/log.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep {
namespace {

// Keeps the arena's own allocation out of the recording: the arena is recorded as a segment, and
// the buffers inside it as blocks.
class UnrecordedBlock {
 public:
  explicit UnrecordedBlock(Allocator& allocator)
      : allocator_(allocator), recorder_(allocator.recorder()) {
    allocator_.set_recorder(nullptr);
  }
  ~UnrecordedBlock() { allocator_.set_recorder(recorder_); }
  UnrecordedBlock(const UnrecordedBlock&) = delete;
  UnrecordedBlock& operator=(const UnrecordedBlock&) = delete;

  void record(MemoryAction action, const void* address, std::int64_t bytes) const {
    if (recorder_ == nullptr) return;
    recorder_->add(MemoryEvent{.action = action,
                               .address = std::bit_cast<std::uint64_t>(address),
                               .rounded_bytes = bytes,
                               .time_ns = now_ns(),
                               .live_requested_bytes = allocator_.stats().requested_bytes});
  }

 private:
  Allocator& allocator_;
  Recorder* const recorder_;
};

}  // namespace

CompiledExecutor::CompiledExecutor(Store& store, const Program& program, bool may_capture)
    : CompiledExecutor(store, program, plan_step(program, store.device().traits()), may_capture) {}

CompiledExecutor::CompiledExecutor(Store& store, const Program& program, Plan plan,
                                   bool may_capture)
    : StepExecutor(store, program, plan.buffer_plan),
      plan_(std::move(plan)),
      is_to_capture_(may_capture) {
  allocate_arena();
  if (device().allocator().is_guarded()) {
    guard_ = std::make_unique<PlanGuard>(this->program(), plan_, device(), arena_);
  }
  for (std::size_t b = 0; b < addresses_.size(); ++b) {
    const int place = plan_.place_of_buffer[b];
    if (place >= 0) addresses_[b] = arena_ + plan_.places[at(place)].offset;
  }
  for (Launch& launch : launch_list()) {
    launch.place(addresses_);
    const int place = plan_.workspace_of[at(launch.node)];
    if (place >= 0) launch.call.workspace = arena_ + plan_.places[at(place)].offset;
  }
}

CompiledExecutor::~CompiledExecutor() {
  captured_.reset();  // waits for work that is still running
  const UnrecordedBlock block(device().allocator());
  device().allocator().free(arena_);
  block.record(MemoryAction::kSegmentFree, arena_, plan_.arena_bytes);
}

void CompiledExecutor::allocate_arena() {
  const UnrecordedBlock block(device().allocator());
  arena_ = static_cast<std::byte*>(device().allocator().allocate(
      plan_.arena_bytes, {Category::kTemporary, kWholeStep, "arena"}));
  block.record(MemoryAction::kSegmentAlloc, arena_, plan_.arena_bytes);
}

void CompiledExecutor::run() {
  release_outputs();
  if (guard_ != nullptr) guard_->restart();
  const bool is_plain = !is_observed() && !records_memory() && guard_ == nullptr;
  marks_->set(kFirst);
  if (!is_plain) {
    issue();
  } else if (captured_ != nullptr) {
    replay(*captured_);
  } else {
    launch_all();
  }
  marks_->set(kLast);
  done_ = static_cast<NodeId>(program().nodes.size()) - 1;
  if (is_plain && may_capture_) capture();
}

void CompiledExecutor::observe(RunObserver next) {
  // Captured work serves only the tracer and the early results that it was captured with.
  const bool stays = next.tracer == observer().tracer && next.early == observer().early;
  StepExecutor::observe(std::move(next));
  if (stays) return;
  captured_.reset();
  const ActivityTracer* tracer = observer().tracer;
  may_capture_ = is_to_capture_ && (tracer == nullptr || tracer->follows_captures());
}

std::optional<std::int64_t> CompiledExecutor::kernels() const {
  return captured_ == nullptr ? std::nullopt : std::optional(captured_->kernels());
}

// Captures the launches. The step itself has been issued, so a failure is only a warning.
void CompiledExecutor::capture() {
  may_capture_ = false;
  try {
    captured_ = device().capture([this] { launch_all(); });
  } catch (const Error& e) {
    log_warn("the launches of {} cannot be captured and are issued one by one: {}", program().name,
             e.what());
  }
  // NCCL wants a collective captured by all ranks or by none.
  Communicator* const group = device().group();
  if (group != nullptr && !holds_in_all(group->processes(), captured_ != nullptr)) {
    captured_.reset();
  }
}

void CompiledExecutor::begin(Launch& launch) {
  if (guard_ != nullptr) guard_->before(launch);
  if (!records_memory()) return;
  for (int b : buffer_plan().allocated_at[at(launch.node)]) {
    const int place = plan_.place_of_buffer[at(b)];
    if (place >= 0) record(MemoryAction::kAlloc, plan_.places[at(place)]);
  }
  const int workspace = plan_.workspace_of[at(launch.node)];
  if (workspace >= 0) record(MemoryAction::kAlloc, plan_.places[at(workspace)]);
}

void CompiledExecutor::end(Launch& launch) {
  done_ = std::max(done_, launch.node);
  if (guard_ != nullptr) guard_->after(launch);
  if (!records_memory()) return;
  const int workspace = plan_.workspace_of[at(launch.node)];
  if (workspace >= 0) record(MemoryAction::kFree, plan_.places[at(workspace)]);
  for (int b : buffer_plan().freed_after[at(launch.node)]) {
    const int place = plan_.place_of_buffer[at(b)];
    if (place >= 0) record(MemoryAction::kFree, plan_.places[at(place)]);
  }
}

void CompiledExecutor::release_outputs() {
  for (const Plan::Place& place : plan_.places) {
    const bool is_output = place.buffer >= 0 && is_alive(place.buffer);
    if (is_output && records_memory()) record(MemoryAction::kFree, place);
  }
  done_ = kNoNode;
}

bool CompiledExecutor::records_memory() const {
  const Recorder* recorder = device().allocator().recorder();
  return recorder != nullptr && recorder->records_memory();
}

void CompiledExecutor::record(MemoryAction action, const Plan::Place& place) {
  live_bytes_ += action == MemoryAction::kAlloc ? place.bytes : -place.bytes;
  const AllocatorStats& stats = device().allocator().stats();
  const Category category =
      place.buffer < 0 ? Category::kWorkspace : buffer_plan().buffers[at(place.buffer)].category;
  device().allocator().recorder()->add(
      MemoryEvent{.action = action,
                  .category = category,
                  .node = place.node,
                  .address = std::bit_cast<std::uint64_t>(arena_ + place.offset),
                  .requested_bytes = place.bytes,
                  .rounded_bytes = round_up(place.bytes, kArenaAlignment),
                  .time_ns = now_ns(),
                  .live_requested_bytes = stats.requested_bytes - plan_.arena_bytes + live_bytes_});
}

}  // namespace tracestep
