// The out-of-memory error, whose message names what holds the memory, by the exact tags of
// allocations.
#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <utility>

#include "base/units.h"

namespace tracestep {
namespace {

constexpr std::size_t kNamedHolders = 3;

struct Holder {
  Category category = Category::kTemporary;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

std::string message_of(std::int64_t requested_bytes, std::int64_t limit_bytes,
                       const std::vector<LiveAllocation>& live) {
  std::int64_t live_bytes = 0;
  for (const LiveAllocation& block : live) live_bytes += block.requested_bytes;
  return fmt::format(
      "out of memory: {} asked for, {} live, {}", format_bytes(requested_bytes),
      format_bytes(live_bytes),
      limit_bytes == 0 ? "and the machine has no more" : "limit " + format_bytes(limit_bytes));
}

// Returns the hint "held by activation 8.20 GiB (210 blocks), parameter …", the largest first.
std::string hint_of(const std::vector<LiveAllocation>& live) {
  if (live.empty()) return "nothing is live: this single request is too large";
  std::array<Holder, kCategoryCount> holders;
  for (Category category : kAll<Category>) {
    holders[static_cast<std::size_t>(category)].category = category;
  }
  for (const LiveAllocation& block : live) {
    Holder& holder = holders[static_cast<std::size_t>(block.tag.category)];
    holder.bytes += block.requested_bytes;
    ++holder.count;
  }
  std::ranges::stable_sort(holders, std::ranges::greater(), &Holder::bytes);
  std::string text = "held by";
  for (std::size_t i = 0; i < kNamedHolders && holders[i].count > 0; ++i) {
    text += fmt::format("{} {} {} ({} block{})", i == 0 ? "" : ",", name_of(holders[i].category),
                        format_bytes(holders[i].bytes), holders[i].count,
                        holders[i].count == 1 ? "" : "s");
  }
  return text;
}

// Keeps a copy of the label for ever: the error may outlive the program, and errors are few.
std::string_view kept_label(std::string_view label) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> labels;
  const std::scoped_lock lock(mutex);
  const auto found = labels.find(label);
  return found != labels.end() ? *found : *labels.emplace(label).first;
}

}  // namespace

OutOfMemory::OutOfMemory(const std::string& device, std::int64_t requested_bytes,
                         std::int64_t limit_bytes, std::vector<LiveAllocation> live, Lack lack)
    : Error(ErrorCode::kOutOfMemory, device, message_of(requested_bytes, limit_bytes, live),
            hint_of(live)),
      requested_bytes_(requested_bytes),
      limit_bytes_(limit_bytes),
      live_(std::move(live)),
      lack_(lack) {
  for (LiveAllocation& block : live_) block.tag.label = kept_label(block.tag.label);
}

}  // namespace tracestep
