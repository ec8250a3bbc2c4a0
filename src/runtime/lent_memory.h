// Memory of another owner that is used for leaves by their names: an allocator returns it instead
// of its own, so that a store works in place on tensors of the surrounding program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/allocator.h"

namespace tracestep {

// The label with which a compiled step requests its arena.
inline constexpr std::string_view kArenaLabel = "arena";

class LentMemory {
 public:
  struct Place {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };

  // Lends memory for a name. It remains the caller's and must outlive everything that was made in
  // it. A second call for a name replaces the first for later allocations. Throws Error{kUsage} for
  // a null address.
  void lend(std::string name, void* data, std::int64_t bytes);
  // Returns the memory lent for a name; nullptr: none.
  const Place* find(std::string_view name) const;
  // Returns the place for an allocation of this size; nullopt: nothing was lent for it. Throws
  // Error{kUsage} if the lent memory is smaller, or if the leaves of a block do not lie side by
  // side.
  std::optional<Place> place_of(std::int64_t bytes, const AllocationTag& tag) const;

 private:
  std::map<std::string, Place, std::less<>> places_;
};

// Returns an allocator that returns lent memory for leaves and the arena, and memory of `rest` for
// everything else. Statistics, limit and recorder are those of `rest`; lent memory is not counted.
// `lent` must outlive the allocator. Throws Error{kUsage} also if a place is not aligned to
// block_alignment().
std::unique_ptr<Allocator> with_lent(std::unique_ptr<Allocator> rest, const LentMemory& lent);

// True if the allocator returned this address from lent memory, so that the values there belong to
// the owner.
bool is_lent(const Allocator& allocator, const void* address);

}  // namespace tracestep
