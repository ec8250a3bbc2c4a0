#include "lab/memory/totals.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/indexed.h"
#include "lab/memory/tables.h"

namespace tracestep {

CategoryTotals predicted_totals(const MemoryRun& run) {
  std::vector<ByCategory> change(run.program.nodes.size() + 1);
  CategoryTotals out;
  ByCategory live{};
  for (const MappedBuffer& b : run.map.buffers) {
    if (b.first == kNoNode) {
      live[at(b.category)] += b.bytes;
      continue;
    }
    change[at(b.first)][at(b.category)] += b.bytes;
    if (at(b.last) < run.program.nodes.size()) change[at(b.last) + 1][at(b.category)] -= b.bytes;
  }
  out.highest = live;
  for (const ByCategory& delta : change) {
    for (std::size_t c = 0; c < kCategoryCount; ++c) {
      live[c] += delta[c];
      out.highest[c] = std::max(out.highest[c], live[c]);
    }
  }
  out.peak = run.map.by_category;
  return out;
}

CategoryTotals measured_totals(const MemoryRun& run) {
  CategoryTotals out;
  ByCategory live{};
  std::int64_t peak = -1;
  for (std::size_t i = 0; i < run.events.size(); ++i) {
    const MemoryEvent& e = run.events[i];
    const bool is_alloc = e.action == MemoryAction::kAlloc;
    if (!is_alloc && e.action != MemoryAction::kFree) continue;
    live[at(e.category)] += is_alloc ? e.requested_bytes : -e.requested_bytes;
    for (std::size_t c = 0; c < kCategoryCount; ++c) {
      out.highest[c] = std::max(out.highest[c], live[c]);
    }
    if (e.live_requested_bytes > peak && (i + 1 >= run.step_begin)) {
      peak = e.live_requested_bytes;
      out.peak = live;
    }
  }
  return out;
}

std::vector<std::size_t> largest_buffers(const MemoryMap& map, std::size_t count) {
  std::vector<std::size_t> out(map.buffers.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
  std::ranges::stable_sort(out, std::greater{},
                           [&](std::size_t i) { return map.buffers[i].bytes; });
  out.resize(std::min(out.size(), count));
  return out;
}

std::string words_of(Category category) {
  std::string out(name_of(category));
  std::ranges::replace(out, '_', ' ');
  return out;
}

void Holders::add(const MappedBuffer* buffer, std::int64_t bytes) {
  const auto [component, op] = buffer == nullptr
                                   ? std::pair<std::string, std::string>("not predicted", "")
                                   : holder_of(*buffer);
  const Category category = buffer == nullptr ? Category::kTemporary : buffer->category;
  Holder& h = held_[{component, op, category}];
  h.component = component;
  h.op = op;
  h.category = words_of(category);
  ++h.buffers;
  h.bytes += bytes;
  h.largest_bytes = std::max(h.largest_bytes, bytes);
  if (h.reason.empty() && buffer != nullptr) h.reason = buffer->reason;
  ++buffers_;
  bytes_ += bytes;
}

std::vector<Holder> Holders::rows(std::size_t most) const {
  std::vector<Holder> out;
  for (const auto& [key, holder] : held_) out.push_back(holder);
  std::ranges::stable_sort(out, std::greater{}, &Holder::bytes);
  if (out.size() <= most) return out;
  Holder rest{.component = fmt::format("{} more", out.size() - most)};
  for (std::size_t i = most; i < out.size(); ++i) {
    rest.buffers += out[i].buffers;
    rest.bytes += out[i].bytes;
    rest.largest_bytes = std::max(rest.largest_bytes, out[i].largest_bytes);
  }
  out.resize(most);
  out.push_back(std::move(rest));
  return out;
}

}  // namespace tracestep
