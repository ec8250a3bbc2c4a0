#include "exec/eager.h"

#include <cstring>

#include "analysis/cost.h"
#include "analysis/memory_map.h"

namespace tracestep {
namespace {

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

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

EagerExecutor::EagerExecutor(Store& store, Program program)
    : store_(store),
      device_(store.device()),
      program_(std::move(program)),
      storage_(plan_storage(program_)) {
  predicted_peak_bytes_ = tracestep::predicted_peak_bytes(program_, storage_, device_.traits());
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    if (storage_.runs[i]) launches_.push_back(make_launch(static_cast<NodeId>(i)));
  }
  buffers_.assign(storage_.buffers.size(), nullptr);
  if (RangeSink* sink = device_.ranges()) ranges_ = std::make_unique<StepRanges>(*sink, program_);
  marks_ = device_.make_marks(2);
  allocate_leaves();
}

EagerExecutor::~EagerExecutor() {
  free_temporaries();
  for (ValueId id : program_.leaves) {
    if (program_.value(id).leaf != LeafKind::kInput) continue;
    device_.allocator().free(buffers_[at(storage_.buffer_of[at(id)])]);
  }
}

EagerExecutor::Slot EagerExecutor::slot(ValueId id) const {
  const Value& v = program_.value(id);
  Slot out;
  out.buffer = storage_.buffer_of[at(id)];
  out.offset_bytes = v.layout.offset * static_cast<std::int64_t>(size_of(v.type.dtype));
  out.ref = {nullptr, v.type.dtype, v.type.shape, v.layout.strides};
  return out;
}

EagerExecutor::Launch EagerExecutor::make_launch(NodeId id) const {
  const Node& node = program_.node(id);
  Launch out;
  out.node = id;
  out.kernel = device_.find_kernel(*node.op);
  if (out.kernel == nullptr) {
    fail_usage(node.op->name, "has no kernel on {}{}", device_.name(),
               node.op->kernel_class == KernelClass::kCollective ? "; it needs a group of processes"
                                                                 : "; give it a decomposition");
  }
  for (const auto* list : {&node.inputs, &node.outputs}) {
    for (ValueId v : *list) {
      const DType dtype = program_.type(v).dtype;
      if (!device_.supports(dtype)) {
        fail_usage(node.op->name, "{} is not supported on {}", name_of(dtype), device_.name());
      }
    }
  }
  for (ValueId v : node.inputs) out.inputs.push_back(slot(v));
  for (ValueId v : node.outputs) out.outputs.push_back(slot(v));
  out.workspace_bytes = workspace_bytes(program_, node, device_.traits());
  return out;
}

void EagerExecutor::allocate_leaves() {
  store_.bind(program_);
  try {
    for (ValueId id : program_.leaves) {
      const Value& leaf = program_.value(id);
      void*& data = buffers_[at(storage_.buffer_of[at(id)])];
      data = leaf.leaf == LeafKind::kInput
                 ? device_.allocator().allocate(leaf.type.bytes(),
                                                {Category::kInput, kWholeStep, leaf.name})
                 : store_.at(leaf.name).data;
    }
  } catch (...) {
    for (ValueId id : program_.leaves) {
      if (program_.value(id).leaf != LeafKind::kInput) continue;
      device_.allocator().free(buffers_[at(storage_.buffer_of[at(id)])]);
    }
    throw;
  }
}

void EagerExecutor::set_input(std::string_view name, const TensorView& value) {
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
  device_.copy_in(buffers_[at(storage_.buffer_of[at(id)])], value.bytes.data(), type.bytes());
}

void EagerExecutor::run(Recorder* recorder) {
  release_outputs();
  marks_->set(kFirst);
  try {
    issue(recorder != nullptr && recorder->records_spans() ? recorder : nullptr);
  } catch (...) {
    device_.release();
    if (ranges_ != nullptr) ranges_->leave();
    free_temporaries();
    throw;
  }
  if (ranges_ != nullptr) ranges_->leave();
  marks_->set(kLast);
}

// With a recorder, the device is held while a group of launches is issued, so that the marks around
// them measure the device alone.
void EagerExecutor::issue(Recorder* recorder) {
  if (recorder == nullptr) {
    if (!pauses_.empty()) return issue_with_pauses();
    for (Launch& launch : launches_) run_one(launch, nullptr, 0);
    return;
  }
  constexpr std::size_t kGroup = 64;
  if (span_marks_ == nullptr) span_marks_ = device_.make_marks(2 * launches_.size());
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    if (i % kGroup == 0) device_.hold();
    run_one(launches_[i], span_marks_.get(), 2 * i);
    if (i % kGroup == kGroup - 1) device_.release();
  }
  device_.release();
  if (launches_.empty()) return;
  const std::int64_t overhead = device_.mark_overhead_ns();
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const std::int64_t begin = span_marks_->between_ns(0, 2 * i);
    const std::int64_t end = span_marks_->between_ns(0, 2 * i + 1);
    recorder->add(Span{launches_[i].node, begin, std::max(begin, end - overhead)});
  }
}

