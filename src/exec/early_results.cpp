#include "exec/early_results.h"

#include <algorithm>

namespace tracestep {

std::unique_ptr<EarlyResults> EarlyResults::make(Device& device, const Program& program,
                                                 const BufferPlan& plan,
                                                 std::span<const Launch> launches,
                                                 std::span<const std::string> outputs) {
  if (std::ranges::any_of(plan.turns, [](const Turn& t) { return t.lane != 0; })) return nullptr;
  std::map<NodeId, Letter> letters;
  for (const std::string& name : outputs) {
    const ValueId id = program.find_output(name);
    if (id == kNoValue) fail_usage("output", "program {} has no output '{}'", program.name, name);
    const Value& value = program.value(id);
    TRACESTEP_CHECK(value.type.shape.empty(), "output {} is {}", name, value.type.str());
    auto last = std::ranges::find_if(launches.rbegin(), launches.rend(),
                                     [&](const Launch& l) { return l.node <= value.producer; });
    if (last == launches.rend()) return nullptr;
    // A batch is issued at its end.
    while (!plan.turns[static_cast<std::size_t>(last->node)].closes_batch) --last;
    const std::int64_t offset = plan.layout_of(program, id)->offset;
    letters[last->node].results.push_back(
        {.id = id,
         .type = value.type,
         .slot = {plan.buffer_of[static_cast<std::size_t>(id)],
                  offset * static_cast<std::int64_t>(size_of(value.type.dtype))}});
  }
  for (auto& [node, letter] : letters) {
    std::vector<std::size_t> bytes;
    for (const Result& result : letter.results) bytes.push_back(size_of(result.type.dtype));
    letter.outbox = device.make_outbox(bytes);
    if (letter.outbox == nullptr) return nullptr;
    letter.is_read_later.assign(plan.buffers.size(), false);
    for (const Launch& launch : launches) {
      if (launch.node <= node) continue;
      for (const Slot& slot : launch.inputs) {
        if (slot.buffer >= 0) letter.is_read_later[static_cast<std::size_t>(slot.buffer)] = true;
      }
    }
  }
  return std::unique_ptr<EarlyResults>(new EarlyResults(std::move(letters)));
}

void EarlyResults::send_behind(const Launch& launch, std::span<void* const> buffers) {
  const auto found = letters_.find(launch.node);
  if (found == letters_.end()) return;
  std::vector<const void*> values;
  for (const Result& result : found->second.results) {
    const void* const data = buffers[static_cast<std::size_t>(result.slot.buffer)];
    values.push_back(static_cast<const std::byte*>(data) + result.slot.offset_bytes);
  }
  found->second.outbox->send(values);
  found->second.has_sent = true;
}

void EarlyResults::count_replay() {
  for (auto& [node, letter] : letters_) {
    letter.outbox->count_replay();
    letter.has_sent = true;
  }
}

void EarlyResults::restart() {
  for (auto& [node, letter] : letters_) letter.has_sent = letter.was_read = false;
}

std::optional<HostTensor> EarlyResults::read(ValueId id) {
  for (auto& [node, letter] : letters_) {
    const auto found = std::ranges::find(letter.results, id, &Result::id);
    if (found == letter.results.end() || !letter.has_sent) continue;
    const std::span<const std::byte> bytes =
        letter.outbox->read(static_cast<std::size_t>(found - letter.results.begin()));
    letter.was_read = true;
    HostTensor out = HostTensor::zeros(found->type.dtype, found->type.shape);
    std::ranges::copy(bytes, out.bytes.begin());
    return out;
  }
  return std::nullopt;
}

bool EarlyResults::is_free(int buffer) const {
  return std::ranges::any_of(letters_, [&](const auto& entry) {
    const Letter& letter = entry.second;
    return letter.was_read && !letter.is_read_later[static_cast<std::size_t>(buffer)];
  });
}

}  // namespace tracestep
