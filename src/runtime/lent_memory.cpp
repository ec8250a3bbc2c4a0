#include "runtime/lent_memory.h"

#include <utility>

#include "record/recorder.h"

namespace tracestep {
namespace {

class LendingAllocator final : public Allocator {
 public:
  LendingAllocator(std::unique_ptr<Allocator> rest, const LentMemory& lent)
      : rest_(std::move(rest)), lent_(lent) {}

  void* allocate(std::int64_t bytes, const AllocationTag& tag) override {
    if (const auto place = lent_.place_of(bytes, tag)) {
      const auto alignment = static_cast<std::uintptr_t>(block_alignment());
      if (reinterpret_cast<std::uintptr_t>(place->data) % alignment != 0) {
        fail_usage("lend", "{} begins at no multiple of {} bytes", tag.label, alignment);
      }
      ++given_[place->data];
      return place->data;
    }
    return rest_->allocate(bytes, tag);
  }
  void free(void* address) override {
    const auto found = given_.find(address);
    if (found == given_.end()) return rest_->free(address);
    if (--found->second == 0) given_.erase(found);
  }
  const AllocatorStats& stats() const override { return rest_->stats(); }
  void reset_peak() override { rest_->reset_peak(); }
  void trim() override { rest_->trim(); }
  void set_limit(std::int64_t bytes) override { rest_->set_limit(bytes); }
  std::int64_t limit() const override { return rest_->limit(); }
  void set_recorder(Recorder* recorder) override { rest_->set_recorder(recorder); }
  Recorder* recorder() const override { return rest_->recorder(); }
  std::vector<LiveAllocation> live() const override { return rest_->live(); }
  bool is_guarded() const override { return rest_->is_guarded(); }
  std::int64_t block_alignment() const override { return rest_->block_alignment(); }

  bool has_given(const void* address) const {
    return given_.contains(const_cast<void*>(address));  // NOLINT: a key, never written to
  }

 private:
  const std::unique_ptr<Allocator> rest_;
  const LentMemory& lent_;
  std::map<void*, int> given_;  // lent addresses in use, and by how many
};

}  // namespace

void LentMemory::lend(std::string name, void* data, std::int64_t bytes) {
  if (data == nullptr && bytes > 0) fail_usage("lend", "{} has no address", name);
  places_[std::move(name)] = {data, bytes};
}

const LentMemory::Place* LentMemory::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

std::optional<LentMemory::Place> LentMemory::place_of(std::int64_t bytes,
                                                      const AllocationTag& tag) const {
  if (tag.node != kWholeStep || bytes == 0) return std::nullopt;
  const Place* const first = find(tag.parts.empty() ? tag.label : tag.parts.front().label);
  const auto* next = first == nullptr ? nullptr : static_cast<const std::byte*>(first->data);
  for (const AllocationPart& part : tag.parts) {
    const Place* const place = find(part.label);
    if (place == nullptr && next == nullptr) continue;
    if (place == nullptr || place->data != next || place->bytes < part.bytes) {
      fail_usage("lend", "{} lies in a block with {}: lend all of the block, side by side",
                 part.label, tag.parts.front().label);
    }
    next += part.bytes;
  }
  if (first == nullptr) return std::nullopt;
  if (tag.parts.empty() && first->bytes < bytes) {
    fail_usage("lend", "{} needs {} bytes, and {} were lent", tag.label, bytes, first->bytes);
  }
  return Place{first->data, bytes};
}

std::unique_ptr<Allocator> with_lent(std::unique_ptr<Allocator> rest, const LentMemory& lent) {
  return std::make_unique<LendingAllocator>(std::move(rest), lent);
}

bool is_lent(const Allocator& allocator, const void* address) {
  const auto* lending = dynamic_cast<const LendingAllocator*>(&allocator);
  return lending != nullptr && lending->has_given(address);
}

}  // namespace tracestep