void EagerExecutor::issue_with_pauses() {
  std::size_t next = 0;
  for (Launch& launch : launches_) {
    while (next < pauses_.size() && launch.node >= pauses_[next].node) pauses_[next++].act();
    run_one(launch, nullptr, 0);
  }
  while (next < pauses_.size()) pauses_[next++].act();
}

void EagerExecutor::run_one(Launch& launch, Marks* marks, std::size_t mark) {
  if (ranges_ != nullptr) [[unlikely]]
    ranges_->enter(launch.node);
  Allocator& allocator = device_.allocator();
  for (int b : storage_.allocated_at[at(launch.node)]) {
    const Buffer& buffer = storage_.buffers[at(b)];
    buffers_[at(b)] = allocator.allocate(buffer.bytes, {buffer.category, launch.node, {}});
  }
  void* workspace = nullptr;
  if (launch.workspace_bytes > 0) {
    workspace = allocator.allocate(launch.workspace_bytes, {Category::kWorkspace, launch.node, {}});
  }
  inputs_.clear();
  outputs_.clear();
  for (Slot& s : launch.inputs) {
    s.ref.data = address(s);
    inputs_.push_back(s.ref);
  }
  for (Slot& s : launch.outputs) {
    s.ref.data = s.buffer < 0 ? nullptr : address(s);
    outputs_.push_back(s.ref);
  }
  if (marks != nullptr) marks->set(mark);
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->enter(launch.node);
  try {
    launch.kernel(
        {program_.node(launch.node),
         inputs_,
         outputs_,
         {static_cast<std::byte*>(workspace), static_cast<std::size_t>(launch.workspace_bytes)},
         device_.stream()});
  } catch (...) {
    if (tracer_ != nullptr) tracer_->leave();
    allocator.free(workspace);
    throw;
  }
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->leave();
  if (marks != nullptr) marks->set(mark + 1);
  allocator.free(workspace);
  for (int b : storage_.freed_after[at(launch.node)]) {
    allocator.free(buffers_[at(b)]);
    buffers_[at(b)] = nullptr;
  }
}

void EagerExecutor::free_temporaries() {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    if (storage_.buffers[b].first == kNoNode || buffers_[b] == nullptr) continue;
    device_.allocator().free(buffers_[b]);
    buffers_[b] = nullptr;
  }
}

void EagerExecutor::release_outputs() {
  free_temporaries();
}

HostTensor EagerExecutor::output(std::string_view name) const {
  const ValueId id = program_.find_output(name);
  if (id == kNoValue) fail_usage("output", "program {} has no output '{}'", program_.name, name);
  std::optional<HostTensor> out = value(id);
  TRACESTEP_CHECK(out.has_value(), "output {} read before a run", name);
  return *std::move(out);
}

std::optional<HostTensor> EagerExecutor::value(ValueId id) const {
  Slot s = slot(id);
  // Views are copied out with their whole base and gathered on the host.
  const Type& base = program_.type(program_.value(id).layout.base);
  const void* buffer = s.buffer < 0 ? nullptr : buffers_[at(s.buffer)];
  if (buffer == nullptr && base.bytes() > 0) return std::nullopt;
  std::vector<std::byte> bytes(static_cast<std::size_t>(base.bytes()));
  device_.synchronize();
  if (!bytes.empty()) device_.copy_out(bytes.data(), buffer, base.bytes());
  HostTensor out = HostTensor::zeros(s.ref.dtype, s.ref.shape);
  s.ref.data = bytes.data() + s.offset_bytes;
  gather(s.ref, out.bytes.data());
  return out;
}

}  // namespace tracestep
