// Memory that somebody else owns, for leaves by their names: an allocator that gives it out instead
// of memory of its own. So a store, and whatever else asks for a leaf, works in place on tensors of
// the program around it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/allocator.h"

namespace tracestep {

// The label under which a compiled step asks for its arena.
inline constexpr std::string_view kArenaLabel = "arena";

class LentMemory {
 public:
  struct Place {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };

  // The memory stays the caller's, and must live as long as anything that was made in it. A second
  // call for a name replaces the first one for what is allocated from then on. Error{kUsage} for no
  // address.
  void lend(std::string name, void* data, std::int64_t bytes);
  // nullptr: nothing was lent for the name.
  const Place* find(std::string_view name) const;
  // The place of an allocation of so many bytes; nullopt: nothing was lent for it. Error{kUsage}
  // where what was lent is smaller, or where leaves of one block do not lie side by side.
  std::optional<Place> place_of(std::int64_t bytes, const AllocationTag& tag) const;

 private:
  std::map<std::string, Place, std::less<>> places_;
};

// Gives out lent memory for whole steps' allocations (leaves, the arena), and that of `rest` for
// all other. The statistics, the limit and the recorder are those of `rest`: what is lent is not
// counted. `lent` must outlive the allocator. Error{kUsage} also where a place does not begin at a
// multiple of block_alignment().
std::unique_ptr<Allocator> with_lent(std::unique_ptr<Allocator> rest, const LentMemory& lent);

// True if the allocator gave out this address, and it is lent: its values are the owner's.
bool is_lent(const Allocator& allocator, const void* address);

}  // namespace tracestep
