#include "lab/memory/holders.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/memory/tables.h"
#include "lab/memory/totals.h"

namespace tracestep {

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
