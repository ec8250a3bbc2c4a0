#include "exec/early_results.h"

#include <algorithm>

namespace tracestep {

std::unique_ptr<EarlyResults> EarlyResults::make(Device& device, const Program& program,
                                                 const BufferPlan& plan,
                                                 std::span<const Launch> launches,
                                                 std::span<const std::string> outputs) {
  std::vector<Result> results;
  std::vector<std::size_t> bytes;
  NodeId last_producer = kNoNode;
  for (const std::string& name : outputs) {
    const ValueId id = program.find_output(name);
    if (id == kNoValue) fail_usage("output", "program {} has no output '{}'", program.name, name);
    const Value& value = program.value(id);
    TRACESTEP_CHECK(value.type.shape.empty(), "output {} is {}", name, value.type.str());
    const std::size_t size = size_of(value.type.dtype);
    const std::int64_t offset = plan.layout_of(program, id)->offset;
    results.push_back({.id = id,
                       .type = value.type,
                       .slot = {plan.buffer_of[static_cast<std::size_t>(id)],
                                offset * static_cast<std::int64_t>(size)}});
    bytes.push_back(size);
    last_producer = std::max(last_producer, value.producer);
  }
  const bool has_lanes = std::ranges::any_of(plan.turns, [](const Turn& t) { return t.lane != 0; });
  auto last = std::ranges::find_if(launches.rbegin(), launches.rend(),
                                   [&](const Launch& l) { return l.node <= last_producer; });
  if (has_lanes || last == launches.rend()) return nullptr;
  // A batch is issued at its end.
  while (!plan.turns[static_cast<std::size_t>(last->node)].closes_batch) --last;
  std::unique_ptr<Outbox> outbox = device.make_outbox(bytes);
  if (outbox == nullptr) return nullptr;
  std::vector<bool> is_read_later(plan.buffers.size(), false);
  for (const Launch& launch : launches) {
    if (launch.node <= last->node) continue;
    for (const Slot& slot : launch.inputs) {
      if (slot.buffer >= 0) is_read_later[static_cast<std::size_t>(slot.buffer)] = true;
    }
  }
  return std::unique_ptr<EarlyResults>(new EarlyResults(std::move(results), std::move(outbox),
                                                        last->node, std::move(is_read_later)));
}

EarlyResults::EarlyResults(std::vector<Result> results, std::unique_ptr<Outbox> outbox,
                           NodeId last_node, std::vector<bool> is_read_later)
    : results_(std::move(results)),
      outbox_(std::move(outbox)),
      last_node_(last_node),
      is_read_later_(std::move(is_read_later)) {}

void EarlyResults::send(std::span<void* const> buffers) {
  std::vector<const void*> values;
  for (const Result& result : results_) {
    const void* const data = buffers[static_cast<std::size_t>(result.slot.buffer)];
    values.push_back(static_cast<const std::byte*>(data) + result.slot.offset_bytes);
  }
  outbox_->send(values);
  has_sent_ = true;
}

void EarlyResults::count_replay() {
  outbox_->count_replay();
  has_sent_ = true;
}

std::optional<HostTensor> EarlyResults::read(ValueId id) {
  const auto found = std::ranges::find(results_, id, &Result::id);
  if (!has_sent_ || found == results_.end()) return std::nullopt;
  const std::span<const std::byte> bytes =
      outbox_->read(static_cast<std::size_t>(found - results_.begin()));
  was_read_ = true;
  HostTensor out = HostTensor::zeros(found->type.dtype, found->type.shape);
  std::ranges::copy(bytes, out.bytes.begin());
  return out;
}

bool EarlyResults::is_free(int buffer) const {
  return was_read_ && !is_read_later_[static_cast<std::size_t>(buffer)];
}

}  // namespace tracestep
