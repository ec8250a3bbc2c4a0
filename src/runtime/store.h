// Store: named parameter, state and gradient buffers of one device. Programs find them by name, so
// that training, evaluation, generation and accumulation share the same weights. Leaves of one
// block (BlockPart in ir/program.h) lie side by side in one allocation, any other leaf has its own;
// nothing moves once it is there, so the layout does not depend on which program is bound first.
// The memory does: a leaf stays in that of the program which brought it, device's or host's.
#pragma once

#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

class Store {
 public:
  struct Entry {
    Type type;
    LeafKind kind = LeafKind::kParameter;
    Category category = Category::kParameter;
    BlockPart part = {};
    Memory memory = Memory::kDevice;
    void* data = nullptr;
  };

  explicit Store(Device& device) : device_(device) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Allocates the parameters and states of `program` that the store does not hold yet. States are
  // zeroed, except shadows: shadow_name(P) of a parameter P is set to P, rounded, here and by every
  // `set`; programs that update P must update it too. Every `set` zeroes the states that begin with
  // kFoundPrefix: codes of weights are made anew. Throws OutOfMemory, and Error{kUsage} when the
  // store holds a name with another type or place in its block, a program has only some leaves of a
  // block, or it updates P but not its shadow, or parameters but not the codes that the store
  // holds.
  void bind(const Program& program);

  const Entry* find(std::string_view name) const;
  // Returns the entry with this name. Throws Error{kUsage} if there is none.
  const Entry& at(std::string_view name) const;
  std::vector<std::string> names(LeafKind kind) const;  // sorted

  // Copy a tensor's values in or out, and wait until it is done. `set` throws Error{kUsage} if the
  // type differs.
  void set(std::string_view name, const TensorView& value);
  HostTensor get(std::string_view name) const;
  void zero(std::string_view name);

  Device& device() const { return device_; }

 private:
  using Name = std::pair<const std::string, Entry>;
  // Leaves that share an allocation, in the order in which they lie in it.
  struct Block {
    Allocator* allocator = nullptr;
    void* data = nullptr;
    // The leaves; empty: the allocation is that of a single leaf.
    std::vector<AllocationPart> parts;
  };

  // Throws Error{kUsage} when the entry is not what the leaf of `program` says.
  void check_same(const Name& held, const Value& leaf, const Program& program) const;
  // Allocates the memory of these leaves: a single leaf, or all leaves of a block in order.
  void allocate(const std::vector<const Value*>& leaves);
  // Throws Error{kUsage} if the program updates a parameter but not its shadow, or not the codes.
  void check_copies(const Program& program) const;
  void check_codes(const Program& program) const;
  // Marks the codes of the weights as outdated, so that they are made again.
  void forget_codes();
  void copy_in(const Entry& entry, const TensorView& value);
  // Sets the shadow of `parameter`, if it has one, to `value`, rounded.
  void set_shadow(std::string_view parameter, const TensorView& value);

  Device& device_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::list<Block> blocks_;  // A list, because the allocator refers to the parts in it.
};

}  // namespace tracestep
